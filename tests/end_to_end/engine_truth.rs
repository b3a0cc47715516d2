//! Customer workflows that somebody terminates, resets or cancels: the ledger is the truth, the
//! engine only drives.

use crate::end_to_end::world::{PERIOD, World, counts, exactly, of_mail, until, world};
use digest_tests::smtp::{Act, At, SmtpServer, Traits};
use digest_workflows::operation::OperationKey;
use serde_json::json;
use std::sync::Arc;
use temporalio_client::grpc::WorkflowService;
use temporalio_client::tonic::IntoRequest as _;
use temporalio_client::{UntypedWorkflow, WorkflowCancelOptions};
use temporalio_common::protos::temporal::api::enums::v1::EventType;
use temporalio_common::protos::temporal::api::workflowservice::v1::ResetWorkflowExecutionRequest;

#[tokio::test(flavor = "multi_thread")]
async fn tampering_in_mid_send_sends_nothing_twice() {
    let late = || vec![(At::Dot, Act::store_then(Act::Late("250 2.0.0 Ok")))];
    let scripts = [late(), late(), late()];
    let server = Arc::new(SmtpServer::start(Traits::default(), scripts).unwrap());
    let plan = world("mid-send").customers(3).smtp(server.port());
    let plan = plan.with("provider.timeout", "6s").with("provider.lease", "8s");
    let plan = plan.with("worker.shutdown_grace", "8s");
    let Some(mut world) = plan.start().await else { return };
    let record = Arc::clone(&server);
    world.received_by(move || of_mail(&record.record().stored));
    let worker = world.worker().await;
    world.start_run().await;
    server.until(|record| record.stored.len() == 3).await.unwrap();
    tamper(&world).await;
    server.release();
    for customer in CUSTOMERS {
        let key = world.key(customer).to_string();
        until(&format!("{key} answered"), async || {
            let state = world.operations().await.remove(&key)?;
            ["sent", "cleaned"].contains(&state.as_str()).then_some(())
        })
        .await;
    }
    // Whatever was left without a workflow is swept up by the next worker.
    world.half_a_minute_passes().await;
    worker.kill();
    let _worker = world.worker().await;
    counts(&world.closed().await, &[("selected", 3), ("cleaned", 3), ("contradicted", 0)]);
    assert_eq!(server.record().ends_of_data, 3);
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tampering_in_mid_wait_sends_nothing_twice() {
    let hang = || vec![(At::Dot, Act::store_then(Act::Hang))];
    let server = SmtpServer::start(Traits::default(), [hang(), hang(), hang()]).unwrap();
    let server = Arc::new(server);
    let plan = world("mid-wait").customers(3).smtp(server.port());
    let Some(mut world) = plan.start().await else { return };
    let record = Arc::clone(&server);
    world.received_by(move || of_mail(&record.record().stored));
    let worker = world.worker().await;
    world.start_run().await;
    for customer in CUSTOMERS {
        world.until_state(&world.key(customer), "unknown").await;
    }
    tamper(&world).await;
    world.until_details_say(&world.key(CUSTOMERS[2]), "Cancellation was requested").await;
    world.half_a_minute_passes().await;
    worker.kill();
    let _worker = world.worker().await;
    until("a workflow for each", async || {
        let open = world
            .workflows("WorkflowType = 'CustomerDigest' AND ExecutionStatus = 'Running'")
            .await;
        (open.len() == 3).then_some(())
    })
    .await;
    for customer in CUSTOMERS {
        let key = world.key(customer);
        world.reconcile(&key, json!({"verdict": "delivered", "attempt": 1})).await;
        world.until_state(&key, "cleaned").await;
    }
    counts(&world.closed().await, &[("selected", 3), ("cleaned", 3), ("contradicted", 0)]);
    assert_eq!(server.record().ends_of_data, 3);
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_is_ended_before_it_enqueued_is_started_again() {
    let Some(world) = world("page-ended").customers(3).start().await else { return };
    let worker = world.worker_that_dies_at("page-enqueued").await;
    world.start_run().await;
    worker.killed_by_itself().await;
    // As if it had come a little earlier: nothing is enqueued, so no sweep would start anything.
    assert_eq!(world.ledger.execute("update @operations set enqueued_at = null").await, 3);
    let page = format!("{}-page:{PERIOD}:0", world.campaign);
    world.terminate(&page).await;
    let _worker = world.worker().await;
    counts(&world.closed().await, &[("selected", 3), ("cleaned", 3)]);
    assert_eq!(world.requests().len(), 3);
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_and_a_page_whose_cancellation_is_requested_lose_nobody() {
    let Some(world) = world("all-requested").customers(3).start().await else { return };
    world.start_run().await;
    let run = digest_workflows::run_id(&world.campaign, PERIOD.parse().unwrap());
    let cancel = async |id: &str| {
        let workflow = world.client.get_workflow_handle::<UntypedWorkflow>(id.to_owned());
        workflow.cancel(WorkflowCancelOptions::default()).await
    };
    // Before its first task: a hold, although it is not even open yet.
    cancel(&run).await.unwrap();
    let worker = world.worker().await;
    let held = until("a held run", async || {
        let status = world.digestd("status --json").await;
        let status: serde_json::Value = serde_json::from_str(&status.stdout).ok()?;
        (status["state"] == "held" && status["selected"] == 3).then_some(status)
    })
    .await;
    counts(&held, &[("pending", 3), ("sent", 0)]);
    worker.kill();
    let worker = world.worker_that_dies_at("page-enqueued").await;
    let resume = format!("resume --period {PERIOD} --reason meant-another --yes");
    assert_eq!(world.digestd(&resume).await.code, 0);
    worker.killed_by_itself().await;
    cancel(&format!("{}-page:{PERIOD}:0", world.campaign)).await.unwrap();
    let _worker = world.worker().await;
    counts(&world.closed().await, &[("selected", 3), ("cleaned", 3)]);
    world.check().await;
}

const CUSTOMERS: [&str; 3] = ["customer-0001", "customer-0002", "customer-0003"];

/// Terminates the first customer's workflow, resets the second's, requests the third's cancellation.
async fn tamper(world: &World) {
    let handle = |customer: &str| {
        world.client.get_workflow_handle::<UntypedWorkflow>(world.key(customer).to_string())
    };
    world.terminate(&world.key(CUSTOMERS[0]).to_string()).await;
    reset(world, &world.key(CUSTOMERS[1])).await;
    handle(CUSTOMERS[2]).cancel(WorkflowCancelOptions::default()).await.unwrap();
}

/// Resets to the last workflow task.
async fn reset(world: &World, key: &OperationKey) {
    let id = key.to_string();
    let (_, run) = until("the workflow in the list", async || {
        world.workflows("").await.into_iter().find(|(found, _)| *found == id)
    })
    .await;
    let history = world.history(&id, &run).await;
    let last = |kind| history.iter().rfind(|event| event.event_type() == kind);
    let point = last(EventType::WorkflowTaskCompleted)
        .or_else(|| last(EventType::WorkflowTaskStarted))
        .unwrap();
    let request = ResetWorkflowExecutionRequest {
        namespace: "default".to_owned(),
        workflow_execution: Some(exactly(&id, &run)),
        reason: "a test".to_owned(),
        workflow_task_finish_event_id: point.event_id,
        request_id: format!("reset {id}"),
        ..ResetWorkflowExecutionRequest::default()
    };
    WorkflowService::reset_workflow_execution(&mut world.client.clone(), request.into_request())
        .await
        .unwrap();
}
