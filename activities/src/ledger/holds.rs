//! Holds: by an operator, or by a breaker. While a run is held no attempt begins anywhere.

use super::database::{Tx, values};
use super::operations::{Actor, Loaded, Lock, apply, load};
use super::runs::{no_such_run, plan_run, run_in};
use super::{Ledger, LedgerError, Run};
use digest_workflows::operation::{Event, Failure, FailureClass, OperationKey, Period, Rules};
use jiff::Timestamp;

/// Why a run that started too late is held.
pub const STARTED_LATE: &str = "it started later than late_start after its tick";

/// Who holds a run whose failures show that more of the same would do harm.
pub(super) const BREAKER: &str = "breaker";

/// Who holds a run whose start or selection looks wrong.
pub const ELIGIBILITY: &str = "eligibility";

/// How many operations one transaction of a cancellation changes.
const CANCEL_BATCH: u32 = 200;

impl Ledger {
    /// Holds a run, which need not exist yet. A run that is held stays held for its first reason.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn hold(
        &self,
        campaign: &str,
        period: Period,
        because: &str,
        actor: Actor<'_>,
    ) -> Result<Run, LedgerError> {
        let mut tx = self.db.begin().await?;
        plan_and_hold_in(&mut tx, campaign, period, because, actor).await?;
        let run = run_in(&mut tx, campaign, period, "").await?;
        tx.commit().await?;
        run.ok_or_else(|| no_such_run(campaign, period))
    }

    /// Holds a run that exists, or adds `because` to the reasons of a hold that it has already, so
    /// that whoever resumes it has read them all.
    ///
    /// # Errors
    /// [`LedgerError::NoSuchRun`], or any error of an unreachable database.
    pub async fn hold_also(
        &self,
        campaign: &str,
        period: Period,
        because: &str,
        actor: Actor<'_>,
    ) -> Result<(), LedgerError> {
        let mut tx = self.db.begin().await?;
        let run = run_in(&mut tx, campaign, period, "for update")
            .await?
            .ok_or_else(|| no_such_run(campaign, period))?;
        match run.held_because {
            Some(earlier) if run.held_since.is_some() => {
                if !earlier.contains(because) {
                    let now = tx.now().await?;
                    tx.execute(
                        "update @runs set held_because = $3 where campaign = $1 and period = $2",
                        values![campaign, period.to_string(), format!("{earlier}; {because}")],
                    )
                    .await?;
                    let actor = Actor { by: actor.by, reason: Some(because) };
                    note(&mut tx, campaign, period, now, "held", actor).await?;
                }
            }
            _ => hold_in(&mut tx, campaign, period, because, actor).await?,
        }
        tx.commit().await
    }

    /// Ends a hold; returns whether there was one.
    ///
    /// # Errors
    /// [`LedgerError::NoSuchRun`], or any error of an unreachable database.
    pub async fn resume(
        &self,
        campaign: &str,
        period: Period,
        actor: Actor<'_>,
    ) -> Result<bool, LedgerError> {
        let mut tx = self.db.begin().await?;
        let resumed = resume_in(&mut tx, campaign, period, actor).await?;
        tx.commit().await?;
        Ok(resumed)
    }

    /// Cancels a run: whatever waits, with every attempt proven not sent, becomes suppressed;
    /// what is being sent or unknown keeps its course. Returns how many it suppressed.
    ///
    /// # Errors
    /// [`LedgerError::NoSuchRun`], or any error of an unreachable database; calling it again goes on
    /// where it stopped.
    pub async fn cancel(
        &self,
        campaign: &str,
        period: Period,
        rules: &Rules,
        actor: Actor<'_>,
    ) -> Result<u64, LedgerError> {
        let mut tx = self.db.begin().await?;
        let run = run_in(&mut tx, campaign, period, "for update")
            .await?
            .ok_or_else(|| no_such_run(campaign, period))?;
        let now = tx.now().await?;
        if run.cancelled_at.is_none() {
            tx.execute(
                "update @runs set cancelled_at = $3 where campaign = $1 and period = $2",
                values![campaign, period.to_string(), now],
            )
            .await?;
            note(&mut tx, campaign, period, now, "cancelled", actor).await?;
        }
        tx.commit().await?;
        let mut suppressed = 0;
        let mut after = 0;
        loop {
            let mut tx = self.db.begin().await?;
            let rows = tx
                .rows(
                    "select key, position from @operations where campaign = $1 and period = $2 \
                     and position > $3 and state in ('selected', 'retrying') \
                     order by position limit $4",
                    values![campaign, period.to_string(), after, CANCEL_BATCH],
                )
                .await?;
            if rows.is_empty() {
                return Ok(suppressed);
            }
            let mut keys = Vec::new();
            for row in rows {
                after = row.count(1)?;
                keys.push(row.text(0)?);
            }
            // As batches lock them, so that neither waits for the other.
            keys.sort_unstable();
            for key in keys {
                let key = OperationKey::parse(&key)
                    .map_err(|error| LedgerError::corrupt(error.to_string()))?;
                let mut loaded = load(&mut tx, &key, Lock::Operation).await?;
                let change =
                    apply(&mut tx, &mut loaded, &Event::Cancelled, rules, actor, None).await?;
                suppressed += u64::from(change.from != change.to);
            }
            tx.commit().await?;
        }
    }

    /// How many operations of the run a cancellation would suppress now. One in doubt is not counted
    /// in `selected` or `retrying`, so every one of these is proven not sent.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn cancellable(&self, campaign: &str, period: Period) -> Result<u64, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let row = tx
            .row(
                "select count(*) from @operations where campaign = $1 and period = $2 \
                 and state in ('selected', 'retrying')",
                values![campaign, period.to_string()],
            )
            .await?;
        row.map_or(Ok(0), |row| row.count(0))
    }

    /// How many operations of the run would end stale if it were resumed now.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn stale_on_resume(
        &self,
        campaign: &str,
        period: Period,
    ) -> Result<u64, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let now = tx.now().await?;
        let row = tx
            .row(
                "select count(*) from @operations o join @runs r \
                 on r.campaign = o.campaign and r.period = o.period \
                 where o.campaign = $1 and o.period = $2 and r.useful_until <= $3 \
                 and o.state in ('selected', 'sending', 'retrying') and not exists \
                 (select 1 from @attempts a where a.key = o.key and a.outcome is null)",
                values![campaign, period.to_string(), now],
            )
            .await?;
        row.map_or(Ok(0), |row| row.count(0))
    }
}

