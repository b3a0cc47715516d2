//! Records the histories that `tests/histories` keeps, one of every shape, from the real binary on a
//! real engine:
//!
//! ```text
//! DIGESTD_RECORD_HISTORIES=1 cargo test -p digestd --test end_to_end histories -- --include-ignored
//! ```
//!
//! `1` writes the files that are missing or that today's code does not replay any more; `all` writes
//! every one. Without the variable nothing is written, and the same tests prove that every shape
//! still arises, replays, and shows nothing private.
//!
//! Where a release has recorded the old file, keep it under a name with the release's version, guard
//! the change in the workflow with `ctx.patched`, and record the shape anew beside it.

mod decisions;
mod definite;
mod doubts;
mod runs;
mod trouble;

use crate::end_to_end::world::{World, exactly, failed_tasks, until};
use digest_tests::histories;
use digestd::workflows;
use std::collections::HashMap;
use std::env;
use temporalio_client::grpc::WorkflowService;
use temporalio_client::tonic::IntoRequest as _;
use temporalio_common::protos::temporal::api::common::v1::Payload;
use temporalio_common::protos::temporal::api::enums::v1::EventType;
use temporalio_common::protos::temporal::api::history::v1::History;
use temporalio_common::protos::temporal::api::workflowservice::v1::DescribeWorkflowExecutionRequest;
use temporalio_sdk::workflow_replayer::{WorkflowReplayer, WorkflowReplayerOptions};

/// A planted fault of one customer.
fn fault(customer: &str, kind: &str) -> toml::Value {
    let mut table = toml::Table::new();
    table.insert("customer".to_owned(), customer.into());
    table.insert("kinds".to_owned(), vec![toml::Value::from(kind)].into());
    toml::Value::Table(table)
}

/// JSON as every client sends it, or what only claims to be.
fn json_payload(data: &str) -> Payload {
    Payload {
        metadata: HashMap::from([("encoding".to_owned(), b"json/plain".to_vec())]),
        data: data.as_bytes().to_vec(),
        ..Payload::default()
    }
}

impl World {
    /// Keeps the history of the latest workflow with this id, when it has closed.
    async fn keep(&self, shape: &str, id: impl ToString) {
        let id = id.to_string();
        let run = self.latest(&id).await;
        self.keep_of(shape, &id, &run).await;
    }

    /// The same of one run of that id.
    async fn keep_of(&self, shape: &str, id: &str, run: &str) {
        let history = self.history_that_ends(id, run, is_close).await;
        keep(shape, history).await;
    }

    /// Keeps the history of the latest workflow with this id while it waits.
    async fn keep_open(&self, shape: &str, id: impl ToString) {
        let id = id.to_string();
        let run = self.latest(&id).await;
        let waits = |last| last == EventType::TimerStarted;
        let history = self.history_that_ends(&id, &run, waits).await;
        keep(shape, history).await;
    }

    async fn history_that_ends(
        &self,
        id: &str,
        run: &str,
        as_it_should: impl Fn(EventType) -> bool,
    ) -> History {
        until(&format!("the end of the history of {id}"), async || {
            let events = self.history(id, run).await;
            let ends = events.last().is_some_and(|last| as_it_should(last.event_type()));
            ends.then_some(History { events })
        })
        .await
    }

    /// The run id of the latest workflow with this id.
    async fn latest(&self, id: &str) -> String {
        until(&format!("a workflow {id}"), async || {
            let request = DescribeWorkflowExecutionRequest {
                namespace: "default".to_owned(),
                execution: Some(exactly(id, "")),
            };
            let mut client = self.client.clone();
            let request = request.into_request();
            let answer = WorkflowService::describe_workflow_execution(&mut client, request).await;
            let info = answer.ok()?.into_inner().workflow_execution_info?;
            Some(info.execution?.run_id)
        })
        .await
    }
}

const fn is_close(last: EventType) -> bool {
    matches!(
        last,
        EventType::WorkflowExecutionCompleted
            | EventType::WorkflowExecutionFailed
            | EventType::WorkflowExecutionCanceled
            | EventType::WorkflowExecutionContinuedAsNew
    )
}

/// Replays a fresh history, looks for what must not be in it, and records it if that is asked for.
async fn keep(shape: &str, history: History) {
    let known = histories::SHAPES.iter().find(|known| known.name == shape);
    let known = known.unwrap_or_else(|| panic!("{shape} is not among the shapes"));
    let shows = histories::is_of(known, &history).unwrap();
    assert!(shows, "{shape} does not show {}: {}", known.shows, known.what);
    assert_eq!(failed_tasks(&history.events), Vec::<String>::new(), "{shape}");
    assert_eq!(histories::private(&history).unwrap(), Vec::<String>::new(), "{shape}");
    assert_eq!(replayed(&history).await, None, "{shape} does not replay right after it happened");
    let wanted = match env::var("DIGESTD_RECORD_HISTORIES").as_deref() {
        Err(_) => return,
        Ok("1") => match histories::recorded(shape).unwrap() {
            Some(recorded) => replayed(&recorded).await.is_some(),
            None => true,
        },
        Ok("all") => true,
        Ok(other) => panic!("DIGESTD_RECORD_HISTORIES={other:?} is neither 1 nor all"),
    };
    if wanted {
        histories::record(shape, &history).unwrap();
        println!("{shape}: recorded with {} events", history.events.len());
    }
}

/// What diverges when today's workflow code replays the history.
pub(super) async fn replayed(history: &History) -> Option<String> {
    let mut options = WorkflowReplayerOptions::new().build();
    workflows::register(&mut options).unwrap();
    let replayer = WorkflowReplayer::new(options).unwrap();
    let outcome = replayer.replay_workflow(history.clone().into()).await;
    outcome.err().map(|error| error.to_string())
}
