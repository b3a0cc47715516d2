//! Amazon SES, whose events come through Amazon SNS: a subscription is confirmed, and an event
//! settles what no answer did.

use crate::end_to_end::world::{counts, through, until, world};
use digest_activities::metrics::Metrics;
use digest_activities::provider::alias::alias;
use digest_activities::webhook::{Fetch, SesWebhook, Topic};
use digest_tests::api_server::{Act, End, Phase, Ses};
use digest_tests::free_port;
use digest_tests::sns::{CERTIFICATE_URL, Sns};
use digestd::assemble;
use digestd::webhooks::Webhooks;
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use url::Url;

const TOPIC: &str = "arn:aws:sns:eu-west-1:123456789012:digest-events";

/// Answers in SNS's place, and keeps what it was asked.
struct InPlaceOfSns {
    certificate: Vec<u8>,
    asked: Mutex<Vec<String>>,
}

impl Fetch for InPlaceOfSns {
    fn get<'a>(&'a self, url: &'a Url) -> BoxFuture<'a, Result<Vec<u8>, String>> {
        self.asked.lock().unwrap().push(url.to_string());
        std::future::ready(Ok(self.certificate.clone())).boxed()
    }
}

async fn post(url: &str, body: String) -> StatusCode {
    let request = reqwest::Client::new().post(url).header("content-type", "text/plain");
    request.body(body).send().await.unwrap().status()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_of_ses_settles_what_no_answer_did() {
    let script = vec![Act::Fail(Phase::Taken, End::Reset)];
    let plan = world("ses-told")
        .customers(2)
        .with("provider.region", "eu-west-1")
        .with("provider.configuration_set", "digest");
    let Some((world, server)) = through(plan, Ses { bulk: false }, script).await else { return };
    let keys = ["customer-0001", "customer-0002"].map(|customer| world.key(customer));
    let secrets =
        [("DIGESTD_PROVIDER_USERNAME", "AKIATEST"), ("DIGESTD_PROVIDER_PASSWORD", "secret")];
    let _worker = world.worker_with(&secrets).await;

    let sns = Sns::new().unwrap();
    let certificate = sns.certificate().as_bytes().to_vec();
    let fetch = Arc::new(InPlaceOfSns { certificate, asked: Mutex::default() });
    let port = free_port().unwrap();
    let (config, secrets) = world.loaded();
    let webhooks = Webhooks {
        listen: SocketAddr::from(([127, 0, 0, 1], port)),
        webhook: Arc::new(SesWebhook::new(vec![Topic::parse(TOPIC).unwrap()], fetch.clone())),
        ledger: assemble::ledger(&config, &secrets).await.unwrap(),
        client: world.client.clone(),
        rules: config.rules(),
        metrics: Arc::new(Metrics::new("ses-events", "ses").unwrap()),
    };
    let _listening = webhooks.start().await.unwrap();
    let url = format!("http://127.0.0.1:{port}/webhooks/ses");

    let confirm = format!(
        "https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn={TOPIC}&Token=abc"
    );
    let now = Timestamp::now().to_string();
    let mut confirmation = json!({
        "Type": "SubscriptionConfirmation", "MessageId": "c1", "Token": "abc", "TopicArn": TOPIC,
        "Message": "You have chosen to subscribe", "SubscribeURL": confirm, "Timestamp": now,
    });
    sns.sign(&mut confirmation).unwrap();
    assert_eq!(post(&url, confirmation.to_string()).await, StatusCode::OK);
    assert_eq!(*fetch.asked.lock().unwrap(), [CERTIFICATE_URL, &confirm]);

    world.start_run().await;
    let unknown = until("one in doubt", async || {
        let operations = world.operations().await;
        let state = |key: &_| operations.get(&format!("{key}")).map(String::as_str);
        keys.iter().find(|key| state(key) == Some("unknown"))
    })
    .await;
    let taken = server.record().taken;
    let taken = taken.iter().find(|taken| taken.key == alias(unknown)).unwrap();
    let request: Value = serde_json::from_slice(&taken.request.body).unwrap();
    let tag = &request["EmailTags"][0];
    let delivered = json!({
        "eventType": "Delivery",
        "mail": {"messageId": taken.id, "tags": {tag["Name"].as_str().unwrap(): [tag["Value"]]}},
    })
    .to_string();
    let elsewhere = "arn:aws:sns:eu-west-1:999999999999:digest-events";
    for (topic, message, expected) in [
        (elsewhere, delivered.as_str(), StatusCode::UNAUTHORIZED),
        (
            TOPIC,
            "Successfully validated SNS topic for Amazon SES event publishing.",
            StatusCode::OK,
        ),
        (TOPIC, delivered.as_str(), StatusCode::OK),
    ] {
        let body = sns.notification(topic, "n1", &now, message).unwrap();
        assert_eq!(post(&url, body).await, expected, "{topic} {message}");
    }
    let forged = sns.notification(TOPIC, "n2", &now, &delivered).unwrap().replace("n2", "n3");
    assert_eq!(post(&url, forged).await, StatusCode::UNAUTHORIZED);
    world.until_state(unknown, "cleaned").await;
    counts(&world.closed().await, &[("cleaned", 2), ("unknown", 0), ("contradicted", 0)]);
    assert_eq!(world.ledger.count("@provider_events").await, 1);
    assert_eq!(world.show(unknown).await["message_id"], taken.id.as_str());
    world.check().await;
}
