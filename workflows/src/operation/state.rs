//! The state of one operation: everything that decides what may happen next.
//!
//! ```text
//! selected -> sending | retrying | suppressed | dead    retrying: refused before its intent
//! sending  -> sent | retrying | unknown | suppressed | dead
//! retrying -> sending | suppressed | dead
//! unknown  -> sent | retrying | suppressed | dead    only on evidence for every attempt handed over
//! unknown  -> expired                                given up without an answer
//! sent     -> cleaned
//! dead     -> sending                                bounded, audited replay only
//! selected, retrying -> sent                         only on evidence that was not expected any more
//! any of selected, sending, retrying, dead -> unknown  only after a restore from a backup
//! ```
//!
//! [`State::may_become`] has it as a function.

use super::batch::BatchRef;
use super::class::FailureClass;
use super::contract::{Contract, ProviderRef};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Where an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Frozen with the selection; nothing was tried yet.
    Selected,
    /// An attempt is under way, or the next one is due at once.
    Sending,
    /// Every attempt so far is proven not sent; the next one waits for its time.
    Retrying,
    /// At least one attempt was handed over and has no outcome.
    Unknown,
    /// Accepted by the provider; the cleanup is still to come, or has failed.
    Sent,
    /// Accepted, and the generated rows are removed.
    Cleaned,
    /// Terminal without a message: opted out, cancelled, nothing to send.
    Suppressed,
    /// A definite, terminal failure, kept as a dead letter.
    Dead,
    /// Given up without an answer. It may have been delivered, so it is never replayed.
    Expired,
}

impl State {
    /// Every state, in the order of an operation's life.
    pub const ALL: [Self; 9] = [
        Self::Selected,
        Self::Sending,
        Self::Retrying,
        Self::Unknown,
        Self::Sent,
        Self::Cleaned,
        Self::Suppressed,
        Self::Dead,
        Self::Expired,
    ];

    /// The state as it is written everywhere: ledger, JSON, search attribute.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Selected => "selected",
            Self::Sending => "sending",
            Self::Retrying => "retrying",
            Self::Unknown => "unknown",
            Self::Sent => "sent",
            Self::Cleaned => "cleaned",
            Self::Suppressed => "suppressed",
            Self::Dead => "dead",
            Self::Expired => "expired",
        }
    }

    /// The state with this [`name`](Self::name), if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether nothing follows by itself any more.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Cleaned | Self::Suppressed | Self::Dead | Self::Expired)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An attempt that was handed over, or may have been, and has no outcome yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Doubt {
    /// The attempt's running number over all generations, from 1.
    pub number: u32,
    /// Its generation, from 1.
    pub generation: u32,
    /// Its ordinal within the generation, from 1.
    pub ordinal: u32,
    /// When its intent was recorded, by the ledger's clock.
    pub begun_at: Timestamp,
    /// Until when it may hand over and a late answer is listened for.
    pub lease_ends: Timestamp,
    /// From when on "not delivered" may be acted on: lease end plus `settle`.
    pub settles_at: Timestamp,
    /// To whom it was handed.
    pub provider: ProviderRef,
    /// What that provider promised then.
    pub contract: Contract,
    /// Hash of the bytes that were sent.
    pub content_hash: String,
    /// The batch that it went in, if it did not go alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchRef>,
}

impl Doubt {
    /// Whether a restore has taken the attempt itself from the record.
    #[must_use]
    pub fn is_unrecorded(&self) -> bool {
        self.provider == ProviderRef::unrecorded()
    }
}

/// What is known about the acceptance of a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Acceptance {
    /// The attempt that was answered, where the evidence names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The provider's id of the message, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// The attempts that this acceptance speaks for: every doubt that was open then.
    pub covers: Vec<u32>,
    /// The id of the batch that was accepted with it, where the provider itself says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
}

/// What a human, or an operator's script, says about an unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The customer has the message.
    Delivered,
    /// The provider never accepted it.
    NotDelivered,
    /// Nobody will find out; give it up.
    Abandon,
}

impl Verdict {
    /// Every verdict.
    pub const ALL: [Self; 3] = [Self::Delivered, Self::NotDelivered, Self::Abandon];

    /// The verdict as it is written in JSON and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::NotDelivered => "not_delivered",
            Self::Abandon => "abandon",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A verdict that is recorded and not yet acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PendingVerdict {
    /// What was said; never [`Verdict::Abandon`], which acts at once.
    pub verdict: Verdict,
    /// When it is acted on, unless evidence wins until then.
    pub acts_at: Timestamp,
}

/// When a generation of attempts began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Began {
    /// The time of its first attempt, with or without an intent.
    pub at: Timestamp,
    /// How long the run had been held until then, in all.
    pub held_before: SignedDuration,
}

