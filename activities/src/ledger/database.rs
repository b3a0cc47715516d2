//! One thin interface over the two databases: the same SQL text, with `$1` parameters and `@` before
//! each table name, runs on both.
//!
//! Deliberately small: integers, text and bytes are all the ledger stores, and every difference
//! between the databases is in this file.

mod file;
mod insert;
mod later;
mod row;
mod tx;
mod value;

pub(super) use row::Row;
pub(super) use tx::Tx;
pub(super) use value::{Value, places, values};

use super::LedgerError;
use crate::sqlite;
use file::LedgerFile;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{
    AssertSqlSafe, Connection as _, PgConnection, PgPool, Postgres, Sqlite, SqliteConnection,
    SqlitePool,
};
use std::str::FromStr;
use std::time::Duration;

/// How long a statement waits for a connection or a lock before the database counts as unreachable.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one answer is waited for: longer than the database itself waits for a lock. Without a
/// bound, a network that swallows packets would stall a delivery until the kernel gives up.
const ANSWER: Duration = Duration::from_secs(15);
/// Enough for every activity slot to make progress; PostgreSQL's own default limit is 100.
const POSTGRES_CONNECTIONS_MAX: u32 = 20;
/// A connection that was idle for longer is asked whether it still lives before it is used.
const IDLE_MAX: Duration = Duration::from_secs(5);
/// SQLite has one writer; readers do not block it in WAL mode.
const SQLITE_READERS_MAX: u32 = 4;

/// Runs `$body` with `$query` bound to all values, for one database.
macro_rules! bound {
    ($db:ty, $sql:expr, $values:expr, $prefix:literal) => {{
        let sql = $sql.replace('@', $prefix);
        let mut query = sqlx::query::<$db>(AssertSqlSafe(sql));
        for value in $values {
            query = match value.clone() {
                Value::Int(int) => query.bind(int),
                Value::Text(text) => query.bind(text),
                Value::Bytes(bytes) => query.bind(bytes),
            };
        }
        query
    }};
}
use bound;

/// Now, in milliseconds.
const SQLITE_CLOCK: &str = "cast(unixepoch('subsec') * 1000 as integer)";
/// The same. Not `now()`, which is the time the transaction began, before it waited for a lock.
const POSTGRES_CLOCK: &str = "cast(extract(epoch from clock_timestamp()) * 1000 as bigint)";

/// A connected ledger database.
#[derive(Clone, Debug)]
pub(super) enum Database {
    /// The embedded one: a single writing connection, and readers beside it.
    Sqlite { writer: SqlitePool, readers: SqlitePool, place: String, file: LedgerFile },
    /// The one for more than one machine. The schema is on the search path of every connection.
    Postgres { pool: PgPool, schema: String, place: String },
}

impl Database {
    /// Connects to `url` (`sqlite://path` or `postgres://…`). A SQLite file is created only if
    /// `create` is set.
    pub(super) async fn connect(
        url: &str,
        schema: &str,
        create: bool,
    ) -> Result<Self, LedgerError> {
        if url.starts_with("sqlite:") {
            Self::connect_sqlite(url, create).await
        } else if url.starts_with("postgres:") || url.starts_with("postgresql:") {
            Self::connect_postgres(url, schema).await
        } else {
            Err(LedgerError::Url(scheme(url)))
        }
    }

    /// Whether the SQLite file at `url` holds a ledger, without changing anything in it: opening it
    /// for writing would change its journal mode.
    pub(super) async fn is_ledger_file(url: &str) -> Result<bool, LedgerError> {
        let options = SqliteConnectOptions::from_str(url)
            .map_err(|_| LedgerError::Url(scheme(url)))?
            .read_only(true)
            .busy_timeout(PATIENCE);
        let place = options.get_filename().to_owned();
        if !place.exists() {
            return Err(LedgerError::NoFile(place.display().to_string()));
        }
        let unreachable =
            |answer| LedgerError::Unreachable { place: place.display().to_string(), answer };
        let mut connection = SqliteConnection::connect_with(&options).await.map_err(unreachable)?;
        let meta = sqlx::query(
            "select name from sqlite_schema where type = 'table' and name = 'digestd_meta'",
        )
        .fetch_optional(&mut connection)
        .await
        .map_err(unreachable)?;
        connection.close().await.map_err(unreachable)?;
        Ok(meta.is_some())
    }

