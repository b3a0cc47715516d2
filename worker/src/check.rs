//! Checking everything that a run stands on: the configuration by itself, and each connection. Every
//! check is bounded, and one that fails keeps none of the others from being made.

mod connections;

use crate::assemble;
use crate::cli::Exit;
use crate::config::secrets::SecretFrom;
use crate::config::{Config, ConfigError, Problem, Secrets};
use crate::output;
use connections::Connections;
use digest_workflows::operation::Period;
use jiff::Timestamp;
use serde::Serialize;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// No check takes longer; all of them are made at once.
const BOUND: Duration = Duration::from_secs(25);

/// What one check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// What was checked.
    pub name: &'static str,
    /// Whether it is as it should be.
    pub ok: bool,
    /// What was found; for a problem, with its cure.
    pub detail: String,
    /// The exit code that it asks for.
    #[serde(skip)]
    exit: Exit,
}

impl Line {
    /// It is as it should be.
    pub(crate) fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, ok: true, detail: detail.into(), exit: Exit::Done }
    }

    /// It is not; `exit` is the exit code that it asks for.
    pub(crate) fn problem(name: &'static str, exit: Exit, detail: impl Into<String>) -> Self {
        Self { name, ok: false, detail: detail.into(), exit }
    }

    /// A problem told by an error, with the exit code that belongs to it.
    fn failed(name: &'static str, error: &anyhow::Error) -> Self {
        Self::problem(name, Exit::of(error), output::paragraph(error))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.ok { "ok" } else { "problem" };
        write!(f, "{mark:<8} {:<18} {}", self.name, self.detail)
    }
}

/// The exit code of all checks: 2 where the configuration is wrong, 1 where something else is.
#[must_use]
pub fn exit(lines: &[Line]) -> Exit {
    let any = |exit| lines.iter().any(|line| line.exit == exit);
    if any(Exit::Usage) {
        Exit::Usage
    } else if any(Exit::Failed) {
        Exit::Failed
    } else {
        Exit::Done
    }
}

/// Checks everything that the file at `path` configures; at most half a minute.
pub async fn everything(path: &Path) -> Vec<Line> {
    let (secrets, secrets_line) = match Secrets::from_env() {
        Ok(secrets) => {
            let line = listed(&secrets);
            (secrets, line)
        }
        Err(error) => (Secrets::default(), Line::failed("secrets", &error.into())),
    };
    let config = match Config::load(path) {
        Ok(config) => config,
        // Without a configuration there is nothing to connect to.
        Err(error) => return vec![Line::failed("configuration", &error.into()), secrets_line],
    };
    let mut lines = vec![configuration(&config, &secrets), secrets_line, calendar(&config)];
    let connections = Connections { config: &config, secrets: &secrets };
    let (source, ledger_and_engine, provider, http, webhooks) = tokio::join!(
        connections.source_and_templates(),
        connections.ledger_and_engine(),
        connections.provider(),
        connections.http(),
        connections.webhooks(),
    );
    lines.extend(source);
    lines.extend(ledger_and_engine);
    lines.push(provider);
    lines.push(http);
    lines.extend(webhooks);
    lines
}

/// Whether each secret is set, by name.
fn listed(secrets: &Secrets) -> Line {
    let mut set = Vec::new();
    let mut unset = Vec::new();
    for secret in secrets.listing() {
        match &secret.from {
            Some(SecretFrom::Variable) => set.push(secret.variable.to_owned()),
            Some(SecretFrom::File(path)) => {
                set.push(format!("{} (from {})", secret.variable, path.display()));
            }
            None => unset.push(secret.variable),
        }
    }
    let set = if set.is_empty() { "none".to_owned() } else { set.join(", ") };
    Line::ok("secrets", format!("set: {set}; not set: {}", unset.join(", ")))
}

/// The problem of a key, in which the calendar's are told apart: they have a line of their own.
fn is_of_calendar(problem: &Problem) -> bool {
    problem.key == "campaign.cron"
}

fn configuration(config: &Config, secrets: &Secrets) -> Line {
    const NAME: &str = "configuration";
    if let Err(ConfigError::Invalid { path, mut problems }) =
        config.check(secrets, Timestamp::now())
    {
        problems.retain(|problem| !is_of_calendar(problem));
        if !problems.is_empty() {
            return Line::failed(NAME, &ConfigError::Invalid { path, problems }.into());
        }
    }
    // A worker that cannot listen for its provider does not start.
    if let Err(error) = assemble::webhook(config, secrets) {
        return Line::problem(NAME, Exit::Usage, output::paragraph(&error));
    }
    Line::ok(NAME, format!("{}, campaign {:?}", config.file.display(), config.campaign.name))
}

fn calendar(config: &Config) -> Line {
    const NAME: &str = "calendar";
    let now = Timestamp::now();
    let calendar = match config.calendar().and_then(|c| c.check(now).map(|()| c)) {
        Ok(calendar) => calendar,
        Err(error) => return Line::failed(NAME, &error.into()),
    };
    let next = calendar.next_after(now).map_or_else(String::new, |tick| {
        let period = Period::of(tick, calendar.zone());
        let local = tick.to_zoned(calendar.zone().clone());
        format!("; the next tick is {} of {period}", local.strftime("%Y-%m-%d %H:%M %Z"))
    });
    Line::ok(NAME, format!("{:?} in {}{next}", calendar.cron(), calendar.timezone()))
}

/// Bounds a group of checks; `late` is what one that is not finished in time says.
async fn bounded<T>(checks: impl Future<Output = T>, late: impl FnOnce(String) -> T) -> T {
    match tokio::time::timeout(BOUND, checks).await {
        Ok(lines) => lines,
        Err(_) => late(format!(
            "no answer within {} s; check the network between this machine and that one, and its \
             load",
            BOUND.as_secs()
        )),
    }
}
