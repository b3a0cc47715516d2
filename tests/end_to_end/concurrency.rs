//! Many who want the same.

use crate::end_to_end::world::{PERIOD, counts, world};
use digest_activities::{delivery, eligibility};
use digest_workflows::activities::{DeliverInput, OperationInput, RunStart};
use digest_workflows::run::{DigestRun, RunInput};
use digestd::{assemble, engine::schedule};
use futures::future::join_all;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::sync::Arc;
use temporalio_client::schedules::{ScheduleOverlapPolicy, TriggerScheduleOptions};
use temporalio_client::{WorkflowIdConflictPolicy, WorkflowStartOptions};
use tokio::sync::watch;

#[tokio::test(flavor = "multi_thread")]
async fn fifty_deliveries_of_one_key_at_once_are_one_request() {
    let plan = world("fifty")
        .customers(1)
        .with("sandbox.latency", "200ms")
        .with("provider.rate_per_second", 10_000.0);
    let Some(world) = plan.start().await else { return };
    let (config, secrets) = world.loaded();
    let delivering = assemble::provider(&config, &secrets).await.unwrap();
    let (_drain, draining) = watch::channel(false);
    let provider = Arc::clone(&delivering.provider);
    let parts = Arc::new(assemble::parts(&config, &secrets, provider, draining).await.unwrap());
    let period = PERIOD.parse().unwrap();
    let run = RunStart { campaign: world.campaign.clone(), period, tick: None };
    let plan = eligibility::open_run(&parts, &run).await.unwrap();
    while !eligibility::freeze_page(&parts, &run).await.unwrap() {}
    let key = world.key("customer-0001");
    let input = DeliverInput {
        operation: OperationInput {
            key: key.clone(),
            ledger: plan.ledger,
            rules: plan.rules,
            random: 0.5,
        },
        generation: 1,
        ordinal: 1,
        slot: None,
    };
    let answers = join_all((0..50).map(|_| {
        let (parts, client, input) = (Arc::clone(&parts), world.client.clone(), input.clone());
        tokio::spawn(async move { delivery::deliver(&parts, &client, input).await })
    }))
    .await;
    for answer in answers {
        answer.unwrap().unwrap();
    }
    world.until_state(&key, "sent").await;
    assert_eq!(world.requests().len(), 1);
    assert_eq!(world.show(&key).await["attempts"].as_array().unwrap().len(), 1);
    world.check().await;
    parts.ledger.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schedule_command_and_plain_start_of_one_period_are_one_run() {
    let plan = world("three-triggers").customers(5).with("message.when_empty", "send");
    let Some(world) = plan.start().await else { return };
    let _worker = world.worker().await;
    let zone = TimeZone::get("Europe/Berlin").unwrap();
    let period = digest_workflows::operation::Period::of(Timestamp::now(), &zone);
    let id = digest_workflows::run_id(&world.campaign, period);

    let scheduled = async {
        let schedule = world.client.get_schedule_handle(schedule::id(&world.campaign));
        let options = TriggerScheduleOptions::default();
        schedule.trigger(ScheduleOverlapPolicy::AllowAll, options).await.unwrap();
    };
    let by_command = format!("run --period {period}");
    let by_tool = async {
        let start = RunStart { campaign: world.campaign.clone(), period, tick: None };
        let options = WorkflowStartOptions::new(world.campaign.clone(), id.clone())
            .id_conflict_policy(WorkflowIdConflictPolicy::Fail)
            .search_attributes(digest_workflows::attributes::of_run(&world.campaign, period))
            .build();
        let run = world.client.start_workflow(DigestRun::run, RunInput::new(start), options);
        // Whether this was the first is decided by the engine.
        drop(run.await);
    };
    let ((), first, second, ()) =
        tokio::join!(scheduled, world.digestd(&by_command), world.digestd(&by_command), by_tool);
    for said in [&first, &second] {
        assert!(
            (said.code == 0 && said.stderr.contains("started"))
                || (said.code == 3 && said.stderr.contains("joined"))
                || (said.code == 3 && said.stderr.contains("already ran")),
            "{said:?}"
        );
    }
    assert!(first.code == 3 || second.code == 3, "both commands started it");
    let status = world.closed().await;
    counts(&status, &[("selected", 5), ("cleaned", 5)]);
    assert_eq!(world.workflows("WorkflowType = 'DigestRun'").await.len(), 1);
    assert_eq!(world.requests().len(), 5);
    world.check().await;
}
