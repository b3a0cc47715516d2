//! What the ledger's decisions tell, in words for a person who watches.

use super::cast::CAMPAIGN;
use digest_activities::ledger::DecisionLine;
use std::collections::{BTreeMap, BTreeSet};

/// What happened to whom so far.
#[derive(Debug, Default)]
pub(super) struct Story {
    /// The operations that waited for another attempt, by why.
    retried: BTreeMap<String, BTreeSet<String>>,
    /// The operations that were in doubt.
    doubted: BTreeSet<String>,
    /// Those of them that a look-up found.
    found: BTreeSet<String>,
}

/// One transition of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Transition {
    /// `HH:MM:SS`, UTC.
    pub(super) at: String,
    /// The operation.
    pub(super) key: String,
    /// The state before.
    pub(super) from: String,
    /// The state after.
    pub(super) to: String,
    /// Why, or by whom.
    pub(super) why: String,
}

impl Transition {
    /// The transition that `line` tells of; `None` where no state changed.
    pub(super) fn read(line: &DecisionLine) -> Option<Self> {
        let told = &line.transition;
        let (from, to) = (told.from.clone()?, told.to.clone()?);
        if from == to {
            return None;
        }
        let reason = told.reason.clone();
        let why = match (told.event.as_str(), reason) {
            ("judged", reason) => {
                format!("resolved by {}: {}", told.by, reason.unwrap_or_default())
            }
            ("looked_up", _) => "found by a look-up".to_owned(),
            ("unwanted", _) => "opted out".to_owned(),
            ("overdue", _) => "no answer in time".to_owned(),
            (_, Some(reason)) => reason,
            _ => String::new(),
        };
        Some(Self {
            at: told.at.strftime("%H:%M:%S").to_string(),
            key: line.key.clone()?,
            from,
            to,
            why,
        })
    }

    /// Whether it is one that every message goes through.
    pub(super) fn is_usual(&self) -> bool {
        self.why.is_empty()
            && matches!(
                (self.from.as_str(), self.to.as_str()),
                ("selected" | "retrying", "sending") | ("sending", "sent") | ("sent", "cleaned")
            )
    }
}

impl Story {
    /// Takes in one transition.
    pub(super) fn tell(&mut self, transition: &Transition) {
        let key = transition.key.clone();
        match (transition.from.as_str(), transition.to.as_str()) {
            (_, "retrying") => {
                let code = code(&transition.why).to_owned();
                self.retried.entry(code).or_default().insert(key);
            }
            (_, "unknown") => {
                self.doubted.insert(key);
            }
            ("unknown", "sent") if transition.why == "found by a look-up" => {
                self.found.insert(key);
            }
            _ => {}
        }
    }

    /// What was met so far, each with how many met it.
    pub(super) fn met(&self) -> Vec<(String, usize)> {
        let mut met: Vec<_> = self
            .retried
            .iter()
            .map(|(why, keys)| (format!("retried after {why}"), keys.len()))
            .collect();
        met.push(("in doubt".to_owned(), self.doubted.len()));
        met.push(("found by a look-up".to_owned(), self.found.len()));
        met.retain(|(_, count)| *count > 0);
        met
    }
}

/// The provider's own word in `http 429 rate_limited`.
fn code(why: &str) -> &str {
    let word = why.strip_prefix("http ").and_then(|rest| rest.split_once(' '));
    word.map_or(why, |(_, word)| word)
}

/// The customer that `key` is about.
pub(super) fn customer(key: &str) -> &str {
    let rest = key.strip_prefix(CAMPAIGN).and_then(|rest| rest.strip_prefix(':')).unwrap_or(key);
    rest.split_once(':').map_or(rest, |(_, customer)| customer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transition(key: &str, from: &str, to: &str, why: &str) -> Transition {
        let of = str::to_owned;
        Transition { at: of("09:00:00"), key: of(key), from: of(from), to: of(to), why: of(why) }
    }

    #[test]
    fn an_operation_that_meets_the_same_twice_counts_once() {
        let mut story = Story::default();
        for (key, from, to, why) in [
            ("digest:2026-W49:a", "sending", "retrying", "http 429 rate_limited"),
            ("digest:2026-W49:a", "sending", "retrying", "http 429 rate_limited"),
            ("digest:2026-W49:b", "sending", "retrying", "http 429 rate_limited"),
            ("digest:2026-W49:b", "sending", "unknown", "no answer in time"),
            ("digest:2026-W49:b", "unknown", "sent", "found by a look-up"),
        ] {
            story.tell(&transition(key, from, to, why));
        }
        let met: Vec<_> = story.met();
        let of = str::to_owned;
        assert_eq!(
            met,
            [
                (of("retried after rate_limited"), 2),
                (of("in doubt"), 1),
                (of("found by a look-up"), 1)
            ]
        );
    }

    #[test]
    fn the_customer_is_what_the_key_ends_with() {
        assert_eq!(customer("digest:2026-W49:customer-0007"), "customer-0007");
    }
}
