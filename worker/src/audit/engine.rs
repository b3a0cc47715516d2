//! Ledger and engine: whatever is left to do has an open workflow, and nothing else has one. The
//! engine's lists lag behind, so they only point at suspects; each is described, twice and with the
//! ledger read anew, before it is a difference.

use crate::sweep::GRACE;
use anyhow::Context;
use digest_activities::audit::{Difference, Kind};
use digest_activities::ledger::{AuditPage, Entry, Ledger, RunState};
use digest_workflows::operation::{Operation, Period, Rules, Step};
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use std::collections::HashSet;
use std::time::Duration;
use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::{
    Client, UntypedWorkflow, WorkflowDescribeOptions, WorkflowExecutionStatus, WorkflowListOptions,
};

/// How many workflows are described at once.
const AT_ONCE: usize = 20;
/// How many listed keys are looked up in the ledger at once.
const BATCH: usize = 500;
/// How long after the first look a suspect is looked at again.
const AGAIN: Duration = Duration::from_secs(2);

/// The engine, beside the ledger that it is compared with.
pub(super) struct Engine {
    pub(super) client: Client,
    pub(super) ledger: Ledger,
    pub(super) rules: Rules,
}

/// What the engine lists.
pub(super) struct Driven {
    /// The keys whose workflow is open.
    open: HashSet<String>,
    /// The keys that the ledger does not have.
    pub(super) strays: Vec<String>,
}

impl Engine {
    /// Lists the operation workflows of a period.
    pub(super) async fn list(&self, campaign: &str, period: Period) -> anyhow::Result<Driven> {
        let query = format!(
            "WorkflowType = 'CustomerDigest' AND DigestCampaign = '{campaign}' AND \
             DigestPeriod = '{period}'"
        );
        let mut driven = Driven { open: HashSet::new(), strays: Vec::new() };
        let listed = self.client.list_workflows(query, WorkflowListOptions::default());
        let mut batches = Box::pin(listed.try_chunks(BATCH));
        while let Some(batch) = batches.next().await {
            let batch = batch
                .map_err(|chunk| chunk.1)
                .context("the engine does not list the workflows of the period")?;
            let keys: Vec<String> = batch.iter().map(|found| found.id().to_owned()).collect();
            driven.strays.extend(self.ledger.absent(&keys).await?);
            let open = batch.iter().filter(|found| is_open(found.status()));
            driven.open.extend(open.map(|found| found.id().to_owned()));
        }
        // A key may have several executions.
        driven.strays.sort();
        driven.strays.dedup();
        Ok(driven)
    }

    /// The keys of a page that do not fit what the engine lists.
    pub(super) fn suspects(&self, page: &AuditPage, driven: &Driven) -> Vec<String> {
        let differs = |entry: &&Entry| {
            let open = driven.open.contains(&entry.key);
            let status = open.then_some(WorkflowExecutionStatus::Running);
            self.compare(entry, page.now, status).is_some()
        };
        page.entries.iter().filter(differs).map(|entry| entry.key.clone()).collect()
    }

    /// The differences that are left of `suspects` and of the run, looked at twice.
    pub(super) async fn confirm(
        &self,
        campaign: &str,
        period: Period,
        suspects: Vec<String>,
    ) -> anyhow::Result<Vec<Difference>> {
        let mut run = self.look_at_run(campaign, period).await?;
        let mut differences = self.look_at(suspects).await?;
        if run.is_some() || !differences.is_empty() {
            tokio::time::sleep(AGAIN).await;
            run = self.look_at_run(campaign, period).await?;
            differences = self.look_at(differences.into_iter().map(|one| one.key)).await?;
        }
        differences.extend(run);
        Ok(differences)
    }

    async fn look_at(
        &self,
        keys: impl IntoIterator<Item = String>,
    ) -> anyhow::Result<Vec<Difference>> {
        let looks = futures::stream::iter(keys).map(|key| async move {
            // The engine first: what the ledger says then is younger.
            let status = self.status(&key).await?;
            let entry = self.ledger.audit_entry(&key).await?;
            anyhow::Ok(match (entry, status) {
                (Some((entry, _, now)), status) => self.compare(&entry, now, status),
                (None, Some(status)) => Some(Difference::new(
                    Kind::StrayWorkflow,
                    &key,
                    "an operation in the ledger",
                    format!("only a workflow, {}", status_name(status)),
                )),
                (None, None) => None,
            })
        });
        looks.buffer_unordered(AT_ONCE).try_filter_map(|one| async { Ok(one) }).try_collect().await
    }

