//! The fault script: which request of which key meets which fault. It is a pure function of the
//! seed, the key and the request's ordinal for that key, so every run of it is the same.

use digest_workflows::operation::OperationKey;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// What can go wrong with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// 429 with `Retry-After`; not accepted.
    RateLimit,
    /// 503 with the code `overloaded`, which the sandbox documents as not processed.
    Overload,
    /// 403 `account_suspended`: our account or settings; not accepted.
    Configuration,
    /// 422 `recipient_refused`: the address does not exist; not accepted.
    RefuseRecipient,
    /// 422 `recipient_suppressed`: on the suppression list; not accepted.
    Suppress,
    /// 422 `message_rejected`: this message is not wanted; not accepted.
    Reject,
    /// 500, and not accepted, which nobody can tell from the answer.
    ServerError,
    /// The request is read and never answered; not accepted.
    HangBeforeAcceptance,
    /// The request is read and the connection reset; not accepted.
    ResetBeforeAcceptance,
    /// Accepted, then 500.
    AcceptThenServerError,
    /// Accepted, and never answered.
    AcceptThenHang,
    /// Accepted, then the connection is reset.
    AcceptThenReset,
    /// Accepted, answered after `late_answer`.
    AcceptThenLateAnswer,
    /// Accepted, answered with 200 and a body that is not the documented one.
    AcceptThenGarbage,
    /// Accepted, answered with 200 and a body that is cut off.
    AcceptThenTruncate,
}

impl FaultKind {
    /// Every kind, in the order of this list.
    pub const ALL: [Self; 15] = [
        Self::RateLimit,
        Self::Overload,
        Self::Configuration,
        Self::RefuseRecipient,
        Self::Suppress,
        Self::Reject,
        Self::ServerError,
        Self::HangBeforeAcceptance,
        Self::ResetBeforeAcceptance,
        Self::AcceptThenServerError,
        Self::AcceptThenHang,
        Self::AcceptThenReset,
        Self::AcceptThenLateAnswer,
        Self::AcceptThenGarbage,
        Self::AcceptThenTruncate,
    ];

    /// Whether the message is accepted although the answer is spoilt.
    #[must_use]
    pub const fn accepts(self) -> bool {
        matches!(
            self,
            Self::AcceptThenServerError
                | Self::AcceptThenHang
                | Self::AcceptThenReset
                | Self::AcceptThenLateAnswer
                | Self::AcceptThenGarbage
                | Self::AcceptThenTruncate
        )
    }

    /// Whether the fault strikes before the sandbox looks at the key, so that a replay meets it
    /// too. The refusals of a message do not: a replay of an accepted message returns the original.
    #[must_use]
    pub const fn at_the_door(self) -> bool {
        !self.accepts() && !matches!(self, Self::RefuseRecipient | Self::Suppress | Self::Reject)
    }
}

/// Faults of one customer, in whichever campaign and period.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CustomerFaults {
    /// The customer's id as the source has it.
    pub customer: String,
    /// The faults of its first request, its second, and so on; after the last one its requests are
    /// fine. May be empty if the customer is `invisible`.
    #[serde(default)]
    pub kinds: Vec<FaultKind>,
    /// How often the list is gone through; 1 if absent.
    #[serde(default = "once")]
    pub times: u32,
    /// Whether look-ups never find its messages: the index lags for ever, so a miss proves nothing.
    #[serde(default)]
    pub invisible: bool,
}

const fn once() -> u32 {
    1
}

/// Which requests meet which faults.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultScript {
    /// The share of requests, from 0 to 1, that meets each fault, drawn anew for each request of
    /// the customers that `customers` does not name. The shares add up to at most 1.
    pub shares: BTreeMap<FaultKind, f64>,
    /// Faults of named customers.
    pub customers: Vec<CustomerFaults>,
    /// The wait that a 429 asks for, rounded up to whole seconds; a quarter of the keys gets it as
    /// an HTTP date.
    pub retry_after: SignedDuration,
    /// How late [`FaultKind::AcceptThenLateAnswer`] answers.
    pub late_answer: SignedDuration,
}

