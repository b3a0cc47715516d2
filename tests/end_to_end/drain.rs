//! A worker that is told to stop with many messages on their way.

use crate::end_to_end::world::{World, counts, until, world};
use std::time::{Duration, Instant};

/// A worker that was told to stop ends within this.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

/// How many messages are on their way: asked for, and neither taken nor refused yet.
fn on_their_way(world: &World) -> usize {
    world.requests().len() - world.inbox().len()
}

/// Stops the worker `stops` times with `in_flight` messages on their way.
async fn stopped_with(name: &str, in_flight: usize, stops: usize) {
    let plan = world(name)
        .customers(in_flight * (stops + 1))
        .with("sandbox.latency", "5s")
        .with("provider.timeout", "12s")
        .with("provider.lease", "14s")
        .with("unknown.escalate_after", "20s")
        .with("worker.shutdown_grace", "20s");
    let Some(mut world) = plan.start().await else { return };
    // The provider goes on when the worker ends.
    let sandbox = world.sandbox_outside().await;
    let mut worker = world.worker().await;
    world.start_run().await;
    let mut longest = Duration::ZERO;
    for stop in 1..=stops {
        until(&format!("{in_flight} messages on their way, time {stop}"), async || {
            (on_their_way(&world) >= in_flight).then_some(())
        })
        .await;
        let told = Instant::now();
        worker.terminate();
        let status = worker.ended_within(ENDS_WITHIN).await;
        longest = longest.max(told.elapsed());
        assert!(status.success(), "{status}: {}", worker.said());
        for (key, state) in world.operations().await {
            let finished = ["selected", "sent", "cleaned"].contains(&state.as_str());
            assert!(finished, "the stop left {key} {state}");
        }
        world.check().await;
        worker = world.worker().await;
    }
    let n = u64::try_from(in_flight * (stops + 1)).unwrap();
    counts(&world.closed().await, &[("selected", n), ("cleaned", n), ("unknown", 0)]);
    assert_eq!(u64::try_from(world.requests().len()).unwrap(), n);
    world.check().await;
    let sends = u32::try_from(in_flight * stops).unwrap();
    let bound = 3.0 / f64::from(sends);
    println!(
        "n = {stops} stops with {in_flight} messages on their way each: the longest took \
         {longest:?}; 0 unknown of {sends}, so below {bound:.4}"
    );
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_with_messages_on_their_way_leaves_none_unknown() {
    stopped_with("stop-20", 20, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn five_stops_with_a_hundred_messages_on_their_way_leave_none_unknown() {
    stopped_with("stop-100", 100, 5).await;
}
