//! `digestd resolve`: a person says what became of an unknown delivery.

use crate::ask::confirm;
use crate::assemble;
use crate::cli::Exit;
use crate::cli::decide::ResolveArgs;
use crate::config::{Config, Secrets};
use crate::decide::resolve::{Fate, Planned, done, intended, plan, record};
use crate::table::Table;
use crate::{keys, output, wake};
use digest_activities::crash;
use digest_activities::ledger::Actor;
use digest_workflows::operation::{OperationKey, Verdict};

/// Shows what the verdict would do, asks, records it in the ledger, and tells the workflows. Exits
/// with 1 if any key was refused, with 3 if everything was recorded so already.
///
/// # Errors
/// Malformed keys, too many of them, nobody to ask, or an unreachable ledger.
pub(super) async fn run(config: Config, args: ResolveArgs) -> anyhow::Result<Exit> {
    let from = args.keys_from.as_deref();
    let keys = keys::gather(args.key.as_slice(), from, config.replay.max_keys)?;
    keys::may_be_resolved(&keys, &config.campaign.name)?;
    let ledger = assemble::ledger(&config, &Secrets::from_env()?).await?;
    let (rules, verdict) = (config.rules(), args.verdict.verdict());
    let planned = plan(&ledger, &keys, verdict, args.attempt, &rules).await?;
    output::print(&preview(&planned, verdict))?;
    let to_record: Vec<(&OperationKey, u32)> = planned
        .iter()
        .filter_map(|planned| match planned.fate {
            Fate::Recorded(attempt, _) => Some((&planned.key, attempt)),
            _ => None,
        })
        .collect();
    let mut refused =
        planned.iter().filter(|planned| matches!(planned.fate, Fate::Refused(_))).count();
    if to_record.is_empty() {
        output::say("nothing was recorded")?;
        return Ok(if refused > 0 { Exit::Failed } else { Exit::AlreadyHappened });
    }
    let question = format!("Record \"{verdict}\" for {}?", count(to_record.len()));
    if !confirm(&question, args.yes, keys::is_stdin(from))? {
        output::say("nothing was recorded")?;
        return Ok(Exit::Failed);
    }
    let by = args.decision.who();
    let actor = Actor { by: &by, reason: Some(&args.decision.reason) };
    let mut told = Vec::new();
    for (key, attempt) in to_record {
        let (fate, state) = record(&ledger, key, verdict, attempt, &rules, actor).await?;
        output::print(&format!("{key}: {}", done(&fate, state)))?;
        match fate {
            Fate::Refused(_) => refused += 1,
            Fate::Recorded(..) | Fate::Already => told.push((key.clone(), state)),
        }
    }
    crash::point("decision-recorded");
    wake::wake(&config, &ledger, &told).await?;
    Ok(if refused > 0 { Exit::Failed } else { Exit::Done })
}

fn preview(planned: &[Planned], verdict: Verdict) -> String {
    let mut table = Table::new(&["key", "state", "attempt", "what will be done"]);
    for Planned { key, operation, fate } in planned {
        let state = operation.as_ref().map_or("", |operation| operation.state.name());
        let newest = operation.as_ref().map_or(0, |operation| operation.newest_handed_over);
        let attempt = if newest == 0 { String::new() } else { newest.to_string() };
        table.row([&key.to_string(), state, &attempt, &intended(fate, verdict)]);
    }
    table.to_string()
}

fn count(keys: usize) -> String {
    if keys == 1 { "1 key".to_owned() } else { format!("{keys} keys") }
}
