//! The ledger: what was selected, what was attempted, and what is known. It is the truth; the engine
//! only drives.
//!
//! One interface over SQLite (embedded, the default) and PostgreSQL (for more than one machine).
//! Every transition of an operation is one transaction here, made by the decision core in
//! `digest_workflows::operation`: the ledger loads the operation, lets the core apply the event, and
//! stores what the core decided, together with the attempt, the dead letter and the audit row.

mod attempts;
mod audit;
mod batches;
mod canary;
mod content;
mod database;
mod events;
mod figures;
mod forget;
mod holds;
mod operations;
mod pace;
mod progress;
mod publish;
mod replay;
mod reports;
mod requests;
mod restore;
mod retention;
mod runs;
mod selection;
mod setup;
mod suppressions;
mod sweep;

pub use attempts::{Begun, Token};
pub use audit::{Attempt, AuditPage, Columns, Entry, Tally, Transition};
pub use batches::{BatchAnswer, Claim, Member, Proposal, Repeated, StoredBatch};
pub use canary::NewCanary;
pub use content::{Content, FrozenData};
pub use events::{Place, Stored, Told, Untold};
pub use figures::{Figures, HeldRun, Holder, LatestRun};
pub use forget::Forgotten;
pub use holds::{ELIGIBILITY, STARTED_LATE};
pub use operations::{Actor, Answer, Recorded};
pub use pace::Slot;
pub use progress::{RunLine, RunListing};
pub use publish::{CannotPublish, Published};
pub use replay::{NotReplayed, Refrozen, ToReplay};
pub use reports::{
    AttemptLine, ClassCount, DecisionLine, FaultLine, Listing, OperationLine, RunStatus, Shown,
    TransitionLine,
};
pub use restore::GONE_BACK;
pub use runs::{NewRun, Run, RunState};
pub use selection::{FreezePage, Page, Selected};
pub use setup::{Setup, ddl, grants};
pub use suppressions::{SUPPRESSIONS, Suppression, Suppressions};

use crate::source;
use database::Database;
pub use digest_workflows::activities::LedgerRef;
use digest_workflows::operation::CannotBegin;
use jiff::Timestamp;

/// A connected ledger.
#[derive(Clone, Debug)]
pub struct Ledger {
    db: Database,
    identity: LedgerRef,
}

/// What can go wrong with the ledger. Whatever it is, nothing is sent.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The URL names no database that can hold a ledger.
    #[error(
        "the ledger url starts with {0:?}; write sqlite://digestd.db or postgres://user@host/database"
    )]
    Url(String),
    /// The database does not answer, or not in time.
    #[error(
        "cannot reach the ledger at {place}: {}; {}",
        said(answer),
        cure(answer).unwrap_or("check [ledger] url and DIGESTD_LEDGER_URL, and that the database is up")
    )]
    Unreachable {
        /// Where it was looked for, without user or password.
        place: String,
        /// What came back.
        answer: sqlx::Error,
    },
    /// The SQLite file does not exist.
    #[error(
        "there is no ledger file at {0}; `digestd setup` creates one, but if it should be there, correct [ledger] url or restore it"
    )]
    NoFile(String),
    /// The SQLite file is not the one any more that was opened.
    #[error(
        "the ledger file {0} was moved, deleted or replaced while it was in use, so nothing is read, recorded or sent; put it back, or restart with the [ledger] url of the one that is meant"
    )]
    Moved(String),
    /// The database has no ledger, or an older one.
    #[error(
        "the database holds no ledger of this version (found {found}, need {needed}); run `digestd setup`"
    )]
    Unmigrated {
        /// The version found; 0 for none.
        found: i64,
        /// The version this program needs.
        needed: i64,
    },
    /// The ledger was migrated by a newer program that this one is not compatible with.
    #[error(
        "the ledger is at version {found} and needs a digestd that knows version {needs}; this one knows {known}, so upgrade it"
    )]
    TooNew {
        /// The ledger's version.
        found: i64,
        /// The oldest version that may use it.
        needs: i64,
        /// The version this program knows.
        known: i64,
    },
    /// The ledger is not the one that the workflow was started with.
    #[error(
        "this is ledger {found}, but the workflow was started on ledger {expected}; point [ledger] url at that one, or run `digestd setup --after-restore` if it was restored"
    )]
    Foreign {
        /// Id and epoch of this ledger.
        found: String,
        /// Id and epoch that the workflow carries.
        expected: String,
    },
    /// The answer to a commit was lost: it may or may not have been applied.
    #[error("the ledger did not confirm a commit; it is read back before anything else happens")]
    CommitUnknown(#[source] sqlx::Error),
    /// A statement failed.
    #[error(
        "a ledger statement failed: {}; nothing was changed by it{}",
        said(.0),
        cure(.0).map(|cure| format!(", and {cure}")).unwrap_or_default()
    )]
    Statement(sqlx::Error),
    /// The ledger contradicts itself.
    #[error("the ledger holds something unexpected: {0}")]
    Corrupt(String),
    /// No such operation.
    #[error("the ledger knows no operation {0}")]
    NoSuchOperation(String),
    /// Content is stored only for an operation that may still be sent.
    #[error("{0} is settled; nothing is rendered or stored for it any more")]
    Settled(String),
    /// No such run.
    #[error(
        "the ledger knows no run of {campaign} in {period}; start it with `digestd run --period {period}`"
    )]
    NoSuchRun {
        /// The campaign asked for.
        campaign: String,
        /// The period asked for.
        period: String,
    },
}

