//! Transactions of either database.

use super::later::Later;
use super::value::Value;
use super::{POSTGRES_CLOCK, Row, SQLITE_CLOCK, bound, within};
use crate::ledger::LedgerError;
use jiff::Timestamp;
use sqlx::{AssertSqlSafe, Postgres, Sqlite, Transaction};

/// A transaction on either database. Dropping it rolls it back.
pub(in crate::ledger) enum Tx {
    Sqlite(Transaction<'static, Sqlite>, Later),
    Postgres(Transaction<'static, Postgres>),
}

impl Tx {
    pub(super) fn sqlite(tx: Transaction<'static, Sqlite>) -> Self {
        Self::Sqlite(tx, Later::default())
    }

    /// Executes one statement; returns how many rows it touched.
    pub(in crate::ledger) async fn execute(
        &mut self,
        sql: &str,
        values: &[Value],
    ) -> Result<u64, LedgerError> {
        self.execute_later().await?;
        Ok(match self {
            Self::Sqlite(tx, _) => {
                let query = bound!(Sqlite, sql, values, "digestd_");
                within(query.execute(&mut **tx)).await?.rows_affected()
            }
            Self::Postgres(tx) => {
                let query = bound!(Postgres, sql, values, "");
                within(query.execute(&mut **tx)).await?.rows_affected()
            }
        })
    }

    /// Executes one statement before whatever comes next: on SQLite together with others of its kind,
    /// since asking its thread costs more than most statements do.
    pub(in crate::ledger) async fn execute_soon(
        &mut self,
        sql: &str,
        values: &[Value],
    ) -> Result<(), LedgerError> {
        match self {
            Self::Sqlite(_, later) => {
                later.push(sql, values);
                Ok(())
            }
            Self::Postgres(_) => self.execute(sql, values).await.map(drop),
        }
    }

    async fn execute_later(&mut self) -> Result<(), LedgerError> {
        if let Self::Sqlite(tx, later) = self
            && let Some((sql, values)) = later.take()
        {
            within(bound!(Sqlite, sql, &values, "digestd_").execute(&mut **tx)).await?;
        }
        Ok(())
    }

    /// All rows of a query.
    pub(in crate::ledger) async fn rows(
        &mut self,
        sql: &str,
        values: &[Value],
    ) -> Result<Vec<Row>, LedgerError> {
        self.execute_later().await?;
        Ok(match self {
            Self::Sqlite(tx, _) => {
                let query = bound!(Sqlite, sql, values, "digestd_");
                within(query.fetch_all(&mut **tx)).await?.into_iter().map(Row::Sqlite).collect()
            }
            Self::Postgres(tx) => {
                let query = bound!(Postgres, sql, values, "");
                within(query.fetch_all(&mut **tx)).await?.into_iter().map(Row::Postgres).collect()
            }
        })
    }

    /// The first row of a query, if there is one.
    pub(in crate::ledger) async fn row(
        &mut self,
        sql: &str,
        values: &[Value],
    ) -> Result<Option<Row>, LedgerError> {
        Ok(self.rows(sql, values).await?.into_iter().next())
    }

    /// Whether a row lock may have been waited for while others committed, which SQLite's one lock over
    /// everything never is.
    pub(in crate::ledger) const fn waits_for_rows(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    /// Now, by this database's clock: the only clock that leases and intents are compared with.
    pub(in crate::ledger) async fn now(&mut self) -> Result<Timestamp, LedgerError> {
        let sql = format!("select {}", self.clock());
        let row = self.row(&sql, &[]).await?.ok_or_else(|| LedgerError::corrupt("no clock"))?;
        row.time(0)
    }

    /// The clock as an expression, in milliseconds.
    const fn clock(&self) -> &'static str {
        match self {
            Self::Sqlite(..) => SQLITE_CLOCK,
            Self::Postgres(_) => POSTGRES_CLOCK,
        }
    }

    /// The first row of `sql` with a row lock, where the database has them; SQLite's transaction is
    /// one lock.
    pub(in crate::ledger) async fn locked(
        &mut self,
        sql: &str,
        lock: &str,
        values: &[Value],
    ) -> Result<Option<Row>, LedgerError> {
        Ok(self.locked_rows(sql, lock, values).await?.into_iter().next())
    }

    /// All rows of `sql`, each with a lock as in [`locked`](Self::locked).
    pub(in crate::ledger) async fn locked_rows(
        &mut self,
        sql: &str,
        lock: &str,
        values: &[Value],
    ) -> Result<Vec<Row>, LedgerError> {
        match self {
            Self::Sqlite(..) => self.rows(sql, values).await,
            Self::Postgres(_) => self.rows(&format!("{sql} {lock}"), values).await,
        }
    }

    /// As [`locked`](Self::locked), with the time after the lock was taken as one more column.
    pub(in crate::ledger) async fn locked_then_now(
        &mut self,
        sql: &str,
        lock: &str,
        values: &[Value],
    ) -> Result<Option<Row>, LedgerError> {
        let lock = if matches!(self, Self::Postgres(_)) { lock } else { "" };
        let clock = self.clock();
        // Materialised: its rows are locked before the clock beside them is read.
        let sql = format!(
            "with locked as materialized ({sql} {lock}) select locked.*, {clock} from locked"
        );
        self.row(&sql, values).await
    }

    /// Commits.
    ///
    /// # Errors
    /// [`LedgerError::CommitUnknown`] when the answer was lost: it may have been applied. Any other
    /// when it was not.
    pub(in crate::ledger) async fn commit(mut self) -> Result<(), LedgerError> {
        self.execute_later().await?;
        let result = match self {
            Self::Sqlite(tx, _) => within(tx.commit()).await,
            Self::Postgres(tx) => within(tx.commit()).await,
        };
        result.map_err(LedgerError::CommitUnknown)
    }
}
