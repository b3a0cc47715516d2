//! What the provider took, by its own record, and what must never differ between that and the
//! ledger.

use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// How often each key was taken.
pub(crate) type Inbox = BTreeMap<String, u32>;

/// One request that the sandbox saw.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// When it came.
    pub(crate) at: Timestamp,
}

/// What is wrong between ledger and provider, in one sentence each. Empty is right; it must be
/// right at every moment, not only at the end.
pub(crate) fn violations(operations: &BTreeMap<String, String>, inbox: &Inbox) -> Vec<String> {
    let mut found = Vec::new();
    for (key, count) in inbox {
        if *count > 1 {
            found.push(format!("{key} was taken {count} times"));
        }
        match operations.get(key).map(String::as_str) {
            None => found.push(format!("{key} was taken, and the ledger does not know it")),
            Some(state @ ("selected" | "retrying" | "suppressed" | "dead")) => {
                found.push(format!("{key} was taken, and the ledger says {state}"));
            }
            Some(_) => {}
        }
    }
    for (key, state) in operations {
        if matches!(state.as_str(), "sent" | "cleaned") && !inbox.contains_key(key) {
            found.push(format!("{key} is {state}, and nobody has taken it"));
        }
    }
    found
}

/// By the sandbox's log, whose last line may be half written.
pub(crate) fn of_sandbox(log: &Path) -> Inbox {
    let mut inbox = Inbox::new();
    for line in lines(log, "acceptance") {
        *inbox.entry(line["key"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    inbox
}

/// Every request, by the same log.
pub(super) fn requests(log: &Path) -> Vec<Request> {
    lines(log, "request")
        .iter()
        .map(|line| Request { at: line["at"].as_str().unwrap().parse().unwrap() })
        .collect()
}

fn lines(log: &Path, event: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["event"] == event)
        .collect()
}

/// By the messages that a mail server has stored.
pub(crate) fn of_mail(messages: &[Vec<u8>]) -> Inbox {
    let mut inbox = Inbox::new();
    for message in messages {
        *inbox.entry(header(message, "X-Operation-Key")).or_default() += 1;
    }
    inbox
}

/// One header of a message, unfolded.
fn header(message: &[u8], name: &str) -> String {
    let text = String::from_utf8_lossy(message);
    let head = text.split("\r\n\r\n").next().unwrap_or_default().replace("\r\n ", "");
    let line = head
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .unwrap_or_else(|| panic!("a message without {name}"));
    line.trim().to_owned()
}

#[test]
fn the_check_finds_every_kind_of_difference() {
    let operations = |state: &str| BTreeMap::from([("k".to_owned(), state.to_owned())]);
    let taken = |count| Inbox::from([("k".to_owned(), count)]);
    for state in ["selected", "retrying", "suppressed", "dead"] {
        assert_eq!(violations(&operations(state), &taken(1)).len(), 1, "{state}");
        assert_eq!(violations(&operations(state), &Inbox::new()).len(), 0, "{state}");
    }
    for state in ["sent", "cleaned"] {
        assert_eq!(violations(&operations(state), &taken(1)).len(), 0, "{state}");
        assert_eq!(violations(&operations(state), &taken(2)).len(), 1, "{state}");
        assert_eq!(violations(&operations(state), &Inbox::new()).len(), 1, "{state}");
    }
    for state in ["sending", "unknown", "expired"] {
        assert_eq!(violations(&operations(state), &taken(1)).len(), 0, "{state}");
        assert_eq!(violations(&operations(state), &taken(2)).len(), 1, "{state}");
    }
    assert_eq!(violations(&BTreeMap::new(), &taken(1)).len(), 1);
}
