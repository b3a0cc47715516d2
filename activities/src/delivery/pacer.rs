//! The rate: slots reserved in the ledger, in small blocks when several attempts wait, and what was
//! late since held back at the instant of writing.

use super::window::Window;
use crate::ledger::{Ledger, LedgerError, Slot};
use jiff::Timestamp;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// A slot that was not used this long after its time is given up: used later, it would push more
/// into a second than the rate allows.
const SLOT_KEEPS: Duration = Duration::from_millis(100);
/// No block of slots reaches further than this, so that several workers share the rate fairly.
const BLOCK_SECONDS: f64 = 0.2;

/// Hands out places in the deployment's rate.
pub struct Pacer {
    name: String,
    rate: Option<f64>,
    waiting: AtomicU32,
    block: Mutex<VecDeque<(Slot, Instant)>>,
    window: Option<Mutex<Window>>,
}

impl Pacer {
    /// A pacer for the account `name` at `rate` messages per second; `None` for no rate.
    #[must_use]
    pub fn new(name: String, rate: Option<f64>) -> Self {
        let window = rate.map(|rate| Mutex::new(Window::new(rate)));
        Self { name, rate, waiting: AtomicU32::new(0), block: Mutex::default(), window }
    }

    /// Takes the next slot, and the instant at which it may be used. A slot that an earlier call has
    /// reserved is used if its time is now.
    ///
    /// # Errors
    /// [`LedgerError`] of an unreachable database; no attempt begins then.
    pub async fn take(
        &self,
        ledger: &Ledger,
        reserved: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(Slot, Instant), LedgerError> {
        match reserved.and_then(|at| Slot::redeem(at, now)).filter(|_| self.rate.is_some()) {
            Some(slot) => Ok((slot, due(slot, now))),
            None => self.next(ledger).await,
        }
    }

    /// Takes the next slot that nobody has reserved, and the instant at which it may be used.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub(super) async fn next(&self, ledger: &Ledger) -> Result<(Slot, Instant), LedgerError> {
        let Some(rate) = self.rate else { return Ok((Slot::UNPACED, Instant::now())) };
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut block = self.block.lock().await;
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        while let Some((slot, due)) = block.pop_front() {
            if due + SLOT_KEEPS > Instant::now() {
                return Ok((slot, due));
            }
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a fraction of the rate, clamped"
        )]
        let block_max = ((rate * BLOCK_SECONDS) as u32).max(1);
        let count = (self.waiting.load(Ordering::SeqCst) + 1).clamp(1, block_max);
        let (now, slots) = ledger.reserve(&self.name, rate, count).await?;
        block.extend(slots.into_iter().map(|slot| (slot, due(slot, now))));
        block.pop_front().ok_or_else(|| LedgerError::Corrupt("no slot was reserved".to_owned()))
    }

    /// Waits until so many more of this worker keep to the rate. Called right before they are written,
    /// when slot and intent are there; dropped, it leaves their places unused.
    pub(super) async fn before_writing(&self, count: usize) {
        let Some(window) = &self.window else { return };
        let mut free = Instant::now();
        let mut taking = window.lock().await;
        for _ in 0..count {
            free = taking.take(free);
        }
        drop(taking);
        tokio::time::sleep_until(free).await;
    }
}

/// When `slot` may be used, on this machine's monotonic clock, if the ledger's clock says `now`.
fn due(slot: Slot, now: Timestamp) -> Instant {
    let wait = Duration::try_from(slot.at().duration_since(now)).unwrap_or(Duration::ZERO);
    Instant::now() + wait
}
