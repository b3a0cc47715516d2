//! A hundred thousand customers: what the engine is given is a cursor, never a list.

use crate::end_to_end::privacy::{PAYLOAD_MAX, look};
use crate::end_to_end::world::{counts, until, world};
use std::time::Instant;

const CUSTOMERS: u64 = 100_000;

/// Freezes them, starts the first pages of them, and measures every payload.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn a_hundred_thousand_customers_are_a_cursor() {
    // So few are handed over that the run stands in its first pages.
    let plan = world("cursor")
        .with("provider.rate_per_second", 0.2)
        .with("source.rows", "select '' as customer_id, '' as title where 1 = 0")
        .with("message.when_empty", "send");
    let Some(world) = plan.start().await else { return };
    world
        .shop
        .execute(&format!(
            "with recursive n(i) as (select 1 union all select i + 1 from n where i < {CUSTOMERS}) \
             insert into customers select printf('customer-%07d', i), \
             printf('customer%d@shop.example', i), 'Name', 1 from n"
        ))
        .await;
    let _worker = world.worker().await;
    let begun = Instant::now();
    world.start_run().await;
    until("the first pages", async || {
        let started = world.ledger.count("@operations where enqueued_at is not null").await;
        (started >= 200).then_some(())
    })
    .await;
    let status = world.status().await;
    println!(
        "{CUSTOMERS} customers were frozen and the first pages started in {:?}",
        begun.elapsed()
    );
    counts(&status, &[("selected", CUSTOMERS), ("unkeyed", 0)]);
    let mut largest = 0;
    let mut looked_at = 0;
    for kind in ["DigestRun", "DigestPage", "CustomerDigest"] {
        let found = until(&format!("a {kind} in the list"), async || {
            let found = world.workflows(&format!("WorkflowType = '{kind}'")).await;
            (!found.is_empty()).then_some(found)
        })
        .await;
        for (id, run) in found.into_iter().take(20) {
            let history = serde_json::to_value(world.history(&id, &run).await).unwrap();
            look(&history, &mut |_| {}, &mut |payload| {
                assert!(payload.len() < PAYLOAD_MAX, "{id} has {} bytes", payload.len());
                largest = largest.max(payload.len());
                looked_at += 1;
            });
        }
    }
    println!("{CUSTOMERS} customers: {looked_at} payloads, the largest has {largest} bytes");
    assert!(looked_at > 20, "only {looked_at} payloads were looked at");
    world.check().await;
}
