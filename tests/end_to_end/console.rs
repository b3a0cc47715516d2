//! What is decided and published over HTTP, by a real worker: it goes through the gates like everything
//! else, and nobody gets two.

use crate::end_to_end::world::{PERIOD, World, counts, world};
use reqwest::StatusCode;
use serde_json::{Value, json};

const TOKEN: &str = "a token for this test alone";

/// Asks the API of the worker at `http`; its answer must be `status`.
async fn ask(http: &str, path: &str, body: &Value, status: StatusCode) -> Value {
    let request = reqwest::Client::new().post(format!("{http}/api/v1{path}"));
    let answer = request.bearer_auth(TOKEN).json(body).send().await.unwrap();
    let (got, text) = (answer.status(), answer.text().await.unwrap());
    assert_eq!(got, status, "{path}: {text}");
    serde_json::from_str(&text).unwrap()
}

/// Three customers, of whom one's answer gets lost and one is refused, and a fourth who comes later.
async fn shop(name: &str, postgres: bool) -> Option<World> {
    let lost = toml::toml! { customer = "customer-0002" kinds = ["accept_then_hang"] times = 1 };
    let refused = toml::toml! { customer = "customer-0003" kinds = ["reject"] times = 1 };
    let faults = [lost, refused].map(toml::Value::Table).to_vec();
    let plan = world(name).customers(4).with("sandbox.fault", faults);
    let world = if postgres { plan.postgres() } else { plan }.start().await?;
    opt_in(&world, 0).await;
    Some(world)
}

async fn opt_in(world: &World, wanted: u8) {
    let sql = format!("update customers set digest_opt_in = {wanted} where id = 'customer-0004'");
    assert_eq!(world.shop.execute(&sql).await, 1);
}

async fn everything_over_http(name: &str, postgres: bool) {
    let Some(world) = shop(name, postgres).await else { return };
    let worker = world.worker_with(&[("DIGESTD_HTTP_TOKEN", TOKEN)]).await;
    let http = worker.http().await;
    world.start_run().await;
    let closed = world.closed().await;
    counts(&closed, &[("selected", 3), ("cleaned", 1), ("unknown", 1), ("dead", 1)]);
    let [lost, refused, late] = [2, 3, 4].map(|n| world.key(&format!("customer-000{n}")));

    let body =
        json!({"keys": [lost], "verdict": "delivered", "attempt": 1, "reason": "in its log"});
    let said = ask(&http, "/unknown/resolve", &body, StatusCode::OK).await;
    assert_eq!(said["results"][0]["result"], "done", "{said:#}");
    let body = json!({"period": PERIOD, "keys": [refused], "reason": "corrected"});
    ask(&http, "/dead-letters/replay", &body, StatusCode::OK).await;

    // Who does not want it is not found by the campaign's own query, whoever asks.
    let body = json!({"customer": "customer-0004", "period": PERIOD});
    ask(&http, "/operations", &body, StatusCode::UNPROCESSABLE_ENTITY).await;
    opt_in(&world, 1).await;
    let hold = json!({"reason": "not yet", "by": "kim"});
    ask(&http, &format!("/runs/{PERIOD}/hold"), &hold, StatusCode::OK).await;
    ask(&http, "/operations", &body, StatusCode::CREATED).await;
    ask(&http, "/operations", &body, StatusCode::OK).await;
    ask(&http, &format!("/runs/{PERIOD}/resume"), &hold, StatusCode::OK).await;
    for key in [&lost, &refused, &late] {
        world.until_state(key, "cleaned").await;
    }
    ask(&http, "/operations", &body, StatusCode::OK).await;
    counts(&world.status().await, &[("selected", 4), ("cleaned", 4), ("missing_count", 0)]);
    let shown = world.show(&late).await;
    let events: Vec<&str> = shown["timeline"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|line| line["event"].as_str())
        .collect();
    assert_eq!(events[0], "published", "{shown:#}");
    world.check().await;
    let (code, audit) = world.audited("").await;
    assert_eq!(code, 0, "{audit:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_decided_and_published_over_http_goes_through_the_gates_on_sqlite() {
    everything_over_http("over-http", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_decided_and_published_over_http_goes_through_the_gates_on_postgres() {
    everything_over_http("over-http-pg", true).await;
}

/// Whoever published is answered once the ledger has it; what happens to the worker then changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_published_just_before_a_crash_is_sent_once() {
    let Some(world) = shop("published-crash", false).await else { return };
    let worker = world.worker_with(&[("DIGESTD_HTTP_TOKEN", TOKEN)]).await;
    let http = worker.http().await;
    world.start_run().await;
    world.closed().await;
    opt_in(&world, 1).await;
    // Held, so that no attempt is under way at the kill: that would leave a doubt, and rightly.
    let hold = json!({"reason": "not yet", "by": "kim"});
    ask(&http, &format!("/runs/{PERIOD}/hold"), &hold, StatusCode::OK).await;
    let rows = json!([{"title": "A chair", "price": "19.90"}]);
    let body = json!({"customer": "customer-0004", "period": PERIOD, "rows": rows});
    ask(&http, "/operations", &body, StatusCode::CREATED).await;
    // Whether its workflow was started before or not.
    worker.kill();
    world.half_a_minute_passes().await;
    let worker = world.worker_with(&[("DIGESTD_HTTP_TOKEN", TOKEN)]).await;
    let http = worker.http().await;
    ask(&http, "/operations", &body, StatusCode::OK).await;
    ask(&http, &format!("/runs/{PERIOD}/resume"), &hold, StatusCode::OK).await;
    world.until_state(&world.key("customer-0004"), "cleaned").await;
    world.check().await;
}
