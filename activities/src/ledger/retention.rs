//! Retention: what is dropped once it is old. Content goes first, records much later, and never
//! anything that is not terminal.

use super::batches::{erase_requests_with, remove_batches};
use super::content::drop_content;
use super::database::{Tx, values};
use super::reports::range;
use super::requests::remove_requests;
use super::runs::run_in;
use super::{Ledger, LedgerError};
use digest_workflows::operation::Period;
use jiff::SignedDuration;

/// Why a run has no operations any more.
const REMOVED: &str = "its records were removed after [retention] records";

impl Ledger {
    /// Drops bytes, address and rows of the campaign's dead, suppressed and expired operations that
    /// ended at least `age` ago, at most `limit` of them; how many it were. Less than `limit` means
    /// that none is left.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database; nothing of the batch is dropped then.
    pub async fn drop_old_content(
        &self,
        campaign: &str,
        age: SignedDuration,
        limit: u32,
    ) -> Result<u64, LedgerError> {
        let mut tx = self.db.begin().await?;
        let until = tx.now().await? - age;
        // The lock orders this against a replay, which needs the content.
        let rows = tx
            .locked_rows(
                "select o.key from @digest_rows r join @operations o on o.key = r.key \
                 where o.campaign = $1 and o.state in ('dead', 'suppressed', 'expired') \
                 and o.since <= $2 limit $3",
                "for update of o skip locked",
                values![campaign, until, limit],
            )
            .await?;
        let mut dropped = 0;
        for row in rows {
            let key = row.text(0)?;
            drop_content(&mut tx, &key).await?;
            erase_requests_with(&mut tx, &key).await?;
            dropped += 1;
        }
        tx.commit().await?;
        Ok(dropped)
    }

    /// Removes the records of the campaign's runs that were closed at least `age` ago: operations,
    /// attempts, dead letters, decisions and faults, at most `limit` operations in one call. A run
    /// with anything that is not terminal is left whole. Returns how many operations it removed and
    /// whether the call found anything to do.
    ///
    /// The row of the run itself stays, closed and empty: it is what keeps the period from being run
    /// a second time.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database; nothing of the batch is removed then.
    pub async fn remove_old_records(
        &self,
        campaign: &str,
        age: SignedDuration,
        limit: u32,
    ) -> Result<Option<u64>, LedgerError> {
        let mut tx = self.db.begin().await?;
        let until = tx.now().await? - age;
        let runs = tx
            .rows(
                "select period from @runs where campaign = $1 and state = 'closed' \
                 and closed_at <= $2 and reason is null order by period",
                values![campaign, until],
            )
            .await?;
        for row in runs {
            let period = Period::parse(&row.text(0)?)
                .map_err(|error| LedgerError::corrupt(error.to_string()))?;
            // A replay shares this lock, so nothing is reopened meanwhile.
            run_in(&mut tx, campaign, period, "for update").await?;
            if !is_terminal(&mut tx, campaign, period).await? {
                continue;
            }
            let removed = remove_operations(&mut tx, campaign, period, limit).await?;
            if removed == 0 {
                remove_rest(&mut tx, campaign, period).await?;
            }
            tx.commit().await?;
            return Ok(Some(removed));
        }
        Ok(None)
    }
}

/// Whether every operation of the run is terminal.
async fn is_terminal(tx: &mut Tx, campaign: &str, period: Period) -> Result<bool, LedgerError> {
    let (first, end) = range(campaign, Some(period), None);
    let open = tx
        .row(
            "select key from @operations where campaign = $1 and key > $2 and key < $3 \
             and state in ('selected', 'sending', 'retrying', 'unknown', 'sent') limit 1",
            values![campaign, first, end],
        )
        .await?;
    Ok(open.is_none())
}

async fn remove_operations(
    tx: &mut Tx,
    campaign: &str,
    period: Period,
    limit: u32,
) -> Result<u64, LedgerError> {
    let rows = tx
        .rows(
            "select key from @operations where campaign = $1 and period = $2 \
             order by position limit $3",
            values![campaign, period.to_string(), limit],
        )
        .await?;
    let mut removed = 0;
    for row in rows {
        let key = row.text(0)?;
        drop_content(tx, &key).await?;
        for table in ["attempts", "dead_letters", "provider_events"] {
            let sql = format!("delete from @{table} where key = $1");
            tx.execute(&sql, values![key.as_str()]).await?;
        }
        remove_decisions(tx, "key = $1", &[key.as_str().into()]).await?;
        removed +=
            tx.execute("delete from @operations where key = $1", values![key.as_str()]).await?;
    }
    Ok(removed)
}

/// Removes what a run without operations still has.
async fn remove_rest(tx: &mut Tx, campaign: &str, period: Period) -> Result<(), LedgerError> {
    let period = period.to_string();
    tx.execute(
        "delete from @selection_faults where campaign = $1 and period = $2",
        values![campaign, period.as_str()],
    )
    .await?;
    remove_batches(tx, campaign, &period).await?;
    remove_requests(tx, campaign, &period).await?;
    let run = [campaign.into(), period.as_str().into()];
    remove_decisions(tx, "campaign = $1 and period = $2", &run).await?;
    tx.execute(
        "update @runs set selected = 0, unkeyed = 0, seen = 0, reason = $3 \
         where campaign = $1 and period = $2",
        values![campaign, period, REMOVED],
    )
    .await?;
    Ok(())
}

/// Removes decisions, but never the newest of all: the ledger's transition counter must not go back,
/// or the ledger would look like one that was restored.
async fn remove_decisions(
    tx: &mut Tx,
    which: &str,
    values: &[super::database::Value],
) -> Result<(), LedgerError> {
    let sql =
        format!("delete from @decisions where {which} and id < (select max(id) from @decisions)");
    tx.execute(&sql, values).await?;
    Ok(())
}
