//! Figures: how a campaign stands, in numbers for whoever watches it. Each is read by an index, so that
//! they cost what is open and not what the ledger has ever held.

use super::database::{Row, Tx, Value, values};
use super::holds::{BREAKER, ELIGIBILITY, STARTED_LATE};
use super::reports::range;
use super::restore::GONE_BACK;
use super::runs::RunState;
use super::{Ledger, LedgerError};
use crate::webhook::SuppressionReason;
use digest_workflows::operation::{FailureClass, Period, State};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// How many open operations of a run are looked at for the oldest: one that was replayed stands at its
/// place in the selection, and counts from its replay.
const OLDEST_OF: u32 = 200;

/// How a campaign stands. Ages are in seconds by the ledger's clock, never negative.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// The newest run that was started or missed.
    pub latest: Option<LatestRun>,
    /// Every run that is held now.
    pub held: Vec<HeldRun>,
    /// How many periods are recorded as missed and were not made up.
    pub missed: u64,
    /// How long the oldest operation that could be sent now has waited: since its selection, its
    /// replay, or the last resumption of its run, whichever is latest. Held and cancelled runs and
    /// unknown operations are left out; 0 where nothing waits.
    pub oldest_pending: f64,
    /// Operations in doubt, of all periods.
    pub unknown: u64,
    /// Those of them that have been for longer than `escalate_after`.
    pub overdue: u64,
    /// The age of the oldest doubt; 0 without one.
    pub oldest_unknown: f64,
    /// Dead letters of all periods that were not replayed, by class.
    pub dead: BTreeMap<FailureClass, u64>,
    /// Delivered operations that wait for their cleanup.
    pub cleanup_pending: u64,
    /// How long the oldest of them has waited; 0 without one.
    pub cleanup_lag: f64,
    /// Delivered operations whose cleanup was given up.
    pub cleanup_failed: u64,
    /// Customers who are not written to any more, by the reason that a provider told.
    pub suppressed: BTreeMap<&'static str, u64>,
    /// Events of providers that are stored and not yet told to their operations.
    pub events_waiting: u64,
    /// Events that can't be told to anybody.
    pub events_faulty: u64,
}

/// The newest run.
#[derive(Clone, Debug, PartialEq)]
pub struct LatestRun {
    /// Its period.
    pub period: Period,
    /// How far it has come.
    pub state: RunState,
    /// How many operations are selected.
    pub selected: u64,
    /// How many rows of the customers query could not become operations.
    pub unkeyed: u64,
    /// Its operations by state, zeros too.
    pub operations: BTreeMap<State, u64>,
}

/// A run that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldRun {
    /// Its period.
    pub period: Period,
    /// Who holds it.
    pub holder: Holder,
}

/// Who or what holds a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A person.
    Operator,
    /// A breaker: a configuration failure, or many identical failures or unknowns in a row.
    Breaker,
    /// The selection looks wrong.
    Selection,
    /// It started too late after its tick.
    Late,
    /// The ledger has gone back.
    Restored,
}

impl Holder {
    /// Everybody.
    pub const ALL: [Self; 5] =
        [Self::Operator, Self::Breaker, Self::Selection, Self::Late, Self::Restored];

    /// The holder as a metric has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Breaker => "breaker",
            Self::Selection => "selection",
            Self::Late => "late",
            Self::Restored => "restored",
        }
    }

    /// From what is recorded of a hold: its first reason decides.
    fn of(by: &str, because: &str) -> Self {
        match by {
            _ if because.starts_with(GONE_BACK) => Self::Restored,
            BREAKER => Self::Breaker,
            ELIGIBILITY if because.starts_with(STARTED_LATE) => Self::Late,
            ELIGIBILITY => Self::Selection,
            _ => Self::Operator,
        }
    }
}

/// A run, as far as figures need it.
struct Known {
    period: Period,
    state: RunState,
    selected: u64,
    unkeyed: u64,
    holder: Option<Holder>,
    resumed_at: Option<Timestamp>,
    cancelled: bool,
    /// Whether something of it is not at rest.
    open: bool,
}

