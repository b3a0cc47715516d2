//! A ledger that was restored from a backup. A worker that starts compares the ledger's transition
//! counter with the highest one that any run has noted in the engine, and its attempts with those of
//! the latest operations, and holds everything where the ledger has gone back. `digestd setup --after-restore` then tells the ledger what the engine has
//! seen go further, so that nothing of it is sent again without evidence.
//!
//! The engine's histories hold every answer that the ledger gave, so how far an operation has come is
//! read there: from the markers of its local activities and from its result. An operation whose
//! workflow was at work when its history ends may have been handed over without a trace, and counts
//! as further along too. Every open workflow is then terminated, because it carries the old epoch and
//! can do nothing any more; the sweep starts what the ledger has open.

mod gone_back;

pub use gone_back::hold_if_gone_back;

use crate::retention::campaigns;
use crate::sweep::of_campaigns;
use anyhow::Context;
use digest_activities::ledger::{Actor, Ledger};
use digest_workflows::activities::Progress;
use digest_workflows::customer::{CustomerDigest, CustomerResult};
use digest_workflows::operation::{Operation, OperationKey, Rules, State};
use futures::{StreamExt, TryStreamExt};
use std::collections::BTreeMap;
use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::grpc::WorkflowService;
use temporalio_client::tonic::IntoRequest as _;
use temporalio_client::{
    Client, NamespacedClient as _, WorkflowListOptions, WorkflowTerminateOptions,
};
use temporalio_common::protos::temporal::api::common::v1::{Payloads, WorkflowExecution};
use temporalio_common::protos::temporal::api::history::v1::{
    HistoryEvent, history_event::Attributes,
};
use temporalio_common::protos::temporal::api::workflowservice::v1::GetWorkflowExecutionHistoryRequest;

/// How many histories are read, or workflows terminated, at once.
const AT_ONCE: usize = 10;
/// Who does this, in the audit and in the engine.
const BY: &str = "setup --after-restore";

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Operations that the engine knows of.
    pub looked_at: u64,
    /// Operations that became unknown.
    pub unknown: u64,
    /// Workflows of the old epoch that were terminated.
    pub terminated: u64,
    /// Runs whose hold was ended.
    pub resumed: u64,
}

/// How far the engine has seen an operation go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Known {
    attempts: u32,
    /// Whether it was sent, or in doubt, or settled otherwise after an attempt.
    settled: bool,
    /// Whether an activity may have been at work when the history ended.
    at_work: bool,
}

/// Brings the ledger up to what the engine knows of `campaign` and its canaries. The epoch must be raised before. What
/// was done stays done when it fails, and repeating it adds nothing twice.
///
/// # Errors
/// When the ledger or the engine does not answer.
pub async fn after_restore(
    ledger: &Ledger,
    client: &Client,
    campaign: &str,
    rules: &Rules,
    said: impl Fn(u64),
) -> anyhow::Result<Restored> {
    let mut restored = Restored::default();
    let mut executions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let theirs = of_campaigns(&campaigns(campaign));
    let query = format!("WorkflowType = 'CustomerDigest' AND {theirs}");
    let mut list = Box::pin(client.list_workflows(query, WorkflowListOptions::default()));
    while let Some(workflow) = list.next().await {
        let workflow = workflow.context("the engine does not list the campaign's workflows")?;
        executions.entry(workflow.id().to_owned()).or_default().push(workflow.run_id().to_owned());
    }
    drop(list);
    let mut answers = futures::stream::iter(executions)
        .map(|(id, runs)| one(ledger, client, id, runs, rules))
        .buffer_unordered(AT_ONCE);
    while let Some(unknown) = answers.try_next().await? {
        restored.looked_at += 1;
        restored.unknown += u64::from(unknown);
        said(restored.looked_at);
    }
    drop(answers);
    restored.terminated = terminate(client, campaign).await?;
    let actor = Actor { by: BY, reason: Some("restored, and compared with the engine") };
    for campaign in campaigns(campaign) {
        restored.resumed += ledger.resume_after_restore(&campaign, actor).await?;
    }
    Ok(restored)
}

