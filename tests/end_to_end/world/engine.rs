//! What tests ask of the engine, through the same client as everybody's tools.

use super::{World, until};
use digest_workflows::customer::CustomerDigest;
use digest_workflows::operation::OperationKey;
use digestd::engine::connection::{Address, Target, connect};
use futures::TryStreamExt as _;
use serde_json::Value;
use std::collections::HashMap;
use std::net::SocketAddr;
use temporalio_client::grpc::WorkflowService;
use temporalio_client::tonic::IntoRequest as _;
use temporalio_client::{
    Client, UntypedWorkflow, WorkflowDescribeOptions, WorkflowListOptions, WorkflowSignalOptions,
    WorkflowTerminateOptions,
};
use temporalio_common::protos::temporal::api::common::v1::{Payload, Payloads, WorkflowExecution};
use temporalio_common::protos::temporal::api::enums::v1::WorkflowTaskFailedCause;
use temporalio_common::protos::temporal::api::history::v1::HistoryEvent;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use temporalio_common::protos::temporal::api::query::v1::WorkflowQuery;
use temporalio_common::protos::temporal::api::workflowservice::v1::{
    GetWorkflowExecutionHistoryRequest, QueryWorkflowRequest, SignalWorkflowExecutionRequest,
};

/// What one workflow has cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cost {
    /// Events of its history.
    pub(crate) events: i64,
    /// State transitions.
    pub(crate) transitions: i64,
}

/// A client of a server of the tests.
pub(super) async fn client(server: SocketAddr) -> Client {
    let target = Target {
        address: Address::Local(server),
        namespace: Some("default".to_owned()),
        identity: "a test".to_owned(),
        search_attributes: true,
    };
    connect(&target).await.unwrap()
}

/// What the workflow with this id has cost.
pub(crate) async fn cost(client: &Client, id: &str) -> Cost {
    let workflow = client.get_workflow_handle::<UntypedWorkflow>(id);
    let described = workflow.describe(WorkflowDescribeOptions::default()).await.unwrap();
    let info = described.into_raw().workflow_execution_info.unwrap();
    Cost { events: info.history_length, transitions: info.state_transition_count }
}

/// Why the workflow tasks of a history failed, in which no worker could go on. One whose result came
/// too late, because a signal was faster, is only asked for again.
pub(crate) fn failed_tasks(history: &[HistoryEvent]) -> Vec<String> {
    let failures = history.iter().filter_map(|event| match event.attributes.as_ref()? {
        Attributes::WorkflowTaskFailedEventAttributes(failed) => Some(failed),
        _ => None,
    });
    failures
        .filter(|failed| failed.cause() != WorkflowTaskFailedCause::UnhandledCommand)
        .map(|failed| format!("{:?}: {:?}", failed.cause(), failed.failure))
        .collect()
}

/// A payload with these bytes under this encoding, whatever they are.
pub(crate) fn payload(encoding: &str, data: &[u8]) -> Payload {
    Payload {
        metadata: HashMap::from([("encoding".to_owned(), encoding.as_bytes().to_vec())]),
        data: data.to_vec(),
        ..Payload::default()
    }
}

impl World {
    /// The ids of the campaign's workflows that fit `condition`; empty for all.
    pub(crate) async fn workflows(&self, condition: &str) -> Vec<(String, String)> {
        let mut query = format!("DigestCampaign = '{}'", self.campaign);
        if !condition.is_empty() {
            query = format!("{query} AND {condition}");
        }
        self.listed(query).await
    }

    /// The ids of the workflows that fit `query`, of whichever campaign.
    pub(crate) async fn listed(&self, query: String) -> Vec<(String, String)> {
        // A server that was killed needs a moment before it lists what it has.
        until("the list of workflows", async || {
            let options = WorkflowListOptions::default();
            let list = self.client.list_workflows(query.clone(), options).map_ok(|workflow| {
                let execution = workflow.raw().execution.clone().unwrap();
                (execution.workflow_id, execution.run_id)
            });
            list.try_collect().await.ok()
        })
        .await
    }

