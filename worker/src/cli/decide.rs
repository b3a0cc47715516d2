//! Arguments of the commands with which a person decides something. All but `cleanup` are audited.

use super::values::{Decision, key};
use clap::{ArgGroup, Args, Subcommand};
use digest_workflows::operation::{OperationKey, Period, Verdict};
use std::path::PathBuf;

/// Settle messages whose delivery is unknown
#[derive(Debug, Args)]
#[command(
    after_help = "What will be done is shown first, and asked.\n\nExample:\n  digestd resolve digest:2026-W42:customer-1842 --delivered --reason \"found in the provider's log\"\n  digestd resolve --keys-from keys.txt --not-delivered --reason \"provider confirmed the outage\" --yes"
)]
pub struct ResolveArgs {
    /// The operation key, or the Message-ID of its mail
    #[arg(value_name = "KEY", value_parser = key, required_unless_present = "keys_from")]
    pub key: Option<OperationKey>,
    /// A file with keys or Message-IDs, one a line; - reads standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key", "attempt"])]
    pub keys_from: Option<PathBuf>,
    /// What became of it.
    #[command(flatten)]
    pub verdict: VerdictArgs,
    /// The attempt that is meant; refused if a newer one was handed over since
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub attempt: Option<u32>,
    /// Who and why.
    #[command(flatten)]
    pub decision: Decision,
    /// Do it without asking
    #[arg(long)]
    pub yes: bool,
}

/// What became of an unknown delivery: exactly one of these.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct VerdictArgs {
    /// It was delivered: never sent again
    #[arg(long)]
    pub delivered: bool,
    /// It was not delivered: sent again by the rules, once that is safe
    #[arg(long)]
    pub not_delivered: bool,
    /// Nobody can know: given up, and never sent again
    #[arg(long)]
    pub abandon: bool,
}

impl VerdictArgs {
    /// What is said.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        match self {
            Self { delivered: true, .. } => Verdict::Delivered,
            Self { not_delivered: true, .. } => Verdict::NotDelivered,
            _ => Verdict::Abandon,
        }
    }
}

/// Send dead letters again, after what killed them is fixed
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("which").required(true).multiple(true).args(["key", "keys_from"]),
    after_help = "Only messages that were certainly not sent are replayed. What will be done is shown first, and\nasked.\n\nExample:\n  digestd replay --period 2026-W42 --key digest:2026-W42:customer-1842 --reason \"address corrected\" --refreeze"
)]
pub struct ReplayArgs {
    /// The ISO week, such as 2026-W42; every key must be of it
    #[arg(long, value_name = "P")]
    pub period: Period,
    /// An operation key, or the Message-ID of its mail; may be repeated
    #[arg(long, value_name = "K", value_parser = key)]
    pub key: Vec<OperationKey>,
    /// A file with keys or Message-IDs, one a line; - reads standard input
    #[arg(long, value_name = "FILE")]
    pub keys_from: Option<PathBuf>,
    /// Render from today's template and source instead of sending the frozen bytes
    #[arg(long)]
    pub refreeze: bool,
    /// Who and why.
    #[command(flatten)]
    pub decision: Decision,
    /// Do it without asking
    #[arg(long)]
    pub yes: bool,
}

/// Stop a run: no attempt begins until `digestd resume`
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  digestd hold --period 2026-W42 --reason \"wrong prices\"")]
pub struct HoldArgs {
    /// The ISO week, such as 2026-W42; its run need not exist yet
    #[arg(long, value_name = "P")]
    pub period: Period,
    /// Who and why.
    #[command(flatten)]
    pub decision: Decision,
}

/// Let a held run go on
#[derive(Debug, Args)]
#[command(
    after_help = "How many messages would be too late by now is shown first, and asked.\n\nExample:\n  digestd resume --period 2026-W42 --reason \"prices corrected\""
)]
pub struct ResumeArgs {
    /// The ISO week, such as 2026-W42
    #[arg(long, value_name = "P")]
    pub period: Period,
    /// Who and why.
    #[command(flatten)]
    pub decision: Decision,
    /// Do it without asking
    #[arg(long)]
    pub yes: bool,
}

/// End a run: whatever is certainly not sent yet never will be
#[derive(Debug, Args)]
#[command(
    after_help = "How many messages will never be sent is shown first, and asked.\n\nExample:\n  digestd cancel --period 2026-W42 --reason \"campaign withdrawn\""
)]
pub struct CancelArgs {
    /// The ISO week, such as 2026-W42
    #[arg(long, value_name = "P")]
    pub period: Period,
    /// Who and why.
    #[command(flatten)]
    pub decision: Decision,
    /// Do it without asking
    #[arg(long)]
    pub yes: bool,
}

/// Erase a customer's content and address everywhere; the keys stay
#[derive(Debug, Args)]
#[command(
    after_help = "Messages that are still open end suppressed.\n\nExample:\n  digestd forget --customer 1842 --reason \"erasure request 77\""
)]
pub struct ForgetArgs {
    /// The customer, by the id that the source has
    #[arg(long, value_name = "ID")]
    pub customer: String,
    /// Who and why.
    #[command(flatten)]
    pub decision: Decision,
}

/// List the customers who are not written to any more, or write to one again
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "A hard bounce, a complaint or an opt-out that the provider tells of puts a customer here.\n\nExample:\n  digestd suppressions --json"
)]
pub struct SuppressionsArgs {
    /// What to do with them; lists them if left out.
    #[command(subcommand)]
    pub action: Option<SuppressionsAction>,
    /// Go on after this customer, as the JSON's "next" says
    #[arg(long, value_name = "ID")]
    pub after: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What to do with suppressions.
#[derive(Debug, Subcommand)]
pub enum SuppressionsAction {
    /// Write to a customer again, from the next message on
    #[command(
        after_help = "Example:\n  digestd suppressions remove --customer 1842 --reason \"new address\""
    )]
    Remove {
        /// The customer, by the id that the source has
        #[arg(long, value_name = "ID")]
        customer: String,
        /// Who and why.
        #[command(flatten)]
        decision: Decision,
    },
}

/// Retry the cleanups of a period that failed
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  digestd cleanup --period 2026-W42")]
pub struct CleanupArgs {
    /// The ISO week, such as 2026-W42
    #[arg(long, value_name = "P")]
    pub period: Period,
}
