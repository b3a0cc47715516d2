//! The shapes of the reports: what is printed, and the JSON of it.

use crate::webhook::SuppressionReason;
use digest_workflows::operation::{FailureClass, Operation, Period, State};
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

/// One run in numbers; the JSON of `digestd status`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct RunStatus {
    /// The campaign's name.
    pub campaign: String,
    /// The period.
    #[schema(value_type = String, example = "2026-W49")]
    pub period: Period,
    /// The id of the run's workflow.
    pub run: String,
    /// `planned`, `freezing`, `frozen`, `dispatching`, `held`, `closed` or `missed`.
    pub state: String,
    /// Why it is held, or was missed.
    pub held_because: Option<String>,
    /// How many operations were selected.
    pub selected: u64,
    /// How many rows of the customers query could not become operations.
    pub unkeyed: u64,
    /// Why, by customer where it has an id that may be shown; at most 100.
    pub faults: Vec<FaultLine>,
    /// Selected and not tried yet.
    pub pending: u64,
    /// Being sent.
    pub sending: u64,
    /// Waiting for the next attempt.
    pub retrying: u64,
    /// With an attempt in doubt.
    pub unknown: u64,
    /// Delivered, whether or not cleaned.
    pub sent: u64,
    /// Delivered and cleaned.
    pub cleaned: u64,
    /// Skipped: opted out, cancelled, nothing to send.
    pub suppressed: u64,
    /// Dead letters.
    pub dead: u64,
    /// Given up without an answer.
    pub expired: u64,
    /// With evidence that contradicts what was decided.
    pub contradicted: u64,
    /// Accepted, and then given up by the provider.
    pub undelivered: u64,
    /// Customers who are not written to any more, because of what the provider told of this run.
    pub newly_suppressed: u64,
    /// Delivered, with a cleanup that was given up.
    pub cleanup_failed: u64,
    /// The keys that are not at rest, at most 100.
    pub missing: Vec<String>,
    /// How many keys are not at rest.
    pub missing_count: u64,
    /// The age of the oldest operation that still waits to be sent, from its selection.
    pub oldest_pending_seconds: Option<i64>,
    /// The counts by state and class, in the order of an operation's life.
    pub classes: Vec<ClassCount>,
}

/// Why rows of the customers query became no operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct FaultLine {
    /// The customer's id, if it has one and it holds no address.
    pub customer: Option<String>,
    /// Why, and the cure.
    pub reason: String,
}

/// How many operations are in one state with one class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ClassCount {
    /// The state.
    #[schema(value_type = String, example = "unknown")]
    pub state: State,
    /// The class of the last failure.
    #[schema(value_type = Option<String>, example = "ambiguous")]
    pub class: Option<FailureClass>,
    /// How many.
    pub count: u64,
}

impl RunStatus {
    /// Whether somebody has to decide something: an unknown, a dead letter, a failed cleanup, a
    /// contradiction, a hold or a missed week.
    #[must_use]
    pub fn needs_a_human(&self) -> bool {
        self.unknown + self.dead + self.cleanup_failed + self.contradicted > 0
            || matches!(self.state.as_str(), "held" | "missed")
    }
}

/// One line of `unknown` or `dead-letters`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct OperationLine {
    /// The operation's key.
    pub key: String,
    /// Its state.
    #[schema(value_type = String, example = "unknown")]
    pub state: State,
    /// The class of its last failure.
    #[schema(value_type = Option<String>, example = "ambiguous")]
    pub class: Option<FailureClass>,
    /// Since when it is in this state.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// What it waits for, in words; empty where nothing follows.
    pub waits_for: String,
    /// How many attempts there were, over all generations.
    pub attempts: u32,
    /// Of an unknown: the newest attempt handed over, which a verdict has to name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Of a dead letter: the technical code of its last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What the decision core keeps.
    #[serde(skip)]
    pub operation: Operation,
}

