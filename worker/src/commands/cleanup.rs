//! `digestd cleanup`: tries the cleanups of a period again that were given up.

use super::must_exist;
use crate::assemble;
use crate::cli::Exit;
use crate::cli::decide::CleanupArgs;
use crate::config::{Config, Secrets};
use crate::{output, wake};
use digest_activities::ledger::Actor;
use digest_workflows::operation::State;

/// How many operations one transaction takes up again.
const PAGE: u32 = 200;

/// Takes up every failed cleanup of the period again and starts its workflow. Exits with 3 if there
/// is none.
///
/// # Errors
/// An unreachable ledger, or no such run.
pub(super) async fn run(config: Config, args: CleanupArgs) -> anyhow::Result<Exit> {
    let ledger = assemble::ledger(&config, &Secrets::from_env()?).await?;
    let campaign = &config.campaign.name;
    must_exist(&ledger, campaign, Some(args.period)).await?;
    let rules = config.rules();
    let actor = Actor::part("digestd cleanup");
    let mut due = Vec::new();
    let mut after = String::new();
    loop {
        let page = ledger.cleanup_again(campaign, args.period, &after, PAGE, &rules, actor).await?;
        let Some(last) = page.last() else { break };
        after = last.to_string();
        due.extend(page.into_iter().map(|key| (key, State::Sent)));
    }
    if due.is_empty() {
        output::print(&format!("no cleanup of {} has failed", args.period))?;
        return Ok(Exit::AlreadyHappened);
    }
    output::print(&format!(
        "{} cleanups are tried again; `digestd status --period {}` tells what became of them",
        due.len(),
        args.period
    ))?;
    wake::wake(&config, &ledger, &due).await?;
    Ok(Exit::Done)
}