    /// The length of the longest closed history of the campaign in events, and of the largest in bytes.
    pub(crate) async fn largest_history(&self) -> (i64, i64) {
        let query = format!("DigestCampaign = '{}'", self.campaign);
        until("the list of workflows", async || {
            let list = self.client.list_workflows(query.clone(), WorkflowListOptions::default());
            let sizes = list.map_ok(|workflow| {
                let raw = workflow.raw();
                (raw.history_length, raw.history_size_bytes)
            });
            let sizes: Vec<(i64, i64)> = sizes.try_collect().await.ok()?;
            let largest = |(events, bytes): (i64, i64), size: (i64, i64)| {
                (events.max(size.0), bytes.max(size.1))
            };
            Some(sizes.into_iter().fold((0, 0), largest))
        })
        .await
    }

    /// Terminates the workflow with this id.
    pub(crate) async fn terminate(&self, id: &str) {
        let options = WorkflowTerminateOptions::builder().reason("a test".to_owned()).build();
        let workflow = self.client.get_workflow_handle::<UntypedWorkflow>(id);
        workflow.terminate(options).await.unwrap();
    }

    /// The history of one workflow.
    pub(crate) async fn history(&self, id: &str, run: &str) -> Vec<HistoryEvent> {
        let mut events = Vec::new();
        let mut page = Vec::new();
        loop {
            let request = GetWorkflowExecutionHistoryRequest {
                namespace: "default".to_owned(),
                execution: Some(exactly(id, run)),
                next_page_token: page,
                ..GetWorkflowExecutionHistoryRequest::default()
            };
            let request = request.into_request();
            let answer =
                WorkflowService::get_workflow_execution_history(&mut self.client.clone(), request)
                    .await
                    .unwrap()
                    .into_inner();
            events.extend(answer.history.unwrap().events);
            page = answer.next_page_token;
            if page.is_empty() {
                return events;
            }
        }
    }

    /// Sends the signal `reconcile` with any JSON.
    pub(crate) async fn reconcile(&self, key: &OperationKey, verdict: Value) {
        let workflow = self.client.get_workflow_handle::<CustomerDigest>(key.to_string());
        let options = WorkflowSignalOptions::default();
        workflow.signal(CustomerDigest::reconcile, verdict.into(), options).await.unwrap();
    }

    /// Sends a signal with these payloads, whatever they are.
    pub(crate) async fn signal_raw(&self, id: &str, name: &str, payloads: Vec<Payload>) {
        assert!(self.try_signal(id, name, payloads).await, "{id} did not take the signal {name}");
    }

    /// The same, to a workflow that may have ended; whether it took it.
    pub(crate) async fn try_signal(&self, id: &str, name: &str, payloads: Vec<Payload>) -> bool {
        let request = SignalWorkflowExecutionRequest {
            namespace: "default".to_owned(),
            workflow_execution: Some(execution(id)),
            signal_name: name.to_owned(),
            input: Some(Payloads { payloads }),
            ..SignalWorkflowExecutionRequest::default()
        };
        let request = request.into_request();
        WorkflowService::signal_workflow_execution(&mut self.client.clone(), request).await.is_ok()
    }

    /// What the web UI shows as a workflow's current details; `None` while it cannot be asked: not
    /// started yet, or its worker is busy.
    pub(crate) async fn details(&self, id: &str) -> Option<String> {
        let request = QueryWorkflowRequest {
            namespace: "default".to_owned(),
            execution: Some(execution(id)),
            query: Some(WorkflowQuery {
                query_type: "__temporal_workflow_metadata".to_owned(),
                ..WorkflowQuery::default()
            }),
            ..QueryWorkflowRequest::default()
        };
        let answer =
            WorkflowService::query_workflow(&mut self.client.clone(), request.into_request())
                .await
                .ok()?
                .into_inner();
        let payload = answer.query_result?.payloads.into_iter().next()?;
        Some(String::from_utf8_lossy(&payload.data).into_owned())
    }

    /// Waits until the details say `words`.
    pub(crate) async fn until_details_say(&self, key: &OperationKey, words: &str) -> String {
        let id = key.to_string();
        until(&format!("{words:?} in the details of {id}"), async || {
            self.details(&id).await.filter(|details| details.contains(words))
        })
        .await
    }
}

fn execution(id: &str) -> WorkflowExecution {
    WorkflowExecution { workflow_id: id.to_owned(), run_id: String::new() }
}

/// One workflow by id and run.
pub(crate) fn exactly(id: &str, run: &str) -> WorkflowExecution {
    WorkflowExecution { workflow_id: id.to_owned(), run_id: run.to_owned() }
}
