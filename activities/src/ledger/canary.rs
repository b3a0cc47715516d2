//! Canaries: test messages beside every run, under a campaign of their own.
//!
//! Their run is a row like any other, because consent, holds and `useful_for` are asked there, and it
//! is always closed: no `DigestRun` ever opens, watches or freezes it.

use super::content::FrozenData;
use super::database::values;
use super::operations::{Actor, Lock, apply, load};
use super::restore::GONE_BACK;
use super::runs::plan_run;
use super::selection::select_one;
use super::{Ledger, LedgerError, RunState};
use digest_workflows::operation::{Event, OperationKey, Period, Rules, State};
use jiff::{SignedDuration, Timestamp};

/// What a canary is added with.
#[derive(Clone, Copy, Debug)]
pub struct NewCanary<'a> {
    /// Its key.
    pub key: &'a OperationKey,
    /// What its message is rendered from: the customer's data with the test's address.
    pub data: &'a FrozenData,
    /// The half-open window `:period_start` to `:period_end`.
    pub window: (Timestamp, Timestamp),
    /// How long it may still be sent.
    pub useful_for: SignedDuration,
}

impl Ledger {
    /// Adds a canary, selected and enqueued at once; whoever calls this starts its workflow. Every one
    /// added gives the canaries of its period the window and the time that it names.
    ///
    /// # Errors
    /// A statement error where the key is there already, or any [`LedgerError`] of an unreachable
    /// database; nothing was added then.
    pub async fn add_canary(&self, new: &NewCanary<'_>) -> Result<(), LedgerError> {
        let (campaign, period) = (new.key.campaign(), new.key.period().to_string());
        let mut tx = self.db.begin().await?;
        plan_run(&mut tx, campaign, new.key.period()).await?;
        // The lock of the row makes the positions of canaries that are added at once different.
        tx.execute(
            "update @runs set selected = selected + 1 where campaign = $1 and period = $2",
            values![campaign, period.as_str()],
        )
        .await?;
        let now = tx.now().await?;
        tx.execute(
            "update @runs set state = $3, selected_at = $4, period_start = $5, period_end = $6, \
             useful_until = $7, frozen_at = $4, closed_at = $4, cancelled_at = null, reason = null \
             where campaign = $1 and period = $2",
            values![
                campaign,
                period.as_str(),
                RunState::Closed.name(),
                now,
                new.window.0,
                new.window.1,
                now + new.useful_for,
            ],
        )
        .await?;
        select_one(&mut tx, new.key, new.data, now).await?;
        tx.commit().await
    }

    /// Gives up what has not been sent of the canaries in `campaign`, which is a campaign of canaries:
    /// what waits and is proven not sent ends suppressed. What is in doubt keeps its course. Returns
    /// the keys that it ended.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database; calling it again goes on where it stopped.
    pub async fn give_up_canaries(
        &self,
        campaign: &str,
        rules: &Rules,
        actor: Actor<'_>,
    ) -> Result<Vec<OperationKey>, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let rows = tx
            .rows(
                "select key from @operations where campaign = $1 \
                 and state in ('selected', 'retrying') order by key",
                values![campaign],
            )
            .await?;
        drop(tx);
        let mut ended = Vec::new();
        for row in rows {
            let key = OperationKey::parse(&row.text(0)?)
                .map_err(|error| LedgerError::corrupt(error.to_string()))?;
            let mut tx = self.db.begin().await?;
            let mut loaded = load(&mut tx, &key, Lock::Operation).await?;
            let change = apply(&mut tx, &mut loaded, &Event::Cancelled, rules, actor, None).await?;
            tx.commit().await?;
            if change.to == State::Suppressed {
                ended.push(key);
            }
        }
        Ok(ended)
    }

    /// Whether a run of `campaign` is held because the ledger has gone back: nothing is sent then, a
    /// canary neither.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn has_gone_back(&self, campaign: &str) -> Result<bool, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        let row = tx
            .row(
                "select period from @runs where campaign = $1 and held_because = $2 limit 1",
                values![campaign, GONE_BACK],
            )
            .await?;
        Ok(row.is_some())
    }

    /// Ends the hold that earlier canaries of `period` have tripped, if there is one.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn resume_canaries(
        &self,
        campaign: &str,
        period: Period,
        actor: Actor<'_>,
    ) -> Result<bool, LedgerError> {
        match self.resume(campaign, period, actor).await {
            Err(LedgerError::NoSuchRun { .. }) => Ok(false),
            resumed => resumed,
        }
    }
}
