//! A campaign of text messages from end to end, through an API that speaks as Twilio does.

use crate::end_to_end::world::{PERIOD, World, counts, text_number, through, world};
use digest_activities::provider::alias::alias;
use digest_tests::api_server::twilio::{ACCOUNT, PUBLIC_URL};
use digest_tests::api_server::{Act, ApiServer, End, Phase, Response, Twilio};
use digest_tests::{free_port, twilio};
use reqwest::StatusCode;
use std::sync::Arc;

const TOKEN: &str = "verysecrettoken";
const SECRETS: [(&str, &str); 4] = [
    ("DIGESTD_PROVIDER_USERNAME", ACCOUNT),
    ("DIGESTD_PROVIDER_PASSWORD", TOKEN),
    ("DIGESTD_WEBHOOK_SECRET", TOKEN),
    ("DIGESTD_LOG", "debug"),
];

/// A campaign of text messages to `customers` through an API which follows `script`, and the URL of
/// its webhook.
async fn campaign(
    name: &str,
    customers: usize,
    script: Vec<Act>,
) -> Option<(World, Arc<ApiServer>, String)> {
    let port = free_port().unwrap();
    let plan = world(name).variables(&SECRETS).customers(customers).text_messages(port);
    let (world, server) = through(plan, Twilio, script).await?;
    Some((world, server, format!("http://127.0.0.1:{port}/webhooks/twilio")))
}

