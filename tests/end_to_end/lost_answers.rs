//! Every provider takes a message and its answer is lost, on both ledgers: what its contract can
//! settle ends as sent without a human, anything else is shown as unknown, and nobody gets two.

use crate::end_to_end::world::{counts, through, world};
use digest_tests::api_server::twilio::ACCOUNT;
use digest_tests::api_server::{
    Act, Dialect, End, Mailgun, Phase, Postmark, Resend, Sendgrid, Ses, Twilio,
};
use digest_tests::free_port;
use digest_tests::tellers::Teller;
use jiff::Timestamp;

const CUSTOMERS: usize = 5;
const SECRETS: [(&str, &str); 4] = [
    ("DIGESTD_PROVIDER_API_KEY", "secret"),
    ("DIGESTD_PROVIDER_USERNAME", "AKIDEXAMPLE"),
    ("DIGESTD_PROVIDER_PASSWORD", "secret"),
    ("DIGESTD_WEBHOOK_SECRET", "secret"),
];

/// What a provider can do about an answer that was lost, webhooks aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    /// The same request again returns the original.
    Replays,
    /// It can be asked about our key, or the content.
    Finds,
    /// Nothing.
    Nothing,
}

/// One answer is lost after the message was taken, one request before it was.
async fn lose_answers(
    name: &str,
    postgres: bool,
    dialect: impl Dialect + Clone,
    promise: Promise,
    setting: Option<(&str, toml::Value)>,
) {
    let mut plan = world(&format!("lost-{name}-{}", if postgres { "postgres" } else { "sqlite" }));
    plan = plan.customers(CUSTOMERS);
    if dialect.sends_text_messages() {
        // It listens, since only a callback carries the key; nobody calls.
        plan = plan.text_messages(free_port().unwrap());
    }
    if let Some((setting, value)) = setting {
        plan = plan.with(setting, value);
    }
    if postgres {
        plan = plan.postgres();
    }
    let script = vec![Act::Fail(Phase::Taken, End::Reset), Act::Fail(Phase::Received, End::Close)];
    let Some((world, server)) = through(plan, dialect.clone(), script).await else { return };
    let _worker = world.worker_with(&SECRETS).await;
    world.start_run().await;
    let status = world.closed().await;
    counts(&status, &[("selected", 5), ("missing_count", 0), ("dead", 0), ("suppressed", 0)]);
    let taken = server.record().taken;
    let mut unknown = 0;
    for number in 1..=CUSTOMERS {
        let key = world.key(&format!("customer-{number:04}"));
        let carried = dialect.expected(&key);
        let accepted = taken.iter().filter(|taken| taken.key == carried).count();
        assert!(accepted <= 1, "{name}: {key} was sent {accepted} times");
        let shown = world.show(&key).await;
        let settled = shown["state"] == "cleaned";
        match promise {
            Promise::Replays => assert!(settled && accepted == 1, "{name}: {shown:#}"),
            Promise::Finds => assert_eq!(settled, accepted == 1, "{name}: {shown:#}"),
            Promise::Nothing => assert!(!settled || accepted == 1, "{name}: {shown:#}"),
        }
        if !settled {
            assert_eq!(shown["state"], "unknown", "{name}: {shown:#}");
            unknown += 1;
        }
    }
    assert!(promise != Promise::Nothing || unknown > 0, "{name}: nothing was lost");
    assert_eq!(status["unknown"], unknown, "{name}: {status:#}");
    world.check().await;
}

async fn every_provider(postgres: bool) {
    let region = ("provider.region", toml::Value::from("eu-west-1"));
    let with_look_up = ("provider.lookup", toml::Value::from(true));
    let of_account = ("provider.account_sid", toml::Value::from(ACCOUNT));
    let (bare, activity) = (Sendgrid { has_look_up: false }, Sendgrid { has_look_up: true });
    tokio::join!(
        lose_answers("resend", postgres, Resend, Promise::Replays, None),
        lose_answers("postmark", postgres, Postmark, Promise::Finds, None),
        lose_answers("mailgun", postgres, Mailgun, Promise::Finds, None),
    );
    tokio::join!(
        lose_answers("sendgrid-activity", postgres, activity, Promise::Finds, Some(with_look_up)),
        lose_answers("sendgrid", postgres, bare, Promise::Nothing, None),
        lose_answers("ses", postgres, Ses { bulk: false }, Promise::Nothing, Some(region)),
        lose_answers("twilio", postgres, Twilio, Promise::Finds, Some(of_account)),
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn answers_lost_by_every_provider_end_as_its_contract_says_on_sqlite() {
    every_provider(false).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn answers_lost_by_every_provider_end_as_its_contract_says_on_postgres() {
    every_provider(true).await;
}

/// Nothing that we ask is answered any more; then the provider tells by itself.
async fn told(name: &str, dialect: impl Dialect + Clone, teller: Teller) {
    let port = free_port().unwrap();
    let plan = world(&format!("told-{name}")).customers(1);
    let plan = if dialect.sends_text_messages() {
        plan.text_messages(port).with("provider.account_sid", ACCOUNT)
    } else {
        plan.with("webhooks.listen", format!("127.0.0.1:{port}"))
    };
    let plan = plan.with("retry.ambiguous.max_attempts", 2);
    let script = vec![Act::Fail(Phase::Taken, End::Reset); 100];
    let Some((world, server)) = through(plan, dialect, script).await else { return };
    let secret = teller.secret();
    let mut secrets = SECRETS;
    secrets[3].1 = &secret;
    let _worker = world.worker_with(&secrets).await;
    world.start_run().await;
    let key = world.key("customer-0001");
    world.until_state(&key, "unknown").await;
    let taken = server.until(|record| !record.taken.is_empty()).await.unwrap().taken;
    let now = Timestamp::now().as_second();
    let told = teller.delivered(&taken[0].key, &taken[0].id, now).unwrap();
    let url = format!("http://127.0.0.1:{port}/webhooks/{name}{}", told.query);
    for _ in 0..2 {
        let mut request = reqwest::Client::new().post(&url).body(told.body.clone());
        for (header, value) in &told.headers {
            request = request.header(*header, value);
        }
        assert!(request.send().await.unwrap().status().is_success(), "{name}");
    }
    world.until_state(&key, "cleaned").await;
    let shown = world.show(&key).await;
    assert_eq!(shown["message_id"], taken[0].id.as_str(), "{name}: {shown:#}");
    assert_eq!(world.ledger.count("@provider_events").await, 1, "{name}");
    world.check().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "part of the proof: tests/prove"]
async fn what_a_provider_tells_by_itself_settles_a_lost_answer() {
    tokio::join!(
        told("resend", Resend, Teller::Resend),
        told("postmark", Postmark, Teller::Postmark),
        told("sendgrid", Sendgrid { has_look_up: false }, Teller::sendgrid().unwrap()),
        told("mailgun", Mailgun, Teller::Mailgun),
        told("twilio", Twilio, Teller::Twilio),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_lost_is_looked_up_by_its_key() {
    lose_answers("quick", false, Postmark, Promise::Finds, None).await;
}
