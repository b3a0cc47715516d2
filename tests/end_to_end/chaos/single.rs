//! One part alone is away, again and again or for long, while a run goes on.

use super::weather::{Blow, Event, Part, Weather, Wire};
use super::{Deployment, Ground, bound, weathered};
use crate::end_to_end::crash_points::Kind;
use digest_tests::proxy::Fault;
use std::time::Duration;

/// How often the engine is to die in one run.
const DEATHS: u32 = 20;

/// One run of a hundred while `events` happen; how often `part` was struck, and how many operations
/// there were.
async fn alone(
    name: &str,
    kind: Kind,
    length: Duration,
    events: &[Event],
    part: Part,
) -> Option<u32> {
    let deployment = Deployment { name: name.to_owned(), kind, seed: 7, customers: 100, weeks: 1 };
    let ground = Ground::prepare().await?;
    let (_, outcome) = weathered(ground, &deployment, length, events).await?;
    let struck = outcome.tally.of(&part);
    println!(
        "{name}: {struck} times, n = {} operations: 0 violations (95 % bound 3/n = {:.4})",
        outcome.operations,
        bound(outcome.operations)
    );
    Some(struck)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_database_that_stops_every_few_seconds_costs_nobody_a_message() {
    let length = Duration::from_secs(40);
    let weather = Weather { length, parts: vec![(Part::Database, 2.0..4.0)] };
    let stops = alone("stops", Kind::LookUp, length, &weather.draw(7), Part::Database).await;
    assert!(stops.is_none_or(|stops| stops >= 5), "{stops:?} stops are none");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn an_engine_that_dies_twenty_times_in_a_run_costs_nobody_a_message() {
    let length = Duration::from_secs(70);
    let weather = Weather { length, parts: vec![(Part::Engine, 0.5..1.0)] };
    let deaths = alone("deaths", Kind::Replay, length, &weather.draw(7), Part::Engine).await;
    assert!(deaths.is_none_or(|deaths| deaths >= DEATHS), "{deaths:?} deaths are too few");
}

/// The connection is cut for a second and for half a minute, then the server is stopped for as long.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_ledger_that_is_away_for_a_second_or_half_a_minute_costs_nobody_a_message() {
    let [wire, server] = [Part::Wire(Wire::Ledger), Part::Database];
    let (cut, whole) = (Blow::Plant(Fault::Cut), Blow::Plant(Fault::None));
    let at = |seconds, part, blow| Event { at: Duration::from_secs(seconds), part, blow };
    let events = [
        at(3, wire, cut),
        at(4, wire, whole),
        at(8, wire, cut),
        at(38, wire, whole),
        at(43, server, Blow::StopAtOnce),
        at(44, server, Blow::Up),
        at(49, server, Blow::StopAtOnce),
        at(79, server, Blow::Up),
    ];
    let length = Duration::from_secs(85);
    let stops = alone("away", Kind::Smtp, length, &events, server).await;
    assert!(stops.is_none_or(|stops| stops == 2), "{stops:?}");
}