/// Compares one operation; returns whether it became unknown.
async fn one(
    ledger: &Ledger,
    client: &Client,
    id: String,
    runs: Vec<String>,
    rules: &Rules,
) -> anyhow::Result<bool> {
    // A workflow that somebody else started under the same type.
    let Ok(key) = OperationKey::parse(&id) else { return Ok(false) };
    let operation = ledger.find(&key).await?;
    if operation.as_ref().is_some_and(|operation| is_settled(operation.state)) {
        return Ok(false);
    }
    let mut known = Known::default();
    for run in runs {
        let of_run = read(client, &id, run).await?;
        known.attempts = known.attempts.max(of_run.attempts);
        known.settled |= of_run.settled;
        known.at_work |= of_run.at_work;
    }
    if !is_further(known, operation.as_ref()) {
        return Ok(false);
    }
    let actor = Actor { by: BY, reason: Some("the engine has seen it go further") };
    Ok(ledger.restored(&key, known.attempts, rules, actor).await?)
}

/// Whether nothing can send it any more, whatever the engine knows.
const fn is_settled(state: State) -> bool {
    matches!(state, State::Sent | State::Cleaned | State::Suppressed | State::Expired)
}

/// Whether the engine has seen more than the ledger has on record.
fn is_further(known: Known, operation: Option<&Operation>) -> bool {
    let Some(operation) = operation else {
        return known.attempts > 0 || known.settled || known.at_work;
    };
    let more = known.attempts > operation.attempts;
    // A member of a batch that goes on alone goes under another key than the batch would again.
    let in_a_batch = operation.doubts.iter().any(|doubt| doubt.batch.is_some());
    match operation.state {
        _ if in_a_batch => more || known.at_work,
        State::Unknown => more,
        State::Dead => more || known.at_work,
        // An attempt that is on record and open is asked for before anything else begins.
        _ => more || ((known.settled || known.at_work) && operation.doubts.is_empty()),
    }
}

/// Reads how far one execution has come.
async fn read(client: &Client, id: &str, run: String) -> anyhow::Result<Known> {
    let mut known = Known::default();
    for event in history(client, id, run).await? {
        known.learn(event);
    }
    Ok(known)
}

/// Every event of one execution.
async fn history(client: &Client, id: &str, run: String) -> anyhow::Result<Vec<HistoryEvent>> {
    let mut events = Vec::new();
    let mut token = Vec::new();
    loop {
        let request = GetWorkflowExecutionHistoryRequest {
            namespace: client.namespace(),
            execution: Some(WorkflowExecution { workflow_id: id.to_owned(), run_id: run.clone() }),
            next_page_token: token,
            ..GetWorkflowExecutionHistoryRequest::default()
        };
        let mut service = client.clone();
        let page =
            WorkflowService::get_workflow_execution_history(&mut service, request.into_request())
                .await
                .context("the engine does not give a workflow's history")?
                .into_inner();
        events.extend(page.history.unwrap_or_default().events);
        token = page.next_page_token;
        if token.is_empty() {
            return Ok(events);
        }
    }
}

impl Known {
    fn learn(&mut self, event: HistoryEvent) {
        match event.attributes {
            // The task runs local activities; whether it is answered or not, one may be at work.
            Some(Attributes::WorkflowTaskStartedEventAttributes(_)) => self.at_work = true,
            // The workflow waits for a timer only when no activity is at work.
            Some(
                Attributes::TimerStartedEventAttributes(_)
                | Attributes::WorkflowExecutionContinuedAsNewEventAttributes(_),
            ) => self.at_work = false,
            Some(Attributes::MarkerRecordedEventAttributes(marker)) => {
                for payloads in marker.details.into_values() {
                    if let Some(progress) = decode::<Progress>(Some(payloads)) {
                        self.see(progress.operation.attempts, progress.operation.state);
                    }
                }
            }
            Some(Attributes::WorkflowExecutionCompletedEventAttributes(completed)) => {
                self.at_work = false;
                if let Some(result) = decode::<CustomerResult>(completed.result) {
                    self.see(result.attempts, result.state);
                }
            }
            _ => {}
        }
    }

