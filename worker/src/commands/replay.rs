//! `digestd replay`: sends dead letters again, after what killed them is fixed.

use crate::ask::confirm;
use crate::assemble;
use crate::cli::Exit;
use crate::cli::decide::ReplayArgs;
use crate::config::{Config, Secrets};
use crate::table::Table;
use crate::{keys, output, wake};
use digest_activities::ledger::{Actor, Answer, Ledger, ToReplay};
use digest_activities::message::Templates;
use digest_activities::refreeze::{RefreezeError, refreeze};
use digest_activities::source::Source;
use digest_workflows::operation::{FailureClass, OperationKey, State};

/// What is known of one key: the dead letter and what would be sent, or why it is not replayed.
type Planned = (OperationKey, Result<(Answer, ToReplay), String>);

/// Shows what would be sent again, asks, replays all keys in one transaction or none, and starts
/// their workflows. Exits with 1 if any key is refused; nothing is sent then.
///
/// # Errors
/// Malformed or foreign keys, too many of them, nobody to ask; an unreachable ledger; for
/// `--refreeze` a template that cannot be used or a source that does not answer.
pub(super) async fn run(config: Config, args: ReplayArgs) -> anyhow::Result<Exit> {
    let from = args.keys_from.as_deref();
    let keys = keys::gather(&args.key, from, config.replay.max_keys)?;
    keys::must_be_of(&keys, &config.campaign.name, Some(args.period))?;
    let secrets = Secrets::from_env()?;
    let ledger = assemble::ledger(&config, &secrets).await?;
    let anew = if args.refreeze {
        Some((assemble::source(&config, &secrets)?, assemble::templates(&config, &secrets)?))
    } else {
        None
    };
    let mut planned = Vec::new();
    for key in keys {
        let plan = plan(&ledger, anew.as_ref(), &key).await?;
        planned.push((key, plan));
    }
    output::print(&preview(&planned))?;
    let letters: Vec<ToReplay> = planned
        .iter()
        .filter_map(|(_, plan)| plan.as_ref().ok().map(|(_, letter)| letter.clone()))
        .collect();
    if letters.len() < planned.len() {
        output::say("nothing was replayed, because not every key can be")?;
        return Ok(Exit::Failed);
    }
    if let Some(because) = held(&planned) {
        output::say(&format!(
            "the run is held ({because}): nothing is sent until `digestd resume --period {}`",
            args.period
        ))?;
    }
    let question = format!("Send {} again?", count(letters.len()));
    if !confirm(&question, args.yes, keys::is_stdin(from))? {
        output::say("nothing was replayed")?;
        return Ok(Exit::Failed);
    }
    let by = args.decision.who();
    let actor = Actor { by: &by, reason: Some(&args.decision.reason) };
    match ledger.replay(&letters, &config.rules(), actor).await? {
        Ok(replayed) => {
            output::print(&format!("{} replayed", count(replayed.len())))?;
            let open: Vec<_> =
                letters.into_iter().map(|letter| (letter.key, State::Sending)).collect();
            wake::wake(&config, &ledger, &open).await?;
            Ok(Exit::Done)
        }
        Err(refused) => {
            for (key, why) in refused {
                output::print(&format!("{key}: refused: {why}"))?;
            }
            output::say("nothing was replayed, because not every key can be any more")?;
            Ok(Exit::Failed)
        }
    }
}

async fn plan(
    ledger: &Ledger,
    anew: Option<&(Source, Templates)>,
    key: &OperationKey,
) -> anyhow::Result<Result<(Answer, ToReplay), String>> {
    let answer = match ledger.may_replay(key, anew.is_some()).await? {
        Ok(answer) => answer,
        Err(why) => return Ok(Err(why.to_string())),
    };
    let refrozen = match anew {
        None => None,
        Some((source, templates)) => match refreeze(source, templates, &answer.run, key).await {
            Ok(refrozen) => Some(refrozen),
            Err(RefreezeError::Source(error)) => return Err(error.into()),
            Err(why) => return Ok(Err(why.to_string())),
        },
    };
    Ok(Ok((answer, ToReplay { key: key.clone(), refrozen })))
}

fn preview(planned: &[Planned]) -> String {
    let mut table = Table::new(&["key", "class", "attempts", "what will be done"]);
    for (key, plan) in planned {
        let (class, attempts, what) = match plan {
            Ok((answer, letter)) => (
                answer.operation.class.map_or("", FailureClass::name),
                answer.operation.attempts.to_string(),
                match letter.refrozen {
                    Some(_) => "sent, rendered from today's template and row".to_owned(),
                    None => "sent as it was frozen".to_owned(),
                },
            ),
            Err(why) => ("", String::new(), format!("refused: {why}")),
        };
        table.row([&key.to_string(), class, &attempts, &what]);
    }
    table.to_string()
}

fn held(planned: &[Planned]) -> Option<String> {
    let (_, plan) = planned.first()?;
    let (answer, _) = plan.as_ref().ok()?;
    answer.run.held_since?;
    answer.run.held_because.clone()
}

fn count(keys: usize) -> String {
    if keys == 1 { "1 message".to_owned() } else { format!("{keys} messages") }
}
