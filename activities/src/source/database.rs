//! Connections to the source, and one transaction on either database.
//!
//! Every statement runs in a transaction that cannot write, except for the cleanup's.

use super::customer::{Data, IdType};
use super::error::{self, Query, SourceError};
use super::statement::Dialect;
use super::{postgres, sqlite};
use futures::TryStreamExt;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Executor, Postgres, Sqlite, Statement as _,
    Transaction,
};
use std::sync::Arc;
use std::time::{Duration, Instant};
use url::Url;

/// A database that gives no connection in this time is unreachable.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections that only read.
const READERS_MAX: u32 = 8;
/// Connections that clean up (SQLite has one writer anyway).
const SQLITE_WRITERS_MAX: u32 = 1;
/// SQLite: how long a statement waits for another process's lock.
const SQLITE_BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// SQLite: virtual machine instructions between two looks at the deadline, well under 1 ms.
const SQLITE_DEADLINE_OPS: i32 = 10_000;

/// A value bound to a statement; its type is in the statement's text.
pub(super) enum Bind {
    Integer(i64),
    Text(String),
}

/// A statement with its binds, in order.
pub(super) struct Bound {
    pub(super) sql: String,
    pub(super) binds: Vec<Bind>,
}

/// One column of a query.
pub(super) struct Column {
    pub(super) name: String,
    /// How to read it from the query called `c`; else why it cannot be carried.
    pub(super) read: Result<String, String>,
    /// The type it has as an id, if the database declares one that fits.
    pub(super) id: Option<IdType>,
}

/// The source's connections, made when they are first needed.
pub(super) struct Database {
    name: Arc<str>,
    pools: Pools,
}

enum Pools {
    Sqlite { readers: SqlitePool, writers: SqlitePool },
    Postgres { pool: PgPool, options: Box<PgConnectOptions> },
}

impl Database {
    /// Prepares connections to `url` without making one.
    pub(super) fn open(url: &str) -> Result<Self, SourceError> {
        let unusable = |reason: &str| SourceError::Url(reason.to_owned());
        match url.split_once(':').map(|(scheme, _)| scheme) {
            Some("sqlite") => {
                let options: SqliteConnectOptions =
                    url.parse().map_err(|_| unusable("write sqlite://path/to/file.db"))?;
                Ok(Self::sqlite(&options))
            }
            Some("postgres" | "postgresql") => {
                let parsed = Url::parse(url).ok();
                let options = parsed.and_then(|url| PgConnectOptions::from_url(&url).ok());
                let options =
                    options.ok_or_else(|| unusable("write postgres://user@host:5432/database"))?;
                Ok(Self::postgres(options.disable_statement_logging()))
            }
            Some(scheme @ ("mysql" | "mariadb")) => Err(SourceError::Url(format!(
                "{scheme} is not supported; use SQLite or PostgreSQL"
            ))),
            // The text itself is not shown: it may begin with a password.
            _ => Err(unusable("it begins with neither sqlite:// nor postgres://")),
        }
    }

    fn sqlite(options: &SqliteConnectOptions) -> Self {
        let options = options
            .clone()
            .create_if_missing(false)
            .busy_timeout(SQLITE_BUSY_TIMEOUT)
            .disable_statement_logging();
        let name = options.get_filename().display().to_string().into();
        let pool = |connections, options| {
            SqlitePoolOptions::new()
                .max_connections(connections)
                .acquire_timeout(CONNECT_TIMEOUT)
                .connect_lazy_with(options)
        };
        let readers = pool(READERS_MAX, options.clone().pragma("query_only", "on"));
        let writers = pool(SQLITE_WRITERS_MAX, options);
        Self { name, pools: Pools::Sqlite { readers, writers } }
    }

    fn postgres(options: PgConnectOptions) -> Self {
        let database = options.get_database().unwrap_or_else(|| options.get_username());
        let name = match options.get_socket() {
            Some(socket) => format!("{database} at {}", socket.display()),
            None => format!("{database} at {}:{}", options.get_host(), options.get_port()),
        };
        let pool = PgPoolOptions::new()
            .max_connections(READERS_MAX)
            .acquire_timeout(CONNECT_TIMEOUT)
            .connect_lazy_with(options.clone());
        Self { name: name.into(), pools: Pools::Postgres { pool, options: Box::new(options) } }
    }

