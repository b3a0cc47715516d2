//! The audit: selection, ledger, engine and provider compared key by key. Nothing here changes
//! anything, and everything is a comparison of what was read at one moment.
//!
//! [`books`] compares what the ledger holds of one operation with itself, by the rules of the
//! decision core; [`statement`] compares it with what the provider says. The engine is compared by
//! whoever has a client of it.

pub mod books;
pub mod statement;

use serde::Serialize;

/// What kind of difference it is. Each key is named once by each kind at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The run has another number of operations than were selected.
    SelectionCount,
    /// An operation that is not among the selected ones.
    NotSelected,
    /// Records of an operation that the ledger does not have.
    OperationMissing,
    /// A record of the operation that cannot be read.
    Unreadable,
    /// The record says another campaign, period or customer than its key.
    Misfiled,
    /// What is stored for queries differs from what the decision core keeps.
    StateDiffers,
    /// What the decision core keeps contradicts itself.
    Contradiction,
    /// The attempts on record are not those that the decision core counts.
    AttemptsDiffer,
    /// Delivered, and neither an accepted attempt nor a verdict or other evidence says so.
    NoAcceptance,
    /// An acceptance is known, in the ledger or at the provider, and the key is not delivered.
    AcceptedNotSent,
    /// More than one acceptance.
    AcceptedTwice,
    /// Attempts of one generation handed over different bytes.
    OtherBytes,
    /// Cleaned, and content is still stored.
    ContentLeft,
    /// Cleaned without having been sent.
    CleanedWithoutSent,
    /// The timeline has a transition that there is not, or a gap.
    Timeline,
    /// Dead without a dead letter, or the other way round.
    DeadLetter,
    /// Evidence contradicts what was decided.
    Contradicted,
    /// The run is closed over an operation that was never handed to the engine.
    NeverEnqueued,
    /// The run is open in the ledger, and no workflow drives it.
    RunWithoutWorkflow,
    /// A workflow drives a run that is not open in the ledger.
    RunWorkflowLeftOpen,
    /// Work is left for the operation, and no workflow drives it.
    NoWorkflow,
    /// Work is left for the operation, and its last workflow ended without doing it.
    WorkflowEnded,
    /// A workflow is open for an operation that nothing is left to do for.
    WorkflowLeftOpen,
    /// A workflow for a key that the ledger does not have.
    StrayWorkflow,
    /// Delivered, and the provider has no record of the key.
    UnknownToProvider,
    /// Delivered, and the provider has refused it after accepting it.
    RefusedByProvider,
    /// The provider's record of the key has another id than the ledger's.
    OtherMessage,
    /// Unknown and at rest, and the provider has accepted it.
    AcceptedUnknown,
}

impl Kind {
    /// The kind as it is written in JSON and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SelectionCount => "selection_count",
            Self::NotSelected => "not_selected",
            Self::OperationMissing => "operation_missing",
            Self::Unreadable => "unreadable",
            Self::Misfiled => "misfiled",
            Self::StateDiffers => "state_differs",
            Self::Contradiction => "contradiction",
            Self::AttemptsDiffer => "attempts_differ",
            Self::NoAcceptance => "no_acceptance",
            Self::AcceptedNotSent => "accepted_not_sent",
            Self::AcceptedTwice => "accepted_twice",
            Self::OtherBytes => "other_bytes",
            Self::ContentLeft => "content_left",
            Self::CleanedWithoutSent => "cleaned_without_sent",
            Self::Timeline => "timeline",
            Self::DeadLetter => "dead_letter",
            Self::Contradicted => "contradicted",
            Self::NeverEnqueued => "never_enqueued",
            Self::RunWithoutWorkflow => "run_without_workflow",
            Self::RunWorkflowLeftOpen => "run_workflow_left_open",
            Self::NoWorkflow => "no_workflow",
            Self::WorkflowEnded => "workflow_ended",
            Self::WorkflowLeftOpen => "workflow_left_open",
            Self::StrayWorkflow => "stray_workflow",
            Self::UnknownToProvider => "unknown_to_provider",
            Self::RefusedByProvider => "refused_by_provider",
            Self::OtherMessage => "other_message",
            Self::AcceptedUnknown => "accepted_unknown",
        }
    }
}

/// One difference: what is wrong about which key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What kind it is.
    pub kind: Kind,
    /// The operation's key, or the id of the run.
    pub key: String,
    /// What the books say it should be.
    pub expected: String,
    /// What is there.
    pub found: String,
    /// The attempt that a verdict about it has to name, where one would help.
    pub attempt: Option<u32>,
}

impl Difference {
    /// A difference about `key`.
    #[must_use]
    pub fn new(
        kind: Kind,
        key: &str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            key: key.to_owned(),
            expected: expected.into(),
            found: found.into(),
            attempt: None,
        }
    }
}
