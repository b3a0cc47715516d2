//! `digestd unknown`: what may or may not have been delivered, and waits for a human.

use super::{invocation, must_exist};
use crate::assemble;
use crate::cli::Exit;
use crate::cli::read::UnknownArgs;
use crate::config::{Config, Secrets};
use crate::report::clock;
use crate::table::Table;
use crate::{keys, output};
use digest_activities::ledger::OperationLine;
use digest_workflows::operation::State;

/// How many operations a page has.
const PAGE: u32 = 500;

/// Lists the unknown operations, with the commands that settle them. The exit code is 4 if there are
/// any. JSON is one page, the text is all of them.
///
/// # Errors
/// An unreachable ledger, or no such run.
pub(super) async fn run(config: Config, args: UnknownArgs) -> anyhow::Result<Exit> {
    let ledger = assemble::ledger(&config, &Secrets::from_env()?).await?;
    let campaign = &config.campaign.name;
    let args = args.list;
    keys::must_be_of(args.after.as_slice(), campaign, args.period)?;
    must_exist(&ledger, campaign, args.period).await?;
    let mut after = args.after.map(|key| key.to_string());
    let mut any = false;
    loop {
        let after_key = after.as_deref();
        let page = ledger.list(campaign, State::Unknown, args.period, after_key, PAGE).await?;
        any |= !page.operations.is_empty();
        if args.json {
            output::print_json(&page)?;
            break;
        }
        if page.operations.is_empty() {
            output::print("no delivery is unknown")?;
            break;
        }
        output::print(&text(&config, &page.operations))?;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok(if any { Exit::NeedsHuman } else { Exit::Done })
}

fn text(config: &Config, operations: &[OperationLine]) -> String {
    let mut table = Table::new(&["key", "attempt", "since", "waits for"]);
    let mut commands = String::new();
    for line in operations {
        let attempt = line.operation.newest_handed_over.to_string();
        table.row([line.key.as_str(), &attempt, &clock(line.since), &line.waits_for]);
        commands.push_str(&format!(
            "  {}\n",
            invocation(
                config,
                &format!("resolve {} --attempt {attempt} --delivered --reason \"…\"", line.key)
            )
        ));
    }
    format!(
        "{table}\n\nonce you know what became of one (with --not-delivered or --abandon in the place \
         of --delivered):\n\n{commands}"
    )
}
