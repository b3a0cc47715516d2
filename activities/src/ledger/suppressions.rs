//! Customers who are not written to any more, because a provider told of a hard bounce, a complaint
//! or an opt-out after a message was sent. Asked where consent is asked, and exactly like it.
//!
//! A suppression belongs to a customer's id in a campaign, never to an address, which is not kept. It
//! stays until a person removes it; neither retention nor `forget` does, since it protects the
//! customer.

use super::database::{Row, Tx, Value, places, values};
use super::holds::note;
use super::operations::{Loaded, Lock, audit, load};
use super::reports::range;
use super::{Actor, Ledger, LedgerError};
use crate::webhook::SuppressionReason;
use digest_workflows::operation::{Change, OperationKey, Period};
use jiff::Timestamp;
use serde::Serialize;
use std::collections::HashMap;

/// Who decides, in the audit, where a suppressed customer is not sent to.
pub const SUPPRESSIONS: &str = "suppressions";

/// Why a customer is not written to any more; a line of `digestd suppressions`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Suppression {
    /// The customer, by the id that the source has.
    pub customer: String,
    /// What the provider told.
    pub reason: SuppressionReason,
    /// Since when, by the ledger's clock.
    pub since: Timestamp,
    /// The operation whose message the event was about.
    pub key: String,
    /// Which provider told.
    pub provider: String,
    /// The provider's id of the event.
    pub event: String,
}

/// A page of them, by customer; the JSON of `digestd suppressions`.
#[derive(Clone, Debug, Serialize)]
pub struct Suppressions {
    /// The campaign's name.
    pub campaign: String,
    /// The customers.
    pub suppressions: Vec<Suppression>,
    /// The customer after whom the next page begins; `None` on the last one.
    pub next: Option<String>,
}

/// The audit's name for a suppression that a person removed.
const REMOVED: &str = "suppression_removed";

/// How many operations one statement asks about.
const KEYS_AT_ONCE: usize = 200;

const COLUMNS: &str = "customer, reason, since, key, provider, event_id";

impl Ledger {
    /// The suppressed customers of `campaign` after the customer `after`, at most `limit`.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn suppressions(
        &self,
        campaign: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Suppressions, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let sql = format!(
            "select {COLUMNS} from @suppressions where campaign = $1 and customer > $2 \
             order by customer limit $3"
        );
        let after = after.unwrap_or_default();
        let rows = tx.rows(&sql, values![campaign, after, u64::from(limit) + 1]).await?;
        let mut all = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let more = all.len() > limit as usize;
        all.truncate(limit as usize);
        let next = all.last().filter(|_| more).map(|last| last.customer.clone());
        Ok(Suppressions { campaign: campaign.to_owned(), suppressions: all, next })
    }

    /// Why `customer` of `campaign` is suppressed; `None` if they are not.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn suppression(
        &self,
        campaign: &str,
        customer: &str,
    ) -> Result<Option<Suppression>, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        of(&mut tx, campaign, customer).await
    }

    /// Lets `customer` be written to again, from the next message on; returns what was removed, or
    /// `None` if nothing was. Audited on the operation that the suppression came from.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn remove_suppression(
        &self,
        campaign: &str,
        customer: &str,
        actor: Actor<'_>,
    ) -> Result<Option<Suppression>, LedgerError> {
        let mut tx = self.db.begin().await?;
        let Some(removed) = of(&mut tx, campaign, customer).await? else { return Ok(None) };
        tx.execute(
            "delete from @suppressions where campaign = $1 and customer = $2",
            values![campaign, customer],
        )
        .await?;
        let key = OperationKey::parse(&removed.key)
            .map_err(|error| LedgerError::corrupt(error.to_string()))?;
        match load(&mut tx, &key, Lock::Operation).await {
            Ok(loaded) => audit(&mut tx, &loaded, REMOVED, &unchanged(&loaded), actor).await?,
            // Retention was faster: then it is the run's.
            Err(LedgerError::NoSuchOperation(_)) => {
                let now = tx.now().await?;
                note(&mut tx, key.campaign(), key.period(), now, REMOVED, actor).await?;
            }
            Err(error) => return Err(error),
        }
        tx.commit().await?;
        Ok(Some(removed))
    }
}