/// What came back, in words that repeat no value.
fn said(error: &sqlx::Error) -> String {
    error.as_database_error().map_or_else(|| error.to_string(), source::words)
}

fn cure(error: &sqlx::Error) -> Option<&'static str> {
    error.as_database_error().and_then(source::cure)
}

impl From<sqlx::Error> for LedgerError {
    fn from(error: sqlx::Error) -> Self {
        Self::Statement(error)
    }
}

impl LedgerError {
    fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt(what.into())
    }

    /// The error of a commit that is known, by now, not to have been applied.
    fn not_applied(self) -> Self {
        match self {
            Self::CommitUnknown(error) => Self::Statement(error),
            other => other,
        }
    }

    /// The refusal of the ledger `found` by a workflow that was started on `expected`.
    #[must_use]
    pub fn foreign(found: &LedgerRef, expected: &LedgerRef) -> Self {
        let name = |ledger: &LedgerRef| format!("{} (epoch {})", ledger.id, ledger.epoch);
        Self::Foreign { found: name(found), expected: name(expected) }
    }

    /// Whether the same call may succeed later without anybody changing anything.
    #[must_use]
    pub const fn is_temporary(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::CommitUnknown(_) | Self::Statement(_))
    }
}

impl From<serde_json::Error> for LedgerError {
    fn from(error: serde_json::Error) -> Self {
        Self::corrupt(format!("a record that cannot be read ({error})"))
    }
}

/// The answer to `begin attempt`.
#[derive(Clone, Debug)]
pub enum BeginAnswer {
    /// The attempt is ours and may hand over until its lease ends.
    Begun(Box<Begun>),
    /// It may not begin; the operation is as it was.
    Cannot(CannotBegin),
}

impl Ledger {
    /// Which ledger this is.
    #[must_use]
    pub const fn identity(&self) -> &LedgerRef {
        &self.identity
    }

    /// Refuses when `expected` is another ledger, or another epoch of this one.
    ///
    /// # Errors
    /// [`LedgerError::Foreign`].
    pub fn must_be(&self, expected: &LedgerRef) -> Result<(), LedgerError> {
        if *expected == self.identity {
            return Ok(());
        }
        Err(LedgerError::foreign(&self.identity, expected))
    }

    /// Now, by the ledger's clock.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn now(&self) -> Result<Timestamp, LedgerError> {
        self.db.begin_reading().await?.now().await
    }

    /// Closes every connection.
    pub async fn close(&self) {
        self.db.close().await;
    }
}