impl Default for FaultScript {
    fn default() -> Self {
        Self {
            shares: BTreeMap::new(),
            customers: Vec::new(),
            retry_after: SignedDuration::from_secs(1),
            late_answer: SignedDuration::from_secs(5),
        }
    }
}

/// Why a fault script is not usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// A share is not a number from 0 to 1.
    #[error("the share of {0:?} is not a number from 0 to 1")]
    Share(FaultKind),
    /// Together the shares are more than every request.
    #[error("the shares of all faults together are more than 1; make them smaller")]
    Shares,
    /// One customer has two entries.
    #[error("customer {0:?} has two entries [[sandbox.fault]]; join their kinds in one")]
    Twice(String),
    /// An entry that does nothing.
    #[error(
        "the entry [[sandbox.fault]] of customer {0:?} does nothing; give it kinds and times above 0, or invisible = true"
    )]
    Idle(String),
    /// A time is negative or above a day.
    #[error("{0} is not a time from 0 seconds to 24 hours")]
    Time(&'static str),
}

impl FaultScript {
    /// Checks what the types do not say.
    ///
    /// # Errors
    /// [`ScriptError`], the first found.
    pub fn validate(&self) -> Result<(), ScriptError> {
        for (kind, share) in &self.shares {
            if !(0.0..=1.0).contains(share) {
                return Err(ScriptError::Share(*kind));
            }
        }
        // Tenths do not add up exactly in binary.
        if self.shares.values().sum::<f64>() > 1.0 + 1e-9 {
            return Err(ScriptError::Shares);
        }
        let mut seen = BTreeSet::new();
        for entry in &self.customers {
            if !seen.insert(&entry.customer) {
                return Err(ScriptError::Twice(entry.customer.clone()));
            }
            if entry.times == 0 || (entry.kinds.is_empty() && !entry.invisible) {
                return Err(ScriptError::Idle(entry.customer.clone()));
            }
        }
        for (name, time) in [("retry_after", self.retry_after), ("late_answer", self.late_answer)] {
            if !is_short(time) {
                return Err(ScriptError::Time(name));
            }
        }
        Ok(())
    }

    /// The fault of request `nth` (from 1) under `key`, if it meets one.
    #[must_use]
    pub fn fault(&self, seed: u64, key: &str, nth: u64) -> Option<FaultKind> {
        if let Some(entry) = self.entry(key) {
            let index = usize::try_from(nth.saturating_sub(1)).ok()?;
            let round = index.checked_div(entry.kinds.len())?;
            let over = round >= usize::try_from(entry.times).unwrap_or(usize::MAX);
            return entry.kinds.get(index % entry.kinds.len()).copied().filter(|_| !over);
        }
        let mut left = draw(seed, "fault", key, nth);
        self.shares.iter().find_map(|(kind, share)| {
            let hit = left < *share;
            left -= share;
            hit.then_some(*kind)
        })
    }

    /// Whether look-ups never find `key`.
    #[must_use]
    pub fn invisible(&self, key: &str) -> bool {
        self.entry(key).is_some_and(|entry| entry.invisible)
    }

    /// Whether a 429 for this request names its wait as an HTTP date.
    #[must_use]
    pub fn tells_date(seed: u64, key: &str, nth: u64) -> bool {
        draw(seed, "date", key, nth) < 0.25
    }

    fn entry(&self, key: &str) -> Option<&CustomerFaults> {
        if self.customers.is_empty() {
            return None;
        }
        let customer = OperationKey::parse(key).ok()?.source_customer_id();
        self.customers.iter().find(|entry| entry.customer == customer)
    }
}

/// Whether `time` is usable in a script: from 0 to 24 hours.
pub(super) fn is_short(time: SignedDuration) -> bool {
    (SignedDuration::ZERO..=SignedDuration::from_hours(24)).contains(&time)
}

