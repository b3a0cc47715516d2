//! The selection: frozen once per run, page by page, resumable; then enqueued page by page.

use super::content::{FrozenData, insert_data};
use super::database::{Tx, Value, places, values};
use super::runs::{no_such_run, run_in};
use super::{Ledger, LedgerError, RunState};
use crate::provider::alias::alias;
use digest_workflows::activities::Standing;
use digest_workflows::operation::{Operation, OperationKey, Period};
use jiff::Timestamp;
use std::collections::HashSet;

/// One selected customer.
#[derive(Clone, Debug)]
pub struct Selected {
    /// Its key.
    pub key: OperationKey,
    /// What its message is rendered from.
    pub data: FrozenData,
}

/// One page of the freeze.
#[derive(Clone, Debug, Default)]
pub struct FreezePage {
    /// The customers of the page.
    pub selected: Vec<Selected>,
    /// What could not be selected: the customer's id, where it may be stored, and the reason.
    pub faults: Vec<(Option<String>, String)>,
    /// How many rows of the customers query the faults stand for.
    pub unkeyed: u64,
    /// How many rows of the customers query the page accounts for.
    pub seen: u64,
    /// The last customer id read; `None` when this was the last page.
    pub next: Option<String>,
}

/// One page of operations to start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The keys, in order.
    pub keys: Vec<OperationKey>,
    /// The position of the last one; the next page begins after it.
    pub last: u64,
    /// Whether this was the last page.
    pub done: bool,
}

