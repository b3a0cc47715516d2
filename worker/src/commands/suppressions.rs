//! `digestd suppressions`: who is not written to any more because of what the provider told, and how
//! somebody is written to again.

use super::invocation;
use crate::assemble;
use crate::cli::decide::{SuppressionsAction, SuppressionsArgs};
use crate::cli::{Decision, Exit};
use crate::config::{Config, Secrets};
use crate::report::clock;
use crate::table::Table;
use crate::{output, retention};
use digest_activities::ledger::{Actor, Ledger, Suppression, Suppressions};

/// How many customers a page has.
const PAGE: u32 = 500;

/// Lists the suppressed customers, or removes one of them. JSON is one page, the text is all of them.
/// Exits with 3 where there is nothing to remove.
///
/// # Errors
/// An unreachable ledger.
pub(super) async fn run(config: Config, args: SuppressionsArgs) -> anyhow::Result<Exit> {
    let ledger = assemble::ledger(&config, &Secrets::from_env()?).await?;
    match args.action {
        Some(SuppressionsAction::Remove { customer, decision }) => {
            remove(&config, &ledger, &customer, &decision).await
        }
        None => list(&config, &ledger, args.after, args.json).await,
    }
}

async fn list(
    config: &Config,
    ledger: &Ledger,
    mut after: Option<String>,
    json: bool,
) -> anyhow::Result<Exit> {
    let campaign = &config.campaign.name;
    loop {
        let page = ledger.suppressions(campaign, after.as_deref(), PAGE).await?;
        if json {
            output::print_json(&page)?;
            return Ok(Exit::Done);
        }
        let Suppressions { suppressions, next, .. } = page;
        if suppressions.is_empty() {
            output::print("nobody is suppressed")?;
            return Ok(Exit::Done);
        }
        output::print(&format!("{}\n", text(&suppressions)))?;
        after = next;
        if after.is_none() {
            let remove = "suppressions remove --customer ID --reason \"…\"";
            output::print(&format!("to write to one again: {}", invocation(config, remove)))?;
            return Ok(Exit::Done);
        }
    }
}

fn text(suppressions: &[Suppression]) -> String {
    let mut table = Table::new(&["customer", "reason", "since", "told by", "about"]);
    for line in suppressions {
        table.row([
            line.customer.as_str(),
            line.reason.name(),
            &clock(line.since),
            &line.provider,
            &line.key,
        ]);
    }
    table.to_string()
}

/// Removes the customer's suppression in this campaign and its canaries.
async fn remove(
    config: &Config,
    ledger: &Ledger,
    customer: &str,
    decision: &Decision,
) -> anyhow::Result<Exit> {
    let by = decision.who();
    let actor = Actor { by: &by, reason: Some(&decision.reason) };
    let mut removed = Vec::new();
    for campaign in retention::campaigns(&config.campaign.name) {
        removed.extend(ledger.remove_suppression(&campaign, customer, actor).await?);
    }
    if removed.is_empty() {
        output::print(&format!(
            "the customer is not suppressed in the campaign {:?}; is the id written as \
             `digestd suppressions` shows it?",
            config.campaign.name
        ))?;
        return Ok(Exit::AlreadyHappened);
    }
    for suppression in removed {
        output::print(&format!(
            "written to again from the next message on; was suppressed since {} ({}, {})",
            clock(suppression.since),
            suppression.reason.name(),
            suppression.key
        ))?;
    }
    output::print(
        "if the provider keeps a suppression list of its own, take the address off it there too",
    )?;
    Ok(Exit::Done)
}
