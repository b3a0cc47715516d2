//! Many customers, on PostgreSQL, by SMTP to a mail server that is not ours.

use crate::end_to_end::world::{PERIOD, World, counts, of_mail, server, until, world};
use digest_tests::mail_server::MailServer;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng};
use std::sync::Arc;
use std::time::Instant;

/// How many customers; 300 unless `DIGESTD_TEST_CUSTOMERS` says otherwise.
fn how_many() -> usize {
    std::env::var("DIGESTD_TEST_CUSTOMERS").map_or(300, |text| text.parse().unwrap())
}

/// A shop on PostgreSQL with that many customers, and some rows that cannot be used.
async fn shop(name: &str) -> Option<(World, u64)> {
    let mail = Arc::new(MailServer::start()?);
    let count = how_many();
    let plan = world(name).postgres().bigint().customers(count).smtp(mail.port());
    let plan = plan.with("provider.timeout", "10s").with("provider.lease", "12s");
    let plan = plan.with("unknown.escalate_after", "20s").with("worker.shutdown_grace", "15s");
    let mut world = plan.start().await?;
    world.received_by(move || of_mail(&mail.messages()));
    let count = u64::try_from(count).unwrap();
    // No id, and two rows with one id that say different things.
    world
        .shop
        .execute(
            "insert into customers values (null, 'a@shop.example', 'A', 1), \
             (-5, 'b@shop.example', 'B', 1), (-5, 'c@shop.example', 'C', 1)",
        )
        .await;
    Some((world, count))
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_gets_one_message_and_a_second_run_sends_nothing() {
    let Some((mut world, count)) = shop("thousand").await else { return };
    let worker = world.worker().await;
    let begun = Instant::now();
    let run = world.digestd(&format!("run --period {PERIOD} --wait")).await;
    println!("{count} customers took {:?}", begun.elapsed());
    assert_eq!(run.code, 0, "{run:?}");
    let status = world.status().await;
    counts(&status, &[("selected", count), ("sent", count), ("cleaned", count), ("unkeyed", 3)]);
    assert_eq!(u64::try_from(world.inbox().len()).unwrap(), count);
    world.check().await;
    assert_eq!(world.ledger.count("@messages").await, 0);
    assert_eq!(world.ledger.count("@digest_rows").await, 0);
    assert_eq!(world.shop.count("digest_items").await, 0);
    let again = world.digestd(&format!("run --period {PERIOD} --wait")).await;
    assert_eq!(again.code, 3, "{again:?}");

    // The engine has forgotten everything: it is another one.
    worker.kill();
    let Some(engine) = server(None).await else { return };
    world.move_to(engine.address()).await;
    assert!(world.workflows("").await.is_empty());
    let _worker = world.worker().await;
    let again = world.digestd(&format!("run --period {PERIOD} --wait")).await;
    assert_eq!(again.code, 3, "{again:?}");
    assert!(world.workflows("WorkflowType = 'CustomerDigest'").await.is_empty());
    assert_eq!(u64::try_from(world.inbox().len()).unwrap(), count);
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn five_kills_at_random_cost_nobody_a_second_message() {
    let Some((world, count)) = shop("five-kills").await else { return };
    let seed = 20_241_016;
    let mut random = StdRng::seed_from_u64(seed);
    let mut worker = world.worker().await;
    let begun = Instant::now();
    world.start_run().await;
    for kill in 1..=5 {
        // Somewhere within the next sixth of the customers.
        let share = usize::try_from(count).unwrap() / 6;
        let at = share * (kill - 1) + random.random_range(1..=share);
        until(&format!("{at} messages"), async || (world.inbox().len() >= at).then_some(())).await;
        worker.kill();
        world.check().await;
        worker = world.worker().await;
    }
    let status = world.closed().await;
    println!("{count} customers and five kills (seed {seed}) took {:?}", begun.elapsed());
    counts(&status, &[("selected", count), ("missing_count", 0), ("dead", 0), ("suppressed", 0)]);
    let of = |name: &str| status[name].as_u64().unwrap();
    assert_eq!(of("cleaned") + of("unknown"), count, "{status:#}");
    println!("{} unknown", of("unknown"));
    assert!(u64::try_from(world.inbox().len()).unwrap() >= of("cleaned"));
    world.check().await;
}