impl Ledger {
    /// How `campaign` stands now, of one snapshot. A doubt is overdue after `escalate_after`.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn figures(
        &self,
        campaign: &str,
        escalate_after: SignedDuration,
    ) -> Result<Figures, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let now = tx.now().await?;
        let runs = runs(&mut tx, campaign).await?;
        let mut figures = Figures::default();
        for run in &runs {
            figures.missed += u64::from(run.state == RunState::Missed);
            let rests = matches!(run.state, RunState::Closed | RunState::Missed) && !run.open;
            if let Some(holder) = run.holder.filter(|_| !rests) {
                figures.held.push(HeldRun { period: run.period, holder });
            }
            if run.open && run.holder.is_none() && !run.cancelled {
                let oldest = oldest_pending(&mut tx, campaign, run, now).await?;
                figures.oldest_pending = figures.oldest_pending.max(oldest);
            }
        }
        if let Some(run) = runs.iter().find(|run| run.state != RunState::Planned) {
            figures.latest = Some(LatestRun {
                period: run.period,
                state: run.state,
                selected: run.selected,
                unkeyed: run.unkeyed,
                operations: operations(&mut tx, campaign, run.period).await?,
            });
        }
        unknown(&mut tx, campaign, (now, escalate_after), &mut figures).await?;
        dead(&mut tx, campaign, &mut figures).await?;
        cleanups(&mut tx, campaign, now, &mut figures).await?;
        suppressed(&mut tx, campaign, &mut figures).await?;
        let waiting = "select count(*) from @provider_events where told_at is null";
        figures.events_waiting = count(&mut tx, waiting, &[]).await?;
        let faulty = "select count(*) from @provider_events where fault is not null";
        figures.events_faulty = count(&mut tx, faulty, &[]).await?;
        Ok(figures)
    }
}

/// The campaign's runs, the newest first. They are one a week.
async fn runs(tx: &mut Tx, campaign: &str) -> Result<Vec<Known>, LedgerError> {
    let open = open_periods(tx, campaign).await?;
    let rows = tx
        .rows(
            "select period, state, selected, unkeyed, held_since, held_by, held_because, \
             resumed_at, cancelled_at from @runs where campaign = $1 order by period desc",
            values![campaign],
        )
        .await?;
    let known = |row: &Row| {
        let period = row.text(0)?;
        let held = row.maybe_time(4)?.is_some();
        let (by, because) = (row.maybe_text(5)?, row.maybe_text(6)?);
        let holder = Holder::of(&by.unwrap_or_default(), &because.unwrap_or_default());
        Ok(Known {
            open: open.contains(&period),
            period: parse(&period)?,
            state: RunState::from_name(&row.text(1)?)?,
            selected: row.count(2)?,
            unkeyed: row.count(3)?,
            holder: held.then_some(holder),
            resumed_at: row.maybe_time(7)?,
            cancelled: row.maybe_time(8)?.is_some(),
        })
    };
    rows.iter().map(known).collect()
}

/// The periods with something that is not at rest. Each is one step in the index, however many
/// operations it has.
pub(super) async fn open_periods(tx: &mut Tx, campaign: &str) -> Result<Vec<String>, LedgerError> {
    let mut periods = Vec::new();
    let mut after = String::new();
    loop {
        let row = tx
            .row(
                "select period from @operations where campaign = $1 and period > $2 \
                 and at_rest = 0 order by period limit 1",
                values![campaign, after],
            )
            .await?;
        let Some(row) = row else { return Ok(periods) };
        after = row.text(0)?;
        periods.push(after.clone());
    }
}

async fn oldest_pending(
    tx: &mut Tx,
    campaign: &str,
    run: &Known,
    now: Timestamp,
) -> Result<f64, LedgerError> {
    let sql = format!(
        "select o.frozen_at, (select max(d.replayed_at) from @dead_letters d where d.key = o.key) \
         from @operations o where o.campaign = $1 and o.period = $2 and o.at_rest = 0 \
         and o.state in ('selected', 'sending', 'retrying') order by o.position limit {OLDEST_OF}"
    );
    let mut oldest = 0.0_f64;
    for row in tx.rows(&sql, values![campaign, run.period.to_string()]).await? {
        let since = row.maybe_time(1)?.unwrap_or(row.time(0)?).max(
            // What waited under a hold could not be sent.
            run.resumed_at.unwrap_or(Timestamp::MIN),
        );
        oldest = oldest.max(age(now, since));
    }
    Ok(oldest)
}

