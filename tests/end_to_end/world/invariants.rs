//! What must never differ between what the provider took, what the ledger says, what the engine has
//! and what the shop still holds: a list of named invariants, the same for every test.

use super::inbox::{Taken, counted};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// The records that are compared, each kept by somebody who does not read the others'.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    /// What the provider took, by its own record, read before everything else.
    pub(crate) taken: Vec<Taken>,
    /// The keys that it has taken by when everything else was read.
    pub(crate) taken_later: BTreeSet<String>,
    /// The ledger's state of every operation, and whether it is at rest.
    pub(crate) operations: BTreeMap<String, (String, bool)>,
    /// When each operation's intents were recorded.
    pub(crate) intents: BTreeMap<String, Vec<Timestamp>>,
    /// The ledger's audit, oldest first.
    pub(crate) decisions: Vec<Decision>,
    /// What the rows of each customer's digest are at: as the shop made them, or fewer.
    pub(crate) rows: BTreeMap<String, Rows>,
    /// The runs: whether each is closed, and how many operations it selected.
    pub(crate) runs: Vec<(bool, u64)>,
    /// The ids of the engine's open workflows.
    pub(crate) open: BTreeSet<String>,
    /// The ids of those that ended in another way than by themselves.
    pub(crate) failed: BTreeSet<String>,
}

/// One transition in the audit.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    pub(crate) key: String,
    pub(crate) event: String,
    pub(crate) from: String,
    pub(crate) to: String,
}

/// The rows of one customer's digest in the shop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// All that were there.
    All,
    /// None or some.
    Missing,
}

