//! The points, and what it takes to die there.

use super::provider::Kind;
use std::ops::RangeInclusive;

/// One row of the matrix.
#[derive(Debug)]
pub(super) struct Point {
    /// The crash point's name, or that of a death of the database.
    pub(super) name: &'static str,
    /// Which passage may be the fatal one.
    pub(super) passages: RangeInclusive<u32>,
    /// Who dies, and when.
    pub(super) dies: Dies,
    /// Whether three customers' answers are lost, so that there is something in doubt.
    pub(super) doubts: bool,
    /// The ledgers it can happen on.
    pub(super) ledgers: &'static [LedgerKind],
    /// The providers under which it is reached.
    pub(super) providers: &'static [Kind],
}

/// Where the ledger is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LedgerKind {
    Sqlite,
    Postgres,
}

impl LedgerKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }
}

/// Who dies, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dies {
    /// The worker, in an ordinary run.
    Worker,
    /// The worker, in a run whose history is long before it begins.
    LongRun,
    /// The worker, in a run between whose customers there is a page of unusable ones.
    WideRun,
    /// The worker, once it has been told to stop; the passage says after how many messages.
    Stopped,
    /// A first `digestd setup`.
    Setup,
    /// `digestd resolve`.
    Resolve,
    /// Nobody; the answer of a commit is lost. The passage says after how many messages.
    Answer,
    /// The database's processes, while a commit is under way.
    Database,
}

const BOTH: &[LedgerKind] = &[LedgerKind::Sqlite, LedgerKind::Postgres];
const POSTGRES: &[LedgerKind] = &[LedgerKind::Postgres];
const ALL: &[Kind] = &[Kind::Replay, Kind::Smtp, Kind::LookUp, Kind::None];

const fn worker(name: &'static str, passages: RangeInclusive<u32>) -> Point {
    Point { name, passages, dies: Dies::Worker, doubts: false, ledgers: BOTH, providers: ALL }
}

/// Every point, in the order of `digest_activities::crash::POINTS`.
pub(super) const POINTS: &[Point] = &[
    Point { dies: Dies::Setup, ..worker("migrating", 1..=2) },
    worker("run-unrecorded", 1..=1),
    worker("run-recorded", 1..=1),
    Point { dies: Dies::WideRun, ..worker("page-frozen", 1..=1) },
    worker("selection-frozen", 1..=1),
    worker("task-open", 1..=1),
    worker("page-enqueued", 1..=2),
    Point { dies: Dies::LongRun, ..worker("continuing", 1..=1) },
    Point { dies: Dies::LongRun, ..worker("continued", 1..=1) },
    worker("before-intent", 1..=30),
    worker("intent-uncommitted", 1..=30),
    worker("intent-recorded", 1..=30),
    worker("half-written", 1..=30),
    worker("answer-waiting", 1..=30),
    worker("accepted", 1..=30),
    worker("outcome-uncommitted", 1..=30),
    worker("outcome-recorded", 1..=30),
    Point { doubts: true, ..worker("unknown-recorded", 1..=3) },
    // Nobody else can be asked.
    Point { doubts: true, providers: &[Kind::LookUp], ..worker("looked-up", 1..=3) },
    worker("cleanup-done", 1..=30),
    // Elsewhere a doubt does not wait for a person.
    Point {
        dies: Dies::Resolve,
        doubts: true,
        providers: &[Kind::Smtp, Kind::None],
        ..worker("decision-uncommitted", 1..=1)
    },
    Point {
        dies: Dies::Resolve,
        doubts: true,
        providers: &[Kind::None, Kind::Smtp],
        ..worker("decision-recorded", 1..=1)
    },
    Point { dies: Dies::Stopped, ..worker("draining", 1..=1) },
    // SQLite is a part of the worker, and dies with it.
    Point { dies: Dies::Answer, ledgers: POSTGRES, ..worker("commit-answer-lost", 1..=30) },
    Point { dies: Dies::Database, ledgers: POSTGRES, ..worker("database-killed", 1..=30) },
];
