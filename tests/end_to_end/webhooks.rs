//! A provider over HTTP from end to end: answers that are lost, and what its webhooks tell.

mod load;
mod outage;
mod ses;
mod suppression;

use crate::end_to_end::world::{API_KEY, counts, through, world};
use digest_tests::api_server::{Act, End, Phase, Resend};
use digest_tests::{free_port, svix};
use jiff::Timestamp;
use reqwest::StatusCode;

pub(crate) const WEBHOOK_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
pub(crate) const SECRETS: [(&str, &str); 2] = [API_KEY, ("DIGESTD_WEBHOOK_SECRET", WEBHOOK_SECRET)];

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_is_replayed_under_the_same_key_and_nobody_gets_two() {
    let script = vec![
        Act::Fail(Phase::Taken, End::Reset),
        Act::Fail(Phase::Received, End::Close),
        Act::Go,
        Act::Fail(Phase::Taken, End::Close),
    ];
    let plan = world("resend-lost").customers(8);
    let Some((world, server)) = through(plan, Resend, script).await else { return };
    let _worker = world.worker_with(&SECRETS).await;
    world.start_run().await;
    counts(&world.closed().await, &[("selected", 8), ("cleaned", 8), ("unknown", 0)]);
    let record = server.record();
    assert!(record.requests.len() > 8, "nothing was replayed");
    for taken in &record.taken {
        let same_key = record
            .requests
            .iter()
            .filter(|request| request.header("idempotency-key") == Some(&taken.key));
        for request in same_key {
            assert_eq!(request.body, taken.request.body, "{}: other bytes", taken.key);
        }
    }
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_settles_what_no_answer_did() {
    // No replay can help: every further answer is lost too.
    let script = vec![Act::Fail(Phase::Taken, End::Reset); 50];
    let port = free_port().unwrap();
    let plan = world("resend-told")
        .customers(1)
        .with("webhooks.listen", format!("127.0.0.1:{port}"))
        .with("retry.ambiguous.max_attempts", 2);
    let Some((world, server)) = through(plan, Resend, script).await else { return };
    let key = world.key("customer-0001");
    let _worker = world.worker_with(&SECRETS).await;
    world.start_run().await;
    world.until_state(&key, "unknown").await;
    let taken = server.until(|record| !record.taken.is_empty()).await.unwrap().taken;
    let body = serde_json::from_slice::<serde_json::Value>(&taken[0].request.body).unwrap();
    let tag = body["tags"][0]["value"].as_str().unwrap().to_owned();
    let told = serde_json::json!({
        "type": "email.delivered", "data": {"email_id": taken[0].id, "tags": {"operation_key": tag}},
    })
    .to_string();
    let url = format!("http://127.0.0.1:{port}/webhooks/resend");

    let (forged, genuine) = ("whsec_Zm9yZ2Vk", WEBHOOK_SECRET);
    let now = Timestamp::now();
    let old = now - jiff::SignedDuration::from_mins(6);
    let big = "x".repeat(1_100_000);
    for (secret, at, body, expected) in [
        (forged, now, told.as_str(), StatusCode::UNAUTHORIZED),
        (genuine, old, told.as_str(), StatusCode::UNAUTHORIZED),
        (genuine, now, "{}", StatusCode::BAD_REQUEST),
        (genuine, now, big.as_str(), StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        assert_eq!(post(&url, secret, at, body).await, expected);
    }
    let elsewhere = format!("http://127.0.0.1:{port}/webhooks/postmark");
    assert_eq!(post(&elsewhere, genuine, now, &told).await, StatusCode::NOT_FOUND);
    let health = reqwest::get(format!("http://127.0.0.1:{port}/healthz")).await.unwrap();
    assert_eq!(health.status(), StatusCode::NOT_FOUND, "more than webhooks can be reached");
    assert_eq!(world.ledger.count("@provider_events").await, 0, "a refused event was stored");
    world.until_state(&key, "unknown").await;

    for _ in 0..3 {
        assert_eq!(post(&url, genuine, now, &told).await, StatusCode::OK);
    }
    world.until_state(&key, "cleaned").await;
    assert_eq!(world.ledger.count("@provider_events").await, 1);
    let shown = world.show(&key).await;
    assert_eq!(shown["message_id"], taken[0].id.as_str(), "{shown:#}");
    counts(&world.closed().await, &[("cleaned", 1), ("unknown", 0), ("contradicted", 0)]);
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_can_be_told_to_nobody_stops_no_other() {
    let script = vec![Act::Fail(Phase::Taken, End::Reset); 50];
    let port = free_port().unwrap();
    let plan = world("resend-poison")
        .customers(1)
        .with("webhooks.listen", format!("127.0.0.1:{port}"))
        .with("retry.ambiguous.max_attempts", 2);
    let Some((world, server)) = through(plan, Resend, script).await else { return };
    let key = world.key("customer-0001");
    let worker = world.worker_with(&SECRETS).await;
    world.start_run().await;
    world.until_state(&key, "unknown").await;
    // Before every other event: of an operation that is gone, and one that nobody can read.
    let poison = "insert into @provider_events (provider, event_id, key, finding, at) values \
                  ('resend', 'gone', 'resend-poison:2024-W10:nobody', '[]', 1), \
                  ('resend', 'unreadable', 'resend-poison:2024-W10:customer-0001', '{', 2)";
    assert_eq!(world.ledger.execute(poison).await, 2);
    let taken = server.until(|record| !record.taken.is_empty()).await.unwrap().taken;
    let told = event("email.delivered", &taken[0], "{}");
    let url = format!("http://127.0.0.1:{port}/webhooks/resend");
    assert_eq!(post(&url, WEBHOOK_SECRET, Timestamp::now(), &told).await, StatusCode::OK);
    world.until_state(&key, "cleaned").await;
    counts(&world.closed().await, &[("cleaned", 1), ("unknown", 0)]);
    let kept = "@provider_events where fault is not null and told_at is not null";
    assert_eq!(world.ledger.count(kept).await, 2);
    let check = world.digestd("check").await;
    assert!(check.stdout.contains("2 events of the provider could not be told"), "{check:?}");
    let log = worker.said();
    for id in ["gone", "unreadable"] {
        let said = log.lines().filter(|line| line.contains(&format!("event=\"{id}\""))).count();
        assert_eq!(said, 1, "{id} is said once:\n{log}");
    }
    world.check().await;
}

/// What Resend tells of a message that it took.
pub(crate) fn event(name: &str, taken: &digest_tests::api_server::Taken, bounce: &str) -> String {
    let body = serde_json::from_slice::<serde_json::Value>(&taken.request.body).unwrap();
    let tag = body["tags"][0]["value"].as_str().unwrap();
    let id = &taken.id;
    format!(
        r#"{{"type":"{name}","data":{{"email_id":"{id}","tags":{{"operation_key":"{tag}"}},"bounce":{bounce}}}}}"#
    )
}

async fn post(url: &str, secret: &str, at: Timestamp, body: &str) -> StatusCode {
    post_as("event-1", url, secret, at, body).await
}

pub(crate) async fn post_as(
    id: &str,
    url: &str,
    secret: &str,
    at: Timestamp,
    body: &str,
) -> StatusCode {
    let client = reqwest::Client::new();
    let mut request = client.post(url).body(body.to_owned());
    let signed = svix::sign(secret, id, at.as_second(), body.as_bytes()).unwrap();
    for (name, value) in signed {
        request = request.header(name, value);
    }
    request.send().await.unwrap().status()
}