/// How far the look-ups have come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lookups {
    /// How many were made for the present doubts.
    pub asked: u32,
    /// When the next one is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// Whether they have nothing more to tell.
    pub spent: bool,
}

/// How far the cleanup has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cleanups {
    /// How often it failed.
    pub failures: u32,
    /// When it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// Whether it rests as failed until `digestd cleanup`.
    pub given_up: bool,
}

/// Whether nothing need be written: what is absent reads as this.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// One customer in one period: the unit of work, of retry and of cleanup.
///
/// Every byte of it is paid for several times by the engine, so what is as at the beginning is not
/// written.
///
/// Changed only by [`Operation::begin`] and [`Operation::apply`], inside one ledger transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent mark, not a state")]
pub struct Operation {
    /// Where it stands.
    pub state: State,
    /// The class of the last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<FailureClass>,
    /// When it entered its state.
    pub since: Timestamp,
    /// The generation of attempts, from 1; each replay opens a new one.
    pub generation: u32,
    /// The ordinal of the generation's last attempt; 0 before the first.
    pub ordinal: u32,
    /// The number of the last attempt, over all generations.
    pub attempts: u32,
    /// The newest attempt that was handed over; 0 if none was.
    pub newest_handed_over: u32,
    /// How many attempts have ever been in doubt.
    pub doubts_ever: u32,
    /// The attempts that are in doubt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<Doubt>,
    /// The first intent with the present bytes; replay windows count from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_intent_at: Option<Timestamp>,
    /// Until when a provider may remember the key together with the present bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remembered_until: Option<Timestamp>,
    /// When the generation's first attempt was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<Began>,
    /// The generation's failures by class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<FailureClass, u32>,
    /// When the next attempt (in `unknown`: the next replay) is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// A verdict that waits for its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<PendingVerdict>,
    /// The acceptance, once there is evidence of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<Acceptance>,
    /// How far the look-ups have come.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lookups: Lookups,
    /// Whether an attempt was ever taken for not sent on other evidence than its own answer. What a
    /// provider says of the key alone may then speak of that one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub presumed_not_sent: bool,
    /// Whether replaying is over for good: past `useful_for`, or the provider is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replay_over: bool,
    /// When the ledger was last asked whether a doubt has settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<Timestamp>,
    /// Whether consent was withdrawn: never sent again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unwanted: bool,
    /// Whether evidence contradicts what was decided.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub contradicted: bool,
    /// Whether the provider gave up delivering what it had accepted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undelivered: bool,
    /// How far the cleanup has come.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cleanup: Cleanups,
    /// Whether it shares no request with others any more: a batch with it was refused as a whole.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
}

impl Operation {
    /// A freshly selected operation.
    #[must_use]
    pub fn selected(now: Timestamp) -> Self {
        Self {
            state: State::Selected,
            class: None,
            since: now,
            generation: 1,
            ordinal: 0,
            attempts: 0,
            newest_handed_over: 0,
            doubts_ever: 0,
            doubts: Vec::new(),
            first_intent_at: None,
            remembered_until: None,
            began: None,
            failures: BTreeMap::new(),
            retry_at: None,
            verdict: None,
            accepted: None,
            lookups: Lookups::default(),
            presumed_not_sent: false,
            replay_over: false,
            asked_at: None,
            unwanted: false,
            contradicted: false,
            undelivered: false,
            cleanup: Cleanups::default(),
            alone: false,
        }
    }

    /// Whether every attempt is proven not sent.
    #[must_use]
    pub fn is_proven_not_sent(&self) -> bool {
        self.doubts.is_empty() && self.accepted.is_none()
    }

    /// The doubt with this running number.
    #[must_use]
    pub fn doubt(&self, number: u32) -> Option<&Doubt> {
        self.doubts.iter().find(|doubt| doubt.number == number)
    }

    /// The open attempt with this generation and ordinal.
    #[must_use]
    pub fn open_attempt(&self, generation: u32, ordinal: u32) -> Option<&Doubt> {
        self.doubts.iter().find(|d| d.generation == generation && d.ordinal == ordinal)
    }

    /// When the last lease of the open attempts ends; `None` without one.
    #[must_use]
    pub fn lease_ends(&self) -> Option<Timestamp> {
        self.doubts.iter().map(|doubt| doubt.lease_ends).max()
    }

    /// From when on "not delivered" may be acted on; `None` without a doubt.
    #[must_use]
    pub fn settles_at(&self) -> Option<Timestamp> {
        self.doubts.iter().map(|doubt| doubt.settles_at).max()
    }
}