/// A page of operations.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Listing {
    /// The period asked for; `None` for all.
    #[schema(value_type = Option<String>, example = "2026-W49")]
    pub period: Option<Period>,
    /// The operations, by key.
    pub operations: Vec<OperationLine>,
    /// Where the next page begins; `None` on the last one.
    pub next: Option<String>,
}

/// One operation whole; the JSON of `digestd show`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Shown {
    /// The operation's key.
    pub key: String,
    /// Its state.
    #[schema(value_type = String, example = "unknown")]
    pub state: State,
    /// The class of its last failure.
    #[schema(value_type = Option<String>, example = "ambiguous")]
    pub class: Option<FailureClass>,
    /// The provider of the newest attempt handed over.
    pub provider: Option<String>,
    /// The provider's id of the message.
    pub message_id: Option<String>,
    /// Whether the provider gave up delivering what it had accepted.
    pub undelivered: bool,
    /// Why the customer is not written to any more, if a provider has told so.
    #[schema(value_type = Option<String>, example = "hard_bounce")]
    pub suppressed: Option<SuppressionReason>,
    /// Every attempt, in order.
    pub attempts: Vec<AttemptLine>,
    /// Every decision, in order.
    pub timeline: Vec<TransitionLine>,
    /// The operation in the engine's web UI.
    pub ui_url: Option<String>,
    /// When it was selected.
    #[schema(value_type = String, format = DateTime)]
    pub frozen_at: Timestamp,
    /// When it was handed to the engine.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub enqueued_at: Option<Timestamp>,
    /// Hash of the message's bytes.
    pub content_hash: Option<String>,
    /// Why its run is held, if it is.
    #[serde(skip)]
    pub held_because: Option<String>,
    /// What the decision core keeps.
    #[serde(skip)]
    pub operation: Operation,
}

/// One attempt of `show`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct AttemptLine {
    /// Its generation.
    pub generation: u32,
    /// Its ordinal within the generation.
    pub ordinal: u32,
    /// Its running number, which a verdict names.
    pub number: u32,
    /// When its intent was recorded; `None` for a try that ended before it.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub handed_over_at: Option<Timestamp>,
    /// Until when a late answer is listened for.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub lease_ends: Option<Timestamp>,
    /// `accepted`, `not_sent` with class and code, or `None` while in doubt.
    pub outcome: Option<String>,
    /// The batch that it went in, if it did not go alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
}

/// One decision of `show`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TransitionLine {
    /// When, by the ledger's clock.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// What happened.
    pub event: String,
    /// The state before.
    pub from: Option<String>,
    /// The state after.
    pub to: Option<String>,
    /// Who decided.
    pub by: String,
    /// Why: the person's words, or the technical code.
    pub reason: Option<String>,
    /// Why the event changed less than it might have.
    pub note: Option<String>,
}

/// One decision of a run; what a live view shows.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct DecisionLine {
    /// The decision's number; it only grows.
    pub id: i64,
    /// The operation, or `None` for the run itself.
    pub key: Option<String>,
    /// What happened.
    #[serde(flatten)]
    pub transition: TransitionLine,
}

impl OperationLine {
    pub(in crate::ledger) fn new(key: String, operation: Operation) -> Self {
        let attempt = (operation.state == State::Unknown).then_some(operation.newest_handed_over);
        Self {
            key,
            state: operation.state,
            class: operation.class,
            since: operation.since,
            waits_for: String::new(),
            attempts: operation.attempts,
            attempt,
            code: None,
            operation,
        }
    }
}

impl Listing {
    /// The page of the first `limit` of `operations`, which has one more where another page follows.
    pub(in crate::ledger) fn page(
        period: Option<Period>,
        mut operations: Vec<OperationLine>,
        limit: u32,
    ) -> Self {
        let more = operations.len() > limit as usize;
        operations.truncate(limit as usize);
        let next = operations.last().filter(|_| more).map(|line| line.key.clone());
        Self { period, operations, next }
    }
}