    /// The database's name: host and database, or file. Nothing of user or password.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn dialect(&self) -> Dialect {
        match self.pools {
            Pools::Sqlite { .. } => Dialect::Sqlite,
            Pools::Postgres { .. } => Dialect::Postgres,
        }
    }

    /// Makes one connection and drops it. Unlike the pool, which goes on trying and then knows only
    /// that time is over, it says why there is none.
    pub(super) async fn probe(&self) -> Result<(), SourceError> {
        let probe = async {
            match &self.pools {
                Pools::Sqlite { readers, .. } => readers.acquire().await.map(drop),
                Pools::Postgres { options, .. } => {
                    PgConnection::connect_with(options).await?.close().await
                }
            }
        };
        tokio::time::timeout(CONNECT_TIMEOUT, probe)
            .await
            .unwrap_or(Err(sqlx::Error::PoolTimedOut))
            .map_err(|error| error::connecting(&self.name, &error))
    }

    /// Begins a transaction for `query` that sees one state of the database and cannot change it.
    /// Each of its statements gets `seconds`.
    pub(super) async fn read(&self, query: Query, seconds: u64) -> Result<Session, SourceError> {
        self.begin(query, seconds, Access::Read).await
    }

    /// Begins a transaction for `query` that can write.
    pub(super) async fn write(&self, query: Query, seconds: u64) -> Result<Session, SourceError> {
        self.begin(query, seconds, Access::Write).await
    }

    async fn begin(
        &self,
        query: Query,
        seconds: u64,
        access: Access,
    ) -> Result<Session, SourceError> {
        let inner = match &self.pools {
            Pools::Sqlite { readers, writers } => {
                let (pool, begin) = match access {
                    Access::Read => (readers, "begin"),
                    // A transaction that begins by reading could not wait for the write lock.
                    Access::Write => (writers, "begin immediate"),
                };
                begin_sqlite(pool, begin, seconds).await.map(Inner::Sqlite)
            }
            Pools::Postgres { pool, .. } => {
                let mode = match access {
                    Access::Read => "isolation level repeatable read, read only",
                    Access::Write => "isolation level read committed, read write",
                };
                // `set local` rather than start-up options, which connection poolers refuse.
                let begin = format!(
                    "begin {mode}; set local statement_timeout = '{seconds}s'; set local time zone 'UTC'"
                );
                pool.begin_with(AssertSqlSafe(begin)).await.map(Inner::Postgres)
            }
        };
        match inner {
            Ok(inner) => Ok(Session { name: self.name.clone(), query, seconds, inner }),
            Err(error) => Err(error::beginning(&self.name, query, seconds, &error)),
        }
    }
}

#[derive(Clone, Copy)]
enum Access {
    Read,
    Write,
}

async fn begin_sqlite(
    pool: &SqlitePool,
    begin: &'static str,
    seconds: u64,
) -> Result<Transaction<'static, Sqlite>, sqlx::Error> {
    let mut transaction = pool.begin_with(begin).await?;
    // SQLite has no statement timeout; the deadline covers the whole transaction. The next one on
    // this connection replaces it before its first long statement.
    let deadline = Instant::now() + Duration::from_secs(seconds);
    transaction
        .lock_handle()
        .await?
        .set_progress_handler(SQLITE_DEADLINE_OPS, move || Instant::now() < deadline);
    Ok(transaction)
}

/// One transaction. Dropped, it is rolled back.
pub(super) struct Session {
    name: Arc<str>,
    query: Query,
    seconds: u64,
    inner: Inner,
}

