//! What the ledger holds of a run, whole: read page by page for the audit, each page from one
//! snapshot, so that what belongs to one transaction is seen together. It reads keys, states, times
//! and hashes, and of the content only whether it is there.

use super::database::{Tx, Value, places, values};
use super::reports::range;
use super::runs::{Run, no_such_run, run_in};
use super::{Ledger, LedgerError};
use digest_workflows::operation::{Operation, OperationKey, Period};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// One operation with everything that is on record about it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its key, as it is stored.
    pub key: String,
    /// The columns beside the decision core's data.
    pub columns: Columns,
    /// What the decision core keeps, or why it cannot be read.
    pub operation: Result<Operation, String>,
    /// Its attempts, by number.
    pub attempts: Vec<Attempt>,
    /// Its audit rows, in order.
    pub timeline: Vec<Transition>,
    /// Its dead letters: generation, and whether it was replayed.
    pub dead_letters: Vec<(u32, bool)>,
    /// Whether frozen rows or a rendered message are still stored.
    pub has_content: bool,
}

/// The columns of an operation that queries use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    clippy::struct_excessive_bools,
    reason = "they are the columns of the table of the operations"
)]
pub struct Columns {
    pub campaign: String,
    pub period: String,
    pub position: i64,
    pub customer: String,
    pub state: String,
    pub class: Option<String>,
    pub since: Timestamp,
    pub attempts: i64,
    pub at_rest: bool,
    pub contradicted: bool,
    pub undelivered: bool,
    pub cleanup_failed: bool,
    pub message_id: Option<String>,
    pub enqueued_at: Option<Timestamp>,
}

/// One attempt on record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are the columns of the table of the attempts")]
pub struct Attempt {
    pub number: u32,
    pub generation: u32,
    pub ordinal: u32,
    pub provider: Option<String>,
    pub account: Option<String>,
    pub begun_at: Option<Timestamp>,
    pub lease_ends: Option<Timestamp>,
    pub settles_at: Option<Timestamp>,
    pub content_hash: Option<String>,
    pub outcome: Option<String>,
    pub message_id: Option<String>,
}

/// One row of the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// What happened.
    pub event: String,
    /// The state before.
    pub from: String,
    /// The state after.
    pub to: String,
    /// Whether the event contradicted what was decided before, or changed less than it might.
    pub noted: bool,
}

/// Some operations of a run, by key, from one snapshot.
#[derive(Clone, Debug)]
pub struct AuditPage {
    /// The run.
    pub run: Run,
    /// The ledger's time.
    pub now: Timestamp,
    /// The operations.
    pub entries: Vec<Entry>,
    /// The keys among them and up to the next page that have records, and no operation.
    pub orphans: Vec<String>,
    /// The key after which the next page begins; `None` on the last one.
    pub next: Option<String>,
}

/// How many operations a run should have, and has.
#[derive(Clone, Debug)]
pub struct Tally {
    /// The run.
    pub run: Run,
    /// How many operations there are.
    pub operations: u64,
    /// When the run was closed, and the ledger's time, if it is closed.
    pub closed: Option<(Timestamp, Timestamp)>,
}

impl Ledger {
    /// The run, and how many operations it has, from one snapshot.
    ///
    /// # Errors
    /// [`LedgerError::NoSuchRun`], or any error of an unreachable database.
    pub async fn tally(&self, campaign: &str, period: Period) -> Result<Tally, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let run = run_in(&mut tx, campaign, period, "")
            .await?
            .ok_or_else(|| no_such_run(campaign, period))?;
        let (first, end) = range(campaign, Some(period), None);
        let counted = tx
            .row(
                "select count(*) from @operations where key > $1 and key < $2",
                values![first, end],
            )
            .await?;
        let operations = counted.map_or(Ok(0), |row| row.count(0))?;
        let now = tx.now().await?;
        let closed = tx
            .row(
                "select closed_at from @runs where campaign = $1 and period = $2",
                values![campaign, period.to_string()],
            )
            .await?;
        let closed = closed.map_or(Ok(None), |row| row.maybe_time(0))?.map(|at| (at, now));
        Ok(Tally { run, operations, closed })
    }

    /// Everything about at most `limit` operations of a run, those after the key `after`.
    ///
    /// # Errors
    /// [`LedgerError::NoSuchRun`], or any error of an unreachable database.
    pub async fn audit_page(
        &self,
        campaign: &str,
        period: Period,
        after: Option<&str>,
        limit: u32,
    ) -> Result<AuditPage, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let run = run_in(&mut tx, campaign, period, "")
            .await?
            .ok_or_else(|| no_such_run(campaign, period))?;
        let now = tx.now().await?;
        let (after, end) = range(campaign, Some(period), after);
        let mut entries = operations(&mut tx, &after, &end, limit).await?;
        let is_last = entries.len() < limit as usize;
        let next = entries.last().filter(|_| !is_last).map(|entry| entry.key.clone());
        let until = next.clone().unwrap_or(end);
        let orphans = complete(&mut tx, &mut entries, "key > $1", &after, &until).await?;
        Ok(AuditPage { run, now, entries, orphans, next })
    }

    /// One operation whole; `None` where the ledger does not have it.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn audit_entry(
        &self,
        key: &str,
    ) -> Result<Option<(Entry, Run, Timestamp)>, LedgerError> {
        let Ok(parsed) = OperationKey::parse(key) else { return Ok(None) };
        let mut tx = self.db.begin_reading().await?;
        let Some(run) = run_in(&mut tx, parsed.campaign(), parsed.period(), "").await? else {
            return Ok(None);
        };
        let now = tx.now().await?;
        let sql = format!("select {COLUMNS} from @operations where key = $1");
        let Some(row) = tx.row(&sql, values![key]).await? else { return Ok(None) };
        let mut entries = vec![entry(&row)?];
        complete(&mut tx, &mut entries, "key >= $1", key, key).await?;
        Ok(entries.pop().map(|entry| (entry, run, now)))
    }

    /// Which of `keys` the ledger does not have.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn absent(&self, keys: &[String]) -> Result<Vec<String>, LedgerError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut tx = self.db.begin_reading().await?;
        let sql = format!("select key from @operations where key in ({})", places(keys.len()));
        let values: Vec<Value> = keys.iter().map(|key| Value::from(key.as_str())).collect();
        let there: HashSet<String> = tx
            .rows(&sql, &values)
            .await?
            .iter()
            .map(|row| row.text(0))
            .collect::<Result<_, _>>()?;
        Ok(keys.iter().filter(|key| !there.contains(*key)).cloned().collect())
    }
}

