//! Wakes the workflows of operations about which a person has decided something in the ledger.

use crate::assemble;
use crate::config::Config;
use crate::output;
use crate::sweep::Sweep;
use digest_activities::ledger::Ledger;
use digest_workflows::operation::{OperationKey, State};
use futures::{StreamExt, stream};

/// How many workflows are woken at once.
const AT_ONCE: usize = 20;

/// Starts the workflow of each operation, or tells the one that runs; one whose operation is
/// terminal is only told. Where the engine does not answer, that is said and is no failure: what is
/// recorded is recorded, and the worker's sweep hands it over.
///
/// # Errors
/// Only when standard error cannot be written.
pub async fn wake(
    config: &Config,
    ledger: &Ledger,
    operations: &[(OperationKey, State)],
) -> std::io::Result<()> {
    if operations.is_empty() {
        return Ok(());
    }
    let client = match assemble::engine(config, true).await {
        Ok(client) => client,
        Err(error) => return later(&error),
    };
    let sweep = Sweep {
        ledger: ledger.clone(),
        client,
        campaign: config.campaign.name.clone(),
        task_queue: config.engine.task_queue.clone(),
        rules: config.rules(),
    };
    match self::operations(&sweep, operations).await {
        Err(error) => later(&error),
        Ok(()) => Ok(()),
    }
}

/// The same through an engine that is connected already.
///
/// # Errors
/// When the engine does not start a workflow; the worker's sweep does it later.
pub async fn operations(sweep: &Sweep, operations: &[(OperationKey, State)]) -> anyhow::Result<()> {
    let results: Vec<anyhow::Result<()>> = stream::iter(operations.to_vec())
        .map(|(key, state)| async move {
            if state.is_terminal() || !sweep.start(&key).await? {
                // One that has ended meanwhile has asked the ledger itself.
                sweep.tell(&key).await;
            }
            Ok(())
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    results.into_iter().collect()
}

fn later(error: &anyhow::Error) -> std::io::Result<()> {
    output::say(&format!(
        "it is recorded; the engine was not told, so a worker hands it over within a minute of \
         both being up ({})",
        output::paragraph(error)
    ))
}
