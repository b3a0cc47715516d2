//! What providers told: stored first, then told to the operations.

use super::database::{Tx, values};
use super::operations::{Actor, Lock, apply, load};
use super::{Ledger, LedgerError};
use crate::webhook::ProviderEvent;
use digest_workflows::operation::{Event, Finding, OperationKey, Rules};

/// An event that was stored and not yet told.
#[derive(Clone, Debug)]
pub struct Untold {
    provider: String,
    id: String,
    key: OperationKey,
    findings: Vec<Finding>,
}

impl Ledger {
    /// Stores `events` of `provider` in one transaction; returns how many were new. One that is
    /// there already changes nothing. An event whose key is unknown here is kept without one.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database; whoever sent the events must send them again.
    pub async fn store_events(
        &self,
        provider: &str,
        events: &[ProviderEvent],
    ) -> Result<u64, LedgerError> {
        let mut tx = self.db.begin().await?;
        let now = tx.now().await?;
        let mut stored = 0;
        for event in events {
            let key = match &event.carried {
                Some(carried) => operation(&mut tx, carried).await?,
                None => None,
            };
            // What nothing follows from is told already.
            let told_at = (key.is_none() || event.findings.is_empty()).then_some(now);
            stored += tx
                .execute(
                    "insert into @provider_events (provider, event_id, key, carried, finding, at, \
                     told_at) values ($1, $2, $3, $4, $5, $6, $7) \
                     on conflict (provider, event_id) do nothing",
                    values![
                        provider,
                        event.id.as_str(),
                        key,
                        event.carried.as_deref(),
                        serde_json::to_string(&event.findings)?,
                        now,
                        told_at,
                    ],
                )
                .await?;
        }
        tx.commit().await?;
        Ok(stored)
    }

    /// Events that are not yet told, the oldest first, at most `limit`.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn untold_events(&self, limit: u32) -> Result<Vec<Untold>, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let rows = tx
            .rows(
                "select provider, event_id, key, finding from @provider_events \
                 where told_at is null order by at limit $1",
                values![limit],
            )
            .await?;
        rows.iter()
            .map(|row| {
                let key = OperationKey::parse(&row.text(2)?)
                    .map_err(|error| LedgerError::corrupt(error.to_string()))?;
                let findings = serde_json::from_str(&row.text(3)?)?;
                Ok(Untold { provider: row.text(0)?, id: row.text(1)?, key, findings })
            })
            .collect()
    }

    /// Tells one event to its operation, once: the findings and that it is told change together.
    /// Returns the key whose workflow should ask the ledger.
    ///
    /// # Errors
    /// Any [`LedgerError`]; nothing was told then, or it may have been and telling it again changes
    /// nothing.
    pub async fn tell_event(
        &self,
        untold: &Untold,
        rules: &Rules,
    ) -> Result<OperationKey, LedgerError> {
        let mut tx = self.db.begin().await?;
        let mut loaded = load(&mut tx, &untold.key, Lock::Operation).await?;
        let told = tx
            .execute(
                "update @provider_events set told_at = $3 \
                 where provider = $1 and event_id = $2 and told_at is null",
                values![untold.provider.as_str(), untold.id.as_str(), loaded.moment.now],
            )
            .await?;
        if told > 0 {
            for finding in &untold.findings {
                let event = Event::Told { finding: finding.clone() };
                let actor = Actor::part(&untold.provider);
                apply(&mut tx, &mut loaded, &event, rules, actor, None).await?;
            }
            tx.commit().await?;
        }
        Ok(untold.key.clone())
    }
}

/// The operation whose key, or whose alias, this is.
async fn operation(tx: &mut Tx, carried: &str) -> Result<Option<String>, LedgerError> {
    let sql = "select key from @operations where key = $1 or alias = $1";
    tx.row(sql, values![carried]).await?.map(|row| row.text(0)).transpose()
}