    async fn connect_sqlite(url: &str, create: bool) -> Result<Self, LedgerError> {
        let options = SqliteConnectOptions::from_str(url)
            .map_err(|_| LedgerError::Url(scheme(url)))?
            .create_if_missing(create)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(PATIENCE)
            // What is erased must not stay readable in the file's free pages.
            .pragma("secure_delete", "on")
            .pragma("temp_store", "memory");
        let place = options.get_filename().display().to_string();
        let pool = |max| {
            sqlite::pool()
                .max_connections(max)
                .acquire_timeout(PATIENCE)
                .connect_with(options.clone())
        };
        let unreachable = |answer| LedgerError::Unreachable { place: place.clone(), answer };
        let writer = pool(1).await.map_err(unreachable)?;
        let readers = pool(SQLITE_READERS_MAX).await.map_err(unreachable)?;
        let file = LedgerFile::at(options.get_filename());
        Ok(Self::Sqlite { writer, readers, place, file })
    }

    async fn connect_postgres(url: &str, schema: &str) -> Result<Self, LedgerError> {
        let options = PgConnectOptions::from_str(url).map_err(|_| LedgerError::Url(scheme(url)))?;
        // A commit that is acknowledged must survive a crash, whatever the server's default is.
        let search_path = quoted(schema);
        let options = options.application_name("digestd").options([
            ("search_path", search_path.as_str()),
            ("synchronous_commit", "on"),
            ("lock_timeout", "10s"),
            ("idle_in_transaction_session_timeout", "30s"),
        ]);
        let place = format!(
            "{}:{}/{}",
            options.get_host(),
            options.get_port(),
            options.get_database().unwrap_or_default()
        );
        // A pool goes on trying where nobody listens, and then tells only that it took too long.
        let first = within(PgConnection::connect_with(&options)).await;
        let first = match first {
            Ok(connection) => connection.close().await,
            Err(error) => Err(error),
        };
        first.map_err(|answer| LedgerError::Unreachable { place: place.clone(), answer })?;
        let pool = PgPoolOptions::new()
            .max_connections(POSTGRES_CONNECTIONS_MAX)
            .acquire_timeout(PATIENCE)
            .test_before_acquire(false)
            .before_acquire(|connection, idle| {
                Box::pin(async move {
                    if idle.idle_for > IDLE_MAX {
                        connection.ping().await?;
                    }
                    Ok(true)
                })
            })
            .connect_lazy_with(options);
        Ok(Self::Postgres { pool, schema: schema.to_owned(), place })
    }

    /// Begins a transaction that may write. On SQLite it holds the write lock from the start, so
    /// that what it has read cannot change before it commits.
    pub(super) async fn begin(&self) -> Result<Tx, LedgerError> {
        self.must_be_in_place()?;
        let begun = match self {
            Self::Sqlite { writer, .. } => {
                within(writer.begin_with("BEGIN IMMEDIATE")).await.map(Tx::sqlite)
            }
            Self::Postgres { pool, .. } => within(pool.begin()).await.map(Tx::Postgres),
        };
        begun.map_err(|answer| self.unreachable(answer))
    }

    /// Begins a transaction that only reads, from one snapshot.
    pub(super) async fn begin_reading(&self) -> Result<Tx, LedgerError> {
        self.must_be_in_place()?;
        let begun = match self {
            Self::Sqlite { readers, .. } => within(readers.begin()).await.map(Tx::sqlite),
            Self::Postgres { pool, .. } => {
                let begin = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY";
                within(pool.begin_with(begin)).await.map(Tx::Postgres)
            }
        };
        begun.map_err(|answer| self.unreachable(answer))
    }

