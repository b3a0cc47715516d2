//! Arguments of the commands that only look.

use super::values::key;
use clap::Args;
use digest_workflows::operation::{OperationKey, Period};
use std::path::PathBuf;

/// Validate the configuration and try every connection; send nothing
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  digestd check")]
pub struct CheckArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Render the message of one customer; send and store nothing
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  digestd preview --customer 1842 --out preview")]
pub struct PreviewArgs {
    /// The customer, by the id that the source has
    #[arg(long, value_name = "ID")]
    pub customer: String,
    /// The ISO week, such as 2026-W42; the one under way if left out
    #[arg(long, value_name = "P")]
    pub period: Option<Period>,
    /// Write the message's parts into this folder instead of printing them
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print JSON
    #[arg(long, conflicts_with = "out")]
    pub json: bool,
}

/// Show how far a run is: counts by state, what is missing, what holds it
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  digestd status --period 2026-W42 --json")]
pub struct StatusArgs {
    /// The ISO week, such as 2026-W42; the latest run if left out
    #[arg(long, value_name = "P")]
    pub period: Option<Period>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Show one message from its selection to its end, or all periods of a customer
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Example:\n  digestd show digest:2026-W42:customer-1842\n  digestd show --customer customer-1842"
)]
pub struct ShowArgs {
    /// The operation key, or the Message-ID of its mail
    #[arg(value_name = "KEY", value_parser = key, required_unless_present = "customer")]
    pub key: Option<OperationKey>,
    /// Every period of this customer, and canaries with their data
    #[arg(long, value_name = "ID", conflicts_with = "key")]
    pub customer: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// List the messages whose delivery is unknown and waits for a human
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  digestd unknown --period 2026-W42")]
pub struct UnknownArgs {
    /// Which ones.
    #[command(flatten)]
    pub list: ListArgs,
}

/// List the messages that ended without being sent
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  digestd dead-letters --period 2026-W42 --json")]
pub struct DeadLettersArgs {
    /// Which ones.
    #[command(flatten)]
    pub list: ListArgs,
}

/// Which operations are listed.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// The ISO week, such as 2026-W42; every period if left out
    #[arg(long, value_name = "P")]
    pub period: Option<Period>,
    /// Go on after this key, as the JSON's "next" says
    #[arg(long, value_name = "KEY", value_parser = key)]
    pub after: Option<OperationKey>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Compare selection, ledger, engine and provider key by key; name every difference
#[derive(Debug, Args)]
#[command(
    after_help = "It changes nothing, and may run while the run does. Exit code 1 means that something differs.\n\nExample:\n  digestd audit --period 2026-W42\n  digestd audit --period 2026-W42 --no-provider --json"
)]
pub struct AuditArgs {
    /// The ISO week, such as 2026-W42
    #[arg(long, value_name = "P")]
    pub period: Period,
    /// Do not ask the provider
    #[arg(long)]
    pub no_provider: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Show the rules in force for failures and for unknown deliveries
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  digestd policy --json")]
pub struct PolicyArgs {
    /// Print JSON, with durations in seconds
    #[arg(long)]
    pub json: bool,
}
