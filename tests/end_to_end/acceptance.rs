//! A run in which nothing goes wrong, and what it costs.

use crate::end_to_end::measure;
use crate::end_to_end::world::{Cost, PERIOD, cost, counts, world};

#[tokio::test(flavor = "multi_thread")]
async fn a_run_cleans_everybody_at_the_price_of_an_empty_child() {
    let Some(world) = world("happy").customers(20).start().await else { return };
    let _worker = world.worker().await;
    let run = world.digestd(&format!("run --period {PERIOD} --wait")).await;
    assert_eq!(run.code, 0, "{run:?}");
    let status = world.status().await;
    counts(&status, &[("selected", 20), ("sent", 20), ("cleaned", 20), ("missing_count", 0)]);
    assert_eq!(world.inbox().len(), 20);
    world.check().await;
    assert_eq!(world.ledger.count("@messages").await, 0, "a message is kept after its cleanup");
    assert_eq!(world.ledger.count("@digest_rows").await, 0, "rows are kept after the cleanup");
    assert_eq!(world.shop.count("digest_items").await, 0, "the shop's rows are not removed");

    let mut ours = Vec::new();
    for key in world.operations().await.keys() {
        ours.push(cost(&world.client, key).await);
    }
    let empty = measure::empty_children(&world, 20).await;
    let (ours, empty) = (middle(ours), middle(empty));
    println!("one operation: {ours:?}; an empty child: {empty:?}");
    assert!(ours.events <= 7, "{ours:?}");
    assert_eq!(ours.transitions, empty.transitions, "an operation costs more than an empty child");
    let unusual = world.workflows("DigestState != 'active'").await;
    assert!(unusual.is_empty(), "off the happy path: {unusual:?}");
}

/// The cost in the middle: on a busy machine a task may be late and cost one more.
fn middle(mut costs: Vec<Cost>) -> Cost {
    costs.sort_unstable_by_key(|cost| (cost.transitions, cost.events));
    costs[costs.len() / 2]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_run_says_that_it_already_ran_and_sends_nothing() {
    let Some(world) = world("again").customers(3).start().await else { return };
    let _worker = world.worker().await;
    world.start_run().await;
    world.closed().await;
    let before = world.requests().len();
    let again = world.digestd(&format!("run --period {PERIOD} --wait")).await;
    assert_eq!(again.code, 3, "{again:?}");
    assert!(again.stderr.contains("already ran"), "{again:?}");
    assert_eq!(world.requests().len(), before);
    world.check().await;
}
