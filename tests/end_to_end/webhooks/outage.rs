//! What a provider tells while the ledger is away: it is told to come again, and nothing is lost.

use super::{SECRETS, WEBHOOK_SECRET, event, post};
use crate::end_to_end::outage::ledger_behind_a_proxy;
use crate::end_to_end::world::{Database, counts, through, world};
use digest_tests::api_server::{Act, End, Phase, Resend};
use digest_tests::free_port;
use jiff::Timestamp;
use reqwest::StatusCode;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_taken_from_a_webhook_that_is_not_stored() {
    let script = vec![Act::Fail(Phase::Taken, End::Reset); 50];
    let port = free_port().unwrap();
    let plan = world("told-while-away")
        .customers(1)
        .with("webhooks.listen", format!("127.0.0.1:{port}"))
        .with("retry.ambiguous.max_attempts", 2);
    let proxied = ledger_behind_a_proxy(plan, "told_while_away").await;
    let Some((plan, proxy, ledger)) = proxied else { return };
    let Some((mut world, server)) = through(plan, Resend, script).await else { return };
    world.ledger = Database::Postgres(ledger);
    let key = world.key("customer-0001");
    let _worker = world.worker_with(&SECRETS).await;
    world.start_run().await;
    world.until_state(&key, "unknown").await;
    let taken = server.until(|record| !record.taken.is_empty()).await.unwrap().taken;
    let told = event("email.delivered", &taken[0], "{}");
    let url = format!("http://127.0.0.1:{port}/webhooks/resend");
    let tell = || post(&url, WEBHOOK_SECRET, Timestamp::now(), &told);
    proxy.cut();
    for _ in 0..3 {
        assert_eq!(tell().await, StatusCode::SERVICE_UNAVAILABLE);
    }
    assert_eq!(world.ledger.count("@provider_events").await, 0);
    proxy.heal();
    assert_eq!(tell().await, StatusCode::OK);
    assert_eq!(world.ledger.count("@provider_events").await, 1);
    world.until_state(&key, "cleaned").await;
    counts(&world.closed().await, &[("cleaned", 1), ("unknown", 0)]);
    world.check().await;
}
