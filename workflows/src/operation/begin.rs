//! `begin attempt`: the only way to an intent, and so to a hand-over.

use super::batch::BatchRef;
use super::contract::{Contract, ProviderRef};
use super::state::{Began, Doubt, Operation, State, Verdict};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// What the ledger knows about the moment of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Moment {
    /// Now, by the ledger's clock.
    pub now: Timestamp,
    /// Whether the run is held.
    pub held: bool,
    /// How long the run has been held until now, in all.
    pub held_for: SignedDuration,
    /// Whether the run was cancelled: what is proven not sent is not tried again.
    pub cancelled: bool,
    /// Past this instant no attempt begins.
    pub useful_until: Timestamp,
    /// Whether a provider has told not to write to the customer any more.
    pub suppressed: bool,
}

/// What an attempt is about to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Intent {
    /// The generation it belongs to.
    pub generation: u32,
    /// Its ordinal within the generation.
    pub ordinal: u32,
    /// To whom it will be handed.
    pub provider: ProviderRef,
    /// What that provider promises.
    pub contract: Contract,
    /// Hash of the bytes that it will send.
    pub content_hash: String,
    /// How long it may hand over and be listened for.
    pub lease: SignedDuration,
    /// How long after the lease "not delivered" is not yet acted on.
    pub settle: SignedDuration,
    /// The batch that it goes in; `None` where it goes alone, under its own key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchRef>,
}

/// Why an attempt may not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum CannotBegin {
    /// The run is held.
    #[error("the run is held")]
    Held,
    /// Past `useful_for`.
    #[error("it is too late for this message to be useful")]
    TooLate,
    /// Sent, terminal, or evidence of acceptance is stored.
    #[error("the operation is settled")]
    Settled,
    /// Consent was withdrawn, or a provider has told not to write to the customer any more.
    #[error("the customer no longer wants it")]
    Unwanted,
    /// The run was cancelled.
    #[error("the run was cancelled")]
    Cancelled,
    /// The generation and ordinal are not the next ones: somebody else was faster.
    #[error("another attempt has taken this place")]
    NotNext,
    /// A verdict waits for its time.
    #[error("a verdict is pending")]
    VerdictPending,
    /// An earlier attempt may have been accepted, and the contract does not allow a replay now.
    #[error("an earlier attempt is in doubt")]
    InDoubt,
}

impl Operation {
    /// Whether `intent` may begin at `moment`.
    ///
    /// # Errors
    /// The first condition that fails.
    pub fn may_begin(&self, intent: &Intent, moment: &Moment) -> Result<(), CannotBegin> {
        let delivered = self.verdict.is_some_and(|v| v.verdict == Verdict::Delivered);
        if self.state == State::Sent || self.state.is_terminal() {
            return Err(CannotBegin::Settled);
        }
        if self.accepted.is_some() || delivered {
            return Err(CannotBegin::Settled);
        }
        if (intent.generation, intent.ordinal) != (self.generation, self.ordinal + 1) {
            return Err(CannotBegin::NotNext);
        }
        if self.unwanted || moment.suppressed {
            return Err(CannotBegin::Unwanted);
        }
        if self.verdict.is_some() {
            return Err(CannotBegin::VerdictPending);
        }
        if moment.cancelled {
            return Err(CannotBegin::Cancelled);
        }
        if moment.held {
            return Err(CannotBegin::Held);
        }
        if moment.now >= moment.useful_until {
            return Err(CannotBegin::TooLate);
        }
        if !self.doubts.is_empty() && !self.is_replay(intent, moment.now) {
            return Err(CannotBegin::InDoubt);
        }
        Ok(())
    }

    /// Records `intent` as the next attempt, which may hand over until its lease ends, and returns
    /// its running number.
    ///
    /// # Errors
    /// As [`may_begin`](Self::may_begin); the operation is unchanged then.
    pub fn begin(&mut self, intent: Intent, moment: &Moment) -> Result<u32, CannotBegin> {
        self.may_begin(&intent, moment)?;
        self.count_attempt(moment);
        let lease_ends = moment.now + intent.lease;
        self.doubts.push(Doubt {
            number: self.attempts,
            generation: intent.generation,
            ordinal: intent.ordinal,
            begun_at: moment.now,
            lease_ends,
            settles_at: lease_ends + intent.settle,
            provider: intent.provider,
            contract: intent.contract,
            content_hash: intent.content_hash,
            batch: intent.batch,
        });
        self.newest_handed_over = self.attempts;
        self.doubts_ever += 1;
        self.first_intent_at.get_or_insert(moment.now);
        // The request may arrive until the lease ends, and be remembered from then on.
        let remembered = intent.contract.replay.window().map(|window| lease_ends + window);
        self.remembered_until = self.remembered_until.max(remembered);
        self.retry_at = None;
        // A replay leaves the operation unknown: only evidence for every attempt ends a doubt.
        if self.state != State::Unknown && self.state != State::Sending {
            self.enter(State::Sending, moment.now);
        }
        Ok(self.attempts)
    }

    /// Until when the doubts may be replayed; `None` if they never may.
    #[must_use]
    pub fn replayable_until(&self) -> Option<Timestamp> {
        if self.unwanted || self.replay_over || self.verdict.is_some() {
            return None;
        }
        let first = self.first_intent_at?;
        let usable = |doubt: &Doubt| {
            let takes = doubt.settles_at.duration_since(doubt.begun_at);
            doubt.contract.replay.usable_for(takes).map(|for_| first + for_)
        };
        self.doubts.iter().map(usable).min().flatten()
    }

    /// Counts a try, whether or not it reaches an intent.
    pub(super) fn count_attempt(&mut self, moment: &Moment) {
        self.attempts += 1;
        self.ordinal += 1;
        self.began.get_or_insert(Began { at: moment.now, held_before: moment.held_for });
    }

    /// Enters `state`, if it is another one.
    pub(super) fn enter(&mut self, state: State, now: Timestamp) {
        if self.state != state {
            self.state = state;
            self.since = now;
        }
    }

    /// Whether `intent` repeats, inside the window, with its lease to spare, exactly what every doubt
    /// has sent to the same account, and in the same batch: the provider knows a request by the key
    /// that it came under.
    fn is_replay(&self, intent: &Intent, now: Timestamp) -> bool {
        let same = |doubt: &Doubt| {
            doubt.provider == intent.provider
                && doubt.content_hash == intent.content_hash
                && doubt.batch == intent.batch
        };
        let for_ = intent.contract.replay.usable_for(intent.lease + intent.settle);
        let until = self.first_intent_at.zip(for_).map(|(first, for_)| first + for_);
        let open = |until: Option<Timestamp>| until.is_some_and(|until| now < until);
        open(until) && open(self.replayable_until()) && self.doubts.iter().all(same)
    }
}
