//! Verdicts: a person says what became of an unknown delivery.

use crate::report::clock;
use digest_activities::ledger::{Actor, Answer, Ledger, LedgerError};
use digest_workflows::operation::{Event, Note, Operation, OperationKey, Rules, State, Verdict};
use jiff::Timestamp;

/// The name of a verdict in the audit.
const JUDGED: &str = "judged";

/// What becomes of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The verdict about this attempt is recorded, and acted on at once or then.
    Recorded(u32, Option<Timestamp>),
    /// The same was recorded before.
    Already,
    /// Nothing is decided, for this reason.
    Refused(String),
}

/// What a verdict would do to one key.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The key.
    pub key: OperationKey,
    /// The operation as it is; `None` if there is none.
    pub operation: Option<Operation>,
    /// What would become of it.
    pub fate: Fate,
}

/// What would become of each key, by the decision core itself. `attempt` is the one that the verdict
/// names; without it, the newest one handed over.
///
/// # Errors
/// Any error of an unreachable ledger; a key that it does not know is refused in the answer.
pub async fn plan(
    ledger: &Ledger,
    keys: &[OperationKey],
    verdict: Verdict,
    attempt: Option<u32>,
    rules: &Rules,
) -> Result<Vec<Planned>, LedgerError> {
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
            Err(error) => return Err(error),
        };
        planned.push(Planned { key: key.clone(), operation, fate });
    }
    Ok(planned)
}

/// Records the verdict about `attempt` of `key`; returns what it came to, and the state since.
///
/// # Errors
/// Any error of the ledger; recording it again is harmless.
pub async fn record(
    ledger: &Ledger,
    key: &OperationKey,
    verdict: Verdict,
    attempt: u32,
    rules: &Rules,
    actor: Actor<'_>,
) -> Result<(Fate, State), LedgerError> {
    let event = Event::Judged { verdict, attempt: Some(attempt) };
    let recorded = ledger.record(key, &event, rules, actor, None).await?;
    let operation = &recorded.answer.operation;
    Ok((fate(operation, recorded.change.note, attempt), operation.state))
}

/// What will be done, in words.
#[must_use]
pub fn intended(fate: &Fate, verdict: Verdict) -> String {
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

/// What was done, in words.
#[must_use]
pub fn done(fate: &Fate, state: State) -> String {
    match fate {
        Fate::Recorded(_, None) => format!("recorded and acted on, now {state}"),
        Fate::Recorded(_, Some(at)) => format!("recorded, acted on at {}", clock(*at)),
        Fate::Already => "recorded already".to_owned(),
        Fate::Refused(why) => format!("refused: {why}"),
    }
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
        for verdict in Verdict::ALL {
            let event = Event::Judged { verdict, attempt: None };
            let note = operation.apply(&event, &Rules::default(), &moment).note;
            let fate = fate(&operation, note, 0);
            assert!(matches!(fate, Fate::Refused(why) if why == "it is selected, not unknown"));
        }
    }
}
