//! Reports: what `status`, `show`, `unknown` and `dead-letters` print, computed from the ledger
//! whenever they are read, so that a later verdict shows.

mod lines;

pub use lines::{
    AttemptLine, ClassCount, DecisionLine, FaultLine, Listing, OperationLine, RunStatus, Shown,
    TransitionLine,
};

use super::database::{Row, Tx, values};
use super::runs::{Run, no_such_run, run_in};
use super::suppressions;
use super::{Ledger, LedgerError};
use digest_workflows::operation::{FailureClass, Operation, OperationKey, Period, State};
use jiff::Timestamp;

/// At most this many missing keys are named.
const MISSING_MAX: u32 = 100;
/// At most this many faults of the selection are told.
const FAULTS_MAX: u32 = 100;

impl Ledger {
    /// The run in numbers.
    ///
    /// # Errors
    /// [`LedgerError::NoSuchRun`], or any error of an unreachable database.
    pub async fn status(&self, campaign: &str, period: Period) -> Result<RunStatus, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let run = run_in(&mut tx, campaign, period, "")
            .await?
            .ok_or_else(|| no_such_run(campaign, period))?;
        let mut status = blank(&run);
        let now = tx.now().await?;
        let who = values![campaign, period.to_string()];
        let rows = tx
            .rows(
                "select state, class, count(*), cast(sum(contradicted) as bigint), \
                 cast(sum(undelivered) as bigint), cast(sum(cleanup_failed) as bigint), \
                 cast(sum(1 - at_rest) as bigint), min(frozen_at) from @operations \
                 where campaign = $1 and period = $2 group by state, class",
                who,
            )
            .await?;
        for row in rows {
            count(&mut status, &row, now)?;
        }
        status.classes.sort_by_key(|line| (line.state, line.class));
        let sql = format!(
            "select key from @operations where campaign = $1 and period = $2 and at_rest = 0 \
             order by position limit {MISSING_MAX}"
        );
        for row in tx.rows(&sql, who).await? {
            status.missing.push(row.text(0)?);
        }
        let sql = format!(
            "select customer, kind from @selection_faults where campaign = $1 and period = $2 \
             order by at, customer limit {FAULTS_MAX}"
        );
        for row in tx.rows(&sql, who).await? {
            status.faults.push(FaultLine { customer: row.maybe_text(0)?, reason: row.text(1)? });
        }
        status.newly_suppressed = suppressions::count(&mut tx, campaign, period).await?;
        run.shown(status.missing_count > 0).clone_into(&mut status.state);
        Ok(status)
    }

    /// The newest decisions of a run after decision `after`, at most `limit`, oldest first.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn decisions(
        &self,
        campaign: &str,
        period: Period,
        after: i64,
        limit: u32,
    ) -> Result<Vec<DecisionLine>, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let sql = format!(
            "select {TRANSITION}, id, key from @decisions where campaign = $1 and period = $2 \
             and id > $3 order by id desc limit $4"
        );
        let rows = tx.rows(&sql, values![campaign, period.to_string(), after, limit]).await?;
        let line = |row: &Row| {
            Ok(DecisionLine {
                id: row.int(7)?,
                key: row.maybe_text(8)?,
                transition: transition(row)?,
            })
        };
        let mut lines: Vec<_> = rows.iter().map(line).collect::<Result<_, LedgerError>>()?;
        lines.reverse();
        Ok(lines)
    }

    /// The campaign's operations in `state` (of `period`, or of all periods), by key, at most
    /// `limit` after the key `after`.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn list(
        &self,
        campaign: &str,
        state: State,
        period: Option<Period>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Listing, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let now = tx.now().await?;
        let (after, end) = range(campaign, period, after);
        let rows = tx
            .rows(
                "select key, machine from @operations where campaign = $1 and state = $2 \
                 and key > $3 and key < $4 order by key limit $5",
                values![campaign, state.name(), after, end, u64::from(limit) + 1],
            )
            .await?;
        let mut operations = Vec::new();
        for row in rows {
            let operation: Operation = serde_json::from_str(&row.text(1)?)?;
            let mut line = OperationLine::new(row.text(0)?, operation);
            line.waits_for = line.operation.waits_for(now);
            operations.push(line);
        }
        Ok(Listing::page(period, operations, limit))
    }

    /// The keys of a run with evidence that contradicts what was decided, at most `limit`.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn contradicted(
        &self,
        campaign: &str,
        period: Period,
        limit: u32,
    ) -> Result<Vec<String>, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let rows = tx
            .rows(
                "select key from @operations where campaign = $1 and period = $2 \
                 and contradicted = 1 order by position limit $3",
                values![campaign, period.to_string(), limit],
            )
            .await?;
        rows.iter().map(|row| row.text(0)).collect()
    }

    /// One operation with its attempts and its timeline.
    ///
    /// # Errors
    /// [`LedgerError::NoSuchOperation`], or any error of an unreachable database.
    pub async fn show(&self, key: &OperationKey) -> Result<Shown, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let text = key.to_string();
        let row = tx
            .row(
                "select machine, frozen_at, enqueued_at, coalesce(content_hash, \
                 (select m.content_hash from @messages m where m.key = $1)) from @operations \
                 where key = $1",
                values![text.as_str()],
            )
            .await?
            .ok_or_else(|| LedgerError::NoSuchOperation(text.clone()))?;
        let operation: Operation = serde_json::from_str(&row.text(0)?)?;
        let (provider, attempts) = attempts(&mut tx, &text).await?;
        let run = run_in(&mut tx, key.campaign(), key.period(), "").await?;
        let suppressed = suppressions::of(&mut tx, key.campaign(), &key.customer_id()).await?;
        let sql = format!("select {TRANSITION} from @decisions where key = $1 order by id");
        let timeline = tx.rows(&sql, values![text.as_str()]).await?;
        Ok(Shown {
            key: text,
            state: operation.state,
            class: operation.class,
            provider,
            message_id: operation.accepted.as_ref().and_then(|a| a.message_id.clone()),
            undelivered: operation.undelivered,
            suppressed: suppressed.map(|line| line.reason),
            attempts,
            timeline: timeline.iter().map(transition).collect::<Result<_, _>>()?,
            ui_url: None,
            frozen_at: row.time(1)?,
            enqueued_at: row.maybe_time(2)?,
            content_hash: row.maybe_text(3)?,
            held_because: run.and_then(|run| run.held_since.and(run.held_because)),
            operation,
        })
    }

    /// Every key of one customer in `campaign`, oldest period first.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn keys_of(
        &self,
        campaign: &str,
        customer: &str,
    ) -> Result<Vec<OperationKey>, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let rows = tx
            .rows(
                "select key from @operations where campaign = $1 and customer = $2 \
                 order by period",
                values![campaign, customer],
            )
            .await?;
        rows.iter()
            .map(|row| {
                OperationKey::parse(&row.text(0)?)
                    .map_err(|error| LedgerError::corrupt(error.to_string()))
            })
            .collect()
    }
}