    /// The rows of one query: a snapshot by itself, for which no transaction is begun and ended.
    pub(super) async fn read(&self, sql: &str, values: &[Value]) -> Result<Vec<Row>, LedgerError> {
        self.alone(sql, values, false).await
    }

    /// Executes one statement that is a transaction by itself; the rows that it returns.
    pub(super) async fn write(&self, sql: &str, values: &[Value]) -> Result<Vec<Row>, LedgerError> {
        self.alone(sql, values, true).await
    }

    async fn alone(
        &self,
        sql: &str,
        values: &[Value],
        writes: bool,
    ) -> Result<Vec<Row>, LedgerError> {
        self.must_be_in_place()?;
        Ok(match self {
            Self::Sqlite { writer, readers, .. } => {
                let pool = if writes { writer } else { readers };
                let acquired = within(pool.acquire()).await;
                let mut connection = acquired.map_err(|source| self.unreachable(source))?;
                let query = bound!(Sqlite, sql, values, "digestd_");
                let rows = within(query.fetch_all(&mut *connection)).await?;
                rows.into_iter().map(Row::Sqlite).collect()
            }
            Self::Postgres { pool, .. } => {
                let acquired = within(pool.acquire()).await;
                let mut connection = acquired.map_err(|source| self.unreachable(source))?;
                let query = bound!(Postgres, sql, values, "");
                let rows = within(query.fetch_all(&mut *connection)).await?;
                rows.into_iter().map(Row::Postgres).collect()
            }
        })
    }

    /// The clause `lock`, where the database locks rows; SQLite's transaction is one lock.
    pub(super) const fn lock<'a>(&self, lock: &'a str) -> &'a str {
        match self {
            Self::Sqlite { .. } => "",
            Self::Postgres { .. } => lock,
        }
    }

    /// The clock as an expression, in milliseconds.
    pub(super) const fn clock(&self) -> &'static str {
        match self {
            Self::Sqlite { .. } => SQLITE_CLOCK,
            Self::Postgres { .. } => POSTGRES_CLOCK,
        }
    }

    /// Refuses a file that was moved or replaced: what is written to it would not be found again.
    fn must_be_in_place(&self) -> Result<(), LedgerError> {
        match self {
            Self::Sqlite { file, place, .. } if !file.is_in_place() => {
                Err(LedgerError::Moved(place.clone()))
            }
            _ => Ok(()),
        }
    }

    /// The error of a database that did not even begin a transaction.
    fn unreachable(&self, answer: sqlx::Error) -> LedgerError {
        let (Self::Sqlite { place, .. } | Self::Postgres { place, .. }) = self;
        LedgerError::Unreachable { place: place.clone(), answer }
    }

    /// Brings what was written so far from SQLite's log into its file, and empties the log, so that
    /// what was erased is in neither. With readers under way the next one does it.
    pub(super) async fn settle_file(&self) -> Result<(), LedgerError> {
        if let Self::Sqlite { writer, .. } = self {
            sqlx::query("pragma wal_checkpoint(truncate)").fetch_all(writer).await?;
        }
        Ok(())
    }

    /// Closes every connection.
    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite { writer, readers, .. } => {
                readers.close().await;
                writer.close().await;
            }
            Self::Postgres { pool, .. } => pool.close().await,
        }
    }
}

/// The answer, if it comes in time.
async fn within<T>(answer: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    let late = |_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()));
    tokio::time::timeout(ANSWER, answer).await.unwrap_or_else(late)
}

/// `identifier` as PostgreSQL takes it literally.
pub(super) fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

/// The part of a URL that is safe to print.
fn scheme(url: &str) -> String {
    url.split_once(':').map_or("", |(scheme, _)| scheme).to_owned()
}
