//! Signals and queries that make no sense, for every kind of workflow: none is wedged, and what makes
//! sense afterwards works.

use crate::end_to_end::world::{PERIOD, World, counts, failed_tasks, payload, until, world};
use digest_workflows::operation::Period;
use digestd::engine::schedule;
use temporalio_client::grpc::WorkflowService;
use temporalio_client::schedules::{ScheduleOverlapPolicy, TriggerScheduleOptions};
use temporalio_client::tonic::IntoRequest as _;
use temporalio_common::protos::temporal::api::common::v1::{Payload, Payloads, WorkflowExecution};
use temporalio_common::protos::temporal::api::enums::v1::EventType::WorkflowExecutionFailed;
use temporalio_common::protos::temporal::api::history::v1::HistoryEvent;
use temporalio_common::protos::temporal::api::query::v1::WorkflowQuery;
use temporalio_common::protos::temporal::api::workflowservice::v1::QueryWorkflowRequest;

/// Ten payloads that no handler expects.
fn nonsense() -> Vec<Vec<Payload>> {
    let plain = |data: &str| payload("json/plain", data.as_bytes());
    vec![
        vec![],
        vec![plain("\"nonsense\"")],
        vec![plain("null")],
        vec![plain("[[[]]]")],
        vec![plain("{\"by\": 7, \"reason\": {\"a\": []}}")],
        vec![plain("{ this is not JSON")],
        vec![payload("binary/plain", b"\xff\xfe")],
        vec![payload("json/protobuf", b"{}")],
        vec![Payload { data: vec![b'x'; 100_000], ..Payload::default() }],
        vec![plain("{}"), plain("{}")],
    ]
}

impl World {
    /// Sends every nonsense under each of these names; how many signals.
    async fn nonsense_signals(&self, id: &str, names: &[&str]) -> usize {
        let all = nonsense();
        for name in names {
            for payloads in &all {
                self.signal_raw(id, name, payloads.clone()).await;
            }
        }
        all.len() * names.len()
    }

    /// Asks a query with every nonsense; whether none was answered.
    async fn nonsense_queries(&self, id: &str, name: &str) -> bool {
        let mut refused = true;
        for payloads in nonsense() {
            let execution = WorkflowExecution { workflow_id: id.to_owned(), run_id: String::new() };
            let request = QueryWorkflowRequest {
                namespace: "default".to_owned(),
                execution: Some(execution),
                query: Some(WorkflowQuery {
                    query_type: name.to_owned(),
                    query_args: Some(Payloads { payloads }),
                    ..WorkflowQuery::default()
                }),
                ..QueryWorkflowRequest::default()
            };
            let request = request.into_request();
            refused &=
                WorkflowService::query_workflow(&mut self.client.clone(), request).await.is_err();
        }
        refused
    }

    /// No workflow of the campaign has failed, and none of their tasks.
    async fn nothing_is_wedged(&self) {
        for (id, run) in self.workflows("").await {
            let history = self.history(&id, &run).await;
            assert_eq!(failed_tasks(&history), Vec::<String>::new(), "{id}");
            let ended = |event: &HistoryEvent| event.event_type() == WorkflowExecutionFailed;
            assert!(!history.iter().any(ended), "{id} failed");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_for_a_run_changes_nothing_that_a_correct_signal_cannot_set_right() {
    let Some(world) = world("nonsense-run").customers(4).start().await else { return };
    let _worker = world.worker().await;
    let hold = format!("hold --period {PERIOD} --reason prices");
    assert_eq!(world.digestd(&hold).await.code, 0);
    world.start_run().await;
    let id = digest_workflows::run_id(&world.campaign, PERIOD.parse::<Period>().unwrap());
    let is_frozen =
        |status: &serde_json::Value| status["state"] == "held" && status["selected"] == 4;
    world.until_status("a held selection", is_frozen).await;
    // Whatever is signalled as "resume" resumes, and as "hold" holds, so the last one counts.
    let names = ["look", "cancel", "status", "no-such-signal", "__stack_trace", "hold"];
    let sent = world.nonsense_signals(&id, &names).await;
    assert!(world.nonsense_queries(&id, "no-such-query").await, "an unknown query was answered");
    world.nonsense_queries(&id, "status").await;
    let status = world.status().await;
    assert_eq!(status["state"], "held", "{status:#}");
    assert_eq!(world.requests().len(), 0);
    world.signal_raw(&id, "resume", vec![payload("json/plain", b"\"nonsense\"")]).await;
    counts(&world.closed().await, &[("selected", 4), ("cleaned", 4)]);
    world.nothing_is_wedged().await;
    println!("n = {sent} nonsense signals for a run");
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_for_a_page_and_a_tick_wedges_neither() {
    let plan = world("nonsense-page").customers(6).with("message.when_empty", "send");
    let Some(world) = plan.start().await else { return };
    // Both wait for a worker: the page because its own was killed in the middle of it.
    let worker = world.worker_that_dies_at("page-enqueued").await;
    world.start_run().await;
    worker.killed_by_itself().await;
    let schedule = world.client.get_schedule_handle(schedule::id(&world.campaign));
    let options = TriggerScheduleOptions::default();
    schedule.trigger(ScheduleOverlapPolicy::AllowAll, options).await.unwrap();
    let mut sent = 0;
    for kind in ["DigestPage", "WeeklyDigest"] {
        let id = until(&format!("a {kind} in the list"), async || {
            // The tick's own workflow has no search attributes.
            let query = format!("WorkflowType = '{kind}' AND TaskQueue = '{}'", world.campaign);
            world.listed(query).await.pop()
        })
        .await
        .0;
        let names = ["hold", "resume", "look", "cancel", "reconcile", "no-such-signal"];
        sent += world.nonsense_signals(&id, &names).await;
    }
    let _worker = world.worker().await;
    until("both runs closed", async || {
        let closed = world.ledger.count("@runs where state = 'closed'").await;
        (closed == 2).then_some(())
    })
    .await;
    assert_eq!(world.ledger.count("@operations where state = 'cleaned'").await, 12);
    world.nothing_is_wedged().await;
    println!("n = {sent} nonsense signals for a page and a tick");
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_with_nonsense_leave_a_waiting_operation_as_it_is() {
    let fault = toml::toml! { customer = "customer-0001" kinds = ["accept_then_hang"] };
    let plan = world("nonsense-query").customers(1);
    let plan = plan.with("sandbox.fault", vec![toml::Value::Table(fault)]);
    let Some(world) = plan.start().await else { return };
    let _worker = world.worker().await;
    world.start_run().await;
    let key = world.key("customer-0001");
    world.until_state(&key, "unknown").await;
    let id = key.to_string();
    assert!(world.nonsense_queries(&id, "no-such-query").await, "an unknown query was answered");
    world.nonsense_queries(&id, "status").await;
    let verdict = serde_json::json!({"verdict": "delivered", "attempt": 1});
    world.reconcile(&key, verdict).await;
    world.until_state(&key, "cleaned").await;
    world.nothing_is_wedged().await;
    assert_eq!(world.requests().len(), 1);
    world.check().await;
}
