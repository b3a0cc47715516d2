//! Ledger and provider: each key is looked up, at the rate of the deployment, a bounded number at
//! once.

use crate::assemble::Delivering;
use crate::config::Config;
use anyhow::bail;
use digest_activities::audit::{Difference, statement};
use digest_activities::ledger::{AuditPage, Entry, Ledger};
use digest_activities::provider::Found;
use digest_workflows::operation::OperationKey;
use futures::StreamExt;
use jiff::Timestamp;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Interval, MissedTickBehavior};

/// How many look-ups are under way at once.
const AT_ONCE: usize = 16;
/// How often one key is asked for before the audit gives up, and how far apart.
const TRIES: [Duration; 3] = [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(5)];

/// Asks the provider.
pub(super) struct Asker {
    delivering: Delivering,
    timeout: Duration,
    /// Its ticks are the rate. They are this process's own: the ledger's pace is for sending.
    pace: Mutex<Interval>,
}

/// What the provider says about a page.
#[derive(Default)]
pub(super) struct Stated {
    pub(super) differences: Vec<Difference>,
    /// How many keys it was asked for.
    pub(super) asked: u64,
    /// How many keys were handed to somebody else.
    pub(super) elsewhere: u64,
}

impl Asker {
    pub(super) fn new(delivering: Delivering, config: &Config) -> Self {
        let between = Duration::from_secs_f64(1.0 / config.provider.rate_per_second);
        let mut pace = tokio::time::interval(between);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let timeout = config.provider.timeout.unsigned_abs();
        Self { delivering, timeout, pace: Mutex::new(pace) }
    }

    /// Asks about every operation of a page that it may be asked about. `said` hears how many are
    /// done.
    pub(super) async fn ask(
        &self,
        ledger: &Ledger,
        page: &AuditPage,
        said: impl Fn(u64),
    ) -> anyhow::Result<Stated> {
        let ours = self.delivering.provider.provider_ref();
        let mut stated = Stated::default();
        let (served, others): (Vec<&Entry>, Vec<&Entry>) =
            page.entries.iter().partition(|entry| statement::serves(entry, &ours));
        stated.elsewhere = others.len() as u64;
        let mut answers = futures::stream::iter(served)
            .map(|entry| self.one(ledger, entry, page.now))
            .buffer_unordered(AT_ONCE);
        while let Some(answer) = answers.next().await {
            stated.asked += 1;
            stated.differences.extend(answer?);
            said(stated.asked);
        }
        Ok(stated)
    }

    async fn one(
        &self,
        ledger: &Ledger,
        entry: &Entry,
        now: Timestamp,
    ) -> anyhow::Result<Option<Difference>> {
        let (Ok(key), Ok(operation)) = (OperationKey::parse(&entry.key), &entry.operation) else {
            return Ok(None);
        };
        let found = self.look_up(&key, statement::since(entry, now)).await?;
        let contract = self.delivering.provider.contract();
        let differs =
            |entry, operation| statement::difference(entry, operation, &found, contract, now);
        if differs(entry, operation).is_none() {
            return Ok(None);
        }
        // Between the reading of the page and the answer it may have been sent.
        let Some((entry, ..)) = ledger.audit_entry(&entry.key).await? else { return Ok(None) };
        Ok(entry.operation.as_ref().ok().and_then(|operation| differs(&entry, operation)))
    }

    async fn look_up(&self, key: &OperationKey, since: Timestamp) -> anyhow::Result<Found> {
        let mut code = String::new();
        for wait in TRIES {
            tokio::time::sleep(wait).await;
            self.pace.lock().await.tick().await;
            let look_up = self.delivering.provider.look_up(key, None, since);
            match tokio::time::timeout(self.timeout, look_up).await {
                Ok(Found::Unavailable(why)) => code = why,
                Ok(found) => return Ok(found),
                Err(_) => "timeout".clone_into(&mut code),
            }
        }
        bail!(
            "the provider was asked about {key} {} times and answered {code}, so nothing can be \
             said about it; try again when it answers, or leave it out with --no-provider",
            TRIES.len()
        )
    }
}