    fn see(&mut self, attempts: u32, state: State) {
        self.attempts = self.attempts.max(attempts);
        self.settled |=
            matches!(state, State::Sent | State::Cleaned | State::Unknown | State::Expired);
    }
}

fn decode<T: serde::de::DeserializeOwned>(payloads: Option<Payloads>) -> Option<T> {
    let payload = payloads?.payloads.into_iter().next()?;
    serde_json::from_slice(&payload.data).ok()
}

/// Terminates every open workflow of the campaign and its canaries but its weekly ones, which carry no ledger.
async fn terminate(client: &Client, campaign: &str) -> anyhow::Result<u64> {
    let query = format!(
        "(WorkflowType = 'CustomerDigest' OR WorkflowType = 'DigestPage' OR \
         WorkflowType = 'DigestRun') AND {} AND ExecutionStatus = 'Running'",
        of_campaigns(&campaigns(campaign))
    );
    let ids: Vec<String> = client
        .list_workflows(query, WorkflowListOptions::default())
        .map(|workflow| workflow.map(|workflow| workflow.id().to_owned()))
        .try_collect()
        .await
        .context("the engine does not list the open workflows")?;
    let ended: Vec<bool> = futures::stream::iter(ids)
        .map(|id| async move {
            let reason =
                "the ledger was restored from a backup; the sweep starts what is open there";
            let options = WorkflowTerminateOptions::builder().reason(reason.to_owned()).build();
            let workflow = client.get_workflow_handle::<CustomerDigest>(id);
            match workflow.terminate(options).await {
                Ok(()) => Ok(true),
                Err(WorkflowInteractionError::NotFound(_)) => Ok(false),
                Err(error) => Err(error).context("the engine does not terminate a workflow"),
            }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    Ok(ended.into_iter().filter(|ended| *ended).count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use digest_workflows::operation::{BatchRef, Contract, Intent, Moment, ProviderRef};
    use jiff::{SignedDuration, Timestamp};

    fn in_doubt(batch: Option<BatchRef>) -> Operation {
        let moment = Moment {
            now: Timestamp::UNIX_EPOCH,
            held: false,
            held_for: SignedDuration::ZERO,
            cancelled: false,
            useful_until: Timestamp::MAX,
            suppressed: false,
        };
        let mut operation = Operation::selected(moment.now);
        let intent = Intent {
            generation: 1,
            ordinal: 1,
            provider: ProviderRef { kind: "resend".to_owned(), account: "a".to_owned() },
            contract: Contract::NONE,
            content_hash: "hash".to_owned(),
            lease: SignedDuration::from_mins(15),
            settle: SignedDuration::from_mins(2),
            batch,
        };
        operation.begin(intent, &moment).unwrap();
        operation
    }

    #[test]
    fn an_attempt_that_may_be_at_work_counts_where_it_may_go_under_another_key() {
        let at_work = || Known { attempts: 1, settled: false, at_work: true };
        let batch = BatchRef { id: "b".to_owned(), request_hash: "hash".to_owned() };
        for state in [State::Sending, State::Unknown] {
            let mut alone = in_doubt(None);
            alone.state = state;
            assert!(!is_further(at_work(), Some(&alone)), "the same key again is the same message");
            let mut member = in_doubt(Some(batch.clone()));
            member.state = state;
            assert!(is_further(at_work(), Some(&member)), "it may have gone in another way");
            let idle = Known { attempts: 1, settled: true, at_work: false };
            assert!(!is_further(idle, Some(&member)));
        }
    }
}
