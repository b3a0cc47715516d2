//! What the sandbox did: every request and every acceptance in order. An auditor compares the
//! ledger with this, so it depends on nothing that digestd itself remembers.

use super::faults::FaultKind;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One message that the sandbox has taken responsibility for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acceptance {
    /// Its place among the acceptances, from 1.
    pub number: u64,
    /// The key it was sent under.
    pub key: String,
    /// The sandbox's id of it.
    pub id: String,
    /// Lower-case hexadecimal SHA-256 of the request's body.
    pub body_hash: String,
    /// When it was accepted, by the sandbox's clock.
    pub at: Timestamp,
}

/// One well-formed request to send a message, whatever became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Its place among the requests, from 1.
    pub number: u64,
    /// The key it was sent under.
    pub key: String,
    /// Its place among the requests with this key, from 1.
    pub nth: u64,
    /// Lower-case hexadecimal SHA-256 of its body.
    pub body_hash: String,
    /// When it came, by the sandbox's clock.
    pub at: Timestamp,
    /// The fault that the script had for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<FaultKind>,
}

/// Everything a sandbox did so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Witness {
    /// Every acceptance, in order. A returned original is none.
    pub acceptances: Vec<Acceptance>,
    /// Every request, in order.
    pub requests: Vec<RequestRecord>,
}

impl Witness {
    /// The acceptances of each key that has any.
    #[must_use]
    pub fn by_key(&self) -> BTreeMap<&str, Vec<&Acceptance>> {
        let mut keys = BTreeMap::<_, Vec<_>>::new();
        for acceptance in &self.acceptances {
            keys.entry(acceptance.key.as_str()).or_default().push(acceptance);
        }
        keys
    }

    /// How many requests each key had.
    #[must_use]
    pub fn requests_by_key(&self) -> BTreeMap<&str, u64> {
        let mut keys = BTreeMap::new();
        for request in &self.requests {
            *keys.entry(request.key.as_str()).or_default() += 1;
        }
        keys
    }

    /// The keys that were accepted more than once: each is a duplicate in somebody's inbox.
    #[must_use]
    pub fn duplicates(&self) -> Vec<&str> {
        self.by_key().into_iter().filter(|(_, all)| all.len() > 1).map(|(key, _)| key).collect()
    }
}