impl Ledger {
    /// Notes how many rows the customers query has, once, when the freeze begins.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn expect(
        &self,
        campaign: &str,
        period: Period,
        expected: u64,
    ) -> Result<(), LedgerError> {
        let mut tx = self.db.begin().await?;
        tx.execute(
            "update @runs set expected = $3 where campaign = $1 and period = $2 \
             and expected is null",
            values![campaign, period.to_string(), expected],
        )
        .await?;
        tx.commit().await
    }

    /// Stores one page of the selection that was read after `after`. A page that is already stored
    /// (a repeated activity, a second freeze) changes nothing.
    ///
    /// # Errors
    /// [`LedgerError::NoSuchRun`], or any error of an unreachable database; nothing of the page is
    /// stored then.
    pub async fn freeze(
        &self,
        campaign: &str,
        period: Period,
        after: Option<&str>,
        page: &FreezePage,
    ) -> Result<(), LedgerError> {
        let mut tx = self.db.begin().await?;
        let now = tx.now().await?;
        let period_text = period.to_string();
        let Some(run) = run_in(&mut tx, campaign, period, "for update").await? else {
            return Err(no_such_run(campaign, period));
        };
        if run.state != RunState::Freezing || run.freeze_after.as_deref() != after {
            return Ok(());
        }
        // After a restore, an operation may be there before its selection; it stays as it is.
        let there = among(&mut tx, &page.selected).await?;
        let operation = Operation::selected(now);
        let machine = serde_json::to_string(&operation)?;
        let mut position = run.selected;
        let (mut operations, mut rows) = (Vec::new(), Vec::new());
        for selected in &page.selected {
            let key = selected.key.to_string();
            if there.contains(&key) {
                continue;
            }
            position += 1;
            rows.push(values![key.as_str(), serde_json::to_string(&selected.data)?].to_vec());
            operations.push(
                values![
                    key,
                    campaign,
                    period_text.as_str(),
                    position,
                    selected.key.customer_id(),
                    alias(&selected.key),
                    operation.state.name(),
                    now,
                    machine.as_str(),
                    now,
                ]
                .to_vec(),
            );
        }
        let columns = "@operations (key, campaign, period, position, customer, alias, state, \
                       since, machine, frozen_at)";
        tx.insert_all(columns, &operations).await?;
        tx.insert_all("@digest_rows (key, data)", &rows).await?;
        for (customer, kind) in &page.faults {
            tx.execute(
                "insert into @selection_faults (campaign, period, customer, kind, at) \
                 values ($1, $2, $3, $4, $5)",
                values![campaign, period_text.as_str(), customer.clone(), kind.as_str(), now],
            )
            .await?;
        }
        let done = page.next.is_none();
        tx.execute(
            "update @runs set selected = $3, unkeyed = unkeyed + $4, freeze_after = $5, \
             state = $6, frozen_at = $7, seen = seen + $8 where campaign = $1 and period = $2",
            values![
                campaign,
                period_text,
                position,
                page.unkeyed,
                page.next.clone(),
                if done { RunState::Frozen.name() } else { RunState::Freezing.name() },
                done.then_some(now),
                page.seen,
            ],
        )
        .await?;
        tx.commit().await
    }

    /// How many operations the campaign's run before `period` had selected.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn selected_before(
        &self,
        campaign: &str,
        period: Period,
    ) -> Result<Option<u64>, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let row = tx
            .row(
                "select selected from @runs where campaign = $1 and period < $2 \
                 and frozen_at is not null order by period desc limit 1",
                values![campaign, period.to_string()],
            )
            .await?;
        row.map(|row| row.count(0)).transpose()
    }

    /// Takes the page of at most `limit` operations after position `after` (and at most
    /// `bytes_max` of keys), and records when they were enqueued. The same call returns the same
    /// page again.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn enqueue(
        &self,
        campaign: &str,
        period: Period,
        after: u64,
        limit: u32,
        bytes_max: usize,
    ) -> Result<Page, LedgerError> {
        let mut tx = self.db.begin().await?;
        let now = tx.now().await?;
        let period = period.to_string();
        let rows = tx
            .rows(
                "select key, position from @operations where campaign = $1 and period = $2 \
                 and position > $3 order by position limit $4",
                values![campaign, period.as_str(), after, u64::from(limit) + 1],
            )
            .await?;
        let mut page = Page { keys: Vec::new(), last: after, done: true };
        let mut bytes = 0;
        for row in rows {
            let key = row.text(0)?;
            bytes += key.len() + 3;
            if page.keys.len() >= limit as usize || (bytes > bytes_max && !page.keys.is_empty()) {
                page.done = false;
                break;
            }
            page.last = row.count(1)?;
            page.keys
                .push(OperationKey::parse(&key).map_err(|e| LedgerError::corrupt(e.to_string()))?);
        }
        tx.execute(
            "update @operations set enqueued_at = $5 where campaign = $1 and period = $2 \
             and position > $3 and position <= $4 and enqueued_at is null",
            values![campaign, period.as_str(), after, page.last, now],
        )
        .await?;
        tx.execute(
            "update @runs set state = 'dispatching' where campaign = $1 and period = $2 \
             and state = 'frozen'",
            values![campaign, period],
        )
        .await?;
        tx.commit().await?;
        Ok(page)
    }

    /// How many operations are enqueued and not yet past their first attempt.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn in_flight(&self, campaign: &str, period: Period) -> Result<u64, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let row = tx
            .row(
                "select count(*) from @operations where campaign = $1 and period = $2 \
                 and enqueued_at is not null and state in ('selected', 'sending') \
                 and attempts <= 1",
                values![campaign, period.to_string()],
            )
            .await?;
        row.map_or(Ok(0), |row| row.count(0))
    }

    /// How a run stands: what its workflow watches.
    ///
    /// # Errors
    /// [`LedgerError::NoSuchRun`], or any error of an unreachable database.
    pub async fn standing(&self, campaign: &str, period: Period) -> Result<Standing, LedgerError> {
        let in_flight = self.in_flight(campaign, period).await?;
        let mut tx = self.db.begin_reading().await?;
        let run = run_in(&mut tx, campaign, period, "")
            .await?
            .ok_or_else(|| no_such_run(campaign, period))?;
        let open = tx
            .row(
                "select count(*) from @operations where campaign = $1 and period = $2 \
                 and at_rest = 0",
                values![campaign, period.to_string()],
            )
            .await?;
        let counter = tx.row("select coalesce(max(id), 0) from @decisions", &[]).await?;
        Ok(Standing {
            selected: run.selected,
            in_flight,
            open: open.map_or(Ok(0), |row| row.count(0))?,
            held: run.held_since.and(run.held_because),
            closed: run.state == RunState::Closed,
            counter: counter.map_or(Ok(0), |row| row.int(0))?,
        })
    }
}

/// Which of these the ledger has already.
async fn among(tx: &mut Tx, selected: &[Selected]) -> Result<HashSet<String>, LedgerError> {
    if selected.is_empty() {
        return Ok(HashSet::new());
    }
    let sql = format!("select key from @operations where key in ({})", places(selected.len()));
    let keys: Vec<Value> =
        selected.iter().map(|selected| Value::from(selected.key.to_string())).collect();
    tx.rows(&sql, &keys).await?.iter().map(|row| row.text(0)).collect()
}

/// Adds one operation, enqueued at once, as the last that its run counts as selected.
pub(super) async fn select_one(
    tx: &mut Tx,
    key: &OperationKey,
    data: &FrozenData,
    now: Timestamp,
) -> Result<(), LedgerError> {
    let operation = Operation::selected(now);
    let text = key.to_string();
    tx.execute(
        "insert into @operations (key, campaign, period, position, customer, alias, state, \
         since, machine, frozen_at, enqueued_at) \
         select $1, campaign, period, selected, $4, $5, $6, $7, $8, $7, $7 from @runs \
         where campaign = $2 and period = $3",
        values![
            text.as_str(),
            key.campaign(),
            key.period().to_string(),
            key.source_customer_id(),
            alias(key),
            operation.state.name(),
            now,
            serde_json::to_string(&operation)?,
        ],
    )
    .await?;
    insert_data(tx, &text, data).await
}
