//! What the ledger holds of one operation, compared with itself: columns, attempts, dead letters and
//! timeline tell one story, and it is one that the decision core can tell.

use super::{Difference, Kind};
use crate::ledger::{Entry, Run, RunState, Transition};
use digest_workflows::operation::{Event, FailureClass, Operation, OperationKey, Rules, State};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// What an attempt's outcome is called when it was accepted.
const ACCEPTED: &str = "accepted";

/// The story of one operation, being checked.
struct Books<'a> {
    entry: &'a Entry,
    operation: &'a Operation,
    differences: Vec<Difference>,
}

/// Every difference within what the ledger holds of one operation of `run`, at the ledger's time
/// `now`, each kind at most once. Empty for everything that the ledger itself has written.
#[must_use]
pub fn differences(entry: &Entry, run: &Run, rules: &Rules, now: Timestamp) -> Vec<Difference> {
    let key = entry.key.as_str();
    let operation = match &entry.operation {
        Ok(operation) => operation,
        Err(error) => {
            let expected = "a record of the decision core";
            return vec![Difference::new(Kind::Unreadable, key, expected, error.as_str())];
        }
    };
    let mut books = Books { entry, operation, differences: Vec::new() };
    books.selection(run);
    books.columns(rules, now);
    books.attempts();
    books.acceptance();
    books.bytes();
    books.content();
    books.dead_letters();
    books.timeline();
    if operation.contradicted {
        let at = state_of(operation);
        books.differ(Kind::Contradicted, format!("evidence that fits {at}"), "evidence against it");
    }
    books.differences
}

