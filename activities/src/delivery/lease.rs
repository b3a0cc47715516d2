//! The lease as the worker counts it: on a clock that goes on while the machine is suspended or the
//! process is stopped, from before the ledger was asked.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// How often a lease that is waited for is compared with the clock again: a timer of the runtime
/// does not count suspension.
const CHECK: Duration = Duration::from_secs(1);

/// A lease that is running.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    ends: Duration,
}

impl Lease {
    /// A lease of `length` that begins now. Take it before the ledger is asked, so that it ends
    /// before the ledger's.
    pub(super) fn from_now(length: Duration) -> Self {
        Self { ends: boot_time() + length }
    }

    /// Whether it is over.
    pub(super) fn is_over(self) -> bool {
        boot_time() >= self.ends
    }

    /// What `something` comes to, unless the lease is over before. A process that was stopped goes on
    /// with nothing before it has looked at the lease.
    pub(super) async fn or_over<T>(self, something: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.over() => None,
            done = something => Some(done),
        }
    }

    /// Waits until it is over.
    pub(super) async fn over(self) {
        loop {
            let left = self.ends.saturating_sub(boot_time());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(CHECK)).await;
        }
    }
}

/// CLOCK_BOOTTIME: monotonic, and counts suspension.
fn boot_time() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::try_from(time).unwrap_or(Duration::ZERO)
}
