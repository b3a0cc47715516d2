//! Holds and their ends that a workflow asks for. The engine may run an activity again, also after
//! somebody has decided otherwise: what was asked once is done once.

use super::database::{Tx, values};
use super::holds::{plan_and_hold_in, resume_in};
use super::operations::Actor;
use super::{Ledger, LedgerError};
use digest_workflows::operation::Period;

impl Ledger {
    /// As [`hold`](Self::hold), if `request`, a name that no other has in that run, was not carried out
    /// before; returns whether it was now.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database.
    pub async fn hold_once(
        &self,
        request: &str,
        campaign: &str,
        period: Period,
        because: &str,
        actor: Actor<'_>,
    ) -> Result<bool, LedgerError> {
        let mut tx = self.db.begin().await?;
        let is_new = is_new(&mut tx, request, campaign, period).await?;
        if is_new {
            plan_and_hold_in(&mut tx, campaign, period, because, actor).await?;
        }
        tx.commit().await?;
        Ok(is_new)
    }

    /// As [`resume`](Self::resume), if `request` was not carried out before; returns whether it was now.
    ///
    /// # Errors
    /// As [`resume`](Self::resume).
    pub async fn resume_once(
        &self,
        request: &str,
        campaign: &str,
        period: Period,
        actor: Actor<'_>,
    ) -> Result<bool, LedgerError> {
        let mut tx = self.db.begin().await?;
        let is_new = is_new(&mut tx, request, campaign, period).await?;
        if is_new {
            resume_in(&mut tx, campaign, period, actor).await?;
        }
        tx.commit().await?;
        Ok(is_new)
    }
}

/// Notes a request, unless it is noted already.
async fn is_new(
    tx: &mut Tx,
    request: &str,
    campaign: &str,
    period: Period,
) -> Result<bool, LedgerError> {
    let name = format!("{}{request}", prefix(campaign, &period.to_string()));
    let sql = "insert into @meta (name, value) values ($1, '') on conflict (name) do nothing";
    Ok(tx.execute(sql, values![name]).await? > 0)
}

/// Forgets the requests about a run whose records are removed.
pub(super) async fn remove_requests(
    tx: &mut Tx,
    campaign: &str,
    period: &str,
) -> Result<(), LedgerError> {
    let of_run = prefix(campaign, period);
    let sql = "delete from @meta where substr(name, 1, length($1)) = $1";
    tx.execute(sql, values![of_run]).await?;
    Ok(())
}

fn prefix(campaign: &str, period: &str) -> String {
    format!("asked:{campaign}:{period}:")
}