/// Nothing of a number or a credential is in the workers' logs, nor in what commands say.
async fn is_private(world: &World) {
    let mut said = world.worker_logs();
    for command in ["status", "unknown", "dead-letters"] {
        let told = world.digestd(&format!("{command} --period {PERIOD}")).await;
        said.push_str(&format!("{}{}", told.stdout, told.stderr));
    }
    assert!(said.contains("the worker is ready"));
    // Their numbers begin so; with fewer digits it could be a time's.
    for private in ["491510000", TOKEN] {
        assert!(!said.contains(private), "{private} is told");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_is_found_by_its_content_and_nobody_gets_two() {
    let script =
        vec![Act::Fail(Phase::Taken, End::Reset), Act::Go, Act::Fail(Phase::Taken, End::Close)];
    let Some((world, server, _)) = campaign("sms-found", 5, script).await else { return };
    let _worker = world.worker().await;
    world.start_run().await;
    counts(&world.closed().await, &[("selected", 5), ("cleaned", 5), ("unknown", 0)]);
    let taken = server.record().taken;
    assert_eq!(taken.len(), 5);
    for customer in 1..=5 {
        let key = world.key(&format!("customer-{customer:04}"));
        let shown = world.show(&key).await;
        let ours = taken.iter().find(|taken| taken.key == alias(&key)).unwrap();
        assert_eq!(shown["message_id"], ours.id.as_str(), "{shown:#}");
    }
    world.check_at_rest().await;
    let report = world.audit().await;
    let why = report["provider_not_asked"].as_str().unwrap();
    assert!(why.contains("content"), "{report:#}");
    is_private(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_callback_settles_what_no_answer_and_no_look_up_did() {
    let away = Act::Say(Response::new(503, ""));
    let mut script = vec![Act::Fail(Phase::Taken, End::Reset)];
    script.extend(vec![away; 100]);
    let Some((world, _server, webhook)) = campaign("sms-told", 1, script).await else { return };
    let key = world.key("customer-0001");
    let _worker = world.worker().await;
    world.start_run().await;
    world.until_state(&key, "unknown").await;

    let query = format!("?operation={}", alias(&key));
    let number = text_number(1);
    let fields = [("MessageSid", "SM1"), ("MessageStatus", "delivered"), ("To", number.as_str())];
    let incomplete = &fields[1..];
    let public = format!("{PUBLIC_URL}/webhooks/twilio{query}");
    let genuine = twilio::sign(TOKEN, &public, &fields);
    let post = async |signature: &str, query: &str, fields: &[(&str, &str)]| {
        let url = format!("{webhook}{query}");
        let request = reqwest::Client::new().post(url).body(twilio::form(fields));
        request.header(twilio::SIGNATURE, signature).send().await.unwrap().status()
    };
    let forged = twilio::sign("another token", &public, &fields);
    // As if there were no proxy between: the URL that was told is the one that is signed.
    let unproxied = twilio::sign(TOKEN, &format!("{webhook}{query}"), &fields);
    let other = format!("?operation={}", alias(&world.key("customer-0002")));
    for (signature, query, fields, expected) in [
        (&forged, &query, &fields[..], StatusCode::UNAUTHORIZED),
        (&unproxied, &query, &fields[..], StatusCode::UNAUTHORIZED),
        (&genuine, &other, &fields[..], StatusCode::UNAUTHORIZED),
        (&genuine, &query, &fields[1..], StatusCode::UNAUTHORIZED),
        (&twilio::sign(TOKEN, &public, incomplete), &query, incomplete, StatusCode::BAD_REQUEST),
    ] {
        assert_eq!(post(signature, query, fields).await, expected);
    }
    assert_eq!(world.ledger.count("@provider_events").await, 0, "a refused event was stored");
    world.until_state(&key, "unknown").await;

    for _ in 0..3 {
        assert_eq!(post(&genuine, &query, &fields).await, StatusCode::OK);
    }
    world.until_state(&key, "cleaned").await;
    assert_eq!(world.ledger.count("@provider_events").await, 1);
    let shown = world.show(&key).await;
    assert_eq!(shown["message_id"], "SM1", "{shown:#}");
    counts(&world.closed().await, &[("cleaned", 1), ("unknown", 0), ("contradicted", 0)]);
    world.check().await;
    is_private(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_opted_out_is_suppressed_and_holds_nobody_up() {
    let opted_out = r#"{"code":21610,"message":"unsubscribed recipient","status":400}"#;
    let script = vec![Act::Say(Response::new(400, opted_out))];
    let Some((world, ..)) = campaign("sms-out", 4, script).await else { return };
    let wrong = "update customers set email = '0151 2345678' where id = 'customer-0004'";
    world.shop.execute(wrong).await;
    let _worker = world.worker().await;
    world.start_run().await;
    let status = world.closed().await;
    counts(&status, &[("selected", 4), ("cleaned", 2), ("suppressed", 1), ("dead", 1)]);
    assert_eq!(status["state"], "closed", "{status:#}");
    // What is no number is found before anything is sent.
    let shown = world.show(&world.key("customer-0004")).await;
    assert_eq!((&shown["state"], &shown["class"]), (&"dead".into(), &"recipient".into()));
    world.check_at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sandbox_takes_text_messages_too() {
    let plan = world("sms-sandbox").customers(3).text_messages(0);
    let plan = plan.without("webhooks.listen").without("webhooks.public_url");
    let Some(world) = plan.start().await else { return };
    let _worker = world.worker().await;
    world.start_run().await;
    counts(&world.closed().await, &[("selected", 3), ("cleaned", 3)]);
    world.check_at_rest().await;
}

/// Two customers share a number and get the same text: a record may be the other's.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_may_be_anothers_settles_nothing() {
    let script = vec![Act::Fail(Phase::Taken, End::Reset), Act::Fail(Phase::Received, End::Reset)];
    let Some((world, server, _)) = campaign("sms-shared", 2, script).await else { return };
    world.shop.execute(&format!("update customers set email = '{}'", text_number(1))).await;
    std::fs::write(world.folder().join("digest.txt"), "Your week: {{ rows|length }} new").unwrap();
    let _worker = world.worker().await;
    world.start_run().await;
    let status = world.closed().await;
    let taken = server.record().taken;
    assert_eq!(taken.len(), 1, "{status:#}");
    let all = ["customer-0001", "customer-0002"].map(|id| world.key(id));
    let untaken = all.iter().find(|key| alias(key) != taken[0].key).unwrap();
    assert_eq!(world.show(untaken).await["state"], "unknown");
    world.check().await;
    let resolve = format!("resolve {untaken} --not-delivered --reason looked --yes");
    assert_eq!(world.digestd(&resolve).await.code, 0);
    world.until_state(untaken, "cleaned").await;
}
