//! What must happen somewhere in the space for its absence of violations to mean anything: every
//! fault, every kind of evidence, every state and every arrow of the diagram.

use digest_workflows::operation::State;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// Something that has to be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Seen {
    /// A worker died with a session that listened.
    CrashWhileListening,
    /// A worker died between its intent and the hand-over.
    CrashAfterIntent,
    /// An activity ran again while an execution of it was still under way.
    RunTwiceAtOnce,
    /// A workflow that knows nothing asked for the first attempt of an operation that was further.
    StartedAfresh,
    /// Two executions were ready for the same place.
    TwoReady,
    /// An execution lost its place to another.
    OvertakenAtBegin,
    /// A commit was applied and its answer lost for good.
    CommitLost,
    /// A commit was not applied.
    CommitNotApplied,
    /// A process wrote after its lease, before `settle` was over.
    Zombie,
    /// The lease was over before the hand-over.
    LeaseOver,
    /// The provider decided although nobody listened any more.
    DecidedUnheard,
    /// A request was accepted after the lease had ended.
    AcceptedLate,
    /// An answer was recorded for an operation that was already unknown.
    LateAnswer,
    /// An answer was recorded a second time.
    RecordedTwice,
    /// Told to slow down at the first try.
    Throttled,
    /// A replay was refused while the first attempt was in doubt.
    ReplayRefused,
    /// A replay found the key remembered.
    ReplayRepeated,
    /// Replaying ended: the contract does not allow it any more.
    ReplayOver,
    /// A look-up found the message.
    Hit,
    /// A look-up missed a message that was accepted.
    MissOfAccepted,
    /// A miss that may count did.
    MissCounted,
    /// A miss that came too early did not.
    MissTooEarly,
    /// A miss was recorded after something else had settled the doubt.
    MissTooLate,
    /// A look-up, or an event, told of a message that the provider gave up itself.
    ToldRefused,
    /// An event told of an acceptance while it was in doubt.
    ToldAccepted,
    /// A verdict came before there was a doubt.
    VerdictTooEarly,
    /// A verdict came after the doubt was settled.
    VerdictTooLate,
    /// A verdict named an attempt that was not the newest any more.
    VerdictForOld,
    /// A verdict contradicted one that stands.
    VerdictStands,
    /// A verdict came twice.
    VerdictTwice,
    /// A verdict was recorded to be acted on later.
    VerdictPending,
    /// A recorded verdict was acted on when its time came.
    VerdictActed,
    /// Evidence of an acceptance won over a recorded `not_delivered`.
    EvidenceWon,
    /// A human gave it up.
    Abandoned,
    /// The retention rule gave it up.
    ExpiredByTime,
    /// An attempt was refused its beginning by a hold.
    HeldAtBegin,
    /// An attempt was refused its beginning by a cancellation.
    CancelledAtBegin,
    /// An attempt was refused its beginning by `useful_for`.
    TooLateAtBegin,
    /// An attempt was refused its beginning by consent that was withdrawn.
    UnwantedAtBegin,
    /// An attempt was refused its beginning by a pending verdict.
    PendingAtBegin,
    /// An attempt was refused its beginning by a doubt.
    InDoubtAtBegin,
    /// Consent was withdrawn while an attempt was in doubt.
    UnwantedInDoubt,
    /// A breaker held the run.
    BreakerTripped,
    /// An operation went on after a resume.
    ResumedAndBegun,
    /// The account was changed while an attempt was in doubt.
    ProviderGone,
    /// A cleanup failed and was tried again.
    CleanupFailed,
    /// A cleanup was given up.
    CleanupGivenUp,
    /// A cleanup that was given up was taken up again.
    CleanupAgain,
    /// A cleanup ran twice at once.
    CleanupTwice,
    /// A dead letter was replayed.
    Replayed,
    /// A dead letter was rendered anew.
    Refrozen,
    /// The key was marked as undelivered.
    Undelivered,
    /// The ledger was restored from a backup.
    Restored,
    /// A verdict was overtaken by an acceptance that nobody heard of.
    Beyond,
}

