//! One transaction on any of the databases, and what is asked in it.

use super::customer::{Data, IdType};
use super::error::{self, Query, SourceError};
use super::{mysql, postgres, sqlite};
use futures::TryStreamExt;
use futures::stream::BoxStream;
use serde_json::Value;
use sqlx::{
    AssertSqlSafe, Connection, Executor, MySql, Postgres, Sqlite, Statement as _, Transaction,
};
use std::sync::Arc;

/// A value bound to a statement; its type is in the statement's text.
pub(super) enum Bind {
    Integer(i64),
    Text(String),
}

/// A statement with its binds, in order; on MySQL there are none.
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

/// One row as JSON.
pub(super) struct RowData {
    /// Each value by its column; null where it cannot be carried.
    pub(super) data: Data,
    /// Which column cannot be carried, why, and the cure, without the value; the first, if several.
    pub(super) unreadable: Option<String>,
}

impl RowData {
    pub(super) fn with_capacity(columns: usize) -> Self {
        Self { data: Data::with_capacity(columns), unreadable: None }
    }

    /// Adds the value of a column, or why there is none.
    pub(super) fn add(&mut self, column: &str, value: Result<Value, String>) {
        let value = value.unwrap_or_else(|reason| {
            self.unreadable.get_or_insert(reason);
            Value::Null
        });
        self.data.insert(column.to_owned(), value);
    }
}

/// One transaction. Dropped, it is rolled back.
pub(super) struct Session {
    name: Arc<str>,
    query: Query,
    seconds: u64,
    inner: Transacting,
}

