//! Workers killed with SIGKILL, at named points and in the middle of a page.

use crate::end_to_end::world::{counts, until, world};

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_in_mid_page_skips_nobody() {
    // Slow enough that the third of a page of four is taken while the fourth still waits.
    let plan = world("mid-page")
        .customers(8)
        .with("dispatch.page_size", 4)
        .with("dispatch.in_flight", 4)
        .with("provider.rate_per_second", 4.0);
    let Some(world) = plan.start().await else { return };
    let worker = world.worker_that_dies_at("accepted:3").await;
    world.start_run().await;
    worker.killed_by_itself().await;
    let before = world.inbox();
    assert!((3..8).contains(&before.len()), "not in mid-page: {before:?}");
    let under_way = world.under_way().await;
    let status = world.status().await;
    assert_ne!(status["state"], "closed", "{status:#}");
    assert_ne!(status["missing_count"], 0, "{status:#}");

    let _worker = world.worker().await;
    let status = world.closed().await;
    counts(&status, &[("selected", 8), ("missing_count", 0)]);
    for (key, state) in world.operations().await {
        let expected = if under_way.contains(&key) { "unknown" } else { "cleaned" };
        assert_eq!(state, expected, "{key}");
    }
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_returns_originals_leaves_nothing_unknown() {
    let plan = world("kill-replay").customers(6).with("sandbox.contract", "replay");
    let Some(world) = plan.start().await else { return };
    for point in ["accepted", "intent-recorded"] {
        let worker = world.worker_that_dies_at(point).await;
        if world.operations().await.is_empty() {
            world.start_run().await;
        }
        let accepted = world.inbox().len();
        if accepted == 6 {
            break;
        }
        until("the end of the worker, or of the work", async || {
            (world.worker_logs().contains("the process ends by SIGKILL")).then_some(())
        })
        .await;
        drop(worker);
    }
    let _worker = world.worker().await;
    let status = world.closed().await;
    counts(&status, &[("selected", 6), ("cleaned", 6), ("unknown", 0)]);
    assert!(world.requests().len() > 6, "nothing was replayed");
    world.check().await;
}
