//! Runs: one campaign in one period.

use super::database::{Row, Tx, values};
use super::figures::open_periods;
use super::holds::note;
use super::operations::Actor;
use super::{Ledger, LedgerError};
use digest_workflows::operation::{Moment, Period};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// How far a run has come. Held is not a state but an answer: see [`Run::held_because`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Known (held, say) before it was started.
    Planned,
    /// The selection is being frozen.
    Freezing,
    /// The selection is complete; nothing is enqueued yet.
    Frozen,
    /// Operations are being enqueued and watched.
    Dispatching,
    /// Every operation was at rest.
    Closed,
    /// Its tick passed without a run.
    Missed,
}

impl RunState {
    /// The state as it is stored and printed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Freezing => "freezing",
            Self::Frozen => "frozen",
            Self::Dispatching => "dispatching",
            Self::Closed => "closed",
            Self::Missed => "missed",
        }
    }

    pub(super) fn from_name(name: &str) -> Result<Self, LedgerError> {
        [Self::Planned, Self::Freezing, Self::Frozen, Self::Dispatching, Self::Closed, Self::Missed]
            .into_iter()
            .find(|state| state.name() == name)
            .ok_or_else(|| LedgerError::corrupt(format!("run state {name:?}")))
    }
}

/// What a run is started with.
#[derive(Clone, Copy, Debug)]
pub struct NewRun<'a> {
    /// The campaign's name.
    pub campaign: &'a str,
    /// The period it is for.
    pub period: Period,
    /// The scheduled instant; `None` where a person named the period.
    pub tick: Option<Timestamp>,
    /// The half-open window `:period_start` to `:period_end`; the end is `None` where it is the
    /// selection time.
    pub window: (Timestamp, Option<Timestamp>),
    /// How long after the tick (without one: after the start) messages are useful.
    pub useful_for: SignedDuration,
}

/// A run as the ledger has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The campaign's name.
    pub campaign: String,
    /// The period it is for.
    pub period: Period,
    /// How far it has come.
    pub state: RunState,
    /// The scheduled instant, where there was one.
    pub tick: Option<Timestamp>,
    /// When the selection was made.
    pub selected_at: Option<Timestamp>,
    /// The half-open window of the digest's rows.
    pub window: Option<(Timestamp, Timestamp)>,
    /// Past this instant no attempt begins.
    pub useful_until: Option<Timestamp>,
    /// `count(*)` of the customers query when the freeze began.
    pub expected: Option<u64>,
    /// The last customer id that the freeze has read.
    pub freeze_after: Option<String>,
    /// How many operations are selected.
    pub selected: u64,
    /// How many rows of the customers query could not become operations.
    pub unkeyed: u64,
    /// How many rows of the customers query were read.
    pub seen: u64,
    /// Since when it is held.
    pub held_since: Option<Timestamp>,
    /// Why it is held.
    pub held_because: Option<String>,
    /// How long all earlier holds lasted together.
    pub held_before: SignedDuration,
    /// When it was last resumed.
    pub resumed_at: Option<Timestamp>,
    /// When it was cancelled.
    pub cancelled_at: Option<Timestamp>,
    /// Why it was missed.
    pub missed_because: Option<String>,
    /// When the selection was complete.
    pub frozen_at: Option<Timestamp>,
}

/// The columns that [`Run::read`] reads, which come first in a row.
pub(super) const COLUMNS: &str = "campaign, period, state, tick, selected_at, period_start, \
     period_end, useful_until, expected, freeze_after, selected, unkeyed, held_since, \
     held_because, held_ms, resumed_at, cancelled_at, seen, reason, \
     frozen_at";
/// How many they are.
pub(super) const COLUMN_COUNT: usize = 20;

impl Run {
    /// The run's facts at `now`, as the decision core needs them.
    #[must_use]
    pub fn moment(&self, now: Timestamp) -> Moment {
        let this_hold =
            self.held_since.map_or(SignedDuration::ZERO, |since| now.duration_since(since));
        Moment {
            now,
            held: self.held_since.is_some(),
            held_for: self.held_before + this_hold,
            cancelled: self.cancelled_at.is_some(),
            useful_until: self.useful_until.unwrap_or(Timestamp::MAX),
            suppressed: false,
        }
    }

