//! Retention: each hour, what is older than `[retention]` allows is dropped from the ledger.
//!
//! An unknown that nobody settles is no matter of this: it expires by `keep_rows_for` in the
//! decision core, driven by its workflow, which the sweep starts again where there is none.

use crate::config::Config;
use digest_activities::ledger::{Ledger, LedgerError};
use digest_workflows::operation::canary::campaign_of_canaries;
use jiff::SignedDuration;
use std::time::Duration;
use tokio::sync::watch;

/// How often it looks.
const EVERY: Duration = Duration::from_hours(1);
/// How many operations one transaction drops. Others wait for it.
const BATCH: u32 = 200;

/// What retention needs.
pub struct Retention {
    ledger: Ledger,
    campaigns: Vec<String>,
    content: SignedDuration,
    records: SignedDuration,
}

/// What one pass dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Operations whose bytes, address and rows were dropped.
    pub contents: u64,
    /// Operations whose records were removed.
    pub records: u64,
}

impl Retention {
    /// The retention of a campaign and of its canaries.
    #[must_use]
    pub fn new(ledger: Ledger, config: &Config) -> Self {
        Self {
            ledger,
            campaigns: campaigns(&config.campaign.name).into(),
            content: config.retention.content,
            records: config.retention.records,
        }
    }

    /// Drops each hour until `stop` says so. A pass that fails is logged and tried again.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        loop {
            match self.once().await {
                Ok(dropped) if dropped != Dropped::default() => tracing::info!(
                    contents = dropped.contents,
                    records = dropped.records,
                    "dropped what is older than [retention] allows"
                ),
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "retention failed; it is tried again"),
            }
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    /// Drops everything that is old enough, batch by batch.
    ///
    /// # Errors
    /// Any [`LedgerError`] of an unreachable ledger; what was dropped stays dropped.
    pub async fn once(&self) -> Result<Dropped, LedgerError> {
        let mut dropped = Dropped::default();
        for campaign in &self.campaigns {
            loop {
                let batch = self.ledger.drop_old_content(campaign, self.content, BATCH).await?;
                dropped.contents += batch;
                if batch < u64::from(BATCH) {
                    break;
                }
            }
            while let Some(batch) =
                self.ledger.remove_old_records(campaign, self.records, BATCH).await?
            {
                dropped.records += batch;
            }
        }
        Ok(dropped)
    }
}

/// The campaigns that a configuration writes to: its own, and its canaries'.
#[must_use]
pub fn campaigns(name: &str) -> [String; 2] {
    [name.to_owned(), campaign_of_canaries(name)]
}
