//! What can happen to an operation, and what an event changed.

use super::class::{Failure, FailureClass};
use super::state::{State, Verdict};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The definite outcome of one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The provider has accepted the message.
    Accepted {
        /// Its id there, where the answer named one.
        message_id: Option<String>,
    },
    /// Proven not sent.
    NotSent(Failure),
}

/// What a look-up, or an event told by the provider, says about a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// Accepted and tried, whatever became of it later.
    Accepted {
        /// The provider's id of the message, where the record names one.
        message_id: Option<String>,
    },
    /// Accepted, then refused by the provider itself.
    Refused(FailureClass),
    /// No record of the key. Only a look-up says that.
    Miss,
    /// The look-up failed and says nothing.
    Unavailable,
}

/// Something that happened to an operation. `random` is uniform in `[0, 1)` and drawn by the caller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A try ended before its intent; it is proven not sent.
    Closed {
        /// The generation it belonged to.
        generation: u32,
        /// Its ordinal within the generation: the one after the last. A try whose place is taken
        /// is already recorded, or was overtaken.
        ordinal: u32,
        /// Why.
        failure: Failure,
        /// For the jitter of the delay.
        random: f64,
    },
    /// An attempt that was handed over has a definite outcome, in time or late.
    Answered {
        /// The attempt's running number.
        attempt: u32,
        /// Its outcome.
        outcome: Outcome,
        /// For the jitter of the delay.
        random: f64,
    },
    /// An attempt that was handed over has no answer in time, an ambiguous one, or nobody left who
    /// would hear it.
    Overdue {
        /// The attempt's running number.
        attempt: u32,
        /// For the jitter of a replay's delay.
        random: f64,
    },
    /// Somebody says what became of an unknown.
    Judged {
        /// What they say.
        verdict: Verdict,
        /// The newest attempt handed over that they know of.
        attempt: Option<u32>,
    },
    /// The provider was asked.
    LookedUp {
        /// What it said.
        finding: Finding,
        /// When the question went out, by the ledger's clock.
        asked_at: Timestamp,
        /// For the jitter of the delay.
        random: f64,
    },
    /// The provider told us by itself.
    Told {
        /// What it told; never a miss.
        finding: Finding,
    },
    /// The provider of the doubts is not configured any more, so it can be neither replayed to nor
    /// asked.
    ProviderGone,
    /// The consent query returned no row, the customer was erased, or a provider has told not to
    /// write to them any more.
    Unwanted,
    /// `useful_for` is over before an attempt.
    TooLate,
    /// A timer fired and asks what time has settled.
    TimePassed,
    /// The run was cancelled.
    Cancelled,
    /// What is in doubt can't be repeated any more: the frozen bytes are gone, or the contract does
    /// not allow it as it did.
    ReplayOver,
    /// The message of a dead letter is rendered anew; its replay follows in the same transaction.
    Refrozen,
    /// A dead letter is replayed.
    Replayed,
    /// The ledger was restored from a backup, and the engine has seen the operation go further: an
    /// attempt may have been handed over of which nothing is on record.
    Restored {
        /// How many attempts the engine knows of.
        attempts: u32,
    },
    /// The rows of the operation are removed.
    CleanedUp,
    /// Removing the rows failed.
    CleanupFailed {
        /// For the jitter of the delay.
        random: f64,
    },
    /// An operator asks to try a cleanup again that was given up.
    CleanupAgain,
}

/// What an event changed. The ledger records it in the same transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The state before.
    pub from: State,
    /// The state after.
    pub to: State,
    /// The attempts whose outcome is decided by this event.
    pub settled: Vec<(u32, Outcome)>,
    /// Why the event changed less than it might have, if it did.
    pub note: Option<Note>,
}

/// Why an event changed nothing, or only left a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Note {
    /// The same is already recorded.
    AlreadyRecorded,
    /// It contradicts what was decided; the key is marked `contradicted`.
    Contradicts,
    /// A verdict for something that is not unknown: too early or too late.
    NotUnknown,
    /// A verdict that does not name the newest attempt handed over.
    NotNewestAttempt,
    /// A verdict against one that is already recorded and must not be weakened.
    VerdictStands,
    /// The event does not apply in this state.
    DoesNotApply,
    /// The provider gave up on what it had accepted; the key is marked `undelivered`.
    Undelivered,
    /// A verdict is recorded and acted on later.
    ActsLater,
    /// Consent was withdrawn while an attempt is in doubt: not sent again.
    NotSentAgain,
    /// What the provider says of the key may speak of another attempt than those in doubt.
    PerhapsAnother,
    /// Evidence without the proof that it comes from the execution that made the attempt.
    Unproven,
}

impl Note {
    /// The note as a sentence fragment for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::AlreadyRecorded => "already recorded",
            Self::Contradicts => "contradicts what was decided; marked as contradicted",
            Self::NotUnknown => "ignored: the operation is not unknown",
            Self::NotNewestAttempt => "ignored: it does not name the newest attempt handed over",
            Self::VerdictStands => "ignored: an earlier verdict stands",
            Self::DoesNotApply => "ignored: it does not apply in this state",
            Self::Undelivered => "accepted, but the provider gave up delivering it",
            Self::ActsLater => "recorded; acted on when the last attempt can no longer be answered",
            Self::NotSentAgain => "consent withdrawn; an attempt is in doubt, so it stays unknown",
            Self::PerhapsAnother => "ignored: it may speak of another attempt than those in doubt",
            Self::Unproven => "ignored: it does not come from the execution that made the attempt",
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

impl Event {
    /// The event's name in the audit.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Closed { .. } => "closed",
            Self::Answered { .. } => "answered",
            Self::Overdue { .. } => "overdue",
            Self::Judged { .. } => "judged",
            Self::LookedUp { .. } => "looked_up",
            Self::Told { .. } => "told",
            Self::ProviderGone => "provider_gone",
            Self::Unwanted => "unwanted",
            Self::TooLate => "too_late",
            Self::TimePassed => "time_passed",
            Self::Cancelled => "cancelled",
            Self::ReplayOver => "replay_over",
            Self::Refrozen => "refrozen",
            Self::Replayed => "replayed",
            Self::Restored { .. } => "restored",
            Self::CleanedUp => "cleaned_up",
            Self::CleanupFailed { .. } => "cleanup_failed",
            Self::CleanupAgain => "cleanup_again",
        }
    }
}
