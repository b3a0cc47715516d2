//! Inserting many rows in one statement.

use super::value::places_from;
use super::{Tx, Value};
use crate::ledger::LedgerError;

/// At most this many values go into one statement.
const INSERT_VALUES_MAX: usize = 900;

impl Tx {
    /// Inserts `rows` (each in the order of the columns that `into` names), many in one statement.
    pub(in crate::ledger) async fn insert_all(
        &mut self,
        into: &str,
        rows: &[Vec<Value>],
    ) -> Result<(), LedgerError> {
        self.insert_many(into, rows, "").await.map(drop)
    }

    /// The same without those whose primary key is there already; returns how many were not.
    pub(in crate::ledger) async fn insert_new(
        &mut self,
        into: &str,
        rows: &[Vec<Value>],
    ) -> Result<u64, LedgerError> {
        self.insert_many(into, rows, "on conflict do nothing").await
    }

    async fn insert_many(
        &mut self,
        into: &str,
        rows: &[Vec<Value>],
        unless: &str,
    ) -> Result<u64, LedgerError> {
        let mut inserted = 0;
        let width = rows.first().map_or(1, Vec::len);
        for chunk in rows.chunks((INSERT_VALUES_MAX / width).max(1)) {
            let places: Vec<String> = (0..chunk.len())
                .map(|row| format!("({})", places_from(row * width + 1, width)))
                .collect();
            let sql = format!("insert into {into} values {} {unless}", places.join(", "));
            inserted += self.execute(&sql, &chunk.concat()).await?;
        }
        Ok(inserted)
    }
}