/// A number in [0, 1) that depends on nothing but its arguments.
fn draw(seed: u64, purpose: &str, key: &str, nth: u64) -> f64 {
    let mut hash = Sha256::new();
    hash.update(seed.to_be_bytes());
    hash.update(nth.to_be_bytes());
    hash.update(purpose);
    hash.update([0]);
    hash.update(key);
    let [a, b, c, d, ..] = <[u8; 32]>::from(hash.finalize());
    f64::from(u32::from_be_bytes([a, b, c, d])) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(customer: u32) -> String {
        format!("digest:2026-W42:customer-{customer:04}")
    }

    fn script(entry: CustomerFaults) -> FaultScript {
        FaultScript { customers: vec![entry], ..FaultScript::default() }
    }

    #[test]
    fn a_named_customer_meets_its_faults_in_order_and_then_none() {
        let mut script = script(CustomerFaults {
            customer: "customer-0007".into(),
            kinds: vec![FaultKind::RateLimit, FaultKind::AcceptThenHang],
            times: 2,
            invisible: true,
        });
        script.shares.insert(FaultKind::Overload, 1.0);
        let faults: Vec<_> = (1..=6).map(|nth| script.fault(1, &key(7), nth)).collect();
        let once = [Some(FaultKind::RateLimit), Some(FaultKind::AcceptThenHang)];
        assert_eq!(faults, [once, once, [None, None]].concat());
        assert!(script.invisible(&key(7)));
        // Everybody else has the shares.
        assert_eq!(script.fault(1, &key(8), 1), Some(FaultKind::Overload));
        assert!(!script.invisible(&key(8)));
    }

    #[test]
    fn shares_come_out_as_asked_and_the_seed_matters() {
        let shares = [(FaultKind::RateLimit, 0.25), (FaultKind::AcceptThenReset, 0.05)];
        let script = FaultScript { shares: shares.into(), ..FaultScript::default() };
        let faults =
            |seed| -> Vec<_> { (0..4000).map(|n| script.fault(seed, &key(n), 1)).collect() };
        let count = |kind| faults(1).iter().filter(|fault| **fault == kind).count();
        assert!((900..1100).contains(&count(Some(FaultKind::RateLimit))));
        assert!((150..250).contains(&count(Some(FaultKind::AcceptThenReset))));
        assert_ne!(faults(1), faults(2));
    }

    #[test]
    fn unusable_scripts_are_refused() {
        let of =
            |kind, share| FaultScript { shares: [(kind, share)].into(), ..FaultScript::default() };
        for share in [-0.1, 1.1, f64::NAN] {
            let refused = of(FaultKind::Reject, share).validate();
            assert_eq!(refused, Err(ScriptError::Share(FaultKind::Reject)));
        }
        let mut many = of(FaultKind::Reject, 0.6);
        many.shares.insert(FaultKind::Overload, 0.6);
        assert_eq!(many.validate(), Err(ScriptError::Shares));

        let entry = CustomerFaults { customer: "a".into(), times: 1, ..CustomerFaults::default() };
        assert_eq!(script(entry.clone()).validate(), Err(ScriptError::Idle("a".into())));
        let invisible = CustomerFaults { invisible: true, ..entry };
        assert_eq!(script(invisible.clone()).validate(), Ok(()));
        let twice = FaultScript { customers: vec![invisible; 2], ..FaultScript::default() };
        assert_eq!(twice.validate(), Err(ScriptError::Twice("a".into())));
        let never = FaultScript { retry_after: -SignedDuration::MAX, ..FaultScript::default() };
        assert_eq!(never.validate(), Err(ScriptError::Time("retry_after")));
    }

    proptest! {
        #[test]
        fn the_same_request_always_meets_the_same_fault(
            seed: u64, customer in 0..50u32, nth in 1..9u64, share in 0.0..1.0f64,
        ) {
            let shares = BTreeMap::from([(FaultKind::Overload, share)]);
            let script = FaultScript { shares, ..FaultScript::default() };
            let first = script.fault(seed, &key(customer), nth);
            // Other requests in between change nothing.
            let _ = script.fault(seed, &key(customer + 1), nth);
            prop_assert_eq!(script.fault(seed, &key(customer), nth), first);
        }
    }
}
