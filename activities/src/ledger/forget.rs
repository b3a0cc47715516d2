//! Forgetting a customer: content and address are erased, what is open is not sent any more, the
//! keys stay.

use super::batches::erase_requests_with;
use super::content::drop_content;
use super::operations::{Actor, Lock, apply, audit, load};
use super::{Ledger, LedgerError};
use digest_workflows::operation::{Change, Event, OperationKey, Rules, State};

/// The audit's name for content that was erased.
const ERASED: &str = "erased";

/// What forgetting a customer did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// How many operations the customer has.
    pub keys: u64,
    /// How many of them still had content, which is erased now.
    pub erased: u64,
    /// How many were open with every attempt proven not sent, and end suppressed.
    pub suppressed: u64,
    /// How many have an attempt in doubt: they keep their course and are never sent again.
    pub in_doubt: u64,
    /// How many dead letters can't be replayed any more.
    pub dead: u64,
    /// The operations that were open: whoever drives them should ask the ledger.
    pub open: Vec<OperationKey>,
}

impl Forgotten {
    /// Whether there was nothing left to forget.
    #[must_use]
    pub const fn is_nothing(&self) -> bool {
        self.erased + self.suppressed + self.in_doubt + self.dead == 0
    }

    /// Adds what was done for another campaign.
    pub fn add(&mut self, other: Self) {
        self.keys += other.keys;
        self.erased += other.erased;
        self.suppressed += other.suppressed;
        self.in_doubt += other.in_doubt;
        self.dead += other.dead;
        self.open.extend(other.open);
    }
}

impl Ledger {
    /// Erases content and address of every operation that `customer` has in `campaign`, and sends
    /// none of them any more. Repeating it does nothing.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database; calling it again goes on where it stopped.
    pub async fn forget(
        &self,
        campaign: &str,
        customer: &str,
        rules: &Rules,
        actor: Actor<'_>,
    ) -> Result<Forgotten, LedgerError> {
        let mut forgotten = Forgotten::default();
        for key in self.keys_of(campaign, customer).await? {
            forgotten.keys += 1;
            let mut tx = self.db.begin().await?;
            let mut loaded = load(&mut tx, &key, Lock::Operation).await?;
            let state = loaded.operation.state;
            let open = state != State::Sent && !state.is_terminal();
            if (open || state == State::Dead) && !loaded.operation.unwanted {
                let change =
                    apply(&mut tx, &mut loaded, &Event::Unwanted, rules, actor, None).await?;
                match change.to {
                    State::Dead => forgotten.dead += 1,
                    State::Suppressed => forgotten.suppressed += 1,
                    _ => forgotten.in_doubt += 1,
                }
                if open {
                    forgotten.open.push(key);
                }
            }
            let in_batches = erase_requests_with(&mut tx, &loaded.key).await?;
            if drop_content(&mut tx, &loaded.key).await? || in_batches {
                let to = loaded.operation.state;
                let change = Change { from: to, to, settled: Vec::new(), note: None };
                audit(&mut tx, &loaded, ERASED, &change, actor).await?;
                forgotten.erased += 1;
            }
            tx.commit().await?;
        }
        if forgotten.erased > 0 {
            self.db.settle_file().await?;
        }
        Ok(forgotten)
    }
}
