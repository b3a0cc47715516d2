//! Runs that a person holds, resumes or cancels, and their operations.

use super::fault;
use crate::end_to_end::late::tick_of;
use crate::end_to_end::world::{PERIOD, counts, until, world};
use digest_workflows::operation::Period;
use digest_workflows::run::DigestRun;
use digest_workflows::run_id;
use serde_json::json;
use temporalio_client::{UntypedWorkflow, WorkflowCancelOptions, WorkflowSignalOptions};

fn period() -> Period {
    PERIOD.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn wrong_credentials_hold_a_run() {
    let faults = vec![fault("customer-0001", "configuration")];
    let plan = world("recorded-held").customers(2).with("sandbox.fault", faults);
    let Some(world) = plan.start().await else { return };
    let _worker = world.worker().await;
    world.start_run().await;
    let key = world.key("customer-0001");
    world.until_details_say(&key, "digestd resume").await;
    world.keep_open("customer-open-held", &key).await;
    let run = run_id(&world.campaign, period());
    until("a run that says that it is held", async || {
        world.details(&run).await.filter(|details| details.contains("Held ("))
    })
    .await;
    world.keep_open("run-open-held", &run).await;
    let resume = format!("resume --period {PERIOD} --reason corrected --yes");
    assert_eq!(world.digestd(&resume).await.code, 0);
    counts(&world.closed().await, &[("cleaned", 2)]);
    world.keep("customer-held-resumed", &key).await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_run_held_and_resumed_by_signals() {
    let Some(world) = world("recorded-run-held").customers(2).start().await else { return };
    world.start_run().await;
    let id = run_id(&world.campaign, period());
    let run = world.client.get_workflow_handle::<DigestRun>(id.clone());
    let words = json!({"by": "kim", "reason": "prices"});
    let options = WorkflowSignalOptions::default();
    run.signal(DigestRun::hold, words.clone().into(), options).await.unwrap();
    let _worker = world.worker().await;
    world.until_run(PERIOD, "held").await;
    let options = WorkflowSignalOptions::default();
    run.signal(DigestRun::resume, words.into(), options).await.unwrap();
    counts(&world.closed().await, &[("cleaned", 2)]);
    world.keep("run-held-resumed", id).await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_run_whose_cancellation_is_requested_in_the_engine() {
    let Some(world) = world("recorded-requested").customers(2).start().await else { return };
    world.start_run().await;
    let id = run_id(&world.campaign, period());
    let run = world.client.get_workflow_handle::<UntypedWorkflow>(id.clone());
    run.cancel(WorkflowCancelOptions::default()).await.unwrap();
    let _worker = world.worker().await;
    world.until_run(PERIOD, "held").await;
    let resume = format!("resume --period {PERIOD} --reason meant-another --yes");
    assert_eq!(world.digestd(&resume).await.code, 0);
    counts(&world.closed().await, &[("cleaned", 2)]);
    world.keep("run-cancel-requested", id).await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_run_that_a_person_cancels() {
    let plan = world("recorded-cancelled").customers(2).with("sandbox.retry_after", "10m");
    let plan = plan.with("sandbox.fault", vec![fault("customer-0001", "rate_limit")]);
    let Some(world) = plan.start().await else { return };
    let _worker = world.worker().await;
    world.start_run().await;
    let key = world.key("customer-0001");
    world.until_state(&key, "retrying").await;
    world.keep_open("customer-open-retrying", &key).await;
    let run = run_id(&world.campaign, period());
    world.keep_open("run-open-watching", &run).await;
    let cancel = format!("cancel --period {PERIOD} --reason withdrawn --yes");
    assert_eq!(world.digestd(&cancel).await.code, 0);
    counts(&world.closed().await, &[("cleaned", 1), ("suppressed", 1)]);
    world.keep("customer-cancelled", &key).await;
    world.keep("run-cancelled", &run).await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_run_that_is_too_late() {
    let Some(world) = world("recorded-late").customers(2).start().await else { return };
    let _worker = world.worker().await;
    world.tick(PERIOD, tick_of(&world, PERIOD)).await;
    world.until_run(PERIOD, "held").await;
    let resume = format!("resume --period {PERIOD} --reason out --yes");
    assert_eq!(world.digestd(&resume).await.code, 0);
    counts(&world.until_run(PERIOD, "closed").await, &[("dead", 2)]);
    world.keep("customer-stale", world.key("customer-0001")).await;
    world.keep("run-late-approved", run_id(&world.campaign, period())).await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_selection_of_nobody() {
    let Some(world) = world("recorded-empty").customers(0).start().await else { return };
    let _worker = world.worker().await;
    world.start_run().await;
    until("a question", async || {
        let status = world.digestd(&format!("status --period {PERIOD} --json")).await;
        status.stdout.contains("\"held\"").then_some(())
    })
    .await;
    let resume = format!("resume --period {PERIOD} --reason so-be-it --yes");
    assert_eq!(world.digestd(&resume).await.code, 0);
    counts(&world.closed().await, &[("selected", 0)]);
    world.keep("run-selection-questioned", run_id(&world.campaign, period())).await;
}