impl Books<'_> {
    fn differ(&mut self, kind: Kind, expected: impl Into<String>, found: impl Into<String>) {
        self.differences.push(Difference::new(kind, &self.entry.key, expected, found));
    }

    /// The operation is one of those that were selected, under its own key.
    fn selection(&mut self, run: &Run) {
        let columns = &self.entry.columns;
        let parsed = OperationKey::parse(&self.entry.key);
        let fits = parsed.is_ok_and(|key| {
            key.campaign() == columns.campaign
                && key.period().to_string() == columns.period
                && key.customer_id() == columns.customer
                && key.to_string() == self.entry.key
        });
        if !fits {
            let found = format!(
                "campaign {}, period {}, and a customer of another key",
                columns.campaign, columns.period
            );
            self.differ(Kind::Misfiled, "the campaign, period and customer of the key", found);
        }
        let selected = i64::try_from(run.selected).unwrap_or(i64::MAX);
        let position = columns.position;
        if !(1..=selected).contains(&position) {
            let expected = format!("a place from 1 to {selected} in the selection");
            self.differ(Kind::NotSelected, expected, format!("place {position}"));
        }
        let is_open = self.operation.state != State::Sent && !self.operation.state.is_terminal();
        if run.state == RunState::Closed && is_open && columns.enqueued_at.is_none() {
            let found = format!("{}, and never handed over", self.operation.state);
            self.differ(Kind::NeverEnqueued, "handed to the engine before the run closed", found);
        }
    }

    /// The columns beside the decision core's data say the same, and it says it without
    /// contradicting itself.
    fn columns(&mut self, rules: &Rules, now: Timestamp) {
        let (columns, op) = (&self.entry.columns, self.operation);
        let message_id = op.accepted.as_ref().and_then(|accepted| accepted.message_id.as_ref());
        // Whether an unknown rests depends on the time at which it was stored.
        let at_rest = match op.state {
            State::Unknown => columns.at_rest,
            _ => op.is_at_rest(rules, now),
        };
        let class = op.class.map(FailureClass::name);
        let text = |text: Option<&str>| text.unwrap_or("none").to_owned();
        let pairs = [
            ("state", op.state.name().to_owned(), columns.state.clone()),
            ("class", text(class), text(columns.class.as_deref())),
            ("since", millis(op.since), millis(columns.since)),
            ("attempts", op.attempts.to_string(), columns.attempts.to_string()),
            ("at_rest", at_rest.to_string(), columns.at_rest.to_string()),
            ("contradicted", op.contradicted.to_string(), columns.contradicted.to_string()),
            ("undelivered", op.undelivered.to_string(), columns.undelivered.to_string()),
            ("cleanup_failed", op.cleanup.given_up.to_string(), columns.cleanup_failed.to_string()),
            (
                "message_id",
                text(message_id.map(String::as_str)),
                text(columns.message_id.as_deref()),
            ),
        ];
        let different: Vec<_> = pairs.iter().filter(|(_, core, column)| core != column).collect();
        if !different.is_empty() {
            let list = |pick: fn(&(&str, String, String)) -> String| {
                different.iter().map(|pair| pick(pair)).collect::<Vec<_>>().join(", ")
            };
            let expected = list(|(name, core, _)| format!("{name} {core}"));
            let found = list(|(name, _, column)| format!("{name} {column}"));
            self.differ(Kind::StateDiffers, expected, found);
        }
        if let Some(contradiction) = op.contradiction() {
            let expected = format!("what fits {}", op.state);
            self.differ(Kind::Contradiction, expected, contradiction);
        }
    }

    /// The attempts on record are those that the decision core counts, and those without an outcome
    /// are its doubts.
    fn attempts(&mut self) {
        let (op, rows) = (self.operation, &self.entry.attempts);
        // After a restore the count goes on from what the engine has seen.
        let restored = self.entry.timeline.iter().any(|row| row.event == RESTORED);
        let numbers: Vec<u32> = rows.iter().map(|row| row.number).collect();
        let expected: Vec<u32> = (1..=op.attempts).collect();
        let all_there = if restored {
            numbers.last().copied().unwrap_or(0) == op.attempts
        } else {
            numbers == expected
        };
        let open: Vec<_> = rows
            .iter()
            .filter(|row| row.outcome.is_none())
            .map(|row| {
                (
                    row.number,
                    (row.generation, row.ordinal),
                    row.begun_at,
                    row.lease_ends,
                    row.settles_at,
                )
            })
            .collect();
        // The ledger keeps milliseconds.
        let whole = |at: Timestamp| Timestamp::from_millisecond(at.as_millisecond()).ok();
        let doubts: Vec<_> = op
            .doubts
            .iter()
            .map(|doubt| {
                (
                    doubt.number,
                    (doubt.generation, doubt.ordinal),
                    whole(doubt.begun_at),
                    whole(doubt.lease_ends),
                    whole(doubt.settles_at),
                )
            })
            .collect();
        if !all_there || open != doubts {
            let doubt = |count: usize| format!("{count} of them without an outcome");
            let expected = format!("{} attempts, {}", op.attempts, doubt(doubts.len()));
            let mut found = format!("{} attempts, {}", rows.len(), doubt(open.len()));
            if found == expected {
                "the same number, with other numbers or times".clone_into(&mut found);
            }
            self.differ(Kind::AttemptsDiffer, expected, found);
        }
    }

    /// What is delivered was accepted once, and what was accepted is delivered.
    fn acceptance(&mut self) {
        let (op, rows) = (self.operation, &self.entry.attempts);
        let accepted: BTreeSet<u32> = rows
            .iter()
            .filter(|row| row.outcome.as_deref() == Some(ACCEPTED))
            .map(|row| row.number)
            .collect();
        let Some(acceptance) = &op.accepted else {
            if let Some(number) = accepted.first() {
                let expected = format!("no accepted attempt while {}", op.state);
                let found = format!("attempt {number} is recorded as accepted");
                self.differ(Kind::AcceptedNotSent, expected, found);
            }
            return;
        };
        let covered: BTreeSet<u32> =
            acceptance.covers.iter().copied().chain(acceptance.attempt).collect();
        let ids: BTreeSet<&str> = rows
            .iter()
            .filter(|row| row.outcome.as_deref() == Some(ACCEPTED))
            .filter_map(|row| row.message_id.as_deref())
            .collect();
        if !accepted.is_subset(&covered) || ids.len() > 1 {
            let list = |numbers: &BTreeSet<u32>| {
                numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            };
            let expected = format!("one acceptance, of attempt {}", list(&covered));
            let found = format!("accepted attempts {}, {} message ids", list(&accepted), ids.len());
            self.differ(Kind::AcceptedTwice, expected, found);
        }
        let told = self.entry.timeline.iter().any(is_other_evidence);
        let lost = self.differences.iter().any(|other| other.kind == Kind::AttemptsDiffer);
        if accepted.is_empty() && !told && !lost {
            let found = format!("{}, and no attempt was accepted", op.state);
            self.differ(Kind::NoAcceptance, "an accepted attempt, a verdict or an event", found);
        }
    }

    /// Every attempt of a generation handed over the same bytes.
    fn bytes(&mut self) {
        let mut generations: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
        for attempt in &self.entry.attempts {
            if let Some(hash) = &attempt.content_hash {
                generations.entry(attempt.generation).or_default().insert(hash);
            }
        }
        let other = generations.iter().find(|(_, hashes)| hashes.len() > 1);
        if let Some((generation, hashes)) = other {
            let expected = format!("the same bytes in all attempts of generation {generation}");
            self.differ(Kind::OtherBytes, expected, format!("{} different ones", hashes.len()));
        }
    }

    /// Of what is cleaned nothing is stored.
    fn content(&mut self) {
        if self.operation.state == State::Cleaned && self.entry.has_content {
            self.differ(Kind::ContentLeft, "no content once cleaned", "rows or a message");
        }
    }

    /// One dead letter waits exactly while the operation is dead, and each earlier generation has
    /// left one that was replayed.
    fn dead_letters(&mut self) {
        let op = self.operation;
        let mut expected: Vec<(u32, bool)> =
            (1..op.generation).map(|generation| (generation, true)).collect();
        if op.state == State::Dead {
            expected.push((op.generation, false));
        }
        if self.entry.dead_letters != expected {
            let waiting = |letters: &[(u32, bool)]| {
                let waiting = letters.iter().filter(|(_, replayed)| !replayed).count();
                format!("{waiting} dead letters that wait, {} replayed", letters.len() - waiting)
            };
            let found = waiting(&self.entry.dead_letters);
            self.differ(Kind::DeadLetter, waiting(&expected), found);
        }
    }

    /// Each transition begins where the one before ended, is one that the decision core makes, and
    /// the last one ends where the operation is.
    fn timeline(&mut self) {
        let mut at = State::Selected.name().to_owned();
        let mut wrong = None;
        let mut was_sent = false;
        for row in &self.entry.timeline {
            was_sent |= row.to == State::Sent.name();
            if row.from != at {
                wrong.get_or_insert_with(|| (format!("{} from {at}", row.event), row));
            } else if !is_legal(row) {
                wrong.get_or_insert_with(|| (format!("a transition from {at} that exists"), row));
            }
            at.clone_from(&row.to);
        }
        let is = self.operation.state;
        if is == State::Cleaned && !was_sent {
            self.differ(Kind::CleanedWithoutSent, "sent before cleaned", "no transition to sent");
        } else if let Some((expected, row)) = wrong {
            let found = format!("{} from {} to {}", row.event, row.from, row.to);
            self.differ(Kind::Timeline, expected, found);
        } else if at != is.name() {
            let found = format!("the last one leads to {at}");
            self.differ(Kind::Timeline, format!("transitions that lead to {is}"), found);
        }
    }
}

/// The event of the comparison with the engine after a restore from a backup.
const RESTORED: &str = Event::Restored { attempts: 0 }.name();

fn is_legal(row: &Transition) -> bool {
    let (Some(from), Some(to)) = (State::from_name(&row.from), State::from_name(&row.to)) else {
        return false;
    };
    let restored = row.event == RESTORED && to == State::Unknown;
    from == to || from.may_become(to) || (restored && from.may_be_restored_to_unknown())
}

/// Whether the row tells of a delivery for which no attempt was answered: a verdict, a look-up, an
/// event, or an answer to an attempt that had been settled otherwise.
fn is_other_evidence(row: &Transition) -> bool {
    let sent = State::Sent.name();
    row.to == sent && row.from != sent && (row.event != ANSWERED || row.noted)
}

/// The event of an attempt's own answer.
const ANSWERED: &str = "answered";

fn state_of(operation: &Operation) -> String {
    operation.class.map_or_else(
        || operation.state.to_string(),
        |class| format!("{} ({class})", operation.state),
    )
}

fn millis(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}
