//! A database for one test: a SQLite file, or a database of a PostgreSQL or MariaDB server.

use digest_tests::mariadb::Mariadb;
use digest_tests::postgres::Postgres;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection, SqliteConnection};
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
    Mariadb,
}

/// Where a behaviour is tested.
pub(crate) enum Behaviour {
    Sqlite(TempDir, AtomicU32),
    Postgres(&'static Postgres),
    Mariadb(&'static Mariadb),
}

/// Tests each behaviour on SQLite and, where there is one, on PostgreSQL and MariaDB.
macro_rules! on_all {
    ($($behaviour:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $behaviour() {
                super::$behaviour(crate::database::Behaviour::sqlite()).await;
            })*
        }
        mod postgres {
            $(#[tokio::test]
            async fn $behaviour() {
                let what = stringify!($behaviour);
                if let Some(behaviour) = crate::database::Behaviour::postgres(what).await {
                    super::$behaviour(behaviour).await;
                }
            })*
        }
        mod mariadb {
            $(#[tokio::test]
            async fn $behaviour() {
                let what = stringify!($behaviour);
                if let Some(behaviour) = crate::database::Behaviour::mariadb(what).await {
                    super::$behaviour(behaviour).await;
                }
            })*
        }
    };
}
pub(crate) use on_all;

impl Behaviour {
    pub(crate) fn sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().unwrap(), AtomicU32::new(0))
    }

    pub(crate) async fn postgres(what: &str) -> Option<Self> {
        Postgres::shared(what).await.unwrap().map(Self::Postgres)
    }

    pub(crate) async fn mariadb(what: &str) -> Option<Self> {
        Mariadb::shared(what).await.unwrap().map(Self::Mariadb)
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Sqlite(..) => Kind::Sqlite,
            Self::Postgres(_) => Kind::Postgres,
            Self::Mariadb(_) => Kind::Mariadb,
        }
    }

    /// The usual type of an instant's column.
    pub(crate) fn instant(&self) -> &'static str {
        match self {
            Self::Sqlite(..) => "text",
            Self::Postgres(_) => "timestamptz",
            Self::Mariadb(_) => "datetime(6)",
        }
    }

    /// The SQL of two texts joined.
    pub(crate) fn joined(&self, left: &str, right: &str) -> String {
        match self {
            Self::Sqlite(..) | Self::Postgres(_) => format!("{left} || {right}"),
            Self::Mariadb(_) => format!("concat({left}, {right})"),
        }
    }

    /// A new database in which these statements ran; its URL.
    pub(crate) async fn database(&self, statements: &[&str]) -> String {
        let url = match self {
            Self::Sqlite(directory, count) => {
                let count = count.fetch_add(1, Ordering::Relaxed);
                let file = directory.path().join(format!("shop-{count}.db"));
                std::fs::File::create(&file).unwrap();
                format!("sqlite://{}", file.display())
            }
            Self::Postgres(server) => server.database("source").await.unwrap(),
            Self::Mariadb(server) => server.database("source").await.unwrap(),
        };
        for statement in statements {
            self.execute(&url, statement).await;
        }
        url
    }

    pub(crate) async fn execute(&self, url: &str, sql: &str) {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        match self {
            Self::Sqlite(..) => {
                let mut connection = SqliteConnection::connect(url).await.unwrap();
                sql.execute(&mut connection).await.unwrap();
                connection.close().await.unwrap();
            }
            Self::Postgres(_) => {
                let mut connection = PgConnection::connect(url).await.unwrap();
                sql.execute(&mut connection).await.unwrap();
                connection.close().await.unwrap();
            }
            Self::Mariadb(_) => {
                let mut connection = MySqlConnection::connect(url).await.unwrap();
                sql.execute(&mut connection).await.unwrap();
                connection.close().await.unwrap();
            }
        }
    }

    pub(crate) async fn number(&self, url: &str, sql: &str) -> i64 {
        let sql = sqlx::AssertSqlSafe(sql.to_owned());
        match self {
            Self::Sqlite(..) => {
                let mut connection = SqliteConnection::connect(url).await.unwrap();
                sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap()
            }
            Self::Postgres(_) => {
                let mut connection = PgConnection::connect(url).await.unwrap();
                sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap()
            }
            Self::Mariadb(_) => {
                let mut connection = MySqlConnection::connect(url).await.unwrap();
                sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap()
            }
        }
    }

    /// A connection that holds SQLite's write lock as long as it lives.
    pub(crate) async fn lock(&self, url: &str) -> SqliteConnection {
        let mut connection = SqliteConnection::connect(url).await.unwrap();
        sqlx::raw_sql("begin immediate").execute(&mut connection).await.unwrap();
        connection
    }
    /// A MariaDB connection in whose transaction `sql` ran.
    pub(crate) async fn locking(&self, url: &str, sql: &str) -> MySqlConnection {
        let mut connection = MySqlConnection::connect(url).await.unwrap();
        let sql = AssertSqlSafe(format!("start transaction; {sql}"));
        sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
        connection
    }
}
