//! Worker, database or engine killed by SIGKILL at an instant that nobody has chosen.

use super::lanes::{Times, lanes, told};
use super::provider::{Kind, Provider};
use crate::end_to_end::world::{PERIOD, server, until, world};
use digest_tests::postgres::Postgres;
use futures::{FutureExt as _, StreamExt as _, stream};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

/// How many runs there are.
const RUNS: u64 = 21;
/// How many customers each has.
const CUSTOMERS: usize = 40;
/// The latest instant after the start; by then most are through.
const LATEST: Duration = Duration::from_secs(4);

/// Who is killed.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Worker,
    Database,
    Engine,
}

/// The victims take turns; instant and provider are drawn from the seed that is printed.
/// `DIGESTD_TEST_SEED` repeats one run.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn nobody_gets_two_messages_or_none_whenever_somebody_is_killed() {
    let begun = Instant::now();
    let seeds: Vec<u64> = if let Ok(seed) = std::env::var("DIGESTD_TEST_SEED") {
        vec![seed.parse().unwrap()]
    } else {
        let first = rand::random_range(0..1_000_000);
        (first..first + RUNS).collect()
    };
    let runs = seeds.into_iter().map(|seed| async move {
        let run = AssertUnwindSafe(kill_somebody(seed)).catch_unwind().await;
        (seed, run)
    });
    let mut runs = stream::iter(runs).buffer_unordered(lanes().min(4));
    let (mut done, mut failed, mut times) = (0, Vec::new(), Times::default());
    while let Some((seed, outcome)) = runs.next().await {
        match outcome {
            Ok(Some((line, settled_in))) => {
                done += 1;
                times.add(settled_in);
                println!("{line}");
            }
            Ok(None) => {}
            Err(_) => {
                println!("seed {seed}: FAILED");
                failed.push(format!(
                    "DIGESTD_TEST_SEED={seed} cargo test -p digestd --test end_to_end \
                     whenever_somebody_is_killed -- --ignored --nocapture"
                ));
            }
        }
    }
    told(done, failed.len(), begun);
    assert!(failed.is_empty(), "to repeat what failed:\n{}", failed.join("\n"));
    times.tell();
}

/// One run; its line, or `None` where a part is absent.
async fn kill_somebody(seed: u64) -> Option<(String, Duration)> {
    let mut random = StdRng::seed_from_u64(seed);
    let victim =
        [Victim::Worker, Victim::Database, Victim::Engine][usize::try_from(seed % 3).unwrap()];
    let kind = [Kind::Replay, Kind::Smtp, Kind::LookUp, Kind::None][random.random_range(0..4)];
    let after = random.random_range(Duration::ZERO..LATEST);
    let provider = Provider::start(kind, false).await;
    let mut plan = world(&format!("instant-{seed}")).customers(CUSTOMERS);
    plan = plan.with("dispatch.page_size", 8).with("dispatch.in_flight", 16);
    plan = provider.serve(plan.with("provider.rate_per_second", 20.0));
    let mut postgres = match victim {
        Victim::Database => Some(Postgres::start_own().await.unwrap()?),
        Victim::Worker | Victim::Engine => None,
    };
    if let Some(postgres) = &postgres {
        plan = plan.postgres_at(postgres.database("instant").await.unwrap());
    }
    let folder = tempfile::tempdir().unwrap();
    let mut engine = match victim {
        Victim::Engine => Some(server(Some(folder.path().join("temporal.db"))).await?),
        Victim::Worker | Victim::Database => None,
    };
    let mut world = match &engine {
        Some(engine) => plan.start_on(engine.address()).await?,
        None => plan.start().await?,
    };
    world.received_by(move || provider.taken());
    let mut worker = world.worker().await;
    world.start_run().await;
    // The instant itself is what is tested.
    tokio::time::sleep(after).await;
    let mut in_doubt = 0;
    match (&mut postgres, &mut engine) {
        (Some(postgres), _) => {
            postgres.kill().await.unwrap();
            postgres.restart().await.unwrap();
        }
        (_, Some(engine)) => {
            engine.kill();
            engine.restart().await.unwrap();
        }
        (None, None) => {
            worker.kill();
            in_doubt = world.under_way().await.len();
            worker = world.worker().await;
        }
    }
    let restarted = Instant::now();
    world.check().await;
    let status = world.closed().await;
    let settled_in = restarted.elapsed();
    world.check_at_rest().await;
    drop(worker);
    let unknown = status["unknown"].as_u64().unwrap();
    let most = if kind.settles() { 0 } else { u64::try_from(in_doubt).unwrap() };
    assert!(unknown <= most, "{unknown} are unknown, and {most} can be: {status:#}");
    let again = world.digestd(&format!("run --period {PERIOD}")).await;
    assert_eq!(again.code, 3, "{again:?}");
    until("a run that is over", async || {
        world
            .workflows("WorkflowType = 'DigestRun' AND ExecutionStatus = 'Running'")
            .await
            .is_empty()
            .then_some(())
    })
    .await;
    let (kind, after) = (kind.name(), after.as_millis());
    let settled = settled_in.as_secs_f64();
    let line = format!(
        "{victim:?} killed after {after} ms, {kind}, seed {seed}: settled in {settled:.1} s, \
         {unknown} unknown"
    );
    Some((line, settled_in))
}
