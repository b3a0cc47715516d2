//! `digestd replay`: sends dead letters again, after what killed them is fixed.

use crate::ask::confirm;
use crate::assemble;
use crate::cli::Exit;
use crate::cli::decide::ReplayArgs;
use crate::config::{Config, Secrets};
use crate::decide::replay::{Anew, Planned, count, held, letters, plan, replay};
use crate::table::Table;
use crate::{keys, output, wake};
use digest_activities::ledger::Actor;
use digest_workflows::operation::{FailureClass, State};

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
    let anew = args.refreeze.then(|| Anew::load(&config, &secrets)).transpose()?;
    let planned = plan(&ledger, &keys, anew.as_ref()).await?;
    output::print(&preview(&planned))?;
    let Some(letters) = letters(&planned) else {
        output::say("nothing was replayed, because not every key can be")?;
        return Ok(Exit::Failed);
    };
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
    match replay(&ledger, &letters, &config.rules(), actor).await? {
        Ok(replayed) => {
            output::print(&format!("{} replayed", count(replayed)))?;
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

fn preview(planned: &[Planned]) -> String {
    let mut table = Table::new(&["key", "class", "attempts", "what will be done"]);
    for one in planned {
        let (class, attempts) = one.plan.as_ref().map_or(("", String::new()), |(answer, _)| {
            let operation = &answer.operation;
            (operation.class.map_or("", FailureClass::name), operation.attempts.to_string())
        });
        table.row([&one.key.to_string(), class, &attempts, &one.intended()]);
    }
    table.to_string()
}
