//! A ledger that was restored from a backup: it is noticed by its counter, holds everything, and goes
//! on once `digestd setup --after-restore` has told it what the engine has seen go further.

use super::database::{Tx, values};
use super::operations::{Actor, Loaded, Lock, apply, load};
use super::runs::{plan_run, run_in};
use super::{Ledger, LedgerError};
use crate::provider::alias::alias;
use digest_workflows::operation::canary::campaign_of_canaries;
use digest_workflows::operation::{Event, Operation, OperationKey, Period, Rules, State};

/// Why runs are held by a ledger that has gone back.
pub const GONE_BACK: &str =
    "the ledger has gone back: was it restored from a backup? run `digestd setup --after-restore`";

impl Ledger {
    /// Holds every open run of `campaign`, that of `period`, and its canaries, because the ledger's
    /// counter is lower than it was.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn hold_gone_back(&self, campaign: &str, period: Period) -> Result<(), LedgerError> {
        let runs = self.open_runs(campaign).await?;
        let others = runs.iter().map(|run| run.period).filter(|other| *other != period);
        for period in others.chain([period]) {
            self.hold(campaign, period, GONE_BACK, Actor::part("watch")).await?;
        }
        let canaries = campaign_of_canaries(campaign);
        for period in self.accounted_periods(&canaries).await? {
            self.hold(&canaries, period, GONE_BACK, Actor::part("watch")).await?;
        }
        Ok(())
    }

    /// Ends the holds that [`hold_gone_back`](Self::hold_gone_back) has begun; returns how many.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database; calling it again goes on where it stopped.
    pub async fn resume_after_restore(
        &self,
        campaign: &str,
        actor: Actor<'_>,
    ) -> Result<u64, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let rows = tx
            .rows(
                "select period from @runs where campaign = $1 and held_because = $2",
                values![campaign, GONE_BACK],
            )
            .await?;
        drop(tx);
        let mut resumed = 0;
        for row in rows {
            let period = Period::parse(&row.text(0)?)
                .map_err(|error| LedgerError::corrupt(error.to_string()))?;
            resumed += u64::from(self.resume(campaign, period, actor).await?);
        }
        Ok(resumed)
    }

    /// The state of `key`, or `None` where the ledger does not know it.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn find(&self, key: &OperationKey) -> Result<Option<Operation>, LedgerError> {
        match self.operation(key).await {
            Ok(answer) => Ok(Some(answer.operation)),
            Err(LedgerError::NoSuchOperation(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Records that an attempt for `key` may have been handed over of which nothing is on record;
    /// the engine knows of `attempts`. A key that the ledger does not know is recorded first, with
    /// its run. Returns whether the key became unknown, or got another doubt.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn restored(
        &self,
        key: &OperationKey,
        attempts: u32,
        rules: &Rules,
        actor: Actor<'_>,
    ) -> Result<bool, LedgerError> {
        let mut tx = self.db.begin().await?;
        let mut loaded = match load(&mut tx, key, Lock::Operation).await {
            Err(LedgerError::NoSuchOperation(_)) => {
                adopt(&mut tx, key).await?;
                load(&mut tx, key, Lock::Operation).await?
            }
            loaded => loaded?,
        };
        let event = Event::Restored { attempts };
        let change = apply(&mut tx, &mut loaded, &event, rules, actor, None).await?;
        tx.commit().await?;
        Ok(change.to == State::Unknown && change.note.is_none())
    }
}

/// Records an operation that was selected after the backup, so that a selection that is made again
/// finds it there.
async fn adopt(tx: &mut Tx, key: &OperationKey) -> Result<(), LedgerError> {
    let (campaign, period) = (key.campaign(), key.period());
    let now = tx.now().await?;
    plan_run(tx, campaign, period).await?;
    let run = run_in(tx, campaign, period, "for update").await?;
    let position = run.map_or(0, |run| run.selected) + 1;
    let operation = Operation::selected(now);
    tx.execute(
        "insert into @operations (key, campaign, period, position, customer, state, since, \
         machine, frozen_at, enqueued_at, alias) \
         values ($1, $2, $3, $4, $5, $6, $7, $8, $7, $7, $9)",
        values![
            key.to_string(),
            campaign,
            period.to_string(),
            position,
            key.source_customer_id(),
            operation.state.name(),
            now,
            serde_json::to_string(&operation)?,
            alias(key),
        ],
    )
    .await?;
    tx.execute(
        "update @runs set selected = $3 where campaign = $1 and period = $2",
        values![campaign, period.to_string(), position],
    )
    .await?;
    Ok(())
}

/// Writes the attempt of which nothing else is on record.
pub(super) async fn insert_unrecorded(tx: &mut Tx, loaded: &Loaded) -> Result<(), LedgerError> {
    let Some(doubt) = loaded.operation.doubts.last() else { return Ok(()) };
    tx.execute(
        "insert into @attempts (key, number, campaign, period, generation, ordinal, provider, \
         account, begun_at, lease_ends, settles_at, decided_at) \
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $9) \
         on conflict (key, number) do nothing",
        values![
            loaded.key.as_str(),
            doubt.number,
            loaded.run.campaign.as_str(),
            loaded.run.period.to_string(),
            doubt.generation,
            doubt.ordinal,
            doubt.provider.kind.as_str(),
            doubt.provider.account.as_str(),
            doubt.begun_at,
            doubt.lease_ends,
            doubt.settles_at,
        ],
    )
    .await?;
    Ok(())
}
