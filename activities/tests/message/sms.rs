//! Rendering text messages.

use super::{Campaign, SECRET, ann, message, render, rows};
use digest_activities::message::{
    FrozenMessage, MessageSettings, Redacted, TEXT_UNITS_MAX, TemplateError, Templates, WhenEmpty,
};
use digest_workflows::operation::{Failure, FailureClass};
use serde_json::{Value, json};
use std::path::Path;

fn campaign(text: &str) -> Campaign {
    let settings = |settings: &mut MessageSettings| {
        settings.from = "+15005550006".into();
        settings.subject = None;
        settings.html = None;
    };
    Campaign::new().set(settings).file("digest.txt", text)
}

fn customer(number: &Value) -> Value {
    json!({"customer_id": "customer-1842", "address": number, "first_name": "Ann"})
}

fn number() -> Value {
    customer(&json!("+4915112345678"))
}

fn text_of(campaign: &Campaign) -> String {
    campaign.message(&number(), &rows()).text.reveal().clone()
}

#[test]
fn a_text_message_is_number_sender_and_text_and_nothing_else() {
    let campaign =
        campaign("\n Hello {{ first_name }}:\t{{ rows|length }} \r\n{{ unsubscribe_url }}\n\n");
    let message = campaign.message(&number(), &rows());
    let token = "ZGlnZXN0OmN1c3RvbWVyLTE4NDI.OejejgQHIcKPa9XHQ7hNbPCrH-4IAsEJkRYDaM-kRLw";
    let text = format!("Hello Ann: 2 \nhttps://shop.example/u/{token}");
    assert_eq!(message.text.reveal(), &text);
    assert_eq!(message.recipient.reveal(), "+4915112345678");
    assert_eq!((message.sender.as_str(), message.from.as_str()), ("+15005550006", "+15005550006"));
    assert!(message.subject.reveal().is_empty() && message.html.is_none());
    assert!(message.headers.reveal().is_empty() && message.mime.reveal().is_empty());
    assert_eq!(message.length().unwrap().characters, text.len());
    assert_eq!(message, campaign.message(&number(), &rows()));
    assert!(message.is_whole());

    let stored = serde_json::to_string(&message).unwrap();
    assert_eq!(serde_json::from_str::<FrozenMessage>(&stored).unwrap(), message);
    let (head, mime) = message.clone().split();
    assert_eq!(FrozenMessage::join(head, mime), message);
    assert!(Campaign::new().message(&ann(), &rows()).length().is_none(), "a mail has no segments");
}

#[test]
fn the_same_text_to_the_same_number_has_the_same_hash_whoever_it_is_for() {
    let campaign = campaign("Hello {{ first_name }}");
    let hash = |id: &str, number: &str, name: &str| {
        let customer = json!({"customer_id": id, "address": number, "first_name": name});
        campaign.message(&customer, &rows()).content_hash
    };
    let one = hash("1", "+4915112345678", "Ann");
    assert_eq!(one, hash("2", "+4915112345678", "Ann"));
    assert_ne!(one, hash("1", "+4915112345679", "Ann"));
    assert_ne!(one, hash("1", "+4915112345678", "Bob"));
}

#[test]
fn a_number_that_is_none_is_a_recipient_failure_that_quotes_nothing() {
    let campaign = campaign("Hello");
    for (address, code) in [
        (json!(null), "address missing"),
        (json!(4_915_112_345_678_i64), "address missing"),
        (json!(" "), "address missing"),
        (json!("0151 12345678"), "address not a phone number in e.164"),
        (json!("+49 151 12345678"), "address not a phone number in e.164"),
        (json!("ann@shop.example"), "address not a phone number in e.164"),
        (json!("+4915112345678\n+4915112345679"), "address not a phone number in e.164"),
    ] {
        let failure = campaign.render(&customer(&address), &rows());
        assert_eq!(failure, Err(Failure::new(FailureClass::Recipient, code)), "{address}");
    }
}

