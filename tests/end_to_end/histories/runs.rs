//! Ticks, runs and pages.

use super::fault;
use crate::end_to_end::world::{PERIOD, counts, until, world};
use digest_workflows::activities::RunStart;
use digest_workflows::attributes;
use digest_workflows::customer::{CustomerDigest, CustomerInput};
use digest_workflows::operation::Period;
use digest_workflows::run::{DigestRun, RunInput};
use digest_workflows::run_id;
use digest_workflows::weekly::{WeeklyDigest, WeeklyInput};
use digestd::{assemble, engine::schedule};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;
use temporalio_client::schedules::{ScheduleOverlapPolicy, TriggerScheduleOptions};
use temporalio_client::{WorkflowIdReusePolicy, WorkflowListOptions, WorkflowStartOptions};

fn period() -> Period {
    PERIOD.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_run_in_which_nothing_goes_wrong() {
    let Some(world) = world("recorded-happy").customers(3).start().await else { return };
    let _worker = world.worker().await;
    world.start_run().await;
    counts(&world.closed().await, &[("cleaned", 3)]);
    let run = run_id(&world.campaign, period());
    world.keep("customer-happy", world.key("customer-0001")).await;
    world.keep("page-happy", format!("{}-page:{PERIOD}:0", world.campaign)).await;
    world.keep("run-happy", &run).await;

    let before = world.latest(&run).await;
    let start = RunStart { campaign: world.campaign.clone(), period: period(), tick: None };
    let options = WorkflowStartOptions::new(world.campaign.clone(), run.clone())
        .id_reuse_policy(WorkflowIdReusePolicy::AllowDuplicate)
        .build();
    world.client.start_workflow(DigestRun::run, RunInput::new(start), options).await.unwrap();
    assert_ne!(world.latest(&run).await, before);
    world.keep("run-closed-before", &run).await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn ticks_of_one_week() {
    let plan = world("recorded-weekly").customers(2).with("message.when_empty", "send");
    let Some(world) = plan.start().await else { return };
    let _worker = world.worker().await;
    let scheduled = world.client.get_schedule_handle(schedule::id(&world.campaign));
    let query = format!("WorkflowType = 'WeeklyDigest' AND TaskQueue = '{}'", world.campaign);
    let mut seen = Vec::new();
    let mut second = 0;
    for shape in ["weekly-happy", "weekly-already-running"] {
        // The engine names what a schedule starts by the second.
        second = until("another second", async || {
            let now = Timestamp::now().as_second();
            (now != second).then_some(now)
        })
        .await;
        let options = TriggerScheduleOptions::default();
        scheduled.trigger(ScheduleOverlapPolicy::AllowAll, options).await.unwrap();
        let id = until("a tick", async || {
            let options = WorkflowListOptions::default();
            let list = world.client.list_workflows(query.clone(), options);
            let ids: Vec<_> =
                list.map_ok(|workflow| workflow.id().to_owned()).try_collect().await.unwrap();
            ids.into_iter().find(|id| !seen.contains(id))
        })
        .await;
        world.keep(shape, &id).await;
        seen.push(id);
    }
    let period = Period::of(Timestamp::now(), &TimeZone::get("Europe/Berlin").unwrap());
    world.keep("run-scheduled", run_id(&world.campaign, period)).await;

    let id = "recorded-weekly-unscheduled";
    let timezone = "Europe/Berlin".to_owned();
    let input = WeeklyInput { campaign: world.campaign.clone(), timezone };
    let options = WorkflowStartOptions::new(world.campaign.clone(), id).build();
    world.client.start_workflow(WeeklyDigest::run, input, options).await.unwrap();
    world.keep("weekly-refused", id).await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_page_one_of_whose_operations_has_a_workflow_already() {
    let Some(world) = world("recorded-exists").customers(3).start().await else { return };
    let (config, secrets) = world.loaded();
    let ledger = assemble::ledger(&config, &secrets).await.unwrap();
    let key = world.key("customer-0002");
    let identity = ledger.identity().clone();
    let input = CustomerInput { key: key.clone(), ledger: identity, rules: config.rules() };
    ledger.close().await;
    let options = WorkflowStartOptions::new(world.campaign.clone(), key.to_string())
        .search_attributes(attributes::of_operation(&key))
        .build();
    world.client.start_workflow(CustomerDigest::run, input, options).await.unwrap();
    let _worker = world.worker().await;
    world.start_run().await;
    counts(&world.closed().await, &[("cleaned", 3)]);
    world.keep("page-child-exists", format!("{}-page:{PERIOD}:0", world.campaign)).await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn histories_that_grow_long() {
    // The second one keeps the run open.
    let faults =
        vec![fault("customer-0001", "accept_then_hang"), fault("customer-0002", "rate_limit")];
    let plan = world("recorded-long").customers(2).with("sandbox.fault", faults);
    let plan = plan.with("sandbox.retry_after", "10m");
    let Some(world) = plan.start().await else { return };
    let worker = world.worker().await;
    world.start_run().await;
    let key = world.key("customer-0001");
    world.until_state(&key, "unknown").await;
    let ids = [key.to_string(), run_id(&world.campaign, period())];
    let runs = [world.latest(&ids[0]).await, world.latest(&ids[1]).await];
    // With no worker there, all of them are in one task.
    worker.kill();
    // As many as are more than what each lets its history grow to.
    for (id, signal, many) in [(&ids[0], "resume", 1_501), (&ids[1], "look", 2_001)] {
        stream::iter(0..many)
            .for_each_concurrent(20, |_| world.signal_raw(id, signal, Vec::new()))
            .await;
    }
    let _worker = world.worker().await;
    world.keep_of("customer-continued-before", &ids[0], &runs[0]).await;
    world.keep_of("run-continued-before", &ids[1], &runs[1]).await;
    world.reconcile(&key, json!({"verdict": "delivered", "attempt": 1})).await;
    world.until_state(&key, "cleaned").await;
    world.keep("customer-continued-after", &ids[0]).await;
    let cancel = format!("cancel --period {PERIOD} --reason withdrawn --yes");
    assert_eq!(world.digestd(&cancel).await.code, 0);
    counts(&world.closed().await, &[("cleaned", 1), ("suppressed", 1)]);
    world.keep("run-continued-after", &ids[1]).await;
    world.check().await;
}