enum Inner {
    Sqlite(Transaction<'static, Sqlite>),
    Postgres(Transaction<'static, Postgres>),
}

impl Session {
    fn error(&self, error: &sqlx::Error) -> SourceError {
        error::running(&self.name, self.query, self.seconds, error)
    }

    fn value_error(&self, reason: String) -> SourceError {
        SourceError::Value { query: self.query, reason }
    }

    /// The columns of `sql`, as they are now: a statement prepared earlier may be out of date, so
    /// none is kept (and a pooler between us and the server has none to mix up).
    pub(super) async fn columns(&mut self, sql: String) -> Result<Vec<Column>, SourceError> {
        let sql = AssertSqlSafe(sql);
        let columns = match &mut self.inner {
            Inner::Sqlite(transaction) => describe_sqlite(transaction, sql).await,
            Inner::Postgres(transaction) => describe_postgres(transaction, sql).await,
        };
        columns.map_err(|error| self.error(&error))
    }

    /// Has the database plan the statement without running it: what it finds are wrong names and
    /// types and missing permissions.
    pub(super) async fn explain(&mut self, bound: Bound) -> Result<(), SourceError> {
        let sql = format!("explain {}", bound.sql);
        self.execute(Bound { sql, ..bound }).await.map(drop)
    }

    /// The number in the first column of the only row.
    pub(super) async fn number(&mut self, bound: Bound) -> Result<u64, SourceError> {
        let number: Result<i64, _> = match &mut self.inner {
            Inner::Sqlite(transaction) => {
                let query = sqlite::bind(bound);
                query.try_map(|row| sqlite::number(&row)).fetch_one(&mut **transaction).await
            }
            Inner::Postgres(transaction) => {
                let query = postgres::bind(bound);
                query.try_map(|row| postgres::number(&row)).fetch_one(&mut **transaction).await
            }
        };
        number.map(|number| u64::try_from(number).unwrap_or(0)).map_err(|error| self.error(&error))
    }

    /// The text in the first column of the first row.
    pub(super) async fn text(&mut self, bound: Bound) -> Result<Option<String>, SourceError> {
        let text = match &mut self.inner {
            Inner::Sqlite(transaction) => {
                let query = sqlite::bind(bound);
                query.try_map(|row| sqlite::text(&row)).fetch_optional(&mut **transaction).await
            }
            Inner::Postgres(transaction) => {
                let query = postgres::bind(bound);
                query.try_map(|row| postgres::text(&row)).fetch_optional(&mut **transaction).await
            }
        };
        text.map(Option::flatten).map_err(|error| self.error(&error))
    }

    /// Whether there is a row whose first value is neither null nor false nor 0.
    pub(super) async fn affirms(&mut self, bound: Bound) -> Result<bool, SourceError> {
        let row = match &mut self.inner {
            Inner::Sqlite(transaction) => {
                let row = sqlite::bind(bound).fetch_optional(&mut **transaction).await;
                row.map(|row| row.as_ref().is_some_and(sqlite::affirms))
            }
            Inner::Postgres(transaction) => {
                let row = postgres::bind(bound).fetch_optional(&mut **transaction).await;
                row.map(|row| row.as_ref().is_some_and(postgres::affirms))
            }
        };
        row.map_err(|error| self.error(&error))
    }

    /// Hands each row to `take`, read as `columns` say; the statement selects exactly these.
    pub(super) async fn each(
        &mut self,
        bound: Bound,
        columns: &[Column],
        mut take: impl FnMut(Data) + Send,
    ) -> Result<(), SourceError> {
        // The stream borrows the transaction, so errors are turned into ours after it.
        let mut unreadable = None;
        let result = match &mut self.inner {
            Inner::Sqlite(transaction) => {
                let mut rows = sqlite::bind(bound).fetch(&mut **transaction);
                loop {
                    match rows.try_next().await {
                        Ok(Some(row)) => match sqlite::data(&row) {
                            Ok(data) => take(data),
                            Err(reason) => {
                                unreadable = Some(reason);
                                break Ok(());
                            }
                        },
                        Ok(None) => break Ok(()),
                        Err(error) => break Err(error),
                    }
                }
            }
            Inner::Postgres(transaction) => {
                let mut rows = postgres::bind(bound).fetch(&mut **transaction);
                loop {
                    match rows.try_next().await {
                        Ok(Some(row)) => match postgres::data(&row, columns) {
                            Ok(data) => take(data),
                            Err(reason) => {
                                unreadable = Some(reason);
                                break Ok(());
                            }
                        },
                        Ok(None) => break Ok(()),
                        Err(error) => break Err(error),
                    }
                }
            }
        };
        match (unreadable, result) {
            (Some(reason), _) => Err(self.value_error(reason)),
            (None, Err(error)) => Err(self.error(&error)),
            (None, Ok(())) => Ok(()),
        }
    }

    /// Runs the statement; the rows it touched.
    pub(super) async fn execute(&mut self, bound: Bound) -> Result<u64, SourceError> {
        let touched = match &mut self.inner {
            Inner::Sqlite(transaction) => {
                let done = sqlite::bind(bound).execute(&mut **transaction).await;
                done.map(|done| done.rows_affected())
            }
            Inner::Postgres(transaction) => {
                let done = postgres::bind(bound).execute(&mut **transaction).await;
                done.map(|done| done.rows_affected())
            }
        };
        touched.map_err(|error| self.error(&error))
    }

    /// Ends the transaction and keeps what it changed.
    pub(super) async fn commit(self) -> Result<(), SourceError> {
        let Self { name, query, seconds, inner } = self;
        let done = match inner {
            Inner::Sqlite(transaction) => transaction.commit().await,
            Inner::Postgres(transaction) => transaction.commit().await,
        };
        done.map_err(|error| error::running(&name, query, seconds, &error))
    }

    /// Ends the transaction and undoes what it changed.
    pub(super) async fn rollback(self) -> Result<(), SourceError> {
        let Self { name, query, seconds, inner } = self;
        let done = match inner {
            Inner::Sqlite(transaction) => transaction.rollback().await,
            Inner::Postgres(transaction) => transaction.rollback().await,
        };
        done.map_err(|error| error::running(&name, query, seconds, &error))
    }
}

async fn describe_sqlite(
    transaction: &mut Transaction<'static, Sqlite>,
    sql: AssertSqlSafe<String>,
) -> Result<Vec<Column>, sqlx::Error> {
    let statement = (&mut **transaction).prepare(sqlx::SqlSafeStr::into_sql_str(sql)).await?;
    transaction.clear_cached_statements().await?;
    Ok(statement.columns().iter().map(sqlite::column).collect())
}

async fn describe_postgres(
    transaction: &mut Transaction<'static, Postgres>,
    sql: AssertSqlSafe<String>,
) -> Result<Vec<Column>, sqlx::Error> {
    let statement = (&mut **transaction).prepare(sqlx::SqlSafeStr::into_sql_str(sql)).await?;
    transaction.clear_cached_statements().await?;
    Ok(statement.columns().iter().map(postgres::column).collect())
}