    /// What its state is called: `held` while it is held, a closed or missed one only where it
    /// `has_work`, which a verdict or a replay may have given it.
    pub(super) fn shown(&self, has_work: bool) -> &'static str {
        let is_over = matches!(self.state, RunState::Closed | RunState::Missed);
        if self.held_since.is_some() && (has_work || !is_over) { "held" } else { self.state.name() }
    }

    /// Why it is held, or was missed.
    pub(super) fn because(&self) -> Option<&String> {
        match self.state {
            RunState::Missed => self.missed_because.as_ref(),
            _ => self.held_because.as_ref(),
        }
    }

    pub(super) fn read(row: &Row) -> Result<Self, LedgerError> {
        let count = |index| {
            row.maybe_int(index)?
                .map(u64::try_from)
                .transpose()
                .map_err(|_| LedgerError::corrupt("a negative count"))
        };
        Ok(Self {
            campaign: row.text(0)?,
            period: Period::parse(&row.text(1)?)
                .map_err(|error| LedgerError::corrupt(error.to_string()))?,
            state: RunState::from_name(&row.text(2)?)?,
            tick: row.maybe_time(3)?,
            selected_at: row.maybe_time(4)?,
            window: row.maybe_time(5)?.zip(row.maybe_time(6)?),
            useful_until: row.maybe_time(7)?,
            expected: count(8)?,
            freeze_after: row.maybe_text(9)?,
            selected: row.count(10)?,
            unkeyed: row.count(11)?,
            held_since: row.maybe_time(12)?,
            held_because: row.maybe_text(13)?,
            held_before: SignedDuration::from_millis(row.int(14)?),
            resumed_at: row.maybe_time(15)?,
            cancelled_at: row.maybe_time(16)?,
            seen: row.count(17)?,
            missed_because: row.maybe_text(18)?,
            frozen_at: row.maybe_time(19)?,
        })
    }
}

