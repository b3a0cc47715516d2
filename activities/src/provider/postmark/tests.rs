use super::super::examples::{PRIVATE, answer, class_of, key, message, proofs, with_header};
use super::*;
use crate::message::Redacted;
use FailureClass::{Configuration, Overloaded, Schema, Suppressed};
use jiff::SignedDuration;

fn refusal(code: u32, message: &str) -> String {
    serde_json::json!({"ErrorCode": code, "Message": message}).to_string()
}

#[test]
fn only_what_the_table_lists_is_a_proof() {
    let codes =
        [0, 10, 100, 300, 400, 401, 402, 403, 405, 406, 409, 410, 411, 412, 413, 429, 500, 1235];
    let mut bodies: Vec<String> =
        codes.iter().map(|code| refusal(*code, "ann@shop.example")).collect();
    bodies.push("<html>Grüße</html>".to_owned());
    let any = |status: u16| status == 413 || status == 415 || status == 429;
    let proofs = proofs(reply, &bodies);
    for status in [413, 415, 429] {
        let all = proofs.iter().filter(|(had, ..)| *had == status).count();
        assert_eq!(all, bodies.len(), "{status}");
    }
    let listed: Vec<_> = proofs
        .into_iter()
        .filter(|(status, ..)| !any(*status))
        .map(|(status, index, class)| (status, codes[index], class))
        .collect();
    assert_eq!(
        listed,
        [
            (401, 10, Configuration),
            (422, 300, Schema),
            (422, 400, Configuration),
            (422, 401, Configuration),
            (422, 402, Schema),
            (422, 403, Schema),
            (422, 405, Configuration),
            (422, 406, Suppressed),
            (422, 409, Schema),
            (422, 411, Schema),
            (422, 412, Configuration),
            (422, 413, Configuration),
            (503, 100, Overloaded),
        ]
    );
}

#[test]
fn an_address_at_fault_is_the_recipients_and_a_sender_at_fault_is_not() {
    let to = refusal(300, "Invalid 'To' address: 'ann@shop.example'.");
    assert_eq!(class_of(reply, &answer(422, &to)), Some(FailureClass::Recipient));
    let from = refusal(300, "Invalid 'From' address: 'digest'.");
    assert_eq!(class_of(reply, &answer(422, &from)), Some(FailureClass::Schema));
}

#[test]
fn only_code_zero_with_an_id_is_a_yes() {
    let yes = answer(200, r#"{"ErrorCode":0,"Message":"OK","MessageID":"a-1"}"#);
    let accepted = Reply::Accepted { message_id: Some("a-1".to_owned()) };
    assert_eq!(reply(&yes, Timestamp::UNIX_EPOCH), accepted);
    for body in [r#"{"ErrorCode":0}"#, r#"{"ErrorCode":406,"MessageID":"a"}"#, "<html>", ""] {
        let reply = reply(&answer(200, body), Timestamp::UNIX_EPOCH);
        assert_eq!(reply, Reply::Unknown("http 200 without an id".to_owned()), "{body}");
    }
}

#[test]
fn the_wish_to_wait_is_kept() {
    let slow = with_header(answer(429, ""), "retry-after", "7");
    let failure = Failure::new(FailureClass::RateLimited, "http 429");
    let expected = Reply::NotSent(failure.after(SignedDuration::from_secs(7)));
    assert_eq!(reply(&slow, Timestamp::UNIX_EPOCH), expected);
}

#[test]
fn a_message_becomes_the_same_bytes_every_time() {
    let bytes = body(&key(), &message(), "broadcast").unwrap();
    assert_eq!(bytes, body(&key(), &message(), "broadcast").unwrap());
    assert_eq!(
        String::from_utf8(bytes).unwrap(),
        concat!(
            r#"{"From":"\"Shop, \\\"Ltd\\\"\" <digest@shop.example>","To":"ann+1@shop.example","#,
            r#""Subject":"Grüße & \"more\"","TextBody":"100% = a+b\nÄ\n","#,
            r#""HtmlBody":"<p>&amp; \"x\"</p>\n","MessageStream":"broadcast","#,
            r#""Metadata":{"operation_key":"digest:2026-W42:customer-1842"},"Headers":["#,
            r#"{"Name":"Message-ID","Value":"<digest.2026-W42.customer-1842@shop.example>"},"#,
            r#"{"Name":"X-Operation-Key","Value":"digest:2026-W42:customer-1842"},"#,
            r#"{"Name":"List-Unsubscribe","Value":"<https://shop.example/u/t>"},"#,
            r#"{"Name":"List-Unsubscribe-Post","Value":"List-Unsubscribe=One-Click"},"#,
            r#"{"Name":"X-PM-KeepID","Value":"true"}]}"#,
        )
    );
}

#[test]
fn only_a_record_that_carries_the_key_is_a_hit() {
    let found = |status, body: &str| found(&answer(status, body), "k");
    let hit = r#"{"TotalCount":1,"Messages":[{"MessageID":"b","Metadata":{"operation_key":"other"}},{"MessageID":"a","Status":"Sent","Metadata":{"operation_key":"k"}}]}"#;
    assert_eq!(found(200, hit), Found::Accepted { message_id: Some("a".to_owned()) });
    let other = r#"{"TotalCount":1,"Messages":[{"MessageID":"b","Metadata":{"operation_key":"other"}},{"MessageID":"c"}]}"#;
    assert_eq!(found(200, other), Found::Miss);
    assert_eq!(found(200, r#"{"TotalCount":0,"Messages":[]}"#), Found::Miss);
    for (status, body) in [(200, "<html>"), (401, r#"{"ErrorCode":10}"#), (500, "")] {
        assert!(matches!(found(status, body), Found::Unavailable(_)), "{status} {body}");
    }
}

#[test]
fn settings_are_checked_and_the_token_is_never_shown() {
    let key = Some(Redacted::new("verysecret".to_owned()));
    let settings = ApiSettings { key, ..ApiSettings::default() };
    let shown = format!("{:?}", Postmark::new(&settings, None).unwrap());
    assert!(!PRIVATE.iter().any(|private| shown.contains(private)), "{shown}");
    let error = Postmark::new(&settings, Some("a/b")).unwrap_err().to_string();
    assert!(error.starts_with("provider.message_stream is not"), "{error}");
    let error = Postmark::new(&ApiSettings::default(), None).unwrap_err().to_string();
    assert!(error.contains(KEY_VARIABLE), "{error}");
}
