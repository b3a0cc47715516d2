//! Operations in doubt.

use super::{fault, json_payload};
use crate::end_to_end::world::{World, of_mail, until, world};
use digest_tests::smtp::{Act, At, SmtpServer, Traits};
use digest_workflows::operation::OperationKey;
use serde_json::json;
use std::sync::Arc;
use temporalio_client::{UntypedWorkflow, WorkflowCancelOptions};

/// Has it found delivered, and waits until it is cleaned.
async fn deliver(world: &World, key: &OperationKey) {
    world.reconcile(key, json!({"verdict": "delivered", "attempt": 1, "by": "kim"})).await;
    world.until_state(key, "cleaned").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn doubts_without_a_promise() {
    let faults = [
        ("customer-0001", "accept_then_late_answer"),
        ("customer-0002", "accept_then_hang"),
        ("customer-0003", "hang_before_acceptance"),
        ("customer-0004", "hang_before_acceptance"),
        ("customer-0005", "accept_then_hang"),
        ("customer-0006", "accept_then_hang"),
        ("customer-0007", "accept_then_hang"),
        ("customer-0008", "accept_then_hang"),
    ];
    let faults: Vec<_> = faults.iter().map(|(customer, kind)| fault(customer, kind)).collect();
    let plan = world("recorded-doubts").customers(8).with("sandbox.fault", faults);
    let plan = plan.with("sandbox.late_answer", "2s");
    let Some(world) = plan.start().await else { return };
    let worker = world.worker().await;
    world.start_run().await;
    let key = |number: u32| world.key(&format!("customer-000{number}"));
    world.until_state(&key(1), "cleaned").await;
    world.keep("customer-late-answer", key(1)).await;
    for number in 2..=8 {
        world.until_state(&key(number), "unknown").await;
    }
    world.keep_open("customer-open-unknown", key(2)).await;

    let swept = key(8).to_string();
    let before = world.latest(&swept).await;
    world.terminate(&swept).await;
    world.half_a_minute_passes().await;
    worker.kill();
    let _worker = world.worker().await;
    until("a workflow that is started again", async || {
        (world.latest(&swept).await != before).then_some(())
    })
    .await;

    world.reconcile(&key(3), json!({"verdict": "not_delivered", "attempt": 1})).await;
    world.reconcile(&key(4), json!({"verdict": "abandon", "attempt": 1, "reason": "old"})).await;
    for name in ["reconcile", "evidence", "hold", "resume", "no-such-signal"] {
        for payloads in [
            vec![json_payload("\"nonsense\"")],
            vec![json_payload("{ this is not JSON")],
            vec![json_payload("{\"verdict\": \"delivered\", \"attempt\": 7}")],
            vec![],
            vec![json_payload("{}"), json_payload("{}")],
        ] {
            world.signal_raw(&key(5).to_string(), name, payloads).await;
        }
    }
    let answered = json!({"attempt": 1, "outcome": {"accepted": {}}, "random": 0.5});
    let forged = json!({"event": {"answered": answered}, "proof": "0".repeat(64)}).to_string();
    world.signal_raw(&key(6).to_string(), "evidence", vec![json_payload(&forged)]).await;
    let workflow = world.client.get_workflow_handle::<UntypedWorkflow>(key(7).to_string());
    workflow.cancel(WorkflowCancelOptions::default()).await.unwrap();
    world.until_details_say(&key(7), "Cancellation was requested").await;
    for number in [2, 5, 6, 7, 8] {
        deliver(&world, &key(number)).await;
    }
    world.until_state(&key(3), "cleaned").await;
    world.until_state(&key(4), "expired").await;
    world.keep("customer-unknown-delivered", key(2)).await;
    world.keep("customer-unknown-not-delivered", key(3)).await;
    world.keep("customer-unknown-abandoned", key(4)).await;
    world.keep("customer-malformed-signals", key(5)).await;
    world.keep("customer-evidence-forged", key(6)).await;
    world.keep("customer-cancel-requested", key(7)).await;
    world.keep("customer-swept-up", key(8)).await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_doubt_that_the_provider_answers() {
    let faults = vec![
        fault("customer-0001", "accept_then_reset"),
        fault("customer-0002", "reset_before_acceptance"),
    ];
    let plan = world("recorded-looked-up").customers(2).with("sandbox.contract", "lookup");
    let Some(world) = plan.with("sandbox.fault", faults).start().await else { return };
    let _worker = world.worker().await;
    world.start_run().await;
    for (shape, customer) in
        [("customer-looked-up-hit", "customer-0001"), ("customer-looked-up-miss", "customer-0002")]
    {
        world.until_state(&world.key(customer), "cleaned").await;
        world.keep(shape, world.key(customer)).await;
    }
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_doubt_that_a_replay_settles() {
    let faults = vec![fault("customer-0001", "accept_then_reset")];
    let plan = world("recorded-replayed").customers(1).with("sandbox.contract", "replay");
    let Some(world) = plan.with("sandbox.fault", faults).start().await else { return };
    let _worker = world.worker().await;
    world.start_run().await;
    let key = world.key("customer-0001");
    world.until_state(&key, "cleaned").await;
    world.keep("customer-replayed-under-contract", key).await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_doubt_that_nobody_answers() {
    let hang = vec![(At::Dot, Act::store_then(Act::Hang))];
    let server = Arc::new(SmtpServer::start(Traits::default(), [hang]).unwrap());
    let plan = world("recorded-expired").customers(1).smtp(server.port());
    let plan = plan.with("provider.lease", "2s").with("unknown.escalate_after", "3s");
    let plan = plan.with("unknown.keep_rows_for", "6s");
    let Some(mut world) = plan.start().await else { return };
    let record = Arc::clone(&server);
    world.received_by(move || of_mail(&record.record().stored));
    let _worker = world.worker().await;
    world.start_run().await;
    let key = world.key("customer-0001");
    world.until_state(&key, "expired").await;
    world.keep("customer-unknown-expired", key).await;
    world.check().await;
}
