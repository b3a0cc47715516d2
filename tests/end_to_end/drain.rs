//! A worker that is told to stop with many messages on their way.

use crate::end_to_end::world::{counts, of_mail, until, world};
use digest_tests::smtp::{Act, At, SmtpServer, Traits};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many messages are on their way, and how often the worker is stopped then.
const IN_FLIGHT: usize = 100;
const STOPS: usize = 5;
/// A worker that was told to stop, and gets its answers, ends within this.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

/// A server that takes messages and keeps its answers until it is released.
fn silent() -> Arc<SmtpServer> {
    let late = vec![(At::Dot, Act::store_then(Act::Late("250 2.0.0 Ok")))];
    Arc::new(SmtpServer::start(Traits::default(), vec![late; 2 * IN_FLIGHT]).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn five_stops_with_a_hundred_messages_on_their_way_leave_none_unknown() {
    let servers: Vec<Arc<SmtpServer>> = (0..STOPS).map(|_| silent()).collect();
    let plan = world("five-stops")
        .customers(IN_FLIGHT * STOPS)
        .smtp(servers[0].port())
        .with("dispatch.page_size", i64::try_from(IN_FLIGHT).unwrap())
        .with("dispatch.in_flight", i64::try_from(IN_FLIGHT).unwrap())
        .with("provider.timeout", "400s")
        .with("provider.lease", "410s")
        .with("unknown.escalate_after", "420s")
        .with("worker.shutdown_grace", "405s");
    let Some(mut world) = plan.start().await else { return };
    let records = servers.clone();
    world.received_by(move || {
        let stored: Vec<_> = records.iter().flat_map(|server| server.record().stored).collect();
        of_mail(&stored)
    });
    let mut longest = Duration::ZERO;
    for (server, stop) in servers.iter().zip(1..) {
        world.edit("provider.url", format!("smtp://127.0.0.1:{}", server.port()));
        let mut worker = world.worker().await;
        if stop == 1 {
            world.start_run().await;
        }
        until(&format!("{IN_FLIGHT} messages on their way, time {stop}"), async || {
            (server.record().stored.len() == IN_FLIGHT).then_some(())
        })
        .await;
        let told = Instant::now();
        worker.terminate();
        until("a worker that drains", async || worker.said().contains("draining").then_some(()))
            .await;
        server.release();
        let status = worker.ended_within(ENDS_WITHIN).await;
        longest = longest.max(told.elapsed());
        assert!(status.success(), "{status}: {}", worker.said());
        let mut finished = 0;
        for (key, state) in world.operations().await {
            match state.as_str() {
                "sent" | "cleaned" => finished += 1,
                "selected" => {}
                _ => panic!("stop {stop} left {key} {state}"),
            }
        }
        assert_eq!(finished, stop * IN_FLIGHT, "stop {stop}");
        world.check().await;
    }
    let _worker = world.worker().await;
    let n = u64::try_from(IN_FLIGHT * STOPS).unwrap();
    counts(&world.closed().await, &[("selected", n), ("cleaned", n), ("unknown", 0)]);
    world.check().await;
    let bound = 3.0 / f64::from(u32::try_from(IN_FLIGHT * STOPS).unwrap());
    println!(
        "n = {STOPS} stops with {IN_FLIGHT} messages on their way each: the longest took \
         {longest:?}; 0 unknown of {n}, so below {bound:.4}"
    );
}