impl Seen {
    pub(super) const ALL: [Self; 54] = [
        Self::CrashWhileListening,
        Self::CrashAfterIntent,
        Self::RunTwiceAtOnce,
        Self::StartedAfresh,
        Self::TwoReady,
        Self::OvertakenAtBegin,
        Self::CommitLost,
        Self::CommitNotApplied,
        Self::Zombie,
        Self::LeaseOver,
        Self::DecidedUnheard,
        Self::AcceptedLate,
        Self::LateAnswer,
        Self::RecordedTwice,
        Self::Throttled,
        Self::ReplayRefused,
        Self::ReplayRepeated,
        Self::ReplayOver,
        Self::Hit,
        Self::MissOfAccepted,
        Self::MissCounted,
        Self::MissTooEarly,
        Self::MissTooLate,
        Self::ToldRefused,
        Self::ToldAccepted,
        Self::VerdictTooEarly,
        Self::VerdictTooLate,
        Self::VerdictForOld,
        Self::VerdictStands,
        Self::VerdictTwice,
        Self::VerdictPending,
        Self::VerdictActed,
        Self::EvidenceWon,
        Self::Abandoned,
        Self::ExpiredByTime,
        Self::HeldAtBegin,
        Self::CancelledAtBegin,
        Self::TooLateAtBegin,
        Self::UnwantedAtBegin,
        Self::PendingAtBegin,
        Self::InDoubtAtBegin,
        Self::UnwantedInDoubt,
        Self::BreakerTripped,
        Self::ResumedAndBegun,
        Self::ProviderGone,
        Self::CleanupFailed,
        Self::CleanupGivenUp,
        Self::CleanupAgain,
        Self::CleanupTwice,
        Self::Replayed,
        Self::Refrozen,
        Self::Undelivered,
        Self::Restored,
        Self::Beyond,
    ];
}

/// The arrows of the diagram.
pub(super) const ARROWS: [(State, State); 22] = {
    use State::{Cleaned, Dead, Expired, Retrying, Selected, Sending, Sent, Suppressed, Unknown};
    [
        (Selected, Sending),
        (Selected, Retrying),
        (Selected, Suppressed),
        (Selected, Dead),
        (Sending, Sent),
        (Sending, Retrying),
        (Sending, Unknown),
        (Sending, Suppressed),
        (Sending, Dead),
        (Retrying, Sending),
        (Retrying, Suppressed),
        (Retrying, Dead),
        (Unknown, Sent),
        (Unknown, Retrying),
        (Unknown, Suppressed),
        (Unknown, Dead),
        (Unknown, Expired),
        (Sent, Cleaned),
        (Dead, Sending),
        // Only after a restore.
        (Selected, Unknown),
        (Retrying, Unknown),
        (Dead, Unknown),
    ]
};

/// Counts what was seen, over all states of a check.
#[derive(Debug, Default)]
pub(super) struct Cover {
    seen: AtomicU64,
    arrows: AtomicU64,
}

impl Cover {
    pub(super) fn see(&self, what: Seen) {
        self.seen.fetch_or(1 << what as u64, Ordering::Relaxed);
    }

    pub(super) fn arrow(&self, from: State, to: State) {
        if let Some(at) = ARROWS.iter().position(|arrow| *arrow == (from, to)) {
            self.arrows.fetch_or(1 << at, Ordering::Relaxed);
        }
    }

    /// What was seen, by name.
    pub(super) fn names(&self) -> BTreeSet<String> {
        let (seen, arrows) =
            (self.seen.load(Ordering::Relaxed), self.arrows.load(Ordering::Relaxed));
        let faults = Seen::ALL.into_iter().filter(|what| seen & (1 << *what as u64) != 0);
        let taken = ARROWS.iter().enumerate().filter(|(at, _)| arrows & (1 << at) != 0);
        faults
            .map(|what| format!("{what:?}"))
            .chain(taken.map(|(_, (from, to))| format!("{from} -> {to}")))
            .collect()
    }

    /// Everything that has to be seen, by name.
    pub(super) fn everything() -> BTreeSet<String> {
        let all = Self::default();
        all.seen.store(u64::MAX, Ordering::Relaxed);
        all.arrows.store(u64::MAX, Ordering::Relaxed);
        all.names()
    }
}
