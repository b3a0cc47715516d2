//! Connections to the source. Every statement runs in a transaction that cannot write, except for
//! the cleanup's.

use super::error::{self, Query, SourceError};
use super::session::{Session, Transacting};
use super::statement::Dialect;
use crate::sqlite;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlPool, MySqlPoolOptions};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqlitePool};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Sqlite, Transaction};
use std::sync::{Arc, OnceLock};
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

/// The source's connections, made when they are first needed: the pools want a runtime around them,
/// which whoever only checks a configuration's text may not have.
pub(super) struct Database {
    name: Arc<str>,
    options: Options,
    pools: OnceLock<Pools>,
}

enum Options {
    Sqlite(Box<SqliteConnectOptions>),
    Postgres(Box<PgConnectOptions>),
    Mysql(Box<MySqlConnectOptions>),
}

enum Pools {
    Sqlite { readers: SqlitePool, writers: SqlitePool },
    Postgres(PgPool),
    Mysql(MySqlPool),
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
                let parsed = Url::parse(url).ok().filter(|parsed| is_whole(url, parsed));
                let options = parsed.and_then(|url| PgConnectOptions::from_url(&url).ok());
                let options = options.ok_or_else(|| {
                    unusable("write postgres://user@host:5432/database, and / ? # @ in a password as %2F %3F %23 %40")
                })?;
                Ok(Self::postgres(options.disable_statement_logging()))
            }
            Some("mysql" | "mariadb") => {
                let parsed = Url::parse(url).ok().filter(|parsed| is_whole(url, parsed));
                let options = parsed.and_then(|url| MySqlConnectOptions::from_url(&url).ok());
                let named = options.filter(|options| options.get_database().is_some());
                let options = named.ok_or_else(|| {
                    unusable("write mysql://user@host:3306/database, and / ? # @ in a password as %2F %3F %23 %40")
                })?;
                Ok(Self::mysql(options))
            }
            // The text itself is not shown: it may begin with a password.
            _ => Err(unusable(
                "it begins with none of sqlite://, postgres://, mysql:// and mariadb://",
            )),
        }
    }

    fn sqlite(options: &SqliteConnectOptions) -> Self {
        let options = options
            .clone()
            .create_if_missing(false)
            .busy_timeout(SQLITE_BUSY_TIMEOUT)
            .disable_statement_logging();
        let name = options.get_filename().display().to_string().into();
        Self { name, options: Options::Sqlite(Box::new(options)), pools: OnceLock::new() }
    }

    fn postgres(options: PgConnectOptions) -> Self {
        let database = options.get_database().unwrap_or_else(|| options.get_username());
        let name = match options.get_socket() {
            Some(socket) => format!("{database} at {}", socket.display()),
            None => format!("{database} at {}:{}", options.get_host(), options.get_port()),
        };
        Self {
            name: name.into(),
            options: Options::Postgres(Box::new(options)),
            pools: OnceLock::new(),
        }
    }

    fn mysql(options: MySqlConnectOptions) -> Self {
        // The mode stays the server's, in which the user has tried the statements; sqlx would make
        // `||` join texts.
        let options = options
            .pipes_as_concat(false)
            .no_engine_substitution(false)
            .statement_cache_capacity(0)
            .disable_statement_logging();
        let database = options.get_database().unwrap_or_default();
        let name = match options.get_socket() {
            Some(socket) => format!("{database} at {}", socket.display()),
            None => format!("{database} at {}:{}", options.get_host(), options.get_port()),
        };
        Self {
            name: name.into(),
            options: Options::Mysql(Box::new(options)),
            pools: OnceLock::new(),
        }
    }

    fn pools(&self) -> &Pools {
        self.pools.get_or_init(|| match &self.options {
            Options::Sqlite(options) => {
                let pool = |connections, options| {
                    sqlite::pool()
                        .max_connections(connections)
                        .acquire_timeout(CONNECT_TIMEOUT)
                        .connect_lazy_with(options)
                };
                Pools::Sqlite {
                    readers: pool(READERS_MAX, options.as_ref().clone().pragma("query_only", "on")),
                    writers: pool(SQLITE_WRITERS_MAX, options.as_ref().clone()),
                }
            }
            Options::Postgres(options) => Pools::Postgres(
                PgPoolOptions::new()
                    .max_connections(READERS_MAX)
                    .acquire_timeout(CONNECT_TIMEOUT)
                    .connect_lazy_with(options.as_ref().clone()),
            ),
            Options::Mysql(options) => Pools::Mysql(
                MySqlPoolOptions::new()
                    .max_connections(READERS_MAX)
                    .acquire_timeout(CONNECT_TIMEOUT)
                    .connect_lazy_with(options.as_ref().clone()),
            ),
        })
    }

    /// The database's name: host and database, or file. Nothing of user or password.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn dialect(&self) -> Dialect {
        match self.options {
            Options::Sqlite(_) => Dialect::Sqlite,
            Options::Postgres(_) => Dialect::Postgres,
            Options::Mysql(_) => Dialect::Mysql,
        }
    }

    /// Makes one connection and drops it. Unlike the pool, which goes on trying and then knows only
    /// that time is over, it says why there is none.
    pub(super) async fn probe(&self) -> Result<(), SourceError> {
        let probe = async {
            match &self.options {
                Options::Sqlite(options) => {
                    SqliteConnection::connect_with(options).await?.close().await
                }
                Options::Postgres(options) => {
                    PgConnection::connect_with(options).await?.close().await
                }
                Options::Mysql(options) => {
                    MySqlConnection::connect_with(options).await?.close().await
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
        let inner = match self.pools() {
            Pools::Sqlite { readers, writers } => {
                let (pool, begin) = match access {
                    Access::Read => (readers, "begin"),
                    // A transaction that begins by reading could not wait for the write lock.
                    Access::Write => (writers, "begin immediate"),
                };
                begin_sqlite(pool, begin, seconds).await.map(Transacting::Sqlite)
            }
            Pools::Postgres(pool) => {
                let mode = match access {
                    Access::Read => "isolation level repeatable read, read only",
                    Access::Write => "isolation level read committed, read write",
                };
                // `set local` rather than start-up options, which connection poolers refuse.
                let begin = format!(
                    "begin {mode}; set local statement_timeout = '{seconds}s'; set local time zone 'UTC'"
                );
                pool.begin_with(AssertSqlSafe(begin)).await.map(Transacting::Postgres)
            }
            Pools::Mysql(pool) => {
                let begin = begin_mysql(query, seconds, access);
                pool.begin_with(AssertSqlSafe(begin)).await.map(Transacting::Mysql)
            }
        };
        match inner {
            Ok(inner) => Ok(Session::new(self.name.clone(), query, seconds, inner)),
            Err(error) => Err(error::beginning(&self.name, query, seconds, &error)),
        }
    }
}

/// Whether `parsed` has a host, and no password strayed into what comes after it: a `/` or `#` in one
/// ends the host early, and the rest would be taken, and shown, for the database's name.
fn is_whole(url: &str, parsed: &Url) -> bool {
    let strayed = |part: Option<&str>| part.is_some_and(|part| part.contains('@'));
    url.contains("://")
        && !strayed(Some(parsed.path()))
        && !strayed(parsed.query())
        && !strayed(parsed.fragment())
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

/// How a transaction begins on MySQL and MariaDB, which take different settings: each skips the
/// other's as a comment (MariaDB's documentation, "Comment Syntax").
///
/// MySQL ends only a `select` by itself; a cleanup there waits for locks as long as the server's
/// `innodb_lock_wait_timeout` says, and otherwise until the call is given up. MariaDB keeps the order
/// of `rows` only if it does not dissolve that query into the one around it.
fn begin_mysql(query: Query, seconds: u64, access: Access) -> String {
    let merge = if query == Query::Rows { "off" } else { "default" };
    let milliseconds = seconds.saturating_mul(1000);
    let (isolation, mode) = match access {
        Access::Read => ("repeatable read", "with consistent snapshot, read only"),
        Access::Write => ("read committed", "read write"),
    };
    format!(
        "set session /*!50708 max_execution_time = {milliseconds}, */ \
         /*M!100101 max_statement_time = {seconds}, optimizer_switch = 'derived_merge={merge}', */ \
         time_zone = '+00:00'; \
         set transaction isolation level {isolation}; start transaction {mode}"
    )
}
