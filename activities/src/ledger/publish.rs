//! Publishing: one operation more in a run that is selected already.

use super::content::FrozenData;
use super::database::{Tx, values};
use super::operations::Actor;
use super::runs::{Run, RunState, run_in};
use super::selection::select_one;
use super::{Ledger, LedgerError};
use digest_workflows::operation::{OperationKey, State};
use jiff::Timestamp;

/// The event of a publication in the audit.
const PUBLISHED: &str = "published";

/// What publishing came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// The operation is new.
    New,
    /// The same was published before, or selected.
    Same,
    /// There is one under this key, of another request.
    Other,
}

/// Why nothing is published into a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotPublish {
    /// Whoever it selects is not known yet, and would be selected beside this one.
    #[error(
        "its run is not selected yet; start it with `digestd run`, or wait for its tick, and publish then"
    )]
    NotSelected,
    /// It was cancelled.
    #[error("its run is cancelled, so nothing of it is sent any more; publish for another period")]
    Cancelled,
    /// Nothing of it is of use any more.
    #[error("its messages were useful until {0}; publish for another period")]
    Over(Timestamp),
}

impl Ledger {
    /// Whether the operation of `key` is there, and is of `request`: a hash of what was asked for,
    /// `None` where only the customer was named.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn publication(
        &self,
        key: &OperationKey,
        request: Option<&str>,
    ) -> Result<Option<Published>, LedgerError> {
        let mut tx = self.db.begin_reading().await?;
        publication(&mut tx, key, request).await
    }

    /// Adds the operation of `key` to its run, enqueued, with what its message is rendered from. A
    /// repeated call finds it there.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database; nothing is added then, or it is found again.
    pub async fn publish(
        &self,
        key: &OperationKey,
        data: &FrozenData,
        request: Option<&str>,
        actor: Actor<'_>,
    ) -> Result<Result<Published, CannotPublish>, LedgerError> {
        let mut tx = self.db.begin().await?;
        let run = run_in(&mut tx, key.campaign(), key.period(), "for update").await?;
        let now = tx.now().await?;
        if let Some(published) = publication(&mut tx, key, request).await? {
            return Ok(Ok(published));
        }
        if let Err(cannot) = takes_more(run.as_ref(), now) {
            return Ok(Err(cannot));
        }
        let period = key.period().to_string();
        tx.execute(
            "update @runs set selected = selected + 1 where campaign = $1 and period = $2",
            values![key.campaign(), period.as_str()],
        )
        .await?;
        select_one(&mut tx, key, data, now).await?;
        let selected = State::Selected.name();
        tx.execute(
            "insert into @decisions (campaign, period, key, at, event, from_state, to_state, \
             decided_by, reason, note) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
            values![
                key.campaign(),
                period,
                key.to_string(),
                now,
                PUBLISHED,
                selected,
                selected,
                actor.by,
                actor.reason.map(str::to_owned),
                request.map(note),
            ],
        )
        .await?;
        tx.commit().await?;
        Ok(Ok(Published::New))
    }
}

fn takes_more(run: Option<&Run>, now: Timestamp) -> Result<(), CannotPublish> {
    let is_selected = |run: &&Run| {
        matches!(run.state, RunState::Frozen | RunState::Dispatching | RunState::Closed)
    };
    let run = run.filter(is_selected).ok_or(CannotPublish::NotSelected)?;
    if run.cancelled_at.is_some() {
        return Err(CannotPublish::Cancelled);
    }
    match run.useful_until {
        Some(until) if until <= now => Err(CannotPublish::Over(until)),
        _ => Ok(()),
    }
}

async fn publication(
    tx: &mut Tx,
    key: &OperationKey,
    request: Option<&str>,
) -> Result<Option<Published>, LedgerError> {
    let row = tx
        .row(
            "select d.note from @operations o left join @decisions d \
             on d.key = o.key and d.event = $2 where o.key = $1",
            values![key.to_string(), PUBLISHED],
        )
        .await?;
    let Some(row) = row else { return Ok(None) };
    let is_same = row.maybe_text(0)? == request.map(note);
    Ok(Some(if is_same { Published::Same } else { Published::Other }))
}

fn note(request: &str) -> String {
    format!("of the request {request}")
}
