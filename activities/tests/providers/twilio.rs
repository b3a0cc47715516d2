//! What only the adapter `twilio` does: it looks up by content, and knows four kinds of senders.

use crate::bench::{Bench, key, settings, soon, text_message};
use digest_activities::message::Redacted;
use digest_activities::provider::api::ApiSettings;
use digest_activities::provider::twilio::{Twilio as Adapter, TwilioSettings};
use digest_activities::provider::{Found, Provider, Reply};
use digest_tests::api_server::twilio::{ACCOUNT, NUMBER, SERVICE};
use digest_tests::api_server::{Act, Response, Twilio};
use digest_workflows::operation::FailureClass;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use std::sync::Arc;

/// The account's adapter, with an API key, for a campaign from `sender`.
fn by_key(bench: &Bench, sender: Option<&str>) -> Adapter {
    let username = Some(Redacted::new("SK0123".to_owned()));
    let settings = ApiSettings { username, ..settings(&bench.server.url()) };
    let own = TwilioSettings {
        account_sid: Some(ACCOUNT.to_owned()),
        sender: sender.map(ToOwned::to_owned),
        ..TwilioSettings::default()
    };
    Adapter::new(&settings, &own).unwrap()
}

#[tokio::test]
async fn a_message_is_found_by_its_content_alone_and_only_since_it_was_handed_over() {
    let bench = Bench::new(Arc::new(Twilio), vec![]).await;
    let key = key("customer-1");
    let adapter = by_key(&bench, None);
    let since = Timestamp::now();
    for sender in [NUMBER, SERVICE] {
        let message = text_message(&key, sender);
        let ready = soon(adapter.prepare(&key, &message)).await.unwrap();
        let Reply::Accepted { message_id } = soon(ready.hand_over()).await else {
            panic!("an ordinary message was not taken")
        };
        let found = soon(adapter.look_up(&key, Some(&message), since)).await;
        assert_eq!(found, Found::Accepted { message_id }, "{sender}");
        let later = since + SignedDuration::from_mins(5);
        assert_eq!(soon(adapter.look_up(&key, Some(&message), later)).await, Found::Miss);
    }
    let other = text_message(&key, "Shop");
    assert_eq!(soon(adapter.look_up(&key, Some(&other), since)).await, Found::Miss);
    // Without the message there is nothing to compare with, and nobody is asked.
    let before = bench.server.record().requests.len();
    let without = soon(adapter.look_up(&key, None, since)).await;
    assert!(matches!(without, Found::Unavailable(_)), "{without:?}");
    assert_eq!(bench.server.record().requests.len(), before);
}

#[tokio::test]
async fn a_record_that_failed_says_how_the_operation_ends() {
    let bench = Bench::new(Arc::new(Twilio), vec![]).await;
    let key = key("customer-1");
    let message = text_message(&key, NUMBER);
    let at = jiff::fmt::rfc2822::to_string(&Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC));
    let record = json!({
        "sid": "SM1", "status": "failed", "error_code": 21610, "direction": "outbound-api",
        "to": message.recipient.reveal(), "from": NUMBER, "messaging_service_sid": null,
        "body": message.text.reveal(), "date_created": at.unwrap(), "date_sent": null,
    });
    let page = json!({"messages": [record], "next_page_uri": null}).to_string();
    bench.server.script([Act::Say(Response::new(200, page))]);
    let found = soon(bench.adapter.look_up(&key, Some(&message), Timestamp::now())).await;
    assert_eq!(found, Found::Refused(FailureClass::Suppressed));
}

#[tokio::test]
async fn a_check_knows_the_senders_of_the_account() {
    let bench = Bench::new(Arc::new(Twilio), vec![]).await;
    for (sender, word) in [
        (Some(NUMBER), "one of its numbers"),
        (Some("12345"), "one of its short codes"),
        (Some(SERVICE), "one of its messaging services"),
        (Some("Shop"), "the name Shop"),
        (None, "differs from message to message"),
    ] {
        let said = soon(by_key(&bench, sender).check()).await.unwrap();
        assert!(said.contains("is active") && said.contains(word), "{sender:?}: {said}");
    }
    let other_service = SERVICE.replace('0', "f");
    for (sender, word) in [
        ("+15005550007", "has no number +15005550007"),
        ("54321", "has no short code 54321"),
        (&other_service, "has no messaging service"),
    ] {
        let said = soon(by_key(&bench, Some(sender)).check()).await.unwrap_err();
        assert!(said.contains(word) && said.contains("message.from"), "{sender}: {said}");
    }
    let mute = json!({"incoming_phone_numbers": [{"capabilities": {"sms": false}}]}).to_string();
    let active = json!({"status": "active", "type": "Trial"}).to_string();
    bench
        .server
        .script([Response::new(200, active.clone()), Response::new(200, mute)].map(Act::Say));
    let said = soon(by_key(&bench, Some(NUMBER)).check()).await.unwrap_err();
    assert!(said.contains("cannot send text messages"), "{said}");
    bench.server.script([Act::Say(Response::new(200, active))]);
    let said = soon(by_key(&bench, Some(NUMBER)).check()).await.unwrap();
    assert!(said.contains("trial account"), "{said}");
    assert!(bench.server.record().taken.is_empty(), "a check sent something");
}

#[tokio::test]
async fn a_key_that_may_not_read_the_account_is_asked_for_what_it_may() {
    let bench = Bench::new(Arc::new(Twilio), vec![]).await;
    let refused = |code: u32| {
        let body = json!({"code": code, "message": "no", "status": 401}).to_string();
        Act::Say(Response::new(401, body))
    };
    bench.server.script([refused(20_003)]);
    let said = soon(by_key(&bench, Some(NUMBER)).check()).await.unwrap();
    assert!(said.contains("may not read the account"), "{said}");
    bench.server.script([refused(20_003), refused(20_003)]);
    let said = soon(by_key(&bench, Some(NUMBER)).check()).await.unwrap_err();
    assert!(said.contains("does not know the credentials"), "{said}");
    bench.server.script([refused(20_005)]);
    let said = soon(by_key(&bench, Some(NUMBER)).check()).await.unwrap_err();
    assert!(said.contains("suspended"), "{said}");
    // The account may be read, and its numbers not.
    bench.server.script([Act::Go, refused(70_051)]);
    let said = soon(by_key(&bench, Some(NUMBER)).check()).await.unwrap();
    assert!(said.contains("could not be asked with these credentials"), "{said}");
}