    /// What differs between an operation and the newest execution of its workflow.
    fn compare(
        &self,
        entry: &Entry,
        now: Timestamp,
        status: Option<WorkflowExecutionStatus>,
    ) -> Option<Difference> {
        let operation = entry.operation.as_ref().ok()?;
        let is_left = operation.next(&self.rules, now) != Step::Done;
        let settled = entry.columns.since <= now - GRACE;
        let enqueued = entry.columns.enqueued_at.is_some_and(|at| at <= now - GRACE);
        let state = describe(operation);
        match status {
            Some(status) if is_open(status) => (!is_left && settled).then(|| {
                let expected = format!("no open workflow, since it is {state}");
                Difference::new(Kind::WorkflowLeftOpen, &entry.key, expected, "an open workflow")
            }),
            _ if !is_left || !settled || !enqueued => None,
            None => {
                let expected = format!("an open workflow, since it is {state}");
                Some(Difference::new(Kind::NoWorkflow, &entry.key, expected, "no workflow"))
            }
            Some(status) => {
                let expected = format!("an open workflow, since it is {state}");
                let found = format!("its last workflow is {}", status_name(status));
                Some(Difference::new(Kind::WorkflowEnded, &entry.key, expected, found))
            }
        }
    }

    async fn look_at_run(
        &self,
        campaign: &str,
        period: Period,
    ) -> anyhow::Result<Option<Difference>> {
        let id = digest_workflows::run_id(campaign, period);
        let status = self.status(&id).await?;
        let tally = self.ledger.tally(campaign, period).await?;
        let open = status.is_some_and(is_open);
        let state = tally.run.state.name();
        Ok(match tally.run.state {
            RunState::Freezing | RunState::Frozen | RunState::Dispatching if !open => {
                let expected = format!("an open workflow, since the run is {state}");
                let found = status.map_or_else(
                    || "no workflow".to_owned(),
                    |status| format!("its last workflow is {}", status_name(status)),
                );
                Some(Difference::new(Kind::RunWithoutWorkflow, &id, expected, found))
            }
            RunState::Closed if open && tally.closed.is_some_and(|(at, now)| at <= now - GRACE) => {
                let expected = "no open workflow, since the run is closed";
                Some(Difference::new(Kind::RunWorkflowLeftOpen, &id, expected, "an open workflow"))
            }
            _ => None,
        })
    }

    /// The status of the newest execution of a workflow; `None` where there is none.
    async fn status(&self, id: &str) -> anyhow::Result<Option<WorkflowExecutionStatus>> {
        let workflow = self.client.get_workflow_handle::<UntypedWorkflow>(id.to_owned());
        match workflow.describe(WorkflowDescribeOptions::default()).await {
            Ok(described) => Ok(Some(described.status())),
            Err(WorkflowInteractionError::NotFound(_)) => Ok(None),
            Err(error) => Err(error).context("the engine does not describe a workflow"),
        }
    }
}

const fn is_open(status: WorkflowExecutionStatus) -> bool {
    matches!(status, WorkflowExecutionStatus::Running | WorkflowExecutionStatus::Paused)
}

fn describe(operation: &Operation) -> String {
    let failed = if operation.cleanup.given_up { ", its cleanup given up" } else { "" };
    format!("{}{failed}", operation.state)
}

const fn status_name(status: WorkflowExecutionStatus) -> &'static str {
    match status {
        WorkflowExecutionStatus::Running => "running",
        WorkflowExecutionStatus::Paused => "paused",
        WorkflowExecutionStatus::Completed => "completed",
        WorkflowExecutionStatus::Failed => "failed",
        WorkflowExecutionStatus::Canceled => "cancelled",
        WorkflowExecutionStatus::Terminated => "terminated",
        WorkflowExecutionStatus::ContinuedAsNew => "continued as new",
        WorkflowExecutionStatus::TimedOut => "timed out",
        _ => "in a state of another version",
    }
}
