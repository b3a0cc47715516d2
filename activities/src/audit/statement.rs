//! What the provider says about one key, compared with what the ledger has. Which means there are is
//! the contract's matter; today it is the look-up by key.

use super::{Difference, Kind};
use crate::ledger::Entry;
use crate::provider::Found;
use digest_workflows::operation::{Contract, Operation, ProviderRef, State};
use jiff::Timestamp;

/// Whether `provider` can be asked about the operation: nothing of it was handed to anybody else. A
/// doubt is pursued only where it arose, and so is what became of it.
#[must_use]
pub fn serves(entry: &Entry, provider: &ProviderRef) -> bool {
    entry.attempts.iter().filter(|attempt| attempt.begun_at.is_some()).all(|attempt| {
        attempt.provider.as_deref() == Some(provider.kind.as_str())
            && attempt.account.as_deref() == Some(provider.account.as_str())
    })
}

/// Since when the provider may know the key: its first intent, or `now` without one.
#[must_use]
pub fn since(entry: &Entry, now: Timestamp) -> Timestamp {
    entry.attempts.iter().filter_map(|attempt| attempt.begun_at).min().unwrap_or(now)
}

/// What the provider was found to say, against what the ledger has; `asked_at` is the ledger's time
/// of the question. `None` where both agree or where the answer proves nothing.
#[must_use]
pub fn difference(
    entry: &Entry,
    operation: &Operation,
    found: &Found,
    contract: Contract,
    asked_at: Timestamp,
) -> Option<Difference> {
    let differ = |kind, expected: String, found: String| {
        Some(Difference::new(kind, &entry.key, expected, found))
    };
    let delivered = matches!(operation.state, State::Sent | State::Cleaned);
    match found {
        Found::Miss if delivered && a_miss_counts(entry, contract, asked_at) => {
            let expected = format!("a record at the provider, since it is {}", operation.state);
            differ(Kind::UnknownToProvider, expected, "no record of the key".to_owned())
        }
        Found::Refused(class) if delivered && !operation.undelivered => {
            let expected = format!("accepted, since it is {}", operation.state);
            differ(Kind::RefusedByProvider, expected, format!("accepted, then refused: {class}"))
        }
        Found::Miss | Found::Refused(_) | Found::Unavailable(_) => None,
        Found::Accepted { message_id } if delivered => {
            let ours = operation.accepted.as_ref().and_then(|a| a.message_id.as_ref());
            let (ours, theirs) = ours.zip(message_id.as_ref()).filter(|(a, b)| a != b)?;
            differ(Kind::OtherMessage, format!("message {ours}"), format!("message {theirs}"))
        }
        Found::Accepted { .. } => match operation.state {
            State::Unknown if entry.columns.at_rest => {
                let expected = "nothing known, since it is unknown".to_owned();
                let attempt = Some(operation.newest_handed_over);
                differ(Kind::AcceptedUnknown, expected, ACCEPTED.to_owned())
                    .map(|difference| Difference { attempt, ..difference })
            }
            State::Selected | State::Retrying | State::Suppressed | State::Dead
                if !operation.contradicted =>
            {
                let expected = format!("no record of it, since it is {}", operation.state);
                differ(Kind::AcceptedNotSent, expected, ACCEPTED.to_owned())
            }
            _ => None,
        },
    }
}

const ACCEPTED: &str = "the provider has accepted it";

/// Whether "no record" proves something: the contract says that it can, and nothing that was handed
/// over can still arrive.
fn a_miss_counts(entry: &Entry, contract: Contract, asked_at: Timestamp) -> bool {
    let settled = entry.attempts.iter().filter_map(|attempt| attempt.settles_at).max();
    contract.lookup.miss_counts() && settled.is_none_or(|at| asked_at >= at)
}
