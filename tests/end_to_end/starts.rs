//! Many starts of one period at once, and many workers for the same keys.

use crate::end_to_end::world::{Bench, Database, PERIOD, Plan, World, counts, until, world};
use digest_activities::{delivery, eligibility};
use digest_tests::postgres::Postgres;
use digest_workflows::activities::{DeliverInput, OperationInput, RunStart};
use digest_workflows::operation::Period;
use digest_workflows::run::{DigestRun, RunInput, RunResult};
use futures::future::join_all;
use std::sync::Arc;
use temporalio_client::{WorkflowIdConflictPolicy, WorkflowStartOptions};
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;

/// How many start one period at once.
const STARTERS: usize = 50;
/// How many of them are commands.
const COMMANDS: usize = 2;
const CUSTOMERS: u64 = 3;

/// Starts the run of `period` as a tool would; whether it was the first.
async fn start_by_tool(world: &World, period: Period, policy: WorkflowIdConflictPolicy) {
    let start = RunStart { campaign: world.campaign.clone(), period, tick: None };
    let id = digest_workflows::run_id(&world.campaign, period);
    let options = WorkflowStartOptions::new(world.campaign.clone(), id)
        .id_conflict_policy(policy)
        .search_attributes(digest_workflows::attributes::of_run(&world.campaign, period))
        .build();
    // Whether this was the first is decided by the engine.
    drop(world.client.start_workflow(DigestRun::run, RunInput::new(start), options).await);
}

/// The result of a run's workflow, when it has ended.
async fn result(world: &World, id: &str, run: &str) -> RunResult {
    until("the result of a run", async || {
        let last = world.history(id, run).await.pop()?.attributes?;
        let Attributes::WorkflowExecutionCompletedEventAttributes(end) = last else { return None };
        Some(serde_json::from_slice(&end.result?.payloads.first()?.data).unwrap())
    })
    .await
}

