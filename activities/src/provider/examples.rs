//! What the unit tests of the adapters share: a message, and answers to it.

use super::Reply;
use super::api::Table;
use super::exchange::Answer;
use crate::message::{FrozenMessage, Redacted};
use digest_workflows::operation::{FailureClass, OperationKey, Period};
use hyper::body::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use jiff::Timestamp;

/// What no failure, unknown outcome or debug text may ever show.
pub(super) const PRIVATE: [&str; 3] = ["ann@shop.example", "Grüße", "verysecret"];

pub(super) fn key() -> OperationKey {
    OperationKey::new("digest", Period::parse("2026-W42").unwrap(), "customer-1842").unwrap()
}

/// A message with everything that needs escaping somewhere.
pub(super) fn message() -> FrozenMessage {
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    FrozenMessage {
        recipient: Redacted::new("ann+1@shop.example".to_owned()),
        sender: "digest@shop.example".to_owned(),
        from: "\"Shop, \\\"Ltd\\\"\" <digest@shop.example>".to_owned(),
        subject: Redacted::new("Grüße & \"more\"".to_owned()),
        text: Redacted::new("100% = a+b\nÄ\n".to_owned()),
        html: Some(Redacted::new("<p>&amp; \"x\"</p>\n".to_owned())),
        headers: Redacted::new(vec![
            header("Message-ID", "<digest.2026-W42.customer-1842@shop.example>"),
            header("Date", "Mon, 12 Oct 2026 07:00:00 +0000"),
            header("X-Operation-Key", "digest:2026-W42:customer-1842"),
            header("List-Unsubscribe", "<https://shop.example/u/t>"),
            header("List-Unsubscribe-Post", "List-Unsubscribe=One-Click"),
        ]),
        mime: Redacted::new(b"From: digest@shop.example\r\n\r\nHello\r\n".to_vec()),
        content_hash: "0".repeat(64),
    }
}

pub(super) fn answer(status: u16, body: &str) -> Answer {
    Answer {
        status: StatusCode::from_u16(status).unwrap(),
        headers: HeaderMap::new(),
        body: Some(Bytes::copy_from_slice(body.as_bytes())),
    }
}

pub(super) fn with_header(mut answer: Answer, name: &'static str, value: &str) -> Answer {
    let name = HeaderName::from_static(name);
    answer.headers.insert(name, HeaderValue::from_str(value).unwrap());
    answer
}

/// The class that `table` gives to an answer that it takes as a proof of "not sent".
pub(super) fn class_of(table: Table, answer: &Answer) -> Option<FailureClass> {
    match table(answer, Timestamp::UNIX_EPOCH) {
        Reply::NotSent(failure) => Some(failure.class),
        _ => None,
    }
}

/// What of every status below 600 and each of `bodies` the `table` takes as a proof of "not sent",
/// with its class, as `(status, index of the body, class)`. Everything else must be unknown, except
/// what is accepted. No verdict may show what is private.
pub(super) fn proofs(table: Table, bodies: &[String]) -> Vec<(u16, usize, FailureClass)> {
    let mut proofs = Vec::new();
    for status in 100..600 {
        for (index, body) in bodies.iter().enumerate() {
            let reply = table(&answer(status, body), Timestamp::UNIX_EPOCH);
            let shown = format!("{reply:?}");
            assert!(!PRIVATE.iter().any(|private| shown.contains(private)), "{shown}");
            match reply {
                Reply::NotSent(failure) => {
                    assert_ne!(failure.class, FailureClass::Ambiguous, "{status} {body}");
                    proofs.push((status, index, failure.class));
                }
                Reply::Accepted { .. } => assert!(status / 100 == 2, "{status} {body}"),
                Reply::Unknown(_) => {}
            }
        }
    }
    proofs
}
