//! Several workers: replaced one after the other in mid-run, together within the rate, and for long.

use super::world::{PERIOD, Worker, World, counts, of_mail, until, world};
use digest_tests::smtp::{SmtpServer, Traits};
use std::sync::Arc;
use std::time::Duration;

/// How many workers there are at once.
const WORKERS: usize = 3;
/// How often each of them is replaced.
const ROUNDS: usize = 2;

async fn workers(world: &World) -> Vec<Worker> {
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        workers.push(world.worker().await);
    }
    workers
}

/// Half-way the ledger becomes a newer one that is marked compatible, so that the workers are those
/// of a version before it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn workers_that_are_replaced_in_mid_run_leave_nothing_unknown() {
    let server = Arc::new(SmtpServer::start(Traits::default(), []).unwrap());
    let customers = 90;
    let plan = world("rolling")
        .postgres()
        .customers(customers)
        .smtp(server.port())
        .with("dispatch.page_size", 10)
        .with("provider.rate_per_second", 6.0);
    let Some(mut world) = plan.start().await else { return };
    let record = Arc::clone(&server);
    world.received_by(move || of_mail(&record.record().stored));
    let mut workers = workers(&world).await;
    world.start_run().await;
    let mut replaced = 0;
    for round in 0..ROUNDS {
        for number in 0..WORKERS {
            let at = (round * WORKERS + number + 1) * customers / (WORKERS * ROUNDS + 1);
            until("a share of the messages", async || (world.inbox().len() >= at).then_some(()))
                .await;
            let mut old = workers.remove(0);
            old.terminate();
            let status = old.ended_within(Duration::from_secs(30)).await;
            assert!(status.success(), "{status}: {}", old.said());
            workers.push(world.worker().await);
            replaced += 1;
        }
        let newer = "update @meta set value = cast(cast(value as integer) + 1 as text) \
                     where name = 'version'";
        assert_eq!(world.ledger.execute(newer).await, 1);
    }
    let n = u64::try_from(customers).unwrap();
    counts(&world.closed().await, &[("selected", n), ("cleaned", n), ("unknown", 0), ("dead", 0)]);
    world.check_at_rest().await;
    println!("n = {replaced} workers replaced in a run of {n}: 0 unknown, 0 violations");
}

/// How many customers the long run has in each week.
const SOAKED: usize = 500;

/// What a worker holds when its first week is over is what it holds after the next ones.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_worker_holds_no_more_after_three_weeks_than_after_two() {
    let shares: toml::Table = ["rate_limit", "accept_then_reset"]
        .into_iter()
        .map(|kind| (kind.to_owned(), toml::Value::from(0.005)))
        .collect();
    let plan = world("soak")
        .postgres()
        .customers(SOAKED)
        .weeks(3)
        .with("sandbox.contract", "replay")
        .with("sandbox.shares", shares);
    let Some(world) = plan.start().await else { return };
    let worker = world.worker().await;
    let mut held = Vec::new();
    for period in world.periods() {
        let run = world.digestd(&format!("run --period {period} --wait")).await;
        assert_eq!(run.code, 0, "{run:?}");
        held.push(worker.holds());
    }
    world.check_at_rest().await;
    let [_, (before, open_before), (after, open_after)] = held[..] else { panic!("{held:?}") };
    println!("n = {} operations: KiB resident and open files {held:?}", 3 * SOAKED);
    // The engine's cache of closed workflows is bounded, and full by then.
    assert!(after <= before + before / 10, "{before} KiB became {after}");
    assert!(open_after <= open_before + 8, "{open_before} open files became {open_after}");
    let (events, bytes) = world.largest_history().await;
    assert!(events <= 4_096 && bytes <= 5_000_000, "{events} events, {bytes} bytes");
    assert_eq!(world.inbox().len(), 3 * SOAKED);
    assert!(world.inbox().values().all(|times| *times == 1), "{PERIOD}");
}
