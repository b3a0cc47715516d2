//! `digestd resolve`: a person says what became of an unknown delivery.

use crate::ask::confirm;
use crate::assemble;
use crate::cli::Exit;
use crate::cli::decide::ResolveArgs;
use crate::config::{Config, Secrets};
use crate::report::clock;
use crate::table::Table;
use crate::{keys, output, wake};
use digest_activities::crash;
use digest_activities::ledger::{Actor, Answer, Ledger, LedgerError};
use digest_workflows::operation::{Event, Note, Operation, OperationKey, Rules, State, Verdict};
use jiff::Timestamp;

/// The name of a verdict in the audit.
const JUDGED: &str = "judged";

/// What becomes of one key.
enum Fate {
    /// The verdict about this attempt is recorded, and acted on at once or then.
    Recorded(u32, Option<Timestamp>),
    /// The same was recorded before.
    Already,
    /// Nothing is decided.
    Refused(String),
}

/// Shows what the verdict would do, asks, records it in the ledger, and tells the workflows. Exits
/// with 1 if any key was refused, with 3 if everything was recorded so already.
///
/// # Errors
/// Malformed keys, too many of them, nobody to ask, or an unreachable ledger.
pub(super) async fn run(config: Config, args: ResolveArgs) -> anyhow::Result<Exit> {
    let from = args.keys_from.as_deref();
    let keys = keys::gather(args.key.as_slice(), from, config.replay.max_keys)?;
    let campaign = &config.campaign.name;
    // A canary in doubt is resolved like any other message.
    let others: Vec<_> = keys.iter().filter(|key| !key.is_canary_of(campaign)).cloned().collect();
    keys::must_be_of(&others, campaign, None)?;
    let ledger = assemble::ledger(&config, &Secrets::from_env()?).await?;
    let (rules, verdict) = (config.rules(), args.verdict.verdict());
    let planned = plan(&ledger, &keys, verdict, args.attempt, &rules).await?;
    output::print(&preview(&planned, verdict))?;
    let to_record: Vec<(&OperationKey, u32)> = planned
        .iter()
        .filter_map(|(key, _, fate)| match fate {
            Fate::Recorded(attempt, _) => Some((key, *attempt)),
            _ => None,
        })
        .collect();
    let mut refused = planned.iter().filter(|(.., fate)| matches!(fate, Fate::Refused(_))).count();
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
        let event = Event::Judged { verdict, attempt: Some(attempt) };
        let recorded = ledger.record(key, &event, &rules, actor, None).await?;
        let operation = &recorded.answer.operation;
        let fate = fate(operation, recorded.change.note, attempt);
        output::print(&format!("{key}: {}", done(&fate, operation.state)))?;
        match fate {
            Fate::Refused(_) => refused += 1,
            Fate::Recorded(..) | Fate::Already => told.push((key.clone(), operation.state)),
        }
    }
    crash::point("decision-recorded");
    wake::wake(&config, &ledger, &told).await?;
    Ok(if refused > 0 { Exit::Failed } else { Exit::Done })
}

/// What would become of each key, by the decision core itself.
async fn plan(
    ledger: &Ledger,
    keys: &[OperationKey],
    verdict: Verdict,
    attempt: Option<u32>,
    rules: &Rules,
) -> anyhow::Result<Vec<(OperationKey, Option<Operation>, Fate)>> {
    let mut planned = Vec::new();
    for key in keys {
        let (operation, fate) = match ledger.operation(key).await {
            Ok(answer) => {
                let mut fate = foresee(&answer, verdict, attempt, rules);
                if is_so(&answer.operation, verdict, attempt) && was_judged(ledger, key).await? {
                    fate = Fate::Already;
                }
                (Some(answer.operation), fate)
            }
            Err(LedgerError::NoSuchOperation(_)) => {
                (None, Fate::Refused("the ledger knows no such operation".to_owned()))
            }
            Err(error) => return Err(error.into()),
        };
        planned.push((key.clone(), operation, fate));
    }
    Ok(planned)
}

fn foresee(answer: &Answer, verdict: Verdict, attempt: Option<u32>, rules: &Rules) -> Fate {
    let mut operation = answer.operation.clone();
    let event = Event::Judged { verdict, attempt };
    let note = operation.apply(&event, rules, &answer.moment).note;
    fate(&operation, note, attempt.unwrap_or(operation.newest_handed_over))
}

