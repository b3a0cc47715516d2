//! The sweep: each minute, whatever the ledger has open and the engine has not is started again.
//!
//! A workflow that was terminated, reset away or forgotten, or a crash between the ledger's record
//! and the engine's start, changes nothing in what may be sent: whoever is started here asks the
//! ledger first.

use crate::retention::campaigns;
use crate::tell::{self, Teller};
use anyhow::Context;
use digest_activities::ledger::{Ledger, Run, RunState};
use digest_activities::metrics::Metrics;
use digest_workflows::activities::RunStart;
use digest_workflows::attributes;
use digest_workflows::customer::{CustomerDigest, CustomerInput};
use digest_workflows::operation::{Operation, OperationKey, Period, Rules, State, Verdict};
use digest_workflows::run::{DigestRun, RunInput};
use futures::TryStreamExt;
use jiff::{SignedDuration, Timestamp};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use temporalio_client::{
    Client, WorkflowIdConflictPolicy, WorkflowIdReusePolicy, WorkflowListOptions,
    WorkflowStartOptions, errors::WorkflowStartError,
};
use tokio::sync::watch;

/// How often it sweeps.
const EVERY: Duration = Duration::from_mins(1);
/// How often it looks whether a run was resumed.
const GLANCE: Duration = Duration::from_secs(2);
/// An operation that was enqueued just now has its start still under way.
pub(crate) const GRACE: SignedDuration = SignedDuration::from_secs(30);
/// How many operations are looked at in one query.
const BATCH: u32 = 500;

/// When each open run was last resumed and cancelled.
type Decided = Vec<(Period, Option<Timestamp>, Option<Timestamp>)>;

/// What the sweep needs.
pub struct Sweep {
    /// The ledger.
    pub ledger: Ledger,
    /// The engine.
    pub client: Client,
    /// The campaign of this worker.
    pub campaign: String,
    /// The task queue that its workflows run on.
    pub task_queue: String,
    /// The rules that a workflow is started with.
    pub rules: Rules,
}

/// What one sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Runs whose workflow was started again.
    pub runs: u64,
    /// Operations whose workflow was started again.
    pub operations: u64,
    /// Operations that were told of a verdict, or of the end of a hold.
    pub told: u64,
}