/// Starts each of `rounds` periods fifty times at once.
async fn fifty_starts(name: &str, rounds: i8) {
    let plan = world(name)
        .customers(usize::try_from(CUSTOMERS).unwrap())
        .with("message.when_empty", "send");
    let Some(world) = plan.start().await else { return };
    let _worker = world.worker().await;
    for week in 1..=rounds {
        let period: Period = format!("2024-W{week:02}").parse().unwrap();
        // Held, no run is over before the last of its starts.
        let hold = world.digestd(&format!("hold --period {period} --reason starts")).await;
        assert_eq!(hold.code, 0, "{hold:?}");
        let command = format!("run --period {period}");
        let by_tool = (COMMANDS..STARTERS).map(|number| {
            let policy = if number % 2 == 0 {
                WorkflowIdConflictPolicy::Fail
            } else {
                WorkflowIdConflictPolicy::UseExisting
            };
            start_by_tool(&world, period, policy)
        });
        let by_command = (0..COMMANDS).map(|_| world.digestd(&command));
        let (_, said) = tokio::join!(join_all(by_tool), join_all(by_command));
        for said in said {
            assert!([0, 3].contains(&said.code), "{said:?}");
        }
        let resume = format!("resume --period {period} --reason started --yes");
        let resumed = world.digestd(&resume).await;
        assert_eq!(resumed.code, 0, "{resumed:?}");
    }
    let n = u64::try_from(rounds).unwrap();
    until("every run closed", async || {
        let closed = world.ledger.count("@runs where state = 'closed'").await;
        (closed == n).then_some(())
    })
    .await;
    let mut closed = Vec::new();
    for (id, run) in world.workflows("WorkflowType = 'DigestRun'").await {
        // A sweep that meets a run at its end may start another, which finds it closed.
        if result(&world, &id, &run).await.closed_here {
            closed.push(id);
        }
    }
    closed.sort_unstable();
    let named = (1..=rounds).map(|week| format!("{}-run:2024-W{week:02}", world.campaign));
    assert_eq!(closed, named.collect::<Vec<_>>());
    assert_eq!(world.ledger.count("@runs").await, n);
    assert_eq!(world.ledger.count("@operations where state = 'cleaned'").await, n * CUSTOMERS);
    assert_eq!(u64::try_from(world.requests().len()).unwrap(), n * CUSTOMERS);
    world.check().await;
    let starts = u32::try_from(STARTERS).unwrap() * u32::try_from(rounds).unwrap();
    let bound = 3.0 / f64::from(starts);
    println!("n = {starts} starts of {n} periods: {n} runs, 0 second runs, so below {bound:.4}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_starts_of_one_period_at_once_are_one_run() {
    fifty_starts("fifty-starts", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn fifty_starts_of_each_of_twenty_periods_are_twenty_runs() {
    fifty_starts("fifty-starts-20", 20).await;
}

/// Eight workers with connections of their own deliver the same keys, all at once.
async fn eight_workers(plan: Plan, postgres: String, keys: u32) {
    const WORKERS: usize = 8;
    let plan = plan.customers(usize::try_from(keys).unwrap());
    // Some of them see the attempt of another and take it for a doubt until it is answered.
    let plan = plan.with("hold.unknowns_in_a_row", 100_000);
    let plan = plan.with("worker.listening", 1_000).with("provider.timeout", "3s");
    let Some(mut world) = plan.start().await else { return };
    if !postgres.is_empty() {
        world.ledger = Database::Postgres(postgres);
    }
    let first = world.bench().await;
    let provider = Arc::clone(&first.parts.provider);
    let mut benches = vec![first];
    for _ in 1..WORKERS {
        benches.push(world.bench_with(Arc::clone(&provider)).await);
    }
    let period = PERIOD.parse().unwrap();
    let run = RunStart { campaign: world.campaign.clone(), period, tick: None };
    let plan = eligibility::open_run(&benches[0].parts, &run).await.unwrap();
    while !eligibility::freeze_page(&benches[0].parts, &run).await.unwrap() {}
    let mut deliveries = Vec::new();
    for bench in &benches {
        for number in 1..=keys {
            let operation = OperationInput {
                key: world.key(&format!("customer-{number:04}")),
                ledger: plan.ledger.clone(),
                rules: plan.rules.clone(),
                random: 0.5,
            };
            let input = DeliverInput { operation, generation: 1, ordinal: 1, slot: None };
            let (parts, client) = (Arc::clone(&bench.parts), world.client.clone());
            // A pool without a free connection gives no answer, and the engine would ask again.
            deliveries.push(tokio::spawn(async move {
                while delivery::deliver(&parts, &client, input.clone()).await.is_err() {}
            }));
        }
    }
    for delivered in join_all(deliveries).await {
        delivered.unwrap();
    }
    until("every key sent", async || {
        let sent = world.ledger.count("@operations where state = 'sent'").await;
        (sent == u64::from(keys)).then_some(())
    })
    .await;
    assert_eq!(world.requests().len(), usize::try_from(keys).unwrap());
    assert_eq!(world.ledger.count("@attempts").await, u64::from(keys));
    world.check().await;
    counts(&world.status().await, &[("selected", keys.into()), ("sent", keys.into())]);
    println!("n = {keys} keys, {WORKERS} workers each: {keys} hand-overs, 0 second ones");
    join_all(benches.into_iter().map(Bench::close)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_workers_for_the_same_keys_hand_over_each_once_with_sqlite() {
    eight_workers(world("eight-workers"), String::new(), 20).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn eight_workers_for_the_same_keys_hand_over_each_once_with_postgres() {
    let Some(postgres) = Postgres::shared("eight workers").await.unwrap() else { return };
    let url = postgres.database("eight_workers").await.unwrap();
    eight_workers(world("eight-workers-postgres").with("ledger.url", url.clone()), url, 20).await;
}
