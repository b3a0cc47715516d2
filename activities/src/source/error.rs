//! What can go wrong with the source, told apart by what a caller does about it.

mod codes;

use super::statement::StatementError;
use codes::{Judgement, is_sqlite, judge};
pub(crate) use codes::{cure, words};
use std::fmt;

/// One of the statements of `[source]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// `customers`: who gets a message, and the data for it.
    Customers,
    /// `rows`: the digest's rows of these customers.
    Rows,
    /// `still_wanted`: whether one customer still wants it.
    StillWanted,
    /// `cleanup`: removes the generated rows of one operation.
    Cleanup,
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Customers => "customers",
            Self::Rows => "rows",
            Self::StillWanted => "still_wanted",
            Self::Cleanup => "cleanup",
        };
        write!(f, "[source] {name}")
    }
}

/// Why the source gave no answer. No variant's text holds a password or a value from the database;
/// a database is named by host and name, or by its file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The URL is none, or of a database that is not supported. Permanent.
    #[error("the source's URL cannot be used: {0}")]
    Url(String),
    /// No connection came about. Temporary.
    #[error(
        "no connection to the source {database}: {reason}; check that it runs and is reachable from this machine"
    )]
    Unreachable {
        /// Host and name, or file.
        database: String,
        /// What the attempt met.
        reason: String,
    },
    /// The database was reached and turns us away: login, name, file, TLS. Permanent.
    #[error(
        "the source {database} refused the connection: {reason}; check [source] url, and user and password in DIGESTD_SOURCE_URL"
    )]
    Refused {
        /// Host and name, or file.
        database: String,
        /// What it answered.
        reason: String,
    },
    /// The text of a statement cannot be used. Permanent.
    #[error("{query} cannot be used: {reason}")]
    Statement {
        /// The statement.
        query: Query,
        /// What is wrong with it.
        reason: StatementError,
    },
    /// The database does not take the statement: syntax, names, types, permissions, or a write
    /// where only reading is allowed. Permanent.
    #[error(
        "the source {database} refused {query}: {reason}; correct the query or the role's grants"
    )]
    Query {
        /// Host and name, or file.
        database: String,
        /// The statement.
        query: Query,
        /// What it answered.
        reason: String,
    },
    /// The statement runs, but is not what digestd needs; the text names cause and cure. Permanent.
    #[error("{query} cannot be used: {reason}")]
    Unsuitable {
        /// The statement.
        query: Query,
        /// Cause and cure.
        reason: String,
    },
    /// A value cannot be carried. Permanent, until the data or the query changes.
    #[error("{query} returned a value that cannot be carried: {reason}")]
    Value {
        /// The statement.
        query: Query,
        /// Which column, why, and the cure; never the value.
        reason: String,
    },
    /// A text is not an id of the type that `customer_id` has. Permanent.
    #[error("the customer id is not {expected}, which customer_id is in [source] customers")]
    CustomerId {
        /// The type, with its article.
        expected: &'static str,
    },
    /// No answer in time. Temporary.
    #[error(
        "{query} gave no answer within {seconds} s; an index on its columns, or a smaller page, makes it faster"
    )]
    TimedOut {
        /// The statement.
        query: Query,
        /// The time it was given.
        seconds: u64,
    },
    /// The connection, or the transaction, was lost on the way: a lock, a deadlock, a restart.
    /// Temporary. A cleanup that ends so may have happened, and is repeated.
    #[error("{query} was interrupted in the source {database}: {reason}; it is tried again")]
    Interrupted {
        /// Host and name, or file.
        database: String,
        /// The statement.
        query: Query,
        /// What happened.
        reason: String,
    },
    /// `cleanup` touched more rows than it may; nothing was changed. Permanent.
    #[error(
        "[source] cleanup touched {touched} rows, more than cleanup_max_rows = {max}, and was rolled back; narrow it to the rows of one operation, or raise the limit"
    )]
    TooManyRows {
        /// The rows it would have touched.
        touched: u64,
        /// The limit.
        max: u64,
    },
}

impl SourceError {
    /// Whether the same call may succeed later with nothing changed.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::TimedOut { .. } | Self::Interrupted { .. })
    }
}

/// What `error` means when it was met while connecting to `database`.
pub(super) fn connecting(database: &str, error: &sqlx::Error) -> SourceError {
    let database = database.to_owned();
    let refused = |reason| SourceError::Refused { database: database.clone(), reason };
    let unreachable = |reason| SourceError::Unreachable { database: database.clone(), reason };
    match error {
        sqlx::Error::Database(answer) => match judge(answer.as_ref()) {
            Judgement::Temporary | Judgement::OutOfTime => unreachable(words(answer.as_ref())),
            _ => refused(words(answer.as_ref())),
        },
        sqlx::Error::Tls(reason) => refused(format!("TLS: {reason}")),
        // MySQL's caching_sha2_password gives the password away on a connection that is not secret.
        sqlx::Error::Configuration(reason) if reason.to_string().starts_with("RSA") => refused(
            "its user logs in with caching_sha2_password or sha256_password, which needs TLS; add ?ssl-mode=required to the URL, and TLS to the server"
                .to_owned(),
        ),
        sqlx::Error::Configuration(reason) => SourceError::Url(reason.to_string()),
        sqlx::Error::Protocol(reason) if reason.contains("authentication plugin") => refused(format!(
            "{reason}; give its user one of mysql_native_password and caching_sha2_password"
        )),
        sqlx::Error::PoolTimedOut => unreachable(
            "no free connection in time: the server does not answer, or all connections are busy"
                .to_owned(),
        ),
        other => unreachable(other.to_string()),
    }
}

/// What `error` means when it was met while a transaction for `query` began, given `seconds`.
pub(super) fn beginning(
    database: &str,
    query: Query,
    seconds: u64,
    error: &sqlx::Error,
) -> SourceError {
    match error {
        // SQLite's lock is held by another writer: that is no failure to connect.
        sqlx::Error::Database(answer)
            if is_sqlite(answer.as_ref())
                && matches!(judge(answer.as_ref()), Judgement::Temporary) =>
        {
            running(database, query, seconds, error)
        }
        other => connecting(database, other),
    }
}

/// What `error` means when it was met while `query` ran, given `seconds`, in `database`.
pub(super) fn running(
    database: &str,
    query: Query,
    seconds: u64,
    error: &sqlx::Error,
) -> SourceError {
    let database = database.to_owned();
    match error {
        sqlx::Error::Database(answer) => {
            let reason = words(answer.as_ref());
            match judge(answer.as_ref()) {
                Judgement::Temporary => SourceError::Interrupted { database, query, reason },
                Judgement::OutOfTime => SourceError::TimedOut { query, seconds },
                Judgement::Value => SourceError::Value { query, reason },
                Judgement::Permanent => SourceError::Query { database, query, reason },
            }
        }
        sqlx::Error::ColumnDecode { index, .. } => SourceError::Value {
            query,
            reason: format!("column {index} is not valid text; cast it in the query"),
        },
        other => SourceError::Interrupted { database, query, reason: other.to_string() },
    }
}