impl Swept {
    fn counts(&self) -> [(&'static str, u64); 3] {
        [("runs", self.runs), ("operations", self.operations), ("told", self.told)]
    }
}

impl Sweep {
    /// Sweeps each minute until `stop` says so, and tells held operations as soon as their run is
    /// resumed. A sweep that fails is logged and tried again; `metrics` counts both.
    pub async fn run(self, metrics: Arc<Metrics>, mut stop: watch::Receiver<bool>) {
        // A ledger that was restored while no worker ran is noticed at once.
        if let Err(error) = self.teller().runs().await {
            tracing::warn!(error = format!("{error:#}"), "the runs were not told to look");
        }
        loop {
            let before = self.decided().await;
            let swept = self.once().await;
            metrics.swept(swept.as_ref().ok().map(Swept::counts));
            match swept {
                Ok(swept) if swept != Swept::default() => {
                    tracing::info!(
                        runs = swept.runs,
                        operations = swept.operations,
                        told = swept.told,
                        "swept up what had no workflow"
                    );
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(error = format!("{error:#}"), "the sweep failed"),
            }
            tokio::select! {
                () = self.until_due(before) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    /// Waits for the next sweep. It is due each minute, and as soon as a run is resumed or cancelled.
    async fn until_due(&self, before: Option<Decided>) {
        let due = tokio::time::Instant::now() + EVERY;
        while tokio::time::Instant::now() < due {
            tokio::time::sleep(GLANCE).await;
            match (&before, self.decided().await) {
                (Some(before), Some(now)) if *before != now => return,
                _ => {}
            }
        }
    }

    /// When each run with work was last resumed and cancelled, if the ledger tells.
    async fn decided(&self) -> Option<Decided> {
        let open = self.ledger.open_runs(&self.campaign).await.ok()?;
        let closed = self.ledger.closed_runs_at_work(&self.campaign).await.ok()?;
        let decided = |run: &Run| (run.period, run.resumed_at, run.cancelled_at);
        Some(open.iter().chain(&closed).map(decided).collect())
    }

    fn teller(&self) -> Teller {
        Teller { client: self.client.clone(), campaign: self.campaign.clone() }
    }

    /// Tells the operations that wait although their run is no longer held, or is cancelled.
    async fn tell_waiting(&self, run: &Run) -> anyhow::Result<u64> {
        let teller = self.teller();
        let ids = match (run.held_since, run.cancelled_at) {
            (_, Some(_)) => teller.waiting(run.period, &tell::cancellable()).await?,
            (None, None) => teller.waiting(run.period, &[tell::HELD]).await?,
            (Some(_), None) => return Ok(0),
        };
        Ok(teller.operations(ids, |_| {}).await)
    }

    /// Sweeps once.
    ///
    /// # Errors
    /// When the ledger or the engine does not answer; what was started stays started.
    pub async fn once(&self) -> anyhow::Result<Swept> {
        let mut swept = Swept::default();
        for run in self.ledger.open_runs(&self.campaign).await? {
            let start = RunStart {
                campaign: run.campaign.clone(),
                period: run.period,
                // The ledger has it; a run that is found again is neither late nor early.
                tick: run.tick,
            };
            let input = RunInput::new(start);
            let id = digest_workflows::run_id(&run.campaign, run.period);
            let attributes = attributes::of_run(&run.campaign, run.period);
            debug_assert_ne!(run.state, RunState::Closed);
            let options = self.options(id, attributes);
            let started = self.client.start_workflow(DigestRun::run, input, options).await;
            match is_started(started.map(|_| ())) {
                Ok(started) => swept.runs += u64::from(started),
                // The others, and the operations, are swept all the same.
                Err(error) => tracing::warn!(
                    period = %run.period, error = format!("{error:#}"), "a run was not started"
                ),
            }
            swept.told += self.tell_waiting(&run).await?;
        }
        for run in self.ledger.closed_runs_at_work(&self.campaign).await? {
            swept.told += self.tell_waiting(&run).await?;
        }
        let mut open = self.open_operations().await?;
        for campaign in campaigns(&self.campaign) {
            self.start_unfinished(&campaign, &mut open, &mut swept).await?;
        }
        // What is open in the engine and settled in the ledger has missed what a person decided.
        let keys: Vec<_> = open.keys().filter_map(|id| OperationKey::parse(id).ok()).collect();
        for key in self.ledger.settled(&keys, GRACE).await? {
            swept.told += u64::from(self.tell(&key).await);
        }
        Ok(swept)
    }

    /// Starts what has no workflow of the campaign's operations, and tells those that have missed
    /// something. Takes what the ledger has open out of `open`.
    async fn start_unfinished(
        &self,
        campaign: &str,
        open: &mut HashMap<String, Option<String>>,
        swept: &mut Swept,
    ) -> anyhow::Result<()> {
        let mut after = String::new();
        loop {
            let batch = self.ledger.unfinished(campaign, GRACE, &after, BATCH).await?;
            let Some(last) = batch.last() else { return Ok(()) };
            after = last.key.to_string();
            for unfinished in &batch {
                let id = unfinished.key.to_string();
                if let Some(shown) = open.remove(&id) {
                    if has_news(&unfinished.operation, shown.as_deref()) {
                        swept.told += u64::from(self.tell(&unfinished.key).await);
                    }
                } else if self.start(&unfinished.key).await? {
                    swept.operations += 1;
                }
            }
        }
    }

    /// The ids of every open operation workflow of the campaign and its canaries, each with the state
    /// that it shows.
    async fn open_operations(&self) -> anyhow::Result<HashMap<String, Option<String>>> {
        let query = format!(
            "WorkflowType = 'CustomerDigest' AND {} AND ExecutionStatus = 'Running'",
            of_campaigns(&campaigns(&self.campaign))
        );
        self.client
            .list_workflows(query, WorkflowListOptions::default())
            .map_ok(|workflow| {
                let shown = workflow.search_attributes().get(&attributes::STATE);
                (workflow.id().to_owned(), shown)
            })
            .try_collect()
            .await
            .context("the engine does not list the open workflows")
    }

    /// Starts the workflow of an operation; returns whether it was started just now.
    ///
    /// # Errors
    /// When the engine does not start it for another reason than that it runs already.
    pub async fn start(&self, key: &OperationKey) -> anyhow::Result<bool> {
        let input = CustomerInput {
            key: key.clone(),
            ledger: self.ledger.identity().clone(),
            rules: self.rules.clone(),
        };
        let options = self.options(key.to_string(), attributes::of_operation(key));
        let started = self.client.start_workflow(CustomerDigest::run, input, options).await;
        is_started(started.map(|_| ()))
    }

    /// Tells an open workflow that the ledger has news; returns whether it was told.
    pub async fn tell(&self, key: &OperationKey) -> bool {
        tell::operation(&self.client, key).await
    }

    /// The ledger is the guard, so a closed workflow's id may be used again; a running one stays.
    fn options(
        &self,
        id: String,
        attributes: temporalio_common::search_attributes::SearchAttributes,
    ) -> WorkflowStartOptions {
        WorkflowStartOptions::new(self.task_queue.clone(), id)
            .id_reuse_policy(WorkflowIdReusePolicy::AllowDuplicate)
            .id_conflict_policy(WorkflowIdConflictPolicy::Fail)
            .search_attributes(attributes)
            .build()
    }
}

/// The condition of a list of workflows that they belong to one of `campaigns`.
pub(crate) fn of_campaigns(campaigns: &[String]) -> String {
    let each: Vec<String> =
        campaigns.iter().map(|campaign| format!("DigestCampaign = '{campaign}'")).collect();
    format!("({})", each.join(" OR "))
}

/// Whether the ledger knows what an open workflow, by the state it shows, has not been told: a
/// verdict that is to be acted on, or the end of an unknown. Without it, it would wait for a person
/// who has spoken already.
fn has_news(operation: &Operation, shown: Option<&str>) -> bool {
    let verdict = operation.verdict.is_some_and(|v| v.verdict != Verdict::Abandon);
    let waits = shown == Some(State::Unknown.name());
    verdict || (waits && operation.state != State::Unknown)
}

/// Whether a start started something; that it runs already is no error.
fn is_started(result: Result<(), WorkflowStartError>) -> anyhow::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(WorkflowStartError::AlreadyStarted { .. }) => Ok(false),
        Err(error) => Err(error).context("the engine did not start a workflow"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_workflow_that_waits_for_a_person_who_has_spoken_is_told() {
        let mut operation = Operation::selected(Timestamp::UNIX_EPOCH);
        for (state, shown, told) in [
            (State::Sent, Some("unknown"), true),
            (State::Retrying, Some("unknown"), true),
            (State::Unknown, Some("unknown"), false),
            (State::Retrying, Some("retrying"), false),
            (State::Sent, Some("active"), false),
            (State::Sending, None, false),
        ] {
            operation.state = state;
            assert_eq!(has_news(&operation, shown), told, "{state}, shown as {shown:?}");
        }
    }
}
