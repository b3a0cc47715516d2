//! `digestd status`: how far a run is.

use crate::assemble;
use crate::cli::Exit;
use crate::cli::read::StatusArgs;
use crate::config::{Config, Secrets};
use crate::{output, report};

/// Prints the run in counts. The exit code is 4 while operations need a human.
///
/// # Errors
/// An unreachable ledger, or no such run.
pub(super) async fn run(config: Config, args: StatusArgs) -> anyhow::Result<Exit> {
    let ledger = assemble::ledger(&config, &Secrets::from_env()?).await?;
    let campaign = &config.campaign.name;
    let period = assemble::period(&ledger, campaign, args.period).await?;
    let status = ledger.status(campaign, period).await?;
    if args.json {
        output::print_json(&status)?;
    } else {
        output::print(&report::summary(&status))?;
    }
    Ok(if status.needs_a_human() { Exit::NeedsHuman } else { Exit::Done })
}