#[test]
fn a_sender_that_is_none_is_found_at_load_or_is_a_schema_failure() {
    let from = |from: &str| campaign("Hello").set(|settings| settings.from = from.into());
    for usable in ["+15005550006", " Shop ", "12345", "MG0123456789abcdef0123456789abcdef"] {
        let message = from(usable).message(&number(), &rows());
        assert_eq!(message.sender, usable.trim());
    }
    assert_eq!(from("{{ first_name }}").message(&number(), &rows()).sender, "Ann");
    for fixed in ["Shop <digest@shop.example>", "Bücher", "+1"] {
        let error = from(fixed).load().unwrap_err();
        assert!(matches!(error, TemplateError::TextSender), "{fixed}: {error}");
    }
    let failure = from("{{ first_name }}, Ltd").render(&number(), &rows()).unwrap_err();
    let expected = Failure::new(FailureClass::Schema, "from is no sender of text messages");
    assert_eq!(failure, expected);
}

#[test]
fn a_text_has_a_largest_length_and_no_smallest_but_one() {
    let of = |count: usize, c: char| format!("{{{{ '{c}' * {count} }}}}");
    assert_eq!(text_of(&campaign(&of(TEXT_UNITS_MAX, 'x'))).len(), TEXT_UNITS_MAX);
    assert_eq!(text_of(&campaign(&of(TEXT_UNITS_MAX / 2, '🎉'))).chars().count(), 800);
    let failure = |text: &str| {
        let failure = campaign(text).render(&number(), &rows()).unwrap_err();
        (failure.class, failure.code)
    };
    let long = (FailureClass::Schema, "text has more than 1600 characters".to_owned());
    assert_eq!(failure(&of(TEXT_UNITS_MAX + 1, 'x')), long);
    assert_eq!(failure(&of(TEXT_UNITS_MAX / 2 + 1, '🎉')), long);
    assert_eq!(failure(" \n\t"), (FailureClass::Schema, "text is empty".to_owned()));
}

#[test]
fn who_has_no_rows_gets_no_text_message_unless_it_is_wanted() {
    let campaign = campaign("{{ rows|length }} new");
    let nothing = digest_activities::message::Rendered::NothingToSend;
    assert_eq!(campaign.render(&number(), &json!([])), Ok(nothing));
    let campaign = campaign.set(|settings| settings.when_empty = WhenEmpty::Send);
    assert_eq!(campaign.message(&number(), &json!([])).text.reveal(), "0 new");
}

#[test]
fn the_secret_of_a_token_is_missed_at_load_in_the_text_too() {
    let campaign = campaign("Stop: {{ unsubscribe_token }}").set(|s| s.unsubscribe_url = None);
    let error = campaign.load_with(None).unwrap_err().to_string();
    assert!(error.contains("DIGESTD_UNSUBSCRIBE_SECRET"), "{error}");
    campaign.load_with(Some(SECRET)).unwrap();
}

#[test]
fn the_sample_text_renders_with_and_without_name_rows_and_url() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../worker");
    let mut settings = campaign("").settings;
    settings.text = "templates/sms.txt".into();
    settings.when_empty = WhenEmpty::Send;
    settings.unsubscribe_url = Some("https://shop.example/u/7".into());
    let secret = Redacted::new(SECRET.to_owned());
    let templates = Templates::load(&settings, &folder, Some(&secret)).unwrap();
    let text = |templates: &Templates, customer: &Value, rows: &Value| {
        message(render(templates, customer, rows).unwrap()).text.reveal().clone()
    };
    assert_eq!(
        text(&templates, &number(), &rows()),
        "Ann, your week: 2 new items, such as Tea for 19.90 EUR. No more: https://shop.example/u/7"
    );
    settings.unsubscribe_url = None;
    let templates = Templates::load(&settings, &folder, None).unwrap();
    let nobody = json!({"address": "+4915112345678", "first_name": null});
    assert_eq!(text(&templates, &nobody, &json!([])), "Your week: nothing new");
}
