//! Waiting for what a server of ours has seen.

use anyhow::{Context, Result};
use std::fmt::Debug;
use std::time::Duration;
use tokio::sync::watch;

/// How long a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until the record satisfies `condition`.
///
/// # Errors
/// Where it does not within half a minute, with the record.
pub(crate) async fn until<R: Clone + Debug>(
    record: &watch::Sender<R>,
    condition: impl FnMut(&R) -> bool,
) -> Result<R> {
    let mut watching = record.subscribe();
    let reached = tokio::time::timeout(PATIENCE, watching.wait_for(condition)).await;
    match reached {
        Ok(record) => Ok(record.context("the server is gone")?.clone()),
        Err(_) => anyhow::bail!("waited in vain; the server saw {:?}", *record.borrow()),
    }
}
