//! Batches: several messages in one request, under one key of the provider.
//!
//! Each member keeps an attempt, an outcome and a doubt of its own. What a batch adds is that its
//! request can only go again whole: a provider that remembers the request's key knows nothing of the
//! keys of its members. So a member in doubt never goes under its own key, and the whole batch goes
//! again only while not one of its members may have gone, or may go, in another way: one that was
//! found not sent and went otherwise would get a second message with a batch that the provider had
//! never seen.

use super::begin::{CannotBegin, Intent, Moment};
use super::class::{Failure, FailureClass};
use super::state::Operation;
use serde::{Deserialize, Serialize};

/// What the code of a failure begins with that befell a batch as a whole.
const REFUSED: &str = "batch refused: ";

/// The batch that an attempt goes in.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BatchRef {
    /// Its id, which is the request's key at a provider that takes one.
    pub id: String,
    /// Hash of the request: who is in it, in which order, with which bytes.
    pub request_hash: String,
}

/// How an operation's next attempt may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shares<'a> {
    /// In a request of its own.
    Never,
    /// In a batch or in a request of its own.
    May,
    /// Only with the whole of this batch again.
    Only(&'a BatchRef),
}

impl Operation {
    /// How its next attempt may go.
    #[must_use]
    pub fn shares(&self) -> Shares<'_> {
        match self.doubts.first().map(|doubt| &doubt.batch) {
            Some(Some(batch)) => Shares::Only(batch),
            Some(None) => Shares::Never,
            // What may have arrived after all stays under the key that the provider may remember.
            None if self.alone || self.is_remembered() => Shares::Never,
            None => Shares::May,
        }
    }

    /// Whether a provider that remembers keys may have taken an attempt that is held for not sent
    /// without the provider's own word: then the same key again is what keeps a wrong word harmless.
    fn is_remembered(&self) -> bool {
        self.presumed_not_sent && self.remembered_until.is_some()
    }

    /// Whether the request of the batch of `intent` may go again as far as this member is concerned:
    /// `true` if it begins an attempt, `false` if the very batch was already accepted with it, so
    /// that it has nothing to begin and nothing to get. The batch goes again only if no member
    /// answers with an error.
    ///
    /// # Errors
    /// The first condition of [`may_begin`](Self::may_begin) that fails.
    pub fn may_repeat(&self, intent: &Intent, moment: &Moment) -> Result<bool, CannotBegin> {
        let accepted = self.accepted.as_ref().and_then(|accepted| accepted.batch.as_deref());
        let ours = intent.batch.as_ref().map(|batch| batch.id.as_str());
        if accepted.is_some() && accepted == ours {
            return Ok(false);
        }
        if self.doubts.is_empty() {
            // Settled, or not sent and free to go in another way.
            return Err(CannotBegin::Settled);
        }
        self.may_begin(intent, moment).map(|()| true)
    }

    /// The batch that the provider has accepted, if it says so of `attempt`, or of the key alone
    /// while no other message can have carried it.
    pub(super) fn batch_accepted_with(&self, attempt: Option<u32>) -> Option<String> {
        let id = |doubt: &super::state::Doubt| doubt.batch.as_ref().map(|batch| batch.id.clone());
        match attempt {
            Some(number) => self.doubt(number).and_then(id),
            None if self.presumed_not_sent => None,
            None => {
                let first = self.doubts.first().and_then(id)?;
                let all = self.doubts.iter().all(|doubt| id(doubt).as_ref() == Some(&first));
                all.then_some(first)
            }
        }
    }
}

impl Failure {
    /// This refusal of a whole batch as it concerns each member. What may be the fault of one message
    /// says nothing about any of them, so each goes again, alone; whatever else is a failure of the
    /// request, and so of every member alike.
    #[must_use]
    pub fn of_each_member(self) -> Self {
        match self.class {
            FailureClass::Recipient
            | FailureClass::Suppressed
            | FailureClass::Rejected
            | FailureClass::Schema => {
                Self::new(FailureClass::Overloaded, format!("{REFUSED}{}", self.code))
            }
            _ => self,
        }
    }

    /// Whether it befell a batch, of which one member may be the cause.
    #[must_use]
    pub fn is_of_the_batch(&self) -> bool {
        self.code.starts_with(REFUSED)
    }
}

#[cfg(test)]
mod tests;
