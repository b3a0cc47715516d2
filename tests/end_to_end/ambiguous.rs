//! Many answers that are lost after the message was taken, under each contract.

use crate::end_to_end::world::{PATIENCE, PERIOD, World, counts, until, world};
use digest_workflows::operation::State;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// How long an unknown may take to show after its message was taken.
const SHOWN_WITHIN: Duration = Duration::from_mins(1);

/// A world in which every customer's message is taken and the answer lost, by `seed`.
async fn lossy(name: &str, contract: &str, count: usize, seed: u64) -> Option<World> {
    let mut random = StdRng::seed_from_u64(seed);
    let faults: Vec<toml::Value> = (1..=count)
        .map(|number| {
            let kind =
                if random.random_bool(0.5) { "accept_then_hang" } else { "accept_then_reset" };
            let mut fault = toml::Table::new();
            fault.insert("customer".to_owned(), format!("customer-{number:04}").into());
            fault.insert("kinds".to_owned(), vec![toml::Value::from(kind)].into());
            toml::Value::Table(fault)
        })
        .collect();
    let plan = world(name)
        .customers(count)
        .with("sandbox.contract", contract)
        .with("sandbox.fault", faults)
        .with("hold.unknowns_in_a_row", 100_000)
        .with("replay.max_keys", 10_000);
    plan.start().await
}

fn print(contract: &str, n: usize, seed: u64, what: &str) {
    let bound = 3.0 / f64::from(u32::try_from(n).unwrap());
    println!("{contract}: n = {n} lost answers (seed {seed}): {what}; 0 in n, so below {bound:.4}");
}

/// Replay and look-up need nobody.
async fn settles_by_itself(name: &str, contract: &str, count: usize, seed: u64) {
    let Some(world) = lossy(name, contract, count, seed).await else { return };
    let _worker = world.worker().await;
    world.start_run().await;
    let status = world.closed().await;
    let n = u64::try_from(count).unwrap();
    counts(&status, &[("selected", n), ("cleaned", n), ("unknown", 0), ("contradicted", 0)]);
    world.check().await;
    assert_eq!(world.inbox().len(), count);
    let lost = world.requests().iter().filter(|request| request.fault.is_some()).count();
    assert_eq!(lost, count, "not every answer was lost");
    let by_people = world.ledger.count("@decisions where event = 'judged'").await;
    assert_eq!(by_people, 0, "a person was needed");
    print(contract, count, seed, "0 duplicates, 0 lost, 0 steps of a person, 0 left unknown");
}

/// The keys that `digestd unknown` shows, over all pages.
async fn shown(world: &World) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    let mut line = "unknown --json".to_owned();
    loop {
        let said = world.digestd(&line).await;
        let page: Value = serde_json::from_str(&said.stdout).unwrap();
        let operations = page["operations"].as_array().unwrap();
        keys.extend(operations.iter().map(|one| one["key"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => line = format!("unknown --json --after {next}"),
            None => return keys,
        }
    }
}

/// Without a promise of the provider a person decides, and until then nothing is sent again.
async fn waits_for_a_person(name: &str, count: usize, seed: u64) {
    let Some(world) = lossy(name, "none", count, seed).await else { return };
    let _worker = world.worker().await;
    world.start_run().await;
    until("every message taken", async || (world.inbox().len() == count).then_some(())).await;
    let taken = Instant::now();
    until("every unknown shown", async || (shown(&world).await.len() == count).then_some(())).await;
    let took = taken.elapsed();
    assert!(took < SHOWN_WITHIN, "only after {took:?}");
    let n = u64::try_from(count).unwrap();
    counts(&world.closed().await, &[("selected", n), ("unknown", n), ("missing_count", 0)]);
    assert_eq!(world.requests().len(), count, "something was sent again by itself");

    let mut keys = String::new();
    for key in world.operations().await.keys() {
        writeln!(keys, "{key}").unwrap();
    }
    std::fs::write(world.folder().join("keys.txt"), keys).unwrap();
    let line = ["--delivered", "--reason", "found in the provider's log", "--by", "kim", "--yes"];
    let line = [&["resolve", "--keys-from", "keys.txt"][..], &line].concat();
    let resolved = world.digestd_with(&line).await;
    assert_eq!(resolved.code, 0, "{resolved:?}");
    let begun = Instant::now();
    until("everybody cleaned", async || {
        let states = world.operations().await;
        let cleaned = states.values().filter(|state| *state == State::Cleaned.name()).count();
        (cleaned == count).then_some(())
    })
    .await;
    assert!(begun.elapsed() < PATIENCE);
    assert_eq!(world.requests().len(), count, "a verdict sent something again");
    counts(&world.status().await, &[("cleaned", n), ("unknown", 0), ("contradicted", 0)]);
    world.check().await;
    let status = world.digestd(&format!("status --period {PERIOD}")).await;
    assert_eq!(status.code, 0, "{status:?}");
    let what = format!("0 sent again, all shown after {took:?}, all resolved by one command");
    print("none", count, seed, &what);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_are_settled_by_replay_and_look_up_and_else_by_a_person() {
    tokio::join!(
        settles_by_itself("lost-replay", "replay", 12, 1),
        settles_by_itself("lost-lookup", "lookup", 12, 2),
        waits_for_a_person("lost-none", 12, 3),
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn two_hundred_lost_answers_are_settled_by_replay() {
    settles_by_itself("lost-200-replay", "replay", 200, 20_261_130).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn two_hundred_lost_answers_are_settled_by_look_up() {
    settles_by_itself("lost-200-lookup", "lookup", 200, 20_261_131).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn two_hundred_lost_answers_without_a_promise_wait_for_one_command() {
    waits_for_a_person("lost-200-none", 200, 20_261_132).await;
}
