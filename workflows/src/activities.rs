//! Typed declarations of the activities, and what goes in and comes out of them.
//!
//! Only declarations: the bodies live in `digest-activities`, so that a workflow can call an
//! activity without linking a database. Every type here is a payload in the engine's history: keys,
//! classes, counts and times, never an address or content.

#![expect(
    clippy::needless_pass_by_value,
    clippy::must_use_candidate,
    missing_docs,
    reason = "declarations have no bodies, and the macro's constants do not keep their docs"
)]

use crate::operation::{Event, Note, Operation, OperationKey, Period, Rules};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use temporalio_macros::activity_definitions;

/// Which ledger a workflow was started on. An activity on another one refuses.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LedgerRef {
    /// Drawn once, when the ledger was set up.
    pub id: String,
    /// Raised by every `digestd setup --after-restore`.
    pub epoch: i64,
}

/// What every activity on one operation is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationInput {
    /// The operation.
    pub key: OperationKey,
    /// The ledger it is recorded in.
    pub ledger: LedgerRef,
    /// The rules it was started with.
    pub rules: Rules,
    /// Uniform in `[0, 1)`, from the engine's deterministic random; for jitter.
    pub random: f64,
}

/// Input of [`Gates::deliver`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeliverInput {
    /// The operation.
    pub operation: OperationInput,
    /// The generation of the attempt that is expected to be next.
    pub generation: u32,
    /// Its ordinal within the generation.
    pub ordinal: u32,
    /// The place in the rate that an earlier call has reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<Timestamp>,
}

/// What became of an attempt, from the execution that made it. Whoever may signal a workflow could
/// claim as much; the ledger takes it only with the proof.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// What became of it.
    pub event: Event,
    /// SHA-256 of the attempt's token, in hexadecimal: only that execution and the ledger know the
    /// token.
    pub proof: String,
}

/// Input of [`Gates::record`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordInput {
    /// The operation.
    pub operation: OperationInput,
    /// What happened.
    pub event: Event,
    /// Who says so.
    pub by: String,
    /// In their words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What proves that evidence comes from the execution that made the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<String>,
}

/// What an activity on one operation answers: the operation as the ledger has it, and what kept the
/// activity from going on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The operation as the ledger has it.
    pub operation: Operation,
    /// Now, by the ledger's clock.
    pub now: Timestamp,
    /// Why nothing was tried, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
    /// Evidence that the ledger could not be made to hold; the workflow has it recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncommitted: Option<Evidence>,
    /// Why an event that was recorded changed less than it might have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Note>,
}

/// Why nothing was tried although an attempt is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pause {
    /// The run is held.
    Held,
    /// The rate allows it later: a slot is reserved for this time.
    Paced(Timestamp),
    /// Too many late answers are being listened for.
    Listening,
    /// The worker is shutting down.
    Draining,
    /// Another operation of its batch sends the batch again, at most until then.
    Batched(Timestamp),
}

/// What a run is started with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStart {
    /// The campaign's name.
    pub campaign: String,
    /// The period.
    pub period: Period,
    /// The scheduled instant; absent where a person named the period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick: Option<Timestamp>,
}

/// How a run is carried out, read from the worker's configuration once, when it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunPlan {
    /// The ledger that the run is recorded in.
    pub ledger: LedgerRef,
    /// The rules for each of its operations.
    pub rules: Rules,
    /// How many operations one page starts.
    pub page_size: u32,
    /// How many operations may be enqueued and not yet past their first attempt.
    pub in_flight: u32,
    /// Whether the run was closed already: a second run of a period does nothing.
    pub closed: bool,
}

/// Input of [`Gates::enqueue`]: the operations after position `after` up to `until`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnqueueInput {
    /// The run.
    pub run: RunStart,
    /// The ledger it is recorded in.
    pub ledger: LedgerRef,
    /// The position of the last operation that was enqueued.
    pub after: u64,
    /// The last position of the page.
    pub until: u64,
}

/// What [`Gates::enqueue`] answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enqueued {
    /// The keys to start, in order; bounded in bytes, so perhaps not all of the page.
    pub keys: Vec<OperationKey>,
    /// The position of the last one.
    pub last: u64,
}

/// Input of [`Gates::watch`], [`Gates::hold`] and [`Gates::resume`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchInput {
    /// The run.
    pub run: RunStart,
    /// The ledger it is recorded in.
    pub ledger: LedgerRef,
    /// Who asks, for a hold or a resume.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// Why, in their words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What this request for a hold or a resume is called; executed again, it is the same one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request: String,
    /// The highest transition counter that the ledger has shown to the run.
    #[serde(default)]
    pub noted: i64,
}

/// How a run stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// How many operations are selected.
    pub selected: u64,
    /// How many are enqueued and not yet past their first attempt.
    pub in_flight: u64,
    /// How many are not at rest.
    pub open: u64,
    /// Why the run is held, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    /// Whether the run is closed.
    pub closed: bool,
    /// The ledger's transition counter; it goes back only by a restore.
    #[serde(default)]
    pub counter: i64,
}

/// The activities of the three gates, and of the run around them.
pub struct Gates;

#[activity_definitions]
impl Gates {
    /// Makes the attempt, or tells what the ledger knows of it. Runs as a local activity.
    #[activity]
    pub fn deliver(input: DeliverInput) -> Progress {
        unimplemented!()
    }

    /// Asks the ledger and, where it is due, the provider about an unknown.
    #[activity]
    pub fn reconcile(input: OperationInput) -> Progress {
        unimplemented!()
    }

    /// Records a verdict or evidence in the ledger.
    #[activity]
    pub fn record(input: RecordInput) -> Progress {
        unimplemented!()
    }

    /// Removes the rows of exactly this operation.
    #[activity]
    pub fn clean_up(input: OperationInput) -> Progress {
        unimplemented!()
    }

    /// Opens the run in the ledger, or finds the one that exists, and tells how to carry it out.
    #[activity]
    pub fn open_run(start: RunStart) -> RunPlan {
        unimplemented!()
    }

    /// Freezes the selection, page by page, going on where an earlier call stopped.
    #[activity]
    pub fn freeze(input: WatchInput) -> Standing {
        unimplemented!()
    }

    /// Records a part of a page as enqueued and returns its keys.
    #[activity]
    pub fn enqueue(input: EnqueueInput) -> Enqueued {
        unimplemented!()
    }

    /// Tells how a run stands, and closes it when everything is at rest.
    #[activity]
    pub fn watch(input: WatchInput) -> Standing {
        unimplemented!()
    }

    /// Holds a run.
    #[activity]
    pub fn hold(input: WatchInput) -> Standing {
        unimplemented!()
    }

    /// Ends a hold.
    #[activity]
    pub fn resume(input: WatchInput) -> Standing {
        unimplemented!()
    }
}

/// The declarations by name, for the crate that implements them.
pub mod declared {
    pub use super::gates::{
        CleanUp, Deliver, Enqueue, Freeze, Hold, OpenRun, Reconcile, Record, Resume, Watch,
    };
}
