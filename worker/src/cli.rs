//! The command line: every command with its arguments, help and an example.
//!
//! The arguments of each command are a type of their own, in [`read`] (what looks), [`operate`]
//! (what runs) and [`decide`] (what a person decides). What a command does is in `commands/`.

pub mod decide;
pub mod operate;
pub mod read;
pub mod values;

pub use values::{Decision, key};

use crate::config::{ConfigError, SecretError};
use clap::{Parser, Subcommand};
use digest_activities::calendar::CalendarError;
use digest_activities::message::TemplateError;
use digest_workflows::operation::{KeyError, PeriodError};
use std::path::PathBuf;
use std::process::ExitCode;

/// Sends every customer exactly one message per period, on top of Temporal.
#[derive(Debug, Parser)]
#[command(
    name = "digestd",
    version = env!("DIGESTD_VERSION"),
    propagate_version = false,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = "Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 nothing to do because it already\nhappened, 4 done but operations need a human.\n\nExample:\n  digestd init shop"
)]
pub struct Cli {
    /// The configuration file; paths in it are relative to it
    #[arg(long, global = true, value_name = "FILE", default_value = "digestd.toml")]
    pub config: PathBuf,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
#[expect(
    missing_docs,
    reason = "the help of a command is the documentation of its arguments' type"
)]
pub enum Command {
    Demo(operate::DemoArgs),
    Init(operate::InitArgs),
    Check(read::CheckArgs),
    Setup(operate::SetupArgs),
    Preview(read::PreviewArgs),
    Worker(operate::WorkerArgs),
    Schedule(operate::ScheduleArgs),
    Run(operate::RunArgs),
    Canary(operate::CanaryArgs),
    Status(read::StatusArgs),
    Show(read::ShowArgs),
    Audit(read::AuditArgs),
    Hold(decide::HoldArgs),
    Resume(decide::ResumeArgs),
    Cancel(decide::CancelArgs),
    Unknown(read::UnknownArgs),
    Resolve(Box<decide::ResolveArgs>),
    DeadLetters(read::DeadLettersArgs),
    Replay(Box<decide::ReplayArgs>),
    Cleanup(decide::CleanupArgs),
    Forget(decide::ForgetArgs),
    Suppressions(decide::SuppressionsArgs),
    Policy(read::PolicyArgs),
    Completions(operate::CompletionsArgs),
    Man(operate::ManArgs),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// Failed.
    Failed = 1,
    /// The command line or the configuration is wrong; nothing was begun.
    Usage = 2,
    /// Nothing to do, because it already happened.
    AlreadyHappened = 3,
    /// Done, but operations need a human.
    NeedsHuman = 4,
}

impl Exit {
    /// The exit code of a command that failed with `error`: 2 where the command line, the
    /// configuration or a secret is wrong, else 1.
    #[must_use]
    pub fn of(error: &anyhow::Error) -> Self {
        let usage = error.chain().any(|cause| {
            cause.is::<UsageError>()
                || cause.is::<ConfigError>()
                || cause.is::<SecretError>()
                || cause.is::<TemplateError>()
                || cause.is::<CalendarError>()
                || cause.is::<PeriodError>()
                || cause.is::<KeyError>()
        });
        if usage { Self::Usage } else { Self::Failed }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The command line asks for something that cannot be done as asked. The text says what, and what
/// to do instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

#[cfg(test)]
mod tests;