/// Puts the customer of `loaded` on the list, unless they are there: the first reason stays. What became
/// of a canary says nothing about a customer.
pub(super) async fn suppress(
    tx: &mut Tx,
    loaded: &Loaded,
    key: &OperationKey,
    reason: SuppressionReason,
    (provider, event): (&str, &str),
) -> Result<(), LedgerError> {
    if key.is_canary() {
        // It was not the customer's address.
        return Ok(());
    }
    let new = tx
        .execute(
            "insert into @suppressions (campaign, customer, reason, since, key, provider, event_id) \
             values ($1, $2, $3, $4, $5, $6, $7) on conflict (campaign, customer) do nothing",
            values![
                key.campaign(),
                key.customer_id(),
                reason.name(),
                loaded.moment.now,
                loaded.key.as_str(),
                provider,
                event,
            ],
        )
        .await?;
    if new > 0 {
        let actor = Actor { by: provider, reason: Some(reason.code()) };
        audit(tx, loaded, "customer_suppressed", &unchanged(loaded), actor).await?;
    }
    Ok(())
}

/// No change of the operation's own.
fn unchanged(loaded: &Loaded) -> Change {
    let state = loaded.operation.state;
    Change { from: state, to: state, settled: Vec::new(), note: None }
}

/// How many customers events about this run have put on the list.
pub(super) async fn count(tx: &mut Tx, campaign: &str, period: Period) -> Result<u64, LedgerError> {
    let (first, end) = range(campaign, Some(period), None);
    let sql = "select count(*) from @suppressions where campaign = $1 and key > $2 and key < $3";
    tx.row(sql, values![campaign, first, end]).await?.map_or(Ok(0), |row| row.count(0))
}

/// The reason that is stored as `name`.
pub(super) fn reason(name: &str) -> Result<SuppressionReason, LedgerError> {
    SuppressionReason::from_name(name)
        .ok_or_else(|| LedgerError::corrupt(format!("the suppression reason {name:?}")))
}

/// Why `customer` of `campaign` is on the list, if they are.
pub(super) async fn of(
    tx: &mut Tx,
    campaign: &str,
    customer: &str,
) -> Result<Option<Suppression>, LedgerError> {
    let sql = format!("select {COLUMNS} from @suppressions where campaign = $1 and customer = $2");
    tx.row(&sql, values![campaign, customer]).await?.as_ref().map(read).transpose()
}

/// Reads the list again for operations whose locks are held: what was told while a lock was waited for
/// counts too. All of them are of one campaign.
pub(super) async fn read_again(tx: &mut Tx, loaded: &mut [Loaded]) -> Result<(), LedgerError> {
    if !tx.waits_for_rows() {
        return Ok(());
    }
    for some in loaded.chunks_mut(KEYS_AT_ONCE) {
        let sql = format!(
            "select o.key, s.reason from @operations o join @suppressions s \
             on s.campaign = o.campaign and s.customer = o.customer where o.key in ({})",
            places(some.len())
        );
        let keys: Vec<Value> = some.iter().map(|one| Value::from(one.key.as_str())).collect();
        let mut told = HashMap::new();
        for row in tx.rows(&sql, &keys).await? {
            told.insert(row.text(0)?, reason(&row.text(1)?)?);
        }
        for one in some {
            one.suppressed = told.get(&one.key).copied();
            one.moment.suppressed = one.suppressed.is_some();
        }
    }
    Ok(())
}

fn read(row: &Row) -> Result<Suppression, LedgerError> {
    Ok(Suppression {
        customer: row.text(0)?,
        reason: reason(&row.text(1)?)?,
        since: row.time(2)?,
        key: row.text(3)?,
        provider: row.text(4)?,
        event: row.text(5)?,
    })
}