/// The operations of a period by state, from the index alone.
pub(super) async fn operations(
    tx: &mut Tx,
    campaign: &str,
    period: Period,
) -> Result<BTreeMap<State, u64>, LedgerError> {
    let (after, end) = range(campaign, Some(period), None);
    let mut operations = BTreeMap::new();
    let sql = "select count(*) from @operations where campaign = $1 and state = $2 \
               and key > $3 and key < $4";
    for state in State::ALL {
        let within = values![campaign, state.name(), after.as_str(), end.as_str()];
        operations.insert(state, count(tx, sql, within).await?);
    }
    Ok(operations)
}

async fn unknown(
    tx: &mut Tx,
    campaign: &str,
    (now, escalate_after): (Timestamp, SignedDuration),
    figures: &mut Figures,
) -> Result<(), LedgerError> {
    let row = tx
        .row(
            "select count(*), cast(coalesce(sum(case when since <= $2 then 1 else 0 end), 0) \
             as bigint), min(since) from @operations where campaign = $1 and state = 'unknown'",
            values![campaign, now - escalate_after],
        )
        .await?;
    if let Some(row) = row {
        figures.unknown = row.count(0)?;
        figures.overdue = row.count(1)?;
        figures.oldest_unknown = row.maybe_time(2)?.map_or(0.0, |since| age(now, since));
    }
    Ok(())
}

async fn dead(tx: &mut Tx, campaign: &str, figures: &mut Figures) -> Result<(), LedgerError> {
    let sql = "select class, count(*) from @operations where campaign = $1 and state = 'dead' \
               group by class";
    for row in tx.rows(sql, values![campaign]).await? {
        let class = row.maybe_text(0)?.as_deref().and_then(FailureClass::from_name);
        *figures.dead.entry(class.unwrap_or(FailureClass::Stale)).or_default() += row.count(1)?;
    }
    Ok(())
}

async fn cleanups(
    tx: &mut Tx,
    campaign: &str,
    now: Timestamp,
    figures: &mut Figures,
) -> Result<(), LedgerError> {
    let sql = "select cleanup_failed, count(*), min(since) from @operations \
               where campaign = $1 and state = 'sent' group by cleanup_failed";
    for row in tx.rows(sql, values![campaign]).await? {
        if row.int(0)? == 0 {
            figures.cleanup_pending = row.count(1)?;
            figures.cleanup_lag = row.maybe_time(2)?.map_or(0.0, |since| age(now, since));
        } else {
            figures.cleanup_failed = row.count(1)?;
        }
    }
    Ok(())
}

async fn suppressed(tx: &mut Tx, campaign: &str, figures: &mut Figures) -> Result<(), LedgerError> {
    let sql = "select reason, count(*) from @suppressions where campaign = $1 group by reason";
    for row in tx.rows(sql, values![campaign]).await? {
        let name = row.text(0)?;
        let reason = SuppressionReason::from_name(&name)
            .ok_or_else(|| LedgerError::corrupt(format!("suppression reason {name:?}")))?;
        figures.suppressed.insert(reason.name(), row.count(1)?);
    }
    Ok(())
}

async fn count(tx: &mut Tx, sql: &str, values: &[Value]) -> Result<u64, LedgerError> {
    tx.row(sql, values).await?.map_or(Ok(0), |row| row.count(0))
}

fn parse(period: &str) -> Result<Period, LedgerError> {
    Period::parse(period).map_err(|error| LedgerError::corrupt(error.to_string()))
}

fn age(now: Timestamp, since: Timestamp) -> f64 {
    now.duration_since(since).as_secs_f64().max(0.0)
}