/// The keys of a campaign, or of one of its periods, that come after `after`: all between the two. A
/// key begins with its campaign and period, so those are a range of keys.
pub(super) fn range(
    campaign: &str,
    period: Option<Period>,
    after: Option<&str>,
) -> (String, String) {
    let first = period.map_or_else(|| format!("{campaign}:"), |p| format!("{campaign}:{p}:"));
    let end = format!("{};", first.trim_end_matches(':'));
    let after = after.filter(|after| *after > first.as_str()).map_or(first, str::to_owned);
    (after, end)
}

const TRANSITION: &str = "at, event, from_state, to_state, decided_by, reason, note";

fn transition(row: &Row) -> Result<TransitionLine, LedgerError> {
    Ok(TransitionLine {
        at: row.time(0)?,
        event: row.text(1)?,
        from: row.maybe_text(2)?,
        to: row.maybe_text(3)?,
        by: row.text(4)?,
        reason: row.maybe_text(5)?,
        note: row.maybe_text(6)?,
    })
}

async fn attempts(
    tx: &mut Tx,
    key: &str,
) -> Result<(Option<String>, Vec<AttemptLine>), LedgerError> {
    let rows = tx
        .rows(
            "select generation, ordinal, number, begun_at, lease_ends, outcome, class, code, \
             provider, batch from @attempts where key = $1 order by number",
            values![key],
        )
        .await?;
    let mut provider = None;
    let mut lines = Vec::new();
    for row in rows {
        let class = row.maybe_text(6)?;
        let code = row.maybe_text(7)?;
        let outcome = row.maybe_text(5)?.map(|outcome| match (class, code) {
            (Some(class), Some(code)) => format!("{outcome}: {class} ({code})"),
            _ => outcome,
        });
        provider = row.maybe_text(8)?.or(provider);
        lines.push(AttemptLine {
            generation: row.number(0)?,
            ordinal: row.number(1)?,
            number: row.number(2)?,
            handed_over_at: row.maybe_time(3)?,
            lease_ends: row.maybe_time(4)?,
            outcome,
            batch: row.maybe_text(9)?,
        });
    }
    Ok((provider, lines))
}

fn blank(run: &Run) -> RunStatus {
    RunStatus {
        campaign: run.campaign.clone(),
        period: run.period,
        run: digest_workflows::run_id(&run.campaign, run.period),
        state: run.shown(false).to_owned(),
        held_because: run.because().cloned(),
        selected: run.selected,
        unkeyed: run.unkeyed,
        faults: Vec::new(),
        pending: 0,
        sending: 0,
        retrying: 0,
        unknown: 0,
        sent: 0,
        cleaned: 0,
        suppressed: 0,
        dead: 0,
        expired: 0,
        contradicted: 0,
        undelivered: 0,
        newly_suppressed: 0,
        cleanup_failed: 0,
        missing: Vec::new(),
        missing_count: 0,
        oldest_pending_seconds: None,
        classes: Vec::new(),
    }
}

/// Adds the operations of one state and class.
fn count(status: &mut RunStatus, row: &Row, now: Timestamp) -> Result<(), LedgerError> {
    let name = row.text(0)?;
    let state = State::from_name(&name)
        .ok_or_else(|| LedgerError::corrupt(format!("operation state {name:?}")))?;
    let class = row.maybe_text(1)?.as_deref().and_then(FailureClass::from_name);
    let count = row.count(2)?;
    match state {
        State::Selected => status.pending += count,
        State::Sending => status.sending += count,
        State::Retrying => status.retrying += count,
        State::Unknown => status.unknown += count,
        State::Sent => status.sent += count,
        State::Cleaned => {
            status.sent += count;
            status.cleaned += count;
        }
        State::Suppressed => status.suppressed += count,
        State::Dead => status.dead += count,
        State::Expired => status.expired += count,
    }
    status.classes.push(ClassCount { state, class, count });
    status.contradicted += row.count(3)?;
    status.undelivered += row.count(4)?;
    status.cleanup_failed += row.count(5)?;
    status.missing_count += row.count(6)?;
    if matches!(state, State::Selected | State::Sending | State::Retrying) {
        let age = now.duration_since(row.time(7)?).as_secs();
        status.oldest_pending_seconds = status.oldest_pending_seconds.max(Some(age));
    }
    Ok(())
}