impl Ledger {
    /// Starts the selection of a run, or returns the one that exists: a second freeze returns the
    /// first.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn open_run(&self, new: &NewRun<'_>) -> Result<Run, LedgerError> {
        let mut tx = self.db.begin().await?;
        let now = tx.now().await?;
        let period = new.period.to_string();
        let (start, end) = new.window;
        let useful_until = new.tick.unwrap_or(now) + new.useful_for;
        plan_run(&mut tx, new.campaign, new.period).await?;
        tx.execute(
            "update @runs set state = 'freezing', tick = $3, selected_at = $4, period_start = $5, \
             period_end = $6, useful_until = $7, reason = null \
             where campaign = $1 and period = $2 and state in ('planned', 'missed')",
            values![
                new.campaign,
                period.as_str(),
                new.tick,
                now,
                start,
                end.unwrap_or(now),
                useful_until,
            ],
        )
        .await?;
        let run = run_in(&mut tx, new.campaign, new.period, "for update").await?;
        tx.commit().await?;
        run.ok_or_else(|| no_such_run(new.campaign, new.period))
    }

    /// The run of `campaign` in `period`, if the ledger knows one.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn run(&self, campaign: &str, period: Period) -> Result<Option<Run>, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        run_in(&mut tx, campaign, period, "").await
    }

    /// The newest run of `campaign` that was started, by period.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn latest_run(&self, campaign: &str) -> Result<Option<Run>, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let sql = format!(
            "select {COLUMNS} from @runs where campaign = $1 and state <> 'planned' \
             order by period desc limit 1"
        );
        tx.row(&sql, values![campaign]).await?.map(|row| Run::read(&row)).transpose()
    }

    /// Every run that the ledger has open: started and not closed, in any campaign.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn open_runs(&self, campaign: &str) -> Result<Vec<Run>, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let sql = format!(
            "select {COLUMNS} from @runs where campaign = $1 \
             and state in ('freezing', 'frozen', 'dispatching') order by period"
        );
        tx.rows(&sql, values![campaign]).await?.iter().map(Run::read).collect()
    }

    /// Every run of `campaign` that was closed and has work again: a verdict, a replay or a publication
    /// came after it, and its operations are not at rest.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn closed_runs_at_work(&self, campaign: &str) -> Result<Vec<Run>, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let mut runs = Vec::new();
        for period in open_periods(&mut tx, campaign).await? {
            let period =
                Period::parse(&period).map_err(|error| LedgerError::corrupt(error.to_string()))?;
            let run = run_in(&mut tx, campaign, period, "").await?;
            runs.extend(run.filter(|run| run.state == RunState::Closed));
        }
        Ok(runs)
    }

    /// Every period of `campaign` whose run was started, or is recorded as missed.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn accounted_periods(&self, campaign: &str) -> Result<HashSet<Period>, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let rows = tx
            .rows(
                "select period from @runs where campaign = $1 and state <> 'planned'",
                values![campaign],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Period::parse(&row.text(0)?)
                    .map_err(|error| LedgerError::corrupt(error.to_string()))
            })
            .collect()
    }

    /// Records that the tick of `period` passed without a run; returns whether that is news. A run
    /// that was started meanwhile stays as it is.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn miss(
        &self,
        campaign: &str,
        period: Period,
        tick: Timestamp,
        because: &str,
    ) -> Result<bool, LedgerError> {
        let mut tx = self.db.begin().await?;
        let now = tx.now().await?;
        let missed = tx
            .execute(
                "insert into @runs (campaign, period, state, tick, reason) \
                 values ($1, $2, 'missed', $3, $4) \
                 on conflict (campaign, period) do update set state = excluded.state, \
                 tick = excluded.tick, reason = excluded.reason where @runs.state = 'planned'",
                values![campaign, period.to_string(), tick, because],
            )
            .await?;
        if missed > 0 {
            let actor = Actor { by: "calendar", reason: Some(because) };
            note(&mut tx, campaign, period, now, "missed", actor).await?;
        }
        tx.commit().await?;
        Ok(missed > 0)
    }

    /// Closes a run if every selected operation is at rest; returns whether it is closed now.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn close_run(&self, campaign: &str, period: Period) -> Result<bool, LedgerError> {
        let mut tx = self.db.begin().await?;
        let now = tx.now().await?;
        let period_text = period.to_string();
        let Some(run) = run_in(&mut tx, campaign, period, "for update").await? else {
            return Err(no_such_run(campaign, period));
        };
        if run.state == RunState::Closed {
            return Ok(true);
        }
        if !matches!(run.state, RunState::Frozen | RunState::Dispatching) {
            return Ok(false);
        }
        // Nobody to send to: the hold asks whether that is meant, and closing would hide the question.
        if run.selected == 0 && run.held_since.is_some() && run.cancelled_at.is_none() {
            return Ok(false);
        }
        let open = tx
            .row(
                "select key from @operations where campaign = $1 and period = $2 \
                 and at_rest = 0 limit 1",
                values![campaign, period_text.as_str()],
            )
            .await?;
        if open.is_some() {
            return Ok(false);
        }
        tx.execute(
            "update @runs set state = 'closed', closed_at = $3 where campaign = $1 and period = $2",
            values![campaign, period_text, now],
        )
        .await?;
        tx.commit().await?;
        Ok(true)
    }
}

/// Writes the row of a run, unless it is there already.
pub(super) async fn plan_run(
    tx: &mut Tx,
    campaign: &str,
    period: Period,
) -> Result<(), LedgerError> {
    tx.execute(
        "insert into @runs (campaign, period, state) values ($1, $2, 'planned') \
         on conflict (campaign, period) do nothing",
        values![campaign, period.to_string()],
    )
    .await?;
    Ok(())
}

pub(super) async fn run_in(
    tx: &mut Tx,
    campaign: &str,
    period: Period,
    lock: &str,
) -> Result<Option<Run>, LedgerError> {
    let sql = format!("select {COLUMNS} from @runs where campaign = $1 and period = $2");
    let row = tx.locked(&sql, lock, values![campaign, period.to_string()]).await?;
    row.map(|row| Run::read(&row)).transpose()
}

pub(super) fn no_such_run(campaign: &str, period: Period) -> LedgerError {
    LedgerError::NoSuchRun { campaign: campaign.to_owned(), period: period.to_string() }
}
