//! Tells operations what was stored, and their workflows to ask.

use crate::tell;
use digest_activities::ledger::{Ledger, LedgerError, Told};
use digest_activities::metrics::{EventResult, Metrics};
use digest_workflows::operation::Rules;
use std::sync::Arc;
use std::time::Duration;
use temporalio_client::Client;
use tokio::sync::Notify;

/// How often it looks by itself: another worker may have stored something and ended.
const EVERY: Duration = Duration::from_secs(30);
/// How many events it reads at once.
const BATCH: u32 = 200;

/// Tells what is stored.
pub(super) struct Inbox {
    ledger: Ledger,
    client: Client,
    rules: Rules,
    bell: Arc<Notify>,
    metrics: Arc<Metrics>,
}

impl Inbox {
    pub(super) fn new(ledger: Ledger, client: Client, rules: Rules, metrics: Arc<Metrics>) -> Self {
        Self { ledger, client, rules, bell: Arc::default(), metrics }
    }

    /// Rings when something was stored.
    pub(super) fn bell(&self) -> Arc<Notify> {
        Arc::clone(&self.bell)
    }

    /// Tells for ever.
    pub(super) async fn run(self) {
        loop {
            if let Err(error) = self.tell().await {
                tracing::warn!(%error, "events were not told");
            }
            let _ = tokio::time::timeout(EVERY, self.bell.notified()).await;
        }
    }

    /// Tells everything that is stored, once. One event that can't be told is in no other's way.
    async fn tell(&self) -> Result<(), LedgerError> {
        let mut after = None;
        loop {
            let untold = self.ledger.untold_events(after.as_ref(), BATCH).await?;
            let Some(last) = untold.last() else { return Ok(()) };
            after = Some(last.place());
            for event in &untold {
                match self.ledger.tell_event(event, &self.rules).await {
                    Ok(Told::Operation { key, ask, changes }) => {
                        for change in &changes {
                            self.metrics.told(&key, change);
                        }
                        if ask {
                            // Only a hint: the workflow asks the ledger in any case.
                            tell::operation(&self.client, &key).await;
                        }
                    }
                    Ok(Told::Nobody { fault }) => {
                        self.metrics.webhook_events(event.provider(), EventResult::Untellable, 1);
                        let (event, key) = (event.id(), event.key());
                        tracing::error!(event, key, fault, "an event is told to nobody, and kept");
                    }
                    // The database refuses this one; the others need not wait for it.
                    Err(error @ LedgerError::Statement(_)) => {
                        let (event, key) = (event.id(), event.key());
                        tracing::warn!(event, key, %error, "an event was not told; it is tried again");
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }
}
