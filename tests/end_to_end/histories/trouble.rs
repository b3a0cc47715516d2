//! A worker or a ledger that does not answer.

use super::fault;
use crate::end_to_end::outage::{behind_a_proxy, outcome_given_up};
use crate::end_to_end::panics::PanicsFor;
use crate::end_to_end::world::{counts, of_mail, world};
use digest_tests::smtp::{Act, At, SmtpServer, Traits};
use serde_json::json;
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn an_activity_that_panics() {
    let Some(world) = world("recorded-panics").customers(1).start().await else { return };
    let key = world.key("customer-0001");
    let broken = key.clone();
    let worker = world.worker_within(move |provider| Arc::new(PanicsFor(broken, provider)));
    world.start_run().await;
    world.until_details_say(&key, "did not answer").await;
    worker.stop();
    let _worker = world.worker().await;
    counts(&world.closed().await, &[("cleaned", 1)]);
    world.keep("customer-no-answer", key).await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_late_answer_that_the_ledger_does_not_take() {
    let late = vec![(At::Dot, Act::store_then(Act::Late("250 2.0.0 Ok")))];
    let server = Arc::new(SmtpServer::start(Traits::default(), [late]).unwrap());
    let plan = world("recorded-evidence").customers(1).smtp(server.port());
    let plan = plan.with("provider.lease", "20s").with("unknown.escalate_after", "40s");
    let Some((mut world, proxy)) = behind_a_proxy(plan, "recorded_evidence").await else { return };
    let record = Arc::clone(&server);
    world.received_by(move || of_mail(&record.record().stored));
    let worker = world.worker().await;
    world.start_run().await;
    let key = world.key("customer-0001");
    world.until_state(&key, "unknown").await;
    proxy.cut();
    server.release();
    outcome_given_up(&worker).await;
    proxy.heal();
    world.until_state(&key, "cleaned").await;
    world.keep("customer-evidence-signalled", key).await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_worker_that_is_killed_after_an_acceptance() {
    let Some(world) = world("recorded-killed").customers(1).start().await else { return };
    let worker = world.worker_that_dies_at("accepted").await;
    world.start_run().await;
    worker.killed_by_itself().await;
    let _worker = world.worker().await;
    let key = world.key("customer-0001");
    world.until_state(&key, "unknown").await;
    world.reconcile(&key, json!({"verdict": "delivered", "attempt": 1})).await;
    world.until_state(&key, "cleaned").await;
    world.keep("customer-worker-killed", key).await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_doubt_whose_provider_is_configured_no_more() {
    let faults = vec![fault("customer-0001", "accept_then_reset")];
    let plan = world("recorded-gone").customers(1).with("sandbox.contract", "replay");
    let plan = plan.with("retry.ambiguous.base", "10s").with("retry.ambiguous.cap", "10s");
    let Some(mut world) = plan.with("sandbox.fault", faults).start().await else { return };
    let worker = world.worker().await;
    world.start_run().await;
    let key = world.key("customer-0001");
    world.until_state(&key, "unknown").await;
    worker.kill();
    let server = SmtpServer::start(Traits::default(), []).unwrap();
    world.edit("provider.kind", "smtp");
    world.edit("provider.url", format!("smtp://127.0.0.1:{}", server.port()));
    let _worker = world.worker().await;
    counts(&world.closed().await, &[("unknown", 1)]);
    world.reconcile(&key, json!({"verdict": "delivered", "attempt": 1})).await;
    world.until_state(&key, "cleaned").await;
    assert_eq!(server.record().connections, 0, "the doubt was taken to another provider");
    world.keep("customer-provider-gone", key).await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn an_answer_that_the_ledger_does_not_take() {
    let late = vec![(At::Dot, Act::store_then(Act::Late("250 2.0.0 Ok")))];
    let server = Arc::new(SmtpServer::start(Traits::default(), [late]).unwrap());
    let plan = world("recorded-uncommitted").customers(1).smtp(server.port());
    let plan = plan.with("provider.timeout", "8s").with("provider.lease", "9s");
    let plan = plan.with("worker.shutdown_grace", "12s");
    let Some((mut world, proxy)) = behind_a_proxy(plan, "recorded_uncommitted").await else {
        return;
    };
    let record = Arc::clone(&server);
    world.received_by(move || of_mail(&record.record().stored));
    let worker = world.worker().await;
    world.start_run().await;
    server.until(|record| record.stored.len() == 1).await.unwrap();
    proxy.cut();
    server.release();
    outcome_given_up(&worker).await;
    proxy.heal();
    let key = world.key("customer-0001");
    world.until_state(&key, "cleaned").await;
    world.keep("customer-answer-uncommitted", key).await;
    world.check().await;
}