/// What is wrong, in one sentence each; empty is right.
type Invariant = (&'static str, fn(&Evidence) -> Vec<String>);

/// What holds at every moment, also while a worker is dead.
const ALWAYS: [Invariant; 8] = [
    ("taken at most once", taken_at_most_once),
    ("one message has one key", one_message_has_one_key),
    ("nothing is taken without an intent before it", nothing_is_invented),
    ("the ledger agrees with the provider", the_ledger_agrees),
    ("only transitions of the diagram", only_legal_transitions),
    ("cleaned at most once", cleaned_at_most_once),
    ("only rows of what was sent are removed", only_rows_of_what_was_sent),
    ("what is cleaned has no rows left", cleaned_is_clean),
];

/// What holds besides, once a run is closed.
const AT_REST: [Invariant; 3] = [
    ("the books balance", the_books_balance),
    ("every operation is at rest", everything_is_at_rest),
    ("the engine agrees with the ledger", the_engine_agrees),
];

/// What is wrong now.
pub(crate) fn violations(evidence: &Evidence) -> Vec<String> {
    found(&ALWAYS, evidence)
}

/// What is wrong after the end.
pub(crate) fn violations_at_rest(evidence: &Evidence) -> Vec<String> {
    let mut all = found(&ALWAYS, evidence);
    all.extend(found(&AT_REST, evidence));
    all
}

fn found(invariants: &[Invariant], evidence: &Evidence) -> Vec<String> {
    let name = |name: &str, what: String| format!("{name}: {what}");
    invariants
        .iter()
        .flat_map(|(title, check)| check(evidence).into_iter().map(|what| name(title, what)))
        .collect()
}

impl Evidence {
    fn state(&self, key: &str) -> Option<&str> {
        self.operations.get(key).map(|(state, _)| state.as_str())
    }
}

fn taken_at_most_once(evidence: &Evidence) -> Vec<String> {
    counted(&evidence.taken)
        .into_iter()
        .filter(|(_, count)| *count > 1)
        .map(|(key, count)| format!("{key} was taken {count} times"))
        .collect()
}

/// Every message names its operation, so the same bytes under two keys are one message twice.
fn one_message_has_one_key(evidence: &Evidence) -> Vec<String> {
    let mut keys = BTreeMap::<&str, BTreeSet<&str>>::new();
    for message in &evidence.taken {
        if let Some(body) = &message.body {
            keys.entry(body).or_default().insert(&message.key);
        }
    }
    keys.into_values()
        .filter(|keys| keys.len() > 1)
        .map(|keys| format!("one message was taken under {keys:?}"))
        .collect()
}

fn nothing_is_invented(evidence: &Evidence) -> Vec<String> {
    let mut found = Vec::new();
    for message in &evidence.taken {
        let key = &message.key;
        let intents = evidence.intents.get(key).map_or(&[][..], Vec::as_slice);
        // The ledger's times are whole milliseconds, rounded down.
        let earlier = |intent: &&Timestamp| message.at.is_none_or(|at| **intent <= at);
        if evidence.state(key).is_none() {
            found.push(format!("{key} was taken, and the ledger does not know it"));
        } else if !intents.iter().any(|intent| earlier(&intent)) {
            found.push(format!("{key} was taken before any intent"));
        }
    }
    found
}

fn the_ledger_agrees(evidence: &Evidence) -> Vec<String> {
    let inbox = counted(&evidence.taken);
    let mut found = Vec::new();
    for (key, (state, _)) in &evidence.operations {
        match state.as_str() {
            "selected" | "retrying" | "suppressed" | "dead" if inbox.contains_key(key) => {
                found.push(format!("{key} was taken, and the ledger says {state}"));
            }
            "sent" | "cleaned" if !evidence.taken_later.contains(key) => {
                found.push(format!("{key} is {state}, and nobody has taken it"));
            }
            _ => {}
        }
    }
    found
}

/// Whether the diagram has an arrow. A try that ends before its intent passes `sending` within one
/// transition.
fn is_legal(from: &str, to: &str, event: &str) -> bool {
    match from {
        _ if from == to => true,
        _ if event == "restored" => to == "unknown",
        "selected" => matches!(to, "sending" | "retrying" | "suppressed" | "dead"),
        "sending" => matches!(to, "sent" | "retrying" | "unknown" | "suppressed" | "dead"),
        "retrying" => matches!(to, "sending" | "suppressed" | "dead"),
        "unknown" => matches!(to, "sent" | "retrying" | "suppressed" | "dead" | "expired"),
        "sent" => to == "cleaned",
        "dead" => to == "sending",
        _ => false,
    }
}

fn only_legal_transitions(evidence: &Evidence) -> Vec<String> {
    let mut found = Vec::new();
    let mut now = BTreeMap::<&str, &str>::new();
    for Decision { key, event, from, to } in &evidence.decisions {
        let before = now.insert(key, to).unwrap_or("selected");
        if before != from {
            found.push(format!("{key} was {before}, and went on from {from} by {event}"));
        }
        if !is_legal(from, to, event) {
            found.push(format!("{key} went from {from} to {to} by {event}"));
        }
    }
    for (key, (state, _)) in &evidence.operations {
        let last = now.get(key.as_str()).copied().unwrap_or("selected");
        if last != state {
            found.push(format!("{key} is {state}, and its last transition led to {last}"));
        }
    }
    found
}

fn cleaned_at_most_once(evidence: &Evidence) -> Vec<String> {
    let mut times = BTreeMap::<&str, u32>::new();
    for decision in &evidence.decisions {
        if decision.to == "cleaned" && decision.from != "cleaned" {
            *times.entry(&decision.key).or_default() += 1;
        }
    }
    times
        .into_iter()
        .filter(|(_, times)| *times > 1)
        .map(|(key, times)| format!("{key} was cleaned {times} times"))
        .collect()
}

fn only_rows_of_what_was_sent(evidence: &Evidence) -> Vec<String> {
    let missing = evidence.rows.iter().filter(|(_, rows)| **rows == Rows::Missing);
    missing
        .filter(|(key, _)| !matches!(evidence.state(key), Some("sent" | "cleaned")))
        .map(|(key, _)| match evidence.state(key) {
            Some(state) => format!("{key} is {state}, and its rows are gone"),
            None => format!("{key} is nobody's operation, and its rows are gone"),
        })
        .collect()
}

fn cleaned_is_clean(evidence: &Evidence) -> Vec<String> {
    let whole = evidence.rows.iter().filter(|(_, rows)| **rows == Rows::All);
    whole
        .filter(|(key, _)| evidence.state(key) == Some("cleaned"))
        .map(|(key, _)| format!("{key} is cleaned, and its rows are there"))
        .collect()
}

fn the_books_balance(evidence: &Evidence) -> Vec<String> {
    let selected: u64 = evidence.runs.iter().map(|(_, selected)| selected).sum();
    let ends = ["cleaned", "sent", "suppressed", "dead", "unknown", "expired"];
    let ended = evidence.operations.values().filter(|(state, _)| ends.contains(&state.as_str()));
    let ended = u64::try_from(ended.count()).unwrap();
    let mut found = Vec::new();
    if selected != ended {
        found.push(format!("{selected} are selected, and {ended} have ended"));
    }
    found
}

fn everything_is_at_rest(evidence: &Evidence) -> Vec<String> {
    let mut found: Vec<String> = evidence
        .operations
        .iter()
        .filter(|(_, (_, rests))| !rests)
        .map(|(key, (state, _))| format!("{key} is {state}, and not at rest"))
        .collect();
    if evidence.runs.is_empty() || evidence.runs.iter().any(|(closed, _)| !closed) {
        found.push("a run is not closed".to_owned());
    }
    found
}

/// Of a closed run only what waits for a human is open in the engine, and nothing has failed there.
fn the_engine_agrees(evidence: &Evidence) -> Vec<String> {
    let mut found = Vec::new();
    for id in &evidence.open {
        match evidence.state(id) {
            Some("unknown") => {}
            Some(state) => found.push(format!("{id} is {state}, and its workflow is open")),
            None => found.push(format!("the workflow {id} is open")),
        }
    }
    found.extend(evidence.failed.iter().map(|id| format!("the workflow {id} did not complete")));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Evidence about the operation `k` in `state`, with one intent, taken `times` times.
    fn evidence(state: &str, times: usize) -> Evidence {
        let taken = Taken { key: "k".to_owned(), at: Some(at(5)), body: Some("b".to_owned()) };
        let steps: &[&str] = match state {
            "selected" => &[],
            "sending" => &["sending"],
            "cleaned" => &["sending", "sent", "cleaned"],
            "expired" => &["sending", "unknown", "expired"],
            _ => &["sending", state],
        };
        let mut from = "selected";
        let mut decisions = Vec::new();
        for to in steps.iter().copied() {
            decisions.push(decision(from, to));
            from = to;
        }
        Evidence {
            taken_later: (0..times).map(|_| taken.key.clone()).collect(),
            taken: vec![taken; times],
            operations: BTreeMap::from([("k".to_owned(), (state.to_owned(), true))]),
            intents: BTreeMap::from([("k".to_owned(), vec![at(5)])]),
            decisions,
            runs: vec![(true, 1)],
            ..Evidence::default()
        }
    }

    fn decision(from: &str, to: &str) -> Decision {
        let [key, event, from, to] = ["k", "answered", from, to].map(str::to_owned);
        Decision { key, event, from, to }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// The names of the invariants that are broken.
    fn broken(evidence: &Evidence) -> Vec<String> {
        let name = |text: &String| text.split_once(':').unwrap().0.to_owned();
        violations_at_rest(evidence).iter().map(name).collect()
    }

    #[test]
    fn ledger_and_provider_are_compared_in_every_state() {
        let agrees = "the ledger agrees with the provider";
        for state in ["suppressed", "dead"] {
            assert_eq!(broken(&evidence(state, 1)), [agrees], "{state}");
            assert!(broken(&evidence(state, 0)).is_empty(), "{state}");
        }
        for state in ["sent", "cleaned"] {
            assert!(broken(&evidence(state, 1)).is_empty(), "{state}");
            assert_eq!(broken(&evidence(state, 0)), [agrees], "{state}");
        }
        for state in ["unknown", "expired"] {
            assert!(broken(&evidence(state, 0)).is_empty(), "{state}");
            assert!(broken(&evidence(state, 1)).is_empty(), "{state}");
            assert_eq!(broken(&evidence(state, 2)), ["taken at most once"], "{state}");
        }
        for state in ["selected", "retrying"] {
            let found = violations(&evidence(state, 1));
            assert_eq!(found, [format!("{agrees}: k was taken, and the ledger says {state}")]);
            assert_eq!(broken(&evidence(state, 0)), ["the books balance"], "{state}");
        }
    }

    #[test]
    fn each_of_the_other_invariants_can_be_broken() {
        let case = |change: &dyn Fn(&mut Evidence)| {
            let mut evidence = evidence("cleaned", 1);
            assert!(broken(&evidence).is_empty());
            change(&mut evidence);
            broken(&evidence)
        };
        let key = |key: &str| BTreeSet::from([key.to_owned()]);
        let other = || Taken { key: "l".to_owned(), at: None, body: Some("b".to_owned()) };
        assert_eq!(
            case(&|e| e.taken.push(other())),
            ["one message has one key", "nothing is taken without an intent before it"]
        );
        let invented = ["nothing is taken without an intent before it"];
        assert_eq!(case(&|e| e.intents.clear()), invented);
        assert_eq!(case(&|e| e.taken[0].at = Some(at(4))), invented);
        let legal = ["only transitions of the diagram"];
        assert_eq!(case(&|e| e.decisions[0] = decision("selected", "retrying")), legal);
        assert_eq!(case(&|e| drop(e.decisions.pop())), legal);
        assert_eq!(
            case(&|e| {
                e.decisions.extend([decision("cleaned", "sending"), decision("sending", "sent")]);
                e.decisions.push(decision("sent", "cleaned"));
            }),
            ["only transitions of the diagram", "cleaned at most once"]
        );
        let rows = |key: &str, rows| BTreeMap::from([(key.to_owned(), rows)]);
        assert!(case(&|e| e.rows = rows("k", Rows::Missing)).is_empty());
        assert_eq!(case(&|e| e.rows = rows("k", Rows::All)), ["what is cleaned has no rows left"]);
        let removed = ["only rows of what was sent are removed"];
        assert_eq!(case(&|e| e.rows = rows("l", Rows::Missing)), removed);
        assert_eq!(case(&|e| e.runs = vec![(true, 2)]), ["the books balance"]);
        let rests = ["every operation is at rest"];
        assert_eq!(case(&|e| e.runs[0].0 = false), rests);
        assert_eq!(case(&|e| e.operations.get_mut("k").unwrap().1 = false), rests);
        let engine = ["the engine agrees with the ledger"];
        assert_eq!(case(&|e| e.open = key("k")), engine);
        assert_eq!(case(&|e| e.open = key("a run")), engine);
        assert_eq!(case(&|e| e.failed = key("k")), engine);
    }
}
