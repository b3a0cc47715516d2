//! `digestd dead-letters`: what ended without being sent, and what a replay would do.

use super::{invocation, must_exist};
use crate::assemble;
use crate::cli::Exit;
use crate::cli::read::DeadLettersArgs;
use crate::config::{Config, Secrets};
use crate::report::clock;
use crate::table::Table;
use crate::{keys, output};
use digest_activities::ledger::OperationLine;
use digest_workflows::operation::FailureClass;

/// How many operations a page has.
const PAGE: u32 = 500;

/// Lists the dead letters. The exit code is 4 if there are any. JSON is one page, the text is all of
/// them.
///
/// # Errors
/// An unreachable ledger, or no such run.
pub(super) async fn run(config: Config, args: DeadLettersArgs) -> anyhow::Result<Exit> {
    let ledger = assemble::ledger(&config, &Secrets::from_env()?).await?;
    let campaign = &config.campaign.name;
    let args = args.list;
    keys::must_be_of(args.after.as_slice(), campaign, args.period)?;
    must_exist(&ledger, campaign, args.period).await?;
    let mut after = args.after.map(|key| key.to_string());
    let mut any = false;
    loop {
        let after_key = after.as_deref();
        let page = ledger.dead_letters(campaign, args.period, None, after_key, PAGE).await?;
        any |= !page.operations.is_empty();
        if args.json {
            output::print_json(&page)?;
            break;
        }
        if page.operations.is_empty() {
            output::print("there is no dead letter")?;
            break;
        }
        output::print(&format!("{}\n", text(&page.operations)))?;
        after = page.next;
        if after.is_none() {
            let replay = "replay --period P --key KEY --reason \"…\"";
            output::print(&format!(
                "after what killed them is fixed: {}",
                invocation(&config, replay)
            ))?;
            break;
        }
    }
    Ok(if any { Exit::NeedsHuman } else { Exit::Done })
}

fn text(operations: &[OperationLine]) -> String {
    let mut table = Table::new(&["key", "class", "code", "since", "attempts", "waits for"]);
    for line in operations {
        table.row([
            line.key.as_str(),
            line.class.map_or("", FailureClass::name),
            line.code.as_deref().unwrap_or_default(),
            &clock(line.since),
            &line.attempts.to_string(),
            &line.waits_for,
        ]);
    }
    table.to_string()
}
