//! The configuration: one file, `digestd.toml`, is one campaign.
//!
//! Every key is typed, has a default unless it cannot have one, and is checked when the file is
//! loaded; an unknown key is an error. All problems of a file are reported at once, each with its
//! line. Secrets are not in the file: [`Secrets`] reads them from the environment.

mod check;
mod database;
pub mod duration;
mod error;
mod reader;
pub mod secrets;
mod sending;
mod tables;

pub use database::{Database, DatabaseKind};
pub use error::{ConfigError, Problem};
pub use secrets::{SecretError, Secrets};
pub use sending::{
    Dispatch, Hold, IN_FLIGHT_MAX, PAGE_SIZE_MAX, Provider, ProviderKind, ProviderOwn, Replay,
    Retention, Retry, Worker,
};
pub use tables::{Campaign, Channel, Engine, Http, Ledger, Message, Source, Webhooks, WhenEmpty};

use digest_workflows::operation::policy::{Timeouts, UnknownRules};
use digest_workflows::operation::{Breakers, Rules};
use reader::{Lines, Reader};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use toml::de::DeTable;

/// A configuration that was loaded and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The file it was loaded from; relative paths in it are taken from its folder.
    pub file: PathBuf,
    /// Where Temporal is.
    pub engine: Engine,
    /// Where digestd remembers what it sent.
    pub ledger: Ledger,
    /// The user's customers, rows and consent.
    pub source: Source,
    /// What is sent, and when.
    pub campaign: Campaign,
    /// What a message is rendered from.
    pub message: Message,
    /// Who delivers.
    pub provider: Provider,
    /// The table `[sandbox]` as it is written, for the sandbox provider to read.
    pub sandbox: toml::Table,
    /// How fast operations are started.
    pub dispatch: Dispatch,
    /// One worker process.
    pub worker: Worker,
    /// How failures are retried.
    pub retry: Retry,
    /// How unknown deliveries are pursued.
    pub unknown: UnknownRules,
    /// When the breaker holds a run.
    pub hold: Hold,
    /// How much one command may decide.
    pub replay: Replay,
    /// What is kept, and for how long.
    pub retention: Retention,
    /// Health checks and metrics.
    pub http: Http,
    /// Where providers may tell what became of messages.
    pub webhooks: Webhooks,
    lines: Lines,
}

impl Config {
    /// Loads the file at `path`.
    ///
    /// # Errors
    /// [`ConfigError`] when it is missing, cannot be read, or has anything wrong in it.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| match source.kind() {
            ErrorKind::NotFound => {
                ConfigError::Missing { path: std::path::absolute(path).unwrap_or(path.to_owned()) }
            }
            _ => ConfigError::Unreadable { path: path.to_owned(), source },
        })?;
        Self::parse(&text, path)
    }

    /// Reads `text` as if it were the file at `path`.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] with every problem that was found.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let reader = Reader::new(text);
        let invalid = |problems| Err(ConfigError::Invalid { path: path.to_owned(), problems });
        let document = match DeTable::parse(text) {
            Ok(document) => document,
            Err(error) => return invalid(vec![reader.syntax(&error)]),
        };
        let mut config = Self::read(&reader, document.get_ref(), path);
        if reader.is_clean() {
            check::together(&config, &reader);
        }
        let (lines, problems) = reader.finish();
        if !problems.is_empty() {
            return invalid(problems);
        }
        config.lines = lines;
        Ok(config)
    }

    fn read<'a>(reader: &'a Reader<'a>, document: &'a DeTable<'a>, path: &Path) -> Self {
        let folder = folder(path);
        let mut root = reader.root(document);
        let source = root.with("source", |table| Source::read(table, folder));
        let campaign = root.with("campaign", Campaign::read);
        let has_rows = source.rows.is_some();
        let config = Self {
            file: path.to_owned(),
            engine: root.with("engine", Engine::read),
            ledger: root.with("ledger", |table| Ledger::read(table, folder)),
            message: root
                .with("message", |table| Message::read(table, folder, campaign.channel, has_rows)),
            source,
            campaign,
            provider: root.with("provider", |table| Provider::read(table, folder)),
            sandbox: root.table("sandbox").raw(),
            dispatch: root.with("dispatch", Dispatch::read),
            worker: root.with("worker", Worker::read),
            retry: root.with("retry", Retry::read),
            unknown: root.with("unknown", sending::read_unknown),
            hold: root.with("hold", Hold::read),
            replay: root.with("replay", Replay::read),
            retention: root.with("retention", Retention::read),
            http: root.with("http", Http::read),
            webhooks: root.with("webhooks", Webhooks::read),
            lines: Lines::new(),
        };
        root.finish();
        config
    }

    /// The rules that operations are driven by.
    #[must_use]
    pub fn rules(&self) -> Rules {
        Rules {
            retry: self.retry.classes.clone(),
            cleanup: self.retry.cleanup,
            unknown: self.unknown,
            timeouts: Timeouts {
                timeout: self.provider.timeout,
                lease: self.provider.lease,
                settle: self.provider.settle,
            },
            breakers: Breakers {
                identical_schema_failures: self.hold.identical_schema_failures,
                unknowns_in_a_row: self.hold.unknowns_in_a_row,
            },
        }
    }
}

/// The folder that relative paths in the file at `path` are taken from.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

#[cfg(test)]
mod tests;
