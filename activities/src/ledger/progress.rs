//! How the runs go: one line a run, newest first, from the indexes alone.

use super::database::{Row, Tx, values};
use super::figures::operations;
use super::runs::{COLUMN_COUNT, COLUMNS, Run};
use super::{Ledger, LedgerError};
use digest_workflows::operation::{Period, State};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

/// The pace is that of so long.
const PACE_OF: SignedDuration = SignedDuration::from_mins(1);

/// How one run goes.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct RunLine {
    /// The campaign's name.
    pub campaign: String,
    /// The period.
    #[schema(value_type = String, example = "2026-W49")]
    pub period: Period,
    /// The id of the run's workflow.
    pub run: String,
    /// `planned`, `freezing`, `frozen`, `dispatching`, `held`, `closed` or `missed`.
    pub state: String,
    /// Since when it is held.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub held_since: Option<Timestamp>,
    /// Why it is held, or was missed.
    pub held_because: Option<String>,
    /// Who holds it: a person's name, or the part of digestd.
    pub held_by: Option<String>,
    /// The scheduled instant, where there was one.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub tick: Option<Timestamp>,
    /// When the selection was made.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub selected_at: Option<Timestamp>,
    /// Past this instant no attempt begins.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub useful_until: Option<Timestamp>,
    /// When it was cancelled.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub cancelled_at: Option<Timestamp>,
    /// How many rows the customers query had when the freeze began.
    pub expected: Option<u64>,
    /// How many operations are selected so far.
    pub selected: u64,
    /// How many rows of the customers query could not become operations.
    pub unkeyed: u64,
    /// Selected, being sent, or waiting for the next attempt.
    pub to_send: u64,
    /// With an attempt in doubt.
    pub unknown: u64,
    /// Delivered, whether or not cleaned.
    pub sent: u64,
    /// Delivered and cleaned.
    pub cleaned: u64,
    /// Skipped: opted out, cancelled, nothing to send.
    pub suppressed: u64,
    /// Dead letters.
    pub dead: u64,
    /// Given up without an answer.
    pub expired: u64,
    /// Attempts that got an answer within the last minute, of a run that is under way.
    pub answered_per_minute: Option<u64>,
    /// How long `to_send` takes at this pace.
    pub seconds_left: Option<u64>,
}

/// A page of runs, the newest first.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct RunListing {
    /// The runs.
    pub runs: Vec<RunLine>,
    /// Where the next page begins, as `before`; `None` on the last one.
    #[schema(value_type = Option<String>)]
    pub next: Option<Period>,
}

impl Ledger {
    /// The campaign's runs before period `before` (without it: all), the newest first, at most `limit`.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn runs(
        &self,
        campaign: &str,
        before: Option<Period>,
        limit: u32,
    ) -> Result<RunListing, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let now = tx.now().await?;
        // Periods compare as text; this is after each of them.
        let before = before.map_or_else(|| "a".to_owned(), |before| before.to_string());
        let sql = format!(
            "select {COLUMNS}, held_by from @runs where campaign = $1 and period < $2 \
             order by period desc limit $3"
        );
        let rows = tx.rows(&sql, values![campaign, before, u64::from(limit) + 1]).await?;
        let mut runs = Vec::new();
        for row in rows.iter().take(limit as usize) {
            runs.push(line(&mut tx, row, now).await?);
        }
        let next = runs.last().filter(|_| rows.len() > runs.len()).map(|run| run.period);
        Ok(RunListing { runs, next })
    }

    /// How the run of `period` goes; `None` if there is none.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn progress(
        &self,
        campaign: &str,
        period: Period,
    ) -> Result<Option<RunLine>, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let now = tx.now().await?;
        let sql =
            format!("select {COLUMNS}, held_by from @runs where campaign = $1 and period = $2");
        match tx.row(&sql, values![campaign, period.to_string()]).await? {
            Some(row) => line(&mut tx, &row, now).await.map(Some),
            None => Ok(None),
        }
    }
}

async fn line(tx: &mut Tx, row: &Row, now: Timestamp) -> Result<RunLine, LedgerError> {
    let run = Run::read(row)?;
    let counts = operations(tx, &run.campaign, run.period).await?;
    let of = |state: State| counts.get(&state).copied().unwrap_or_default();
    let to_send = of(State::Selected) + of(State::Sending) + of(State::Retrying);
    let open = to_send + of(State::Unknown) > 0;
    let under_way = to_send > 0 && run.held_since.is_none();
    let answered = if under_way { Some(answered(tx, &run, now).await?) } else { None };
    Ok(RunLine {
        run: digest_workflows::run_id(&run.campaign, run.period),
        state: run.shown(open).to_owned(),
        held_since: run.held_since,
        held_because: run.because().cloned(),
        held_by: row.maybe_text(COLUMN_COUNT)?,
        tick: run.tick,
        selected_at: run.selected_at,
        useful_until: run.useful_until,
        cancelled_at: run.cancelled_at,
        expected: run.expected,
        selected: run.selected,
        unkeyed: run.unkeyed,
        to_send,
        unknown: of(State::Unknown),
        sent: of(State::Sent) + of(State::Cleaned),
        cleaned: of(State::Cleaned),
        suppressed: of(State::Suppressed),
        dead: of(State::Dead),
        expired: of(State::Expired),
        answered_per_minute: answered,
        seconds_left: answered.and_then(|pace| (to_send * 60).checked_div(pace)),
        campaign: run.campaign,
        period: run.period,
    })
}

/// How many attempts of the run got an answer within the last minute.
async fn answered(tx: &mut Tx, run: &Run, now: Timestamp) -> Result<u64, LedgerError> {
    let row = tx
        .row(
            "select count(*) from @attempts where campaign = $1 and period = $2 \
             and decided_at > $3",
            values![run.campaign.as_str(), run.period.to_string(), now - PACE_OF],
        )
        .await?;
    row.map_or(Ok(0), |row| row.count(0))
}