/// The transaction of the one database or the other.
pub(super) enum Transacting {
    Sqlite(Transaction<'static, Sqlite>),
    Postgres(Transaction<'static, Postgres>),
    Mysql(Transaction<'static, MySql>),
}

impl Session {
    /// `query` names the statement, and `seconds` its time, in errors of the database `name`.
    pub(super) fn new(name: Arc<str>, query: Query, seconds: u64, inner: Transacting) -> Self {
        Self { name, query, seconds, inner }
    }

    fn error(&self, error: &sqlx::Error) -> SourceError {
        error::running(&self.name, self.query, self.seconds, error)
    }

    /// The columns of `sql`, as they are now: a statement prepared earlier may be out of date, so
    /// none is kept (and a pooler between us and the server has none to mix up).
    pub(super) async fn columns(&mut self, sql: String) -> Result<Vec<Column>, SourceError> {
        let sql = AssertSqlSafe(sql);
        let columns = match &mut self.inner {
            Transacting::Sqlite(transaction) => describe_sqlite(transaction, sql).await,
            Transacting::Postgres(transaction) => describe_postgres(transaction, sql).await,
            Transacting::Mysql(transaction) => describe_mysql(transaction, sql).await,
        };
        columns.map_err(|error| self.error(&error))
    }

    /// Has the database plan the statement without running it: what it finds are wrong names and
    /// types and missing permissions. MySQL finds them when it prepares a statement, while its
    /// `explain` may run parts of it.
    pub(super) async fn explain(&mut self, bound: Bound) -> Result<(), SourceError> {
        if let Transacting::Mysql(transaction) = &mut self.inner {
            let sql = sqlx::SqlSafeStr::into_sql_str(AssertSqlSafe(bound.sql));
            let prepared = (&mut **transaction).prepare(sql).await;
            return prepared.map(drop).map_err(|error| self.error(&error));
        }
        let sql = format!("explain {}", bound.sql);
        self.execute(Bound { sql, ..bound }).await.map(drop)
    }

    /// The number in the first column of the only row.
    pub(super) async fn number(&mut self, bound: Bound) -> Result<u64, SourceError> {
        let number: Result<i64, _> = match &mut self.inner {
            Transacting::Sqlite(transaction) => {
                let query = sqlite::bind(bound);
                query.try_map(|row| sqlite::number(&row)).fetch_one(&mut **transaction).await
            }
            Transacting::Postgres(transaction) => {
                let query = postgres::bind(bound);
                query.try_map(|row| postgres::number(&row)).fetch_one(&mut **transaction).await
            }
            Transacting::Mysql(transaction) => {
                let row = mysql::query(bound).fetch_one(&mut **transaction).await;
                row.and_then(|row| mysql::number(&row))
            }
        };
        number.map(|number| u64::try_from(number).unwrap_or(0)).map_err(|error| self.error(&error))
    }

    /// The text in the first column of the first row.
    pub(super) async fn text(&mut self, bound: Bound) -> Result<Option<String>, SourceError> {
        let text = match &mut self.inner {
            Transacting::Sqlite(transaction) => {
                let query = sqlite::bind(bound);
                query.try_map(|row| sqlite::text(&row)).fetch_optional(&mut **transaction).await
            }
            Transacting::Postgres(transaction) => {
                let query = postgres::bind(bound);
                query.try_map(|row| postgres::text(&row)).fetch_optional(&mut **transaction).await
            }
            Transacting::Mysql(transaction) => {
                let row = mysql::query(bound).fetch_optional(&mut **transaction).await;
                row.and_then(|row| row.as_ref().map(mysql::text).transpose())
            }
        };
        text.map(Option::flatten).map_err(|error| self.error(&error))
    }

    /// Whether there is a row whose first value is neither null nor false nor 0.
    pub(super) async fn affirms(&mut self, bound: Bound) -> Result<bool, SourceError> {
        let row = match &mut self.inner {
            Transacting::Sqlite(transaction) => {
                let row = sqlite::bind(bound).fetch_optional(&mut **transaction).await;
                row.map(|row| row.as_ref().is_some_and(sqlite::affirms))
            }
            Transacting::Postgres(transaction) => {
                let row = postgres::bind(bound).fetch_optional(&mut **transaction).await;
                row.map(|row| row.as_ref().is_some_and(postgres::affirms))
            }
            Transacting::Mysql(transaction) => {
                let row = mysql::query(bound).fetch_optional(&mut **transaction).await;
                row.map(|row| row.as_ref().is_some_and(mysql::affirms))
            }
        };
        row.map_err(|error| self.error(&error))
    }

    /// Hands each row to `take`, read as `columns` say; the statement selects exactly these.
    pub(super) async fn each(
        &mut self,
        bound: Bound,
        columns: &[Column],
        mut take: impl FnMut(RowData) + Send,
    ) -> Result<(), SourceError> {
        let read = match &mut self.inner {
            Transacting::Sqlite(transaction) => {
                let rows = sqlite::bind(bound).fetch(&mut **transaction);
                drain(rows, |row| take(sqlite::data(&row))).await
            }
            Transacting::Postgres(transaction) => {
                let rows = postgres::bind(bound).fetch(&mut **transaction);
                drain(rows, |row| take(postgres::data(&row, columns))).await
            }
            Transacting::Mysql(transaction) => {
                let rows = mysql::query(bound).fetch(&mut **transaction);
                drain(rows, |row| take(mysql::data(&row))).await
            }
        };
        read.map_err(|error| self.error(&error))
    }

    /// Runs the statement; the rows it touched.
    pub(super) async fn execute(&mut self, bound: Bound) -> Result<u64, SourceError> {
        let touched = match &mut self.inner {
            Transacting::Sqlite(transaction) => {
                let done = sqlite::bind(bound).execute(&mut **transaction).await;
                done.map(|done| done.rows_affected())
            }
            Transacting::Postgres(transaction) => {
                let done = postgres::bind(bound).execute(&mut **transaction).await;
                done.map(|done| done.rows_affected())
            }
            Transacting::Mysql(transaction) => {
                let done = mysql::query(bound).execute(&mut **transaction).await;
                done.map(|done| done.rows_affected())
            }
        };
        touched.map_err(|error| self.error(&error))
    }

    /// Ends the transaction and keeps what it changed.
    pub(super) async fn commit(self) -> Result<(), SourceError> {
        let Self { name, query, seconds, inner } = self;
        let done = match inner {
            Transacting::Sqlite(transaction) => transaction.commit().await,
            Transacting::Postgres(transaction) => transaction.commit().await,
            Transacting::Mysql(transaction) => transaction.commit().await,
        };
        done.map_err(|error| error::running(&name, query, seconds, &error))
    }

    /// Ends the transaction and undoes what it changed.
    pub(super) async fn rollback(self) -> Result<(), SourceError> {
        let Self { name, query, seconds, inner } = self;
        let done = match inner {
            Transacting::Sqlite(transaction) => transaction.rollback().await,
            Transacting::Postgres(transaction) => transaction.rollback().await,
            Transacting::Mysql(transaction) => transaction.rollback().await,
        };
        done.map_err(|error| error::running(&name, query, seconds, &error))
    }
}

async fn drain<R>(
    mut rows: BoxStream<'_, Result<R, sqlx::Error>>,
    mut take: impl FnMut(R),
) -> Result<(), sqlx::Error> {
    while let Some(row) = rows.try_next().await? {
        take(row);
    }
    Ok(())
}

async fn describe_sqlite(
    transaction: &mut Transaction<'static, Sqlite>,
    sql: AssertSqlSafe<String>,
) -> Result<Vec<Column>, sqlx::Error> {
    // Preparing alone trusts the schema this connection read once; running a statement looks again.
    sqlx::query("select 1 from sqlite_schema limit 1").fetch_optional(&mut **transaction).await?;
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

async fn describe_mysql(
    transaction: &mut Transaction<'static, MySql>,
    sql: AssertSqlSafe<String>,
) -> Result<Vec<Column>, sqlx::Error> {
    let statement = (&mut **transaction).prepare(sqlx::SqlSafeStr::into_sql_str(sql)).await?;
    Ok(statement.columns().iter().map(mysql::column).collect())
}
