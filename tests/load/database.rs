//! What is written to the shop and read from the ledger, by SQL.

use anyhow::Context as _;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _, SqliteConnection};

/// A database by its URL. In SQL, `@` stands before the ledger's tables.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    url: String,
}

impl Database {
    pub(crate) fn at(url: &str) -> Self {
        Self { url: url.to_owned() }
    }

    pub(crate) fn is_postgres(&self) -> bool {
        self.url.starts_with("postgres")
    }

    /// Its URL.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Fills the shop: `customers` customers with three rows each in the period's window.
    pub(crate) async fn fill(&self, customers: u32) -> anyhow::Result<()> {
        let numbers = if self.is_postgres() {
            format!("select n from generate_series(1, {customers}) as t(n)")
        } else {
            format!(
                "with recursive t(n) as (select 1 union all select n + 1 from t where n < {customers}) \
                 select n from t"
            )
        };
        let (id, time) =
            if self.is_postgres() { ("bigint", "timestamptz") } else { ("integer", "text") };
        for sql in [
            format!(
                "create table customers \
                 (id {id} primary key, email text, first_name text, wanted integer)"
            ),
            format!(
                "create table items (customer_id {id}, title text, price text, created_at {time})"
            ),
            format!(
                "insert into customers select n, 'c' || n || '@shop.example', 'Name' || n, 1 \
                 from ({numbers}) as numbers"
            ),
            format!(
                "insert into items select n, 'Thing ' || p || ' for ' || n, '19.90', \
                 '2024-02-28 12:00:00' from ({numbers}) as numbers \
                 cross join (select 1 as p union all select 2 union all select 3) as parts"
            ),
            "create index items_customer on items (customer_id, created_at)".to_owned(),
            "analyze".to_owned(),
        ] {
            self.execute(&sql).await?;
        }
        Ok(())
    }

    /// Executes one statement.
    pub(crate) async fn execute(&self, sql: &str) -> anyhow::Result<()> {
        if self.is_postgres() {
            let mut connection = PgConnection::connect(&self.url).await?;
            sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await?;
            connection.close().await?;
        } else {
            let mut connection = self.sqlite().await?;
            sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await?;
            connection.close().await?;
        }
        Ok(())
    }

    async fn sqlite(&self) -> anyhow::Result<SqliteConnection> {
        let url = format!("{}?mode=rwc", self.url);
        SqliteConnection::connect(&url).await.context("the database's file")
    }

    /// The rows of a query of numbers; null is 0.
    pub(crate) async fn numbers(&self, sql: &str) -> anyhow::Result<Vec<Vec<f64>>> {
        if self.is_postgres() {
            let sql = AssertSqlSafe(with_doubles(&sql.replace('@', "digestd.")));
            let mut connection = PgConnection::connect(&self.url).await?;
            let rows = sqlx::query(sql).fetch_all(&mut connection).await?;
            connection.close().await?;
            let value = |row: &sqlx::postgres::PgRow, column| {
                Ok(row.try_get::<Option<f64>, _>(column)?.unwrap_or_default())
            };
            rows.iter()
                .map(|row| (0..row.len()).map(|column| value(row, column)).collect())
                .collect()
        } else {
            let sql = AssertSqlSafe(with_doubles(&sql.replace('@', "digestd_")));
            let mut connection = self.sqlite().await?;
            let rows = sqlx::query(sql).fetch_all(&mut connection).await?;
            connection.close().await?;
            let value = |row: &sqlx::sqlite::SqliteRow, column| {
                Ok(row.try_get::<Option<f64>, _>(column)?.unwrap_or_default())
            };
            rows.iter()
                .map(|row| (0..row.len()).map(|column| value(row, column)).collect())
                .collect()
        }
    }

    /// The first number of a query's first row.
    pub(crate) async fn number(&self, sql: &str) -> anyhow::Result<Option<f64>> {
        Ok(self.numbers(sql).await?.first().and_then(|row| row.first().copied()))
    }
}

/// A query of columns `#…#`, each of which becomes a floating-point number.
fn with_doubles(sql: &str) -> String {
    let mut parts = sql.split('#');
    let mut text = parts.next().unwrap_or_default().to_owned();
    while let (Some(column), Some(rest)) = (parts.next(), parts.next()) {
        text.push_str(&format!("cast({column} as double precision){rest}"));
    }
    text
}