/// A failure may hold the run: one of class `configuration`, or many identical ones of class
/// `schema`. `begun` is when its attempt began, so that what a resume has answered does not hold
/// again.
pub(super) async fn after_failure(
    tx: &mut Tx,
    loaded: &mut Loaded,
    failure: &Failure,
    begun: Option<Timestamp>,
    rules: &Rules,
) -> Result<(), LedgerError> {
    match failure.class {
        FailureClass::Configuration => {
            lock_run(tx, loaded).await?;
            let answered =
                begun.zip(loaded.run.resumed_at).is_some_and(|(begun, resumed)| begun <= resumed);
            if !answered {
                let because = format!("configuration: {}", failure.code);
                trip(tx, loaded, &because).await?;
            }
        }
        FailureClass::Schema => {
            lock_run(tx, loaded).await?;
            let limit = rules.breakers.identical_schema_failures;
            let streak = streak(tx, loaded, limit, "").await?;
            let identical = streak.iter().all(|(outcome, class, code)| {
                outcome.is_some()
                    && class.as_deref() == Some(FailureClass::Schema.name())
                    && code.as_deref() == Some(failure.code.as_str())
            });
            if identical && streak.len() >= limit as usize {
                let because = format!("{limit} identical schema failures: {}", failure.code);
                trip(tx, loaded, &because).await?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Many unknowns in a row hold the run.
pub(super) async fn after_unknown(
    tx: &mut Tx,
    loaded: &mut Loaded,
    rules: &Rules,
) -> Result<(), LedgerError> {
    lock_run(tx, loaded).await?;
    let limit = rules.breakers.unknowns_in_a_row;
    let streak = streak(tx, loaded, limit, ONE_OF_EACH_BATCH).await?;
    if streak.len() >= limit as usize && streak.iter().all(|(outcome, ..)| outcome.is_none()) {
        trip(tx, loaded, &format!("{limit} unknown outcomes in a row")).await?;
    }
    Ok(())
}

/// Locks the run and reads it again: failures that are recorded at the same time count each other,
/// and a resume that came between is seen. The run's lock is the last that any transaction takes.
async fn lock_run(tx: &mut Tx, loaded: &mut Loaded) -> Result<(), LedgerError> {
    let (campaign, period) = (&loaded.run.campaign, loaded.run.period);
    loaded.run = run_in(tx, campaign, period, "for update")
        .await?
        .ok_or_else(|| no_such_run(campaign, period))?;
    loaded.moment.held = loaded.run.held_since.is_some();
    Ok(())
}

type Decided = (Option<String>, Option<String>, Option<String>);

/// One lost answer is one unknown, however many messages the request had.
const ONE_OF_EACH_BATCH: &str =
    "and not exists (select 1 from @attempts b where b.batch = a.batch and b.key < a.key)";

/// The last `limit` decided attempts of the run since it was last resumed, of those that `which`
/// leaves: outcome, class, code.
async fn streak(
    tx: &mut Tx,
    loaded: &Loaded,
    limit: u32,
    which: &str,
) -> Result<Vec<Decided>, LedgerError> {
    let since = loaded.run.resumed_at.map_or(0, Timestamp::as_millisecond);
    let sql = format!(
        "select outcome, class, code from @attempts a where campaign = $1 and period = $2 \
         and decided_at > $3 {which} order by decided_at desc limit $4"
    );
    let rows = tx
        .rows(
            &sql,
            values![loaded.run.campaign.as_str(), loaded.run.period.to_string(), since, limit],
        )
        .await?;
    rows.iter()
        .map(|row| Ok((row.maybe_text(0)?, row.maybe_text(1)?, row.maybe_text(2)?)))
        .collect()
}

async fn trip(tx: &mut Tx, loaded: &mut Loaded, because: &str) -> Result<(), LedgerError> {
    hold_in(tx, &loaded.run.campaign, loaded.run.period, because, Actor::part(BREAKER)).await?;
    lock_run(tx, loaded).await
}

/// Holds a run, which is planned if nobody knows of it yet.
pub(super) async fn plan_and_hold_in(
    tx: &mut Tx,
    campaign: &str,
    period: Period,
    because: &str,
    actor: Actor<'_>,
) -> Result<(), LedgerError> {
    plan_run(tx, campaign, period).await?;
    hold_in(tx, campaign, period, because, actor).await
}

/// Ends a hold; whether there was one.
pub(super) async fn resume_in(
    tx: &mut Tx,
    campaign: &str,
    period: Period,
    actor: Actor<'_>,
) -> Result<bool, LedgerError> {
    let run = run_in(tx, campaign, period, "for update")
        .await?
        .ok_or_else(|| no_such_run(campaign, period))?;
    let now = tx.now().await?;
    let Some(since) = run.held_since else { return Ok(false) };
    let lasted = i64::try_from(now.duration_since(since).as_millis()).unwrap_or(i64::MAX);
    tx.execute(
        "update @runs set held_since = null, held_because = null, held_by = null, \
         held_ms = held_ms + $3, resumed_at = $4 where campaign = $1 and period = $2",
        values![campaign, period.to_string(), lasted, now],
    )
    .await?;
    note(tx, campaign, period, now, "resumed", actor).await?;
    Ok(true)
}

async fn hold_in(
    tx: &mut Tx,
    campaign: &str,
    period: Period,
    because: &str,
    actor: Actor<'_>,
) -> Result<(), LedgerError> {
    // The lock comes before the clock, so that an attempt which is just beginning, and which this
    // waits for, has begun before the hold.
    run_in(tx, campaign, period, "for update").await?;
    let now = tx.now().await?;
    let held = tx
        .execute(
            "update @runs set held_since = $3, held_because = $4, held_by = $5 \
             where campaign = $1 and period = $2 and held_since is null",
            values![campaign, period.to_string(), now, because, actor.by],
        )
        .await?;
    if held > 0 {
        let reason = actor.reason.unwrap_or(because);
        let actor = Actor { by: actor.by, reason: Some(reason) };
        note(tx, campaign, period, now, "held", actor).await?;
    }
    Ok(())
}

/// An audit row about the run itself.
pub(super) async fn note(
    tx: &mut Tx,
    campaign: &str,
    period: Period,
    now: Timestamp,
    event: &str,
    actor: Actor<'_>,
) -> Result<(), LedgerError> {
    tx.execute(
        "insert into @decisions (campaign, period, at, event, decided_by, reason) \
         values ($1, $2, $3, $4, $5, $6)",
        values![
            campaign,
            period.to_string(),
            now,
            event,
            actor.by,
            actor.reason.map(str::to_owned)
        ],
    )
    .await?;
    Ok(())
}
