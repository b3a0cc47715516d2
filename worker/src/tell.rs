//! Tells workflows that the ledger has news, so that they ask at once instead of at their next
//! timer. A signal is only a hint: whoever is not told finds out by itself, and the ledger decides.

use anyhow::Context;
use digest_workflows::customer::CustomerDigest;
use digest_workflows::operation::{OperationKey, Period, State};
use digest_workflows::run::DigestRun;
use digest_workflows::signal::Anything;
use futures::{StreamExt, TryStreamExt};
use std::time::Duration;
use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::{Client, WorkflowListOptions, WorkflowSignalOptions};

/// How many signals are under way at once.
const AT_ONCE: usize = 20;
/// How long one of them may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the state search attribute says of an operation that waits under a hold.
pub const HELD: &str = "held";

/// Tells the workflow of an operation that the ledger has news of it; returns whether it was told.
/// One that is closed needs no telling.
pub async fn operation(client: &Client, key: &OperationKey) -> bool {
    let workflow = client.get_workflow_handle::<CustomerDigest>(key.to_string());
    let options = WorkflowSignalOptions::default();
    workflow.signal(CustomerDigest::evidence, Anything::default(), options).await.is_ok()
}

/// Tells the workflows of one campaign.
#[derive(Clone)]
pub struct Teller {
    /// The engine.
    pub client: Client,
    /// The campaign.
    pub campaign: String,
}

impl Teller {
    /// Tells the run of `period`; returns whether it has an open workflow.
    ///
    /// # Errors
    /// When the engine does not answer.
    pub async fn run(&self, period: Period) -> anyhow::Result<bool> {
        let id = digest_workflows::run_id(&self.campaign, period);
        let workflow = self.client.get_workflow_handle::<DigestRun>(id);
        let options = WorkflowSignalOptions::default();
        let told = workflow.signal(DigestRun::look, Anything::default(), options);
        match tokio::time::timeout(PATIENCE, told).await.context("the engine did not answer")? {
            Ok(()) => Ok(true),
            Err(WorkflowInteractionError::NotFound(_)) => Ok(false),
            Err(error) => Err(error).context("the engine did not take a signal"),
        }
    }

    /// Tells every run of the campaign that has an open workflow.
    ///
    /// # Errors
    /// When the engine does not answer.
    pub async fn runs(&self) -> anyhow::Result<()> {
        let query = format!(
            "WorkflowType = 'DigestRun' AND DigestCampaign = '{}' AND ExecutionStatus = 'Running'",
            self.campaign
        );
        for id in self.list(query).await? {
            let period = id.rsplit_once(':').and_then(|(_, period)| Period::parse(period).ok());
            if let Some(period) = period {
                self.run(period).await?;
            }
        }
        Ok(())
    }

    /// The ids of the open operations of `period` whose state search attribute is one of `states`:
    /// those that wait for a timer.
    ///
    /// # Errors
    /// When the engine does not answer.
    pub async fn waiting(&self, period: Period, states: &[&str]) -> anyhow::Result<Vec<String>> {
        let states: Vec<String> =
            states.iter().map(|state| format!("DigestState = '{state}'")).collect();
        let query = format!(
            "WorkflowType = 'CustomerDigest' AND DigestCampaign = '{}' AND \
             DigestPeriod = '{period}' AND ({}) AND ExecutionStatus = 'Running'",
            self.campaign,
            states.join(" OR ")
        );
        self.list(query).await
    }

    /// Tells these operations, a bounded number at once, and says after each how many are told.
    /// Returns how many took it; one that has ended meanwhile needs no telling.
    pub async fn operations(&self, ids: Vec<String>, said: impl Fn(u64)) -> u64 {
        let mut done = 0;
        let mut told = 0;
        let mut signals = futures::stream::iter(ids)
            .map(|id| {
                let workflow = self.client.get_workflow_handle::<CustomerDigest>(id);
                async move {
                    let options = WorkflowSignalOptions::default();
                    let null = Anything::default();
                    let signal = workflow.signal(CustomerDigest::resume, null, options);
                    matches!(tokio::time::timeout(PATIENCE, signal).await, Ok(Ok(())))
                }
            })
            .buffer_unordered(AT_ONCE);
        while let Some(taken) = signals.next().await {
            done += 1;
            told += u64::from(taken);
            said(done);
        }
        told
    }

    async fn list(&self, query: String) -> anyhow::Result<Vec<String>> {
        let list = self
            .client
            .list_workflows(query, WorkflowListOptions::default())
            .map(|workflow| workflow.map(|workflow| workflow.id().to_owned()))
            .try_collect();
        tokio::time::timeout(PATIENCE * 3, list)
            .await
            .context("the engine did not answer")?
            .context("the engine does not list the open workflows")
    }
}

/// The states of an operation that a cancellation ends and that may wait for a timer.
#[must_use]
pub const fn cancellable() -> [&'static str; 2] {
    [HELD, State::Retrying.name()]
}
