//! Rows of either database.

use crate::ledger::LedgerError;
use jiff::Timestamp;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;

/// A row of either database, read by position.
pub(in crate::ledger) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

/// Reads one column of either kind of row.
macro_rules! column {
    ($row:expr, $index:expr) => {
        match $row {
            Row::Sqlite(row) => row.try_get($index)?,
            Row::Postgres(row) => row.try_get($index)?,
        }
    };
}

impl Row {
    pub(in crate::ledger) fn int(&self, index: usize) -> Result<i64, LedgerError> {
        Ok(column!(self, index))
    }

    pub(in crate::ledger) fn maybe_int(&self, index: usize) -> Result<Option<i64>, LedgerError> {
        Ok(column!(self, index))
    }

    pub(in crate::ledger) fn count(&self, index: usize) -> Result<u64, LedgerError> {
        u64::try_from(self.int(index)?).map_err(|_| LedgerError::corrupt("a negative count"))
    }

    pub(in crate::ledger) fn number(&self, index: usize) -> Result<u32, LedgerError> {
        u32::try_from(self.int(index)?).map_err(|_| LedgerError::corrupt("a number out of range"))
    }

    pub(in crate::ledger) fn text(&self, index: usize) -> Result<String, LedgerError> {
        Ok(column!(self, index))
    }

    pub(in crate::ledger) fn maybe_text(
        &self,
        index: usize,
    ) -> Result<Option<String>, LedgerError> {
        Ok(column!(self, index))
    }

    pub(in crate::ledger) fn bytes(&self, index: usize) -> Result<Vec<u8>, LedgerError> {
        Ok(column!(self, index))
    }

    pub(in crate::ledger) fn time(&self, index: usize) -> Result<Timestamp, LedgerError> {
        from_millis(self.int(index)?)
    }

    pub(in crate::ledger) fn maybe_time(
        &self,
        index: usize,
    ) -> Result<Option<Timestamp>, LedgerError> {
        self.maybe_int(index)?.map(from_millis).transpose()
    }
}

fn from_millis(millis: i64) -> Result<Timestamp, LedgerError> {
    Timestamp::from_millisecond(millis).map_err(|_| LedgerError::corrupt("a time out of range"))
}
