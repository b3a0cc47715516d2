//! The databases behind the little that tests ask of them.

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{
    AssertSqlSafe, ColumnIndex, Connection as _, Decode, MySqlConnection, PgConnection, Row,
    SqliteConnection, Type,
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

    /// Empties SQLite's log of writes into the file, so that the next write needs room on the disk.
    pub(crate) async fn truncate_log(&self) {
        let Self::Sqlite(path) = self else { panic!("not SQLite") };
        let mut connection = sqlite(path).await;
        let busy = sqlx::query_scalar::<_, i64>("pragma wal_checkpoint(truncate)")
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert_eq!(busy, 0, "somebody read or wrote for as long as a statement waits");
    }

    /// Executes several statements of PostgreSQL as they are.
    pub(crate) async fn script(&self, sql: &str) {
        let Self::Postgres(url) = self else { panic!("not PostgreSQL") };
        let mut connection = PgConnection::connect(url).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.unwrap();
    }

    /// The rows of a query of two text columns.
    pub(crate) async fn pairs(&self, sql: &str) -> Vec<(String, String)> {
        let pair = |row: Vec<String>| {
            let [first, second] = <[String; 2]>::try_from(row).unwrap();
            (first, second)
        };
        self.rows(sql).await.into_iter().map(pair).collect()
    }

    /// The rows of a query of text columns.
    pub(crate) async fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        self.at_one_moment(&[sql]).await.remove(0)
    }

    /// The rows of several queries of text columns, from one snapshot.
    pub(crate) async fn at_one_moment(&self, queries: &[&str]) -> Vec<Vec<Vec<String>>> {
        let mut all = Vec::new();
        match self {
            Self::Sqlite(path) => {
                let mut connection = sqlite(path).await;
                let mut tx = connection.begin().await.unwrap();
                for query in queries {
                    let sql = AssertSqlSafe(query.replace(" @", " digestd_"));
                    all.push(texts(&sqlx::query(sql).fetch_all(&mut *tx).await.unwrap()));
                }
            }
            Self::Postgres(url) => {
                let mut connection = PgConnection::connect(url).await.unwrap();
                let begin = "begin transaction isolation level repeatable read, read only";
                let mut tx = connection.begin_with(begin).await.unwrap();
                for query in queries {
                    let sql = AssertSqlSafe(query.replace(" @", " digestd."));
                    all.push(texts(&sqlx::query(sql).fetch_all(&mut *tx).await.unwrap()));
                }
            }
            Self::Mariadb(url) => {
                let mut connection = MySqlConnection::connect(url).await.unwrap();
                let begin = "start transaction with consistent snapshot, read only";
                let mut tx = connection.begin_with(begin).await.unwrap();
                for query in queries {
                    let sql = AssertSqlSafe((*query).to_owned());
                    all.push(texts(&sqlx::query(sql).fetch_all(&mut *tx).await.unwrap()));
                }
            }
        }
        all
    }

    /// What text is called in a cast.
    pub(crate) const fn text(&self) -> &'static str {
        match self {
            Self::Sqlite(_) | Self::Postgres(_) => "text",
            Self::Mariadb(_) => "char",
        }
    }

    /// How many rows `from` has, a table with its conditions.
    pub(crate) async fn count(&self, from: &str) -> u64 {
        let sql = format!("select cast(count(*) as {}), '' from {from}", self.text());
        self.pairs(&sql).await[0].0.parse().unwrap()
    }
}

fn texts<R>(rows: &[R]) -> Vec<Vec<String>>
where
    R: Row,
    usize: ColumnIndex<R>,
    for<'r> String: Decode<'r, R::Database> + Type<R::Database>,
{
    rows.iter().map(|row| (0..row.len()).map(|column| row.get(column)).collect()).collect()
}

async fn sqlite(path: &PathBuf) -> SqliteConnection {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .busy_timeout(Duration::from_secs(30));
    SqliteConnection::connect_with(&options).await.unwrap()
}
