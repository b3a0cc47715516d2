use super::super::examples::{PRIVATE, answer, class_of, key, message, proofs, with_header};
use super::*;
use crate::message::Redacted;
use FailureClass::{Configuration, RateLimited, Recipient, Schema};

fn tells(message: &str) -> String {
    serde_json::json!({ "message": message }).to_string()
}

#[test]
fn only_what_the_table_lists_is_a_proof() {
    let bodies = [
        (tells("'from' parameter is not a valid address: ann@shop.example"), Schema),
        (tells("'to' parameter is not a valid address. please check documentation"), Recipient),
        (tells("to parameter is not a valid address. please check documentation"), Recipient),
        (
            tells("Domain shop.example is not allowed to send: The domain is unverified"),
            Configuration,
        ),
        (tells("The domain is unverified and requires DNS configuration."), Configuration),
        (tells("Domain shop.example is disabled"), Configuration),
        (tells("Account is inactive"), Configuration),
        (tells("Please activate your Mailgun account. Free accounts are for tests"), Configuration),
        (
            tells("Sandbox subdomains are for test purposes only. Add authorized recipients"),
            Configuration,
        ),
    ];
    let told = bodies.len();
    let texts = bodies.iter().map(|(text, _)| text.clone());
    let texts: Vec<String> = texts.chain(["{}".to_owned(), "Forbidden Grüße".to_owned()]).collect();
    let mut expected = Vec::new();
    expected.extend(bodies.iter().enumerate().map(|(index, (_, class))| (400, index, *class)));
    expected.extend((0..texts.len()).map(|index| (401, index, Configuration)));
    for status in [402, 403, 404] {
        expected.extend((0..told).map(|index| (status, index, Configuration)));
    }
    for (status, class) in [(413, Schema), (429, RateLimited)] {
        expected.extend((0..texts.len()).map(|index| (status, index, class)));
    }
    assert_eq!(proofs(reply, &texts), expected);
    let slow = with_header(answer(429, ""), "retry-after", "9");
    let Reply::NotSent(failure) = reply(&slow, Timestamp::UNIX_EPOCH) else { panic!("{slow:?}") };
    assert_eq!(failure.retry_after, Some(SignedDuration::from_secs(9)));
    assert_eq!(class_of(reply, &slow), Some(RateLimited));
}

#[test]
fn only_queued_with_an_id_is_a_yes() {
    let yes = answer(200, r#"{"id":"<a.1@mg.shop.example>","message":"Queued. Thank you."}"#);
    let accepted = Reply::Accepted { message_id: Some("a.1@mg.shop.example".to_owned()) };
    assert_eq!(reply(&yes, Timestamp::UNIX_EPOCH), accepted);
    for body in [
        "Mailgun Magnificent API",
        r#"{"message":"Queued. Thank you."}"#,
        r#"{"id":"a","message":"Mailgun Magnificent API"}"#,
        "",
    ] {
        let reply = reply(&answer(200, body), Timestamp::UNIX_EPOCH);
        assert!(matches!(reply, Reply::Unknown(_)), "{body}: {reply:?}");
    }
}

#[test]
fn a_message_becomes_the_same_form_every_time() {
    let message = message();
    let (content_type, body) = form(&key(), &message);
    assert_eq!((content_type.clone(), body.clone()), form(&key(), &message));
    let boundary = "0".repeat(40);
    assert_eq!(content_type, format!("multipart/form-data; boundary=digestd-{boundary}"));
    let field = |name: &str, value: &str| {
        format!(
            "--digestd-{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
        )
    };
    let expected = [
        field("to", "ann+1@shop.example"),
        field("o:tag", &tag(&key())),
        field("v:operation_key", "digest:2026-W42:customer-1842"),
        format!("--digestd-{boundary}\r\nContent-Disposition: form-data; name=\"message\"; "),
        "filename=\"message.eml\"\r\nContent-Type: message/rfc822\r\n\r\n".to_owned(),
        "From: digest@shop.example\r\n\r\nHello\r\n".to_owned(),
        format!("\r\n--digestd-{boundary}--\r\n"),
    ];
    assert_eq!(String::from_utf8(body).unwrap(), expected.concat());
}

#[test]
fn an_event_counts_only_with_the_variable_and_says_what_became_of_it() {
    let events = |json: serde_json::Value| -> Vec<Event> { serde_json::from_value(json).unwrap() };
    let event = |event: &str, key: &str, reason: Option<&str>| {
        serde_json::json!({"event": event, "reason": reason, "user-variables": {"operation_key": key},
            "message": {"headers": {"message-id": "m"}}})
    };
    let accepted = Some(Found::Accepted { message_id: Some("m".to_owned()) });
    let page = |all: Vec<serde_json::Value>| found(&events(all.into()), "k");
    let other = event("accepted", "other", None);
    let without = serde_json::json!({"event": "accepted", "user-variables": []});
    assert_eq!(page(vec![other.clone(), without, event("accepted", "k", None)]), accepted);
    assert_eq!(page(vec![event("failed", "k", Some("bounce"))]), accepted);
    assert_eq!(page(vec![other, event("rejected", "other", None)]), None);
    let taken = event("accepted", "k", None);
    for (last, class) in [
        (event("failed", "k", Some("suppress-unsubscribe")), FailureClass::Suppressed),
        (event("rejected", "k", None), FailureClass::Rejected),
    ] {
        assert_eq!(page(vec![taken.clone(), last]), Some(Found::Refused(class)));
    }
}

#[test]
fn only_the_last_part_of_a_pages_address_is_used() {
    let next = "https://api.mailgun.net/v3/shop.example/events/W3siYSI6IHR-1_=";
    assert_eq!(page_of(next), Some("W3siYSI6IHR-1_="));
    for bad in ["", "https://evil.example/", "https://evil.example/a?b", "a b", "a\r\nb"] {
        assert_eq!(page_of(bad), None, "{bad:?}");
    }
}

#[test]
fn the_domain_is_that_of_the_sender_unless_another_is_named() {
    let settings = |sender: Option<&str>| ApiSettings {
        key: Some(Redacted::new("verysecret".to_owned())),
        sender_domain: sender.map(ToOwned::to_owned),
        ..ApiSettings::default()
    };
    let of_sender = Mailgun::new(&settings(Some("shop.example")), None).unwrap();
    assert_eq!(of_sender.domain, "shop.example");
    let named = Mailgun::new(&settings(Some("shop.example")), Some("mg.shop.example")).unwrap();
    assert_eq!(named.domain, "mg.shop.example");
    assert_ne!(of_sender.provider_ref(), named.provider_ref());
    for (sender, domain) in [(None, None), (None, Some("a/b")), (Some(""), None)] {
        let error = Mailgun::new(&settings(sender), domain).unwrap_err().to_string();
        assert!(error.starts_with("provider.domain is "), "{error}");
    }
    let shown = format!("{named:?}");
    assert!(!PRIVATE.iter().any(|private| shown.contains(private)), "{shown}");
}