/// What a verdict came to, from the operation after it.
fn fate(operation: &Operation, note: Option<Note>, attempt: u32) -> Fate {
    let newest = operation.newest_handed_over;
    match note {
        None => Fate::Recorded(attempt, None),
        Some(Note::ActsLater) => {
            Fate::Recorded(attempt, operation.verdict.map(|pending| pending.acts_at))
        }
        Some(Note::AlreadyRecorded) => Fate::Already,
        Some(Note::NotUnknown) => Fate::Refused(format!("it is {}, not unknown", operation.state)),
        Some(Note::NotNewestAttempt) => {
            Fate::Refused(format!("name the newest attempt handed over: --attempt {newest}"))
        }
        Some(note) => Fate::Refused(note.words().trim_start_matches("ignored: ").to_owned()),
    }
}

/// Whether an operation is no longer unknown, and is what the verdict says.
fn is_so(operation: &Operation, verdict: Verdict, attempt: Option<u32>) -> bool {
    let newest = operation.newest_handed_over;
    if operation.state == State::Unknown || attempt.is_some_and(|attempt| attempt != newest) {
        return false;
    }
    match verdict {
        Verdict::Delivered => matches!(operation.state, State::Sent | State::Cleaned),
        Verdict::Abandon => operation.state == State::Expired,
        Verdict::NotDelivered => {
            newest > 0 && operation.is_proven_not_sent() && !operation.contradicted
        }
    }
}

/// Whether somebody's verdict was taken, and not only ignored.
async fn was_judged(ledger: &Ledger, key: &OperationKey) -> Result<bool, LedgerError> {
    let taken = |note: Option<&str>| note.is_none_or(|note| note == Note::ActsLater.words());
    let timeline = ledger.show(key).await?.timeline;
    Ok(timeline.iter().any(|line| line.event == JUDGED && taken(line.note.as_deref())))
}

fn preview(planned: &[(OperationKey, Option<Operation>, Fate)], verdict: Verdict) -> String {
    let mut table = Table::new(&["key", "state", "attempt", "what will be done"]);
    for (key, operation, fate) in planned {
        let state = operation.as_ref().map_or("", |operation| operation.state.name());
        let newest = operation.as_ref().map_or(0, |operation| operation.newest_handed_over);
        let attempt = if newest == 0 { String::new() } else { newest.to_string() };
        table.row([&key.to_string(), state, &attempt, &intended(fate, verdict)]);
    }
    table.to_string()
}

fn intended(fate: &Fate, verdict: Verdict) -> String {
    let then = match verdict {
        Verdict::Delivered => "counted as sent, and cleaned up",
        Verdict::NotDelivered => "sent again by the rules",
        Verdict::Abandon => "given up, and never sent again",
    };
    match fate {
        Fate::Recorded(_, None) => format!("{verdict}: {then}, at once"),
        Fate::Recorded(_, Some(at)) => {
            format!("{verdict}: {then}, acted on at {} unless an answer comes first", clock(*at))
        }
        Fate::Already => format!("nothing: {verdict} is recorded already"),
        Fate::Refused(why) => format!("refused: {why}"),
    }
}

fn done(fate: &Fate, state: State) -> String {
    match fate {
        Fate::Recorded(_, None) => format!("recorded and acted on, now {state}"),
        Fate::Recorded(_, Some(at)) => format!("recorded, acted on at {}", clock(*at)),
        Fate::Already => "recorded already".to_owned(),
        Fate::Refused(why) => format!("refused: {why}"),
    }
}

fn count(keys: usize) -> String {
    if keys == 1 { "1 key".to_owned() } else { format!("{keys} keys") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use digest_workflows::operation::Moment;
    use jiff::SignedDuration;

    /// A verdict for something that was never handed over is no repetition.
    #[test]
    fn what_was_never_in_doubt_is_refused_for_every_verdict() {
        let now = Timestamp::UNIX_EPOCH;
        let mut operation = Operation::selected(now);
        let moment = Moment {
            now,
            held: false,
            held_for: SignedDuration::ZERO,
            cancelled: false,
            useful_until: Timestamp::MAX,
            suppressed: false,
        };
        for verdict in [Verdict::Delivered, Verdict::NotDelivered, Verdict::Abandon] {
            let event = Event::Judged { verdict, attempt: None };
            let note = operation.apply(&event, &Rules::default(), &moment).note;
            let fate = fate(&operation, note, 0);
            assert!(matches!(fate, Fate::Refused(why) if why == "it is selected, not unknown"));
        }
    }
}
