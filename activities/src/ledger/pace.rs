//! Pace: `rate_per_second` for the whole deployment, as slots in one row of the ledger.

use super::database::values;
use super::{Database, Ledger, LedgerError};
use jiff::{SignedDuration, Timestamp};

const MICROS: f64 = 1_000_000.0;

/// A reserved place in the rate. An attempt cannot begin without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    at: Timestamp,
}

impl Slot {
    /// The slot of a deployment without a rate: any time.
    pub const UNPACED: Self = Self { at: Timestamp::MIN };

    /// A slot that was reserved earlier for `at`, if that time is now; otherwise it is given up.
    #[must_use]
    pub fn redeem(at: Timestamp, now: Timestamp) -> Option<Self> {
        let off = now.duration_since(at).abs();
        (off <= SignedDuration::from_secs(1)).then_some(Self { at })
    }

    /// When it may be used, by the ledger's clock.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        self.at
    }
}

impl Ledger {
    /// Reserves `count` consecutive slots (at least one) at `rate` per second in the pace called
    /// `name`. Returns the ledger's time and the slots.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable database; nothing counts as reserved then.
    pub async fn reserve(
        &self,
        name: &str,
        rate: f64,
        count: u32,
    ) -> Result<(Timestamp, Vec<Slot>), LedgerError> {
        let greatest = match self.db {
            Database::Sqlite { .. } => "max",
            Database::Postgres { .. } => "greatest",
        };
        #[expect(clippy::cast_possible_truncation, reason = "an interval is far below 2^63 µs")]
        let interval = (MICROS / rate).ceil() as i64;
        let length = interval.saturating_mul(i64::from(count.max(1)));
        let clock = self.db.clock();
        // One statement: whoever else reserves waits no longer than for its commit.
        let sql = format!(
            "insert into @pace (name, next_slot) values ($1, {clock} * 1000 + $2) \
             on conflict (name) do update \
             set next_slot = {greatest}(@pace.next_slot, {clock} * 1000) + $2 \
             returning next_slot, {clock}"
        );
        let rows = self.db.write(&sql, values![name, length]).await?;
        let row = rows.first().ok_or_else(|| LedgerError::corrupt("no pace"))?;
        let first = row.int(0)?.saturating_sub(length);
        // PostgreSQL reads its clock once for the slot and once for the answer: no slot is before now.
        let now_micros = row.time(1)?.as_microsecond().min(first);
        let now = Timestamp::from_microsecond(now_micros)
            .map_err(|_| LedgerError::corrupt("a time out of range"))?;
        let slots = (0..i64::from(count.max(1)))
            .map(|n| {
                let offset = SignedDuration::from_micros(first - now_micros + n * interval);
                Slot { at: now + offset }
            })
            .collect();
        Ok((now, slots))
    }
}
