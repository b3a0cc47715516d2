//! The real services, in their test modes: addresses that only pretend to receive. Each runs where
//! its account is in the environment, and says in a line what it lacks otherwise.

use crate::bench::{message, soon, text_message};
use digest_activities::message::Redacted;
use digest_activities::provider::api::ApiSettings;
use digest_activities::provider::twilio::{Twilio, TwilioSettings};
use digest_activities::provider::{Found, Provider, Reply};
use digest_tests::absent::skipped;
use digest_tests::api_server::{Dialect, Mailgun, Postmark, Resend, Sendgrid};
use digest_workflows::operation::{FailureClass, OperationKey, Period, Replay};
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// An account that the environment names.
struct Account {
    settings: ApiSettings,
    from: String,
}

/// The account in `DIGESTD_TEST_<KIND>_FROM` and `DIGESTD_TEST_<KIND>_<CREDENTIAL>`.
fn account(kind: &str, credentials: &[&str]) -> Option<Account> {
    let name = |field: &str| format!("DIGESTD_TEST_{}_{field}", kind.to_uppercase());
    let read = |field: &str| std::env::var(name(field)).ok().filter(|value| !value.is_empty());
    let lacking: Vec<String> = ["FROM"]
        .iter()
        .chain(credentials)
        .filter(|field| read(field).is_none())
        .map(|field| name(field))
        .collect();
    if !lacking.is_empty() {
        skipped(&format!("the real {kind}"), &format!("set {}", lacking.join(" and ")));
        return None;
    }
    let from = read("FROM").unwrap();
    let secret = |field: &str| read(field).map(Redacted::new);
    let settings = ApiSettings {
        url: None,
        key: secret("API_KEY"),
        username: secret("USERNAME"),
        password: secret("PASSWORD"),
        ca_file: None,
        sender_domain: from.rsplit_once('@').map(|(_, domain)| domain.to_owned()),
        events: false,
    };
    Some(Account { settings, from })
}

/// A key that nobody has used.
fn fresh_key() -> OperationKey {
    let customer = format!("test-{}", uuid::Uuid::new_v4().simple());
    OperationKey::new("digest", Period::parse("2026-W42").unwrap(), &customer).unwrap()
}

/// What the account can do without sending anything: a check, and a look-up that finds nothing.
async fn can_be_asked(adapter: &dyn Provider) {
    soon(adapter.check()).await.unwrap();
    if adapter.contract().lookup.is_offered() {
        let since = Timestamp::now() - SignedDuration::from_mins(1);
        assert_eq!(soon(adapter.look_up(&fresh_key(), None, since)).await, Found::Miss);
    }
}

/// Sends one message to `to`, and once more under the same key where the contract makes that safe.
async fn takes_one(adapter: &dyn Provider, from: &str, to: &str) {
    let key = fresh_key();
    let mut message = message(&key);
    from.clone_into(&mut message.from);
    from.clone_into(&mut message.sender);
    message.recipient = Redacted::new(to.to_owned());
    let mime = format!("From: {from}\r\nTo: {to}\r\nSubject: A test\r\n\r\nHello\r\n");
    message.mime = Redacted::new(mime.into_bytes());
    let first = soon(soon(adapter.prepare(&key, &message)).await.unwrap().hand_over()).await;
    assert!(matches!(first, Reply::Accepted { message_id: Some(_) }), "{first:?}");
    if let Replay::ReturnsOriginal { .. } = adapter.contract().replay {
        let again = soon(soon(adapter.prepare(&key, &message)).await.unwrap().hand_over()).await;
        assert_eq!(again, first, "the same key was taken for another message");
    }
}

async fn by_key(dialect: impl Dialect, pretends: Option<&str>) {
    let Some(Account { settings, from }) = account(dialect.kind(), &["API_KEY"]) else { return };
    let adapter: Arc<dyn Provider> = dialect.adapter(&settings).unwrap();
    can_be_asked(&*adapter).await;
    if let Some(to) = pretends {
        takes_one(&*adapter, &from, to).await;
    }
}

#[tokio::test]
async fn the_real_resend() {
    by_key(Resend, Some("delivered@resend.dev")).await;
}

#[tokio::test]
async fn the_real_postmark() {
    by_key(Postmark, Some("test@blackhole.postmarkapp.com")).await;
}

/// Its sandbox is a field of the request that we never send, so nothing is.
#[tokio::test]
async fn the_real_sendgrid() {
    by_key(Sendgrid { has_look_up: false }, None).await;
}

/// Its test mode is a field of the request that we never send, so nothing is.
#[tokio::test]
async fn the_real_mailgun() {
    by_key(Mailgun, None).await;
}

#[tokio::test]
async fn the_real_ses() {
    let credentials = ["USERNAME", "PASSWORD", "REGION"];
    let Some(Account { settings, from }) = account("ses", &credentials) else { return };
    let region = std::env::var("DIGESTD_TEST_SES_REGION").ok();
    let own = digest_activities::provider::ses::SesSettings { region, ..Default::default() };
    let adapter = digest_activities::provider::ses::Ses::new(&settings, &own).unwrap();
    can_be_asked(&adapter).await;
    takes_one(&adapter, &from, "success@simulator.amazonses.com").await;
}

/// With its test credentials, which take a message and send none, and numbers that stand for a refusal
/// (<https://www.twilio.com/docs/iam/test-credentials>); they may not ask for anything.
#[tokio::test]
async fn the_real_twilio() {
    let Some(Account { settings, from }) = account("twilio", &["USERNAME", "PASSWORD"]) else {
        return;
    };
    let adapter = Twilio::new(&settings, &TwilioSettings::default()).unwrap();
    let send = async |to: &str| {
        let mut message = text_message(&fresh_key(), &from);
        message.recipient = Redacted::new(to.to_owned());
        soon(soon(adapter.prepare(&fresh_key(), &message)).await.unwrap().hand_over()).await
    };
    let taken = send("+15005550006").await;
    assert!(matches!(taken, Reply::Accepted { message_id: Some(_) }), "{taken:?}");
    for (to, class) in [
        ("+15005550001", FailureClass::Recipient),
        ("+15005550004", FailureClass::Suppressed),
        ("+15005550009", FailureClass::Recipient),
    ] {
        let Reply::NotSent(failure) = send(to).await else { panic!("{to} is refused") };
        assert_eq!(failure.class, class, "{to}: {failure:?}");
    }
}
