//! What the provider took, by its own record.

use digest_activities::provider::sandbox::{Acceptance, Witness};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// How often each key was taken.
pub(crate) type Inbox = BTreeMap<String, u32>;

/// One message that the provider took.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    /// The key it was sent under.
    pub(crate) key: String,
    /// When, where the record tells.
    pub(crate) at: Option<Timestamp>,
    /// The hash of what was sent, where the record tells.
    pub(crate) body: Option<String>,
}

/// How often each key was taken.
pub(crate) fn counted(taken: &[Taken]) -> Inbox {
    let mut inbox = Inbox::new();
    for message in taken {
        *inbox.entry(message.key.clone()).or_default() += 1;
    }
    inbox
}

/// One request that the sandbox saw.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The key it came under.
    pub(crate) key: String,
    /// Its place among the requests with this key, from 1.
    pub(crate) nth: u64,
    /// When it came.
    pub(crate) at: Timestamp,
    /// Hash of its body.
    pub(crate) body_hash: String,
    /// What went wrong with it by the script.
    pub(crate) fault: Option<String>,
}

/// By the sandbox's log, whose last line may be half written.
pub(crate) fn of_sandbox(log: &Path) -> Vec<Taken> {
    lines(log, "acceptance")
        .iter()
        .map(|line| Taken {
            key: line["key"].as_str().unwrap().to_owned(),
            at: Some(line["at"].as_str().unwrap().parse().unwrap()),
            body: Some(line["body_hash"].as_str().unwrap().to_owned()),
        })
        .collect()
}

/// Every request, by the same log.
pub(super) fn requests(log: &Path) -> Vec<Request> {
    lines(log, "request")
        .iter()
        .map(|line| Request {
            key: line["key"].as_str().unwrap().to_owned(),
            nth: line["nth"].as_u64().unwrap(),
            at: line["at"].as_str().unwrap().parse().unwrap(),
            body_hash: line["body_hash"].as_str().unwrap().to_owned(),
            fault: line["fault"].as_str().map(str::to_owned),
        })
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

/// By the witness of a sandbox in this process.
pub(crate) fn of_witness(witness: &Witness) -> Vec<Taken> {
    let taken = |acceptance: &Acceptance| Taken {
        key: acceptance.key.clone(),
        at: Some(acceptance.at),
        body: Some(acceptance.body_hash.clone()),
    };
    witness.acceptances.iter().map(taken).collect()
}

/// By the messages that a mail server has stored.
pub(crate) fn of_mail(messages: &[Vec<u8>]) -> Vec<Taken> {
    messages
        .iter()
        .map(|message| Taken { key: header(message, "X-Operation-Key"), at: None, body: None })
        .collect()
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
