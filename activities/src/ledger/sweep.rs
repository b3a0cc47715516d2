//! What the sweep needs to know: which operations should have an open workflow.

use super::database::values;
use super::{Ledger, LedgerError};
use digest_workflows::operation::{Operation, OperationKey};
use jiff::SignedDuration;

/// An operation that was enqueued and is not settled.
#[derive(Clone, Debug)]
pub struct Unfinished {
    /// Its key.
    pub key: OperationKey,
    /// As the ledger has it.
    pub operation: Operation,
}

impl Ledger {
    /// The campaign's operations that were enqueued at least `grace` ago and are not settled, by
    /// key, at most `limit` after the key `after`.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn unfinished(
        &self,
        campaign: &str,
        grace: SignedDuration,
        after: &str,
        limit: u32,
    ) -> Result<Vec<Unfinished>, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let before = tx.now().await? - grace;
        let rows = tx
            .rows(
                "select key, machine from @operations where campaign = $1 and key > $2 \
                 and state in ('selected', 'sending', 'retrying', 'unknown', 'sent') \
                 and cleanup_failed = 0 and enqueued_at <= $3 order by key limit $4",
                values![campaign, after, before, limit],
            )
            .await?;
        rows.iter()
            .map(|row| {
                let key = OperationKey::parse(&row.text(0)?)
                    .map_err(|error| LedgerError::corrupt(error.to_string()))?;
                Ok(Unfinished { key, operation: serde_json::from_str(&row.text(1)?)? })
            })
            .collect()
    }
    /// Which of `keys` were settled at least `grace` ago, so that an open workflow of theirs has
    /// missed it.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn settled(
        &self,
        keys: &[OperationKey],
        grace: SignedDuration,
    ) -> Result<Vec<OperationKey>, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let before = tx.now().await? - grace;
        let mut settled = Vec::new();
        for key in keys {
            let row = tx
                .row(
                    "select key from @operations where key = $1 and since <= $2 \
                     and state in ('cleaned', 'suppressed', 'dead', 'expired')",
                    values![key.to_string(), before],
                )
                .await?;
            if row.is_some() {
                settled.push(key.clone());
            }
        }
        Ok(settled)
    }
}
