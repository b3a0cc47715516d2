use super::super::examples::{PRIVATE, answer, class_of, key, message, proofs, with_header};
use super::*;
use crate::message::Redacted;
use FailureClass::{Configuration, RateLimited, Recipient, Schema};
use jiff::SignedDuration;

fn refusal(field: Option<&str>) -> String {
    serde_json::json!({"errors": [{"message": "ann@shop.example", "field": field, "help": null}]})
        .to_string()
}

#[test]
fn only_what_the_table_lists_is_a_proof() {
    let bodies = [
        refusal(None),
        refusal(Some("from.email")),
        refusal(Some("personalizations.0.to.0.email")),
        refusal(Some("ann@shop.example")),
        r#"{"errors":[]}"#.to_owned(),
        "<html>Grüße</html>".to_owned(),
    ];
    let without_errors = [4, 5];
    let mut expected = Vec::new();
    for (status, class) in [
        (400, Schema),
        (401, Configuration),
        (403, Configuration),
        (413, Schema),
        (429, RateLimited),
    ] {
        for index in 0..bodies.len() {
            let class = if (status, index) == (400, 2) { Recipient } else { class };
            if status >= 413 || !without_errors.contains(&index) {
                expected.push((status, index, class));
            }
        }
    }
    assert_eq!(proofs(reply, &bodies), expected);
}

#[test]
fn only_a_202_with_its_id_is_a_yes() {
    let yes = with_header(answer(202, ""), "x-message-id", "abc.1");
    let accepted = Reply::Accepted { message_id: Some("abc.1".to_owned()) };
    assert_eq!(reply(&yes, Timestamp::UNIX_EPOCH), accepted);
    for status in [200, 201, 202, 204] {
        let reply = reply(&answer(status, ""), Timestamp::UNIX_EPOCH);
        assert!(matches!(reply, Reply::Unknown(_)), "{status}: {reply:?}");
    }
}

#[test]
fn the_time_at_which_the_rate_begins_anew_is_waited_for() {
    let slow = with_header(answer(429, ""), "x-ratelimit-reset", "1000");
    let now = Timestamp::from_second(970).unwrap();
    let failure = Failure::new(RateLimited, "http 429").after(SignedDuration::from_secs(30));
    assert_eq!(reply(&slow, now), Reply::NotSent(failure));
    assert_eq!(class_of(reply, &slow), Some(RateLimited));
}

#[test]
fn a_message_becomes_the_same_bytes_every_time() {
    let bytes = body(&key(), &message()).unwrap();
    assert_eq!(bytes, body(&key(), &message()).unwrap());
    let expected = concat!(
        r#"{"personalizations":[{"to":[{"email":"ann+1@shop.example"}],"custom_args":{"operation_key":"ALIAS"}}],"#,
        r#""from":{"email":"digest@shop.example","name":"Shop, \"Ltd\""},"subject":"Grüße & \"more\"","#,
        r#""content":[{"type":"text/plain","value":"100% = a+b\nÄ\n"},"#,
        r#"{"type":"text/html","value":"<p>&amp; \"x\"</p>\n"}],"headers":{"#,
        r#""List-Unsubscribe":"<https://shop.example/u/t>","List-Unsubscribe-Post":"List-Unsubscribe=One-Click","#,
        r#""X-Operation-Key":"digest:2026-W42:customer-1842"}}"#,
    );
    assert_eq!(String::from_utf8(bytes).unwrap(), expected.replace("ALIAS", &alias(&key())));
    let plain = FrozenMessage { html: None, ..message() };
    let body = String::from_utf8(body(&key(), &plain).unwrap()).unwrap();
    assert!(!body.contains("text/html") && body.contains("text/plain"), "{body}");
}

#[test]
fn a_record_counts_only_with_the_alias_and_says_what_became_of_it() {
    let alias = alias(&key());
    let record = |args: serde_json::Value, events: serde_json::Value| -> Record {
        serde_json::from_value(serde_json::json!({"unique_args": args, "events": events})).unwrap()
    };
    let ours = serde_json::json!(format!("{{'operation_key': '{alias}'}}"));
    let object = serde_json::json!({"operation_key": alias});
    let nothing = serde_json::json!([]);
    let accepted = Some(Found::Accepted { message_id: Some("m".to_owned()) });
    assert_eq!(found(&record(ours.clone(), nothing.clone()), "m", &alias), accepted);
    assert_eq!(found(&record(object, nothing.clone()), "m", &alias), accepted);
    for other in [serde_json::json!("{}"), serde_json::Value::Null] {
        assert_eq!(found(&record(other, nothing.clone()), "m", &alias), None);
    }
    let event = |name: &str, reason: &str| serde_json::json!([{"event_name": "processed"}, {"event_name": name, "reason": reason}]);
    let with = |events| found(&record(ours.clone(), events), "m", &alias);
    assert_eq!(with(event("bounced", "550")), accepted);
    for (reason, class) in [
        ("Unsubscribed Address", FailureClass::Suppressed),
        ("Bounced Address", FailureClass::Suppressed),
        ("Spam Reporting Address", FailureClass::Suppressed),
        ("Invalid", FailureClass::Recipient),
        ("Spam Content", FailureClass::Rejected),
    ] {
        assert_eq!(with(event("dropped", reason)), Some(Found::Refused(class)), "{reason}");
    }
}

#[test]
fn a_look_up_is_offered_only_where_it_is_set_and_the_key_is_never_shown() {
    let settings = ApiSettings {
        key: Some(Redacted::new("SG.verysecret".to_owned())),
        ..ApiSettings::default()
    };
    let without = Sendgrid::new(&settings, false).unwrap();
    assert_eq!(without.contract(), Contract::NONE);
    let with = Sendgrid::new(&settings, true).unwrap();
    assert!(with.contract().lookup.is_offered() && !with.contract().lookup.miss_counts());
    let shown = format!("{with:?}");
    assert!(!PRIVATE.iter().any(|private| shown.contains(private)), "{shown}");
}