const COLUMNS: &str = "key, campaign, period, position, customer, state, class, since, attempts, \
     at_rest, contradicted, undelivered, cleanup_failed, message_id, enqueued_at, machine";

async fn operations(
    tx: &mut Tx,
    after: &str,
    end: &str,
    limit: u32,
) -> Result<Vec<Entry>, LedgerError> {
    let sql = format!(
        "select {COLUMNS} from @operations where key > $1 and key < $2 order by key limit $3"
    );
    tx.rows(&sql, values![after, end, limit]).await?.iter().map(entry).collect()
}

fn entry(row: &super::database::Row) -> Result<Entry, LedgerError> {
    let flag = |index| Ok::<_, LedgerError>(row.int(index)? != 0);
    Ok(Entry {
        key: row.text(0)?,
        columns: Columns {
            campaign: row.text(1)?,
            period: row.text(2)?,
            position: row.int(3)?,
            customer: row.text(4)?,
            state: row.text(5)?,
            class: row.maybe_text(6)?,
            since: row.time(7)?,
            attempts: row.int(8)?,
            at_rest: flag(9)?,
            contradicted: flag(10)?,
            undelivered: flag(11)?,
            cleanup_failed: flag(12)?,
            message_id: row.maybe_text(13)?,
            enqueued_at: row.maybe_time(14)?,
        },
        operation: serde_json::from_str(&row.text(15)?).map_err(|error| error.to_string()),
        attempts: Vec::new(),
        timeline: Vec::new(),
        dead_letters: Vec::new(),
        has_content: false,
    })
}

/// Reads what the other tables have about the keys from `first` (which `begins` takes in or leaves
/// out) to `last` into `entries`; returns the keys that have no entry.
async fn complete(
    tx: &mut Tx,
    entries: &mut [Entry],
    begins: &str,
    first: &str,
    last: &str,
) -> Result<Vec<String>, LedgerError> {
    let mut orphans = BTreeSet::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for (place, entry) in entries.iter().enumerate() {
        places.insert(entry.key.clone(), place);
    }
    let mut of = |key: String| {
        let place = places.get(&key).copied();
        if place.is_none() {
            orphans.insert(key);
        }
        place
    };
    let between = values![first, last];
    let sql = format!(
        "select key, number, generation, ordinal, provider, account, begun_at, lease_ends, \
         settles_at, content_hash, outcome, message_id from @attempts \
         where {begins} and key <= $2 order by key, number"
    );
    for row in tx.rows(&sql, between).await? {
        let Some(place) = of(row.text(0)?) else { continue };
        entries[place].attempts.push(Attempt {
            number: row.number(1)?,
            generation: row.number(2)?,
            ordinal: row.number(3)?,
            provider: row.maybe_text(4)?,
            account: row.maybe_text(5)?,
            begun_at: row.maybe_time(6)?,
            lease_ends: row.maybe_time(7)?,
            settles_at: row.maybe_time(8)?,
            content_hash: row.maybe_text(9)?,
            outcome: row.maybe_text(10)?,
            message_id: row.maybe_text(11)?,
        });
    }
    let sql = format!(
        "select key, event, from_state, to_state, note from @decisions \
         where {begins} and key <= $2 order by key, id"
    );
    for row in tx.rows(&sql, between).await? {
        let Some(place) = of(row.text(0)?) else { continue };
        entries[place].timeline.push(Transition {
            event: row.text(1)?,
            from: row.maybe_text(2)?.unwrap_or_default(),
            to: row.maybe_text(3)?.unwrap_or_default(),
            noted: row.maybe_text(4)?.is_some(),
        });
    }
    let sql = format!(
        "select key, generation, replayed_at from @dead_letters \
         where {begins} and key <= $2 order by key, generation"
    );
    for row in tx.rows(&sql, between).await? {
        let Some(place) = of(row.text(0)?) else { continue };
        let letter = (row.number(1)?, row.maybe_int(2)?.is_some());
        entries[place].dead_letters.push(letter);
    }
    for table in ["messages", "digest_rows"] {
        let sql = format!("select key from @{table} where {begins} and key <= $2");
        for row in tx.rows(&sql, between).await? {
            if let Some(place) = of(row.text(0)?) {
                entries[place].has_content = true;
            }
        }
    }
    Ok(orphans.into_iter().collect())
}
