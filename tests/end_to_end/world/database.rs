//! The databases behind the little that tests ask of them.

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{
    AssertSqlSafe, Connection as _, MySqlConnection, PgConnection, Row as _, SqliteConnection,
};
use std::path::PathBuf;
use std::time::Duration;

/// One database. In SQL, ` @` stands before the ledger's tables.
#[derive(Clone, Debug)]
pub(crate) enum Database {
    /// A file.
    Sqlite(PathBuf),
    /// A URL.
    Postgres(String),
    /// A URL of a shop's.
    Mariadb(String),
}

impl Database {
    /// Executes one statement; returns how many rows it touched.
    pub(crate) async fn execute(&self, sql: &str) -> u64 {
        match self {
            Self::Sqlite(path) => {
                let mut connection = sqlite(path).await;
                let sql = AssertSqlSafe(sql.replace(" @", " digestd_"));
                sqlx::query(sql).execute(&mut connection).await.unwrap().rows_affected()
            }
            Self::Postgres(url) => {
                let mut connection = PgConnection::connect(url).await.unwrap();
                let sql = AssertSqlSafe(sql.replace(" @", " digestd."));
                sqlx::query(sql).execute(&mut connection).await.unwrap().rows_affected()
            }
            Self::Mariadb(url) => {
                let mut connection = MySqlConnection::connect(url).await.unwrap();
                let sql = AssertSqlSafe(sql.to_owned());
                sqlx::query(sql).execute(&mut connection).await.unwrap().rows_affected()
            }
        }
    }

    /// The rows of a query of two text columns.
    pub(crate) async fn pairs(&self, sql: &str) -> Vec<(String, String)> {
        match self {
            Self::Sqlite(path) => {
                let mut connection = sqlite(path).await;
                let sql = AssertSqlSafe(sql.replace(" @", " digestd_"));
                let rows = sqlx::query(sql).fetch_all(&mut connection).await.unwrap();
                rows.iter().map(|row| (row.get(0), row.get(1))).collect()
            }
            Self::Postgres(url) => {
                let mut connection = PgConnection::connect(url).await.unwrap();
                let sql = AssertSqlSafe(sql.replace(" @", " digestd."));
                let rows = sqlx::query(sql).fetch_all(&mut connection).await.unwrap();
                rows.iter().map(|row| (row.get(0), row.get(1))).collect()
            }
            Self::Mariadb(url) => {
                let mut connection = MySqlConnection::connect(url).await.unwrap();
                let sql = AssertSqlSafe(sql.to_owned());
                let rows = sqlx::query(sql).fetch_all(&mut connection).await.unwrap();
                rows.iter().map(|row| (row.get(0), row.get(1))).collect()
            }
        }
    }

    /// How many rows `from` has, a table with its conditions.
    pub(crate) async fn count(&self, from: &str) -> u64 {
        let text = if matches!(self, Self::Mariadb(_)) { "char" } else { "text" };
        let sql = format!("select cast(count(*) as {text}), '' from {from}");
        self.pairs(&sql).await[0].0.parse().unwrap()
    }
}

async fn sqlite(path: &PathBuf) -> SqliteConnection {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .busy_timeout(Duration::from_secs(30));
    SqliteConnection::connect_with(&options).await.unwrap()
}
