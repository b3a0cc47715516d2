//! Arguments of the commands that set up and run.

use super::values::{private, words};
use crate::config::duration;
use clap::{Args, Subcommand};
use digest_activities::message::Redacted;
use digest_workflows::operation::Period;
use jiff::SignedDuration;
use std::path::PathBuf;

/// Try everything without setting anything up: engine, ledger and a provider with faults
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  digestd demo --customers 200 --exit")]
pub struct DemoArgs {
    /// How many customers get a message
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub customers: u32,
    /// End after the run's report instead of staying up for a look around
    #[arg(long)]
    pub exit: bool,
    /// Print the report as JSON
    #[arg(long, requires = "exit")]
    pub json: bool,
}

/// Write a configuration with comments, and sample templates
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  digestd init shop")]
pub struct InitArgs {
    /// For a campaign of text messages instead of mails
    #[arg(long)]
    pub sms: bool,
    /// The folder to write into; created if it does not exist. Nothing is overwritten
    #[arg(value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
}

/// Prepare ledger, search attributes and schedule; safe to repeat
#[derive(Debug, Args)]
#[command(
    after_help = "A schedule is created paused; `digestd schedule resume` starts it.\n\nExample:\n  digestd setup"
)]
pub struct SetupArgs {
    /// Print the ledger's tables and grants for a database administrator, and change nothing
    #[arg(long)]
    pub print_sql: bool,
    /// The ledger was restored from a backup, and every worker is stopped: turn every message that
    /// the engine knows to be further along into unknown, then let sending go on
    #[arg(long, conflicts_with = "print_sql")]
    pub after_restore: bool,
}

/// Run the worker and its HTTP interface until SIGTERM, then finish what was begun
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  digestd --config /etc/shop/digestd.toml worker")]
pub struct WorkerArgs {}

/// Look at the schedule, pause or resume it, or make up for a period
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Example:\n  digestd schedule backfill --period 2026-W42"
)]
pub struct ScheduleArgs {
    /// What to do with it.
    #[command(subcommand)]
    pub action: ScheduleAction,
}

/// What to do with the schedule.
#[derive(Debug, Subcommand)]
pub enum ScheduleAction {
    /// Show the schedule and its next ticks
    #[command(after_help = "Example:\n  digestd schedule show --json")]
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Stop it from starting runs; runs under way go on
    #[command(
        after_help = "Example:\n  digestd schedule pause --note \"shop closed until Monday\""
    )]
    Pause {
        /// Why; shown beside the schedule
        #[arg(long, value_name = "TEXT", value_parser = words)]
        note: Option<String>,
    },
    /// Let it start runs again
    #[command(after_help = "Example:\n  digestd schedule resume")]
    Resume {
        /// Why; shown beside the schedule
        #[arg(long, value_name = "TEXT", value_parser = words)]
        note: Option<String>,
    },
    /// Start the run of a period that was missed
    #[command(after_help = "Example:\n  digestd schedule backfill --period 2026-W42")]
    Backfill {
        /// The ISO week, such as 2026-W42
        #[arg(long, value_name = "P")]
        period: Period,
    },
}

/// Start the run of a period, or join the one that exists
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  digestd run --period 2026-W42 --wait")]
pub struct RunArgs {
    /// The ISO week, such as 2026-W42
    #[arg(long, value_name = "P")]
    pub period: Period,
    /// Wait until every message is at rest, then print the report
    #[arg(long)]
    pub wait: bool,
    /// Select and render everything; send and store nothing
    #[arg(long, conflicts_with = "wait")]
    pub dry_run: bool,
    /// Allow a period whose tick is still ahead
    #[arg(long)]
    pub future: bool,
}

/// Send one test message on the real path, to an address of yours; no run counts it
#[derive(Debug, Args)]
#[command(
    after_help = "It has the customer's data and goes to the address given. It may be repeated, removes nothing\nfrom the source, and needs a running worker.\n\nExample:\n  digestd canary --customer 1842 --to me@shop.example\n  digestd canary --customer 1842 --to me@shop.example --force-failures --json"
)]
pub struct CanaryArgs {
    /// The customer whose data it has, by the id that the source has
    #[arg(long, value_name = "ID")]
    pub customer: String,
    /// Where it goes: an address of yours, or a phone number for text messages
    #[arg(long, value_name = "ADDRESS", value_parser = private)]
    pub to: Redacted<String>,
    /// The ISO week that it is rendered for, such as 2026-W42; the one under way if left out
    #[arg(long, value_name = "P")]
    pub period: Option<Period>,
    /// Check everything first, rehearse a transient and a permanent failure beside it, and say
    /// whether the schedule may be enabled
    #[arg(long)]
    pub force_failures: bool,
    /// Wait no longer than this, such as 5m; what is still waiting then is given up. The provider's
    /// time and the delay of a retry decide if left out
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub timeout: Option<SignedDuration>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Print the completions of a shell
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  digestd completions bash > /etc/bash_completion.d/digestd")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// Print the manual page, or write one for each command
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  digestd man /usr/local/share/man/man1\n  digestd man > digestd.1"
)]
pub struct ManArgs {
    /// Write digestd.1 and a page for each command into this folder; created if it does not exist
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
}
