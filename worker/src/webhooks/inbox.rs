//! Tells operations what was stored, and their workflows to ask.

use crate::tell;
use digest_activities::ledger::{Ledger, LedgerError};
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
}

impl Inbox {
    pub(super) fn new(ledger: Ledger, client: Client, rules: Rules) -> Self {
        Self { ledger, client, rules, bell: Arc::default() }
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

    /// Tells everything that is stored.
    async fn tell(&self) -> Result<(), LedgerError> {
        loop {
            let untold = self.ledger.untold_events(BATCH).await?;
            if untold.is_empty() {
                return Ok(());
            }
            for event in untold {
                let key = self.ledger.tell_event(&event, &self.rules).await?;
                // Only a hint: the workflow may be closed, and asks the ledger in any case.
                tell::operation(&self.client, &key).await;
            }
        }
    }
}
