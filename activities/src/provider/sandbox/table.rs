//! What the answers of a sandbox mean, by status and documented code:
//!
//! | answer | means |
//! | --- | --- |
//! | 200 with an id | accepted |
//! | any other 2xx, also with a body that cannot be read | accepted, id unknown |
//! | 409 `duplicate` | accepted before, id unknown |
//! | 429 | not sent: `rate_limited`, after `Retry-After` |
//! | 503 `overloaded` | not sent: `overloaded` |
//! | 403 `account_suspended` | not sent: `configuration` |
//! | 422 `recipient_refused`, `recipient_suppressed`, `message_rejected` | not sent: `recipient`, `suppressed`, `rejected` |
//! | 400 `invalid_request`, 413 `too_large` | not sent: `schema` |
//! | 409 `in_flight` | unknown: an earlier request under this key is still being processed |
//! | 409 `key_used_with_other_body` | unknown, and an alarm (see below) |
//! | everything else, and no answer | unknown |
//!
//! `key_used_with_other_body` proves that this request was not taken, but it also says that another
//! body was accepted under our key. Every attempt sends the same bytes, so either somebody else uses
//! our keys or the frozen bytes have changed: nothing may be sent again, and a human must look.

use super::wire::{Accepted, Refusal, code};
use crate::provider::Reply;
use crate::provider::api::{read, told};
use crate::provider::exchange::Answer;
use crate::provider::retry_after::retry_after;
use digest_workflows::operation::{Failure, FailureClass};
use jiff::Timestamp;

/// What `answer`, which came at `now`, says about its attempt.
pub(super) fn reply(answer: &Answer, now: Timestamp) -> Reply {
    let status = answer.status;
    if status.is_success() {
        let message_id = read::<Accepted>(answer).map(|accepted| accepted.id);
        return Reply::Accepted { message_id };
    }
    let code = documented(answer);
    let class = match (status.as_u16(), code.as_str()) {
        (409, code::DUPLICATE) => return Reply::Accepted { message_id: None },
        // Whatever the body says, a 429 was not processed.
        (429, _) => FailureClass::RateLimited,
        (503, code::OVERLOADED) => FailureClass::Overloaded,
        (403, code::ACCOUNT_SUSPENDED) => FailureClass::Configuration,
        (422, code::RECIPIENT_REFUSED) => FailureClass::Recipient,
        (422, code::RECIPIENT_SUPPRESSED) => FailureClass::Suppressed,
        (422, code::MESSAGE_REJECTED) => FailureClass::Rejected,
        (400, code::INVALID_REQUEST) | (413, code::TOO_LARGE) => FailureClass::Schema,
        _ => return Reply::Unknown(told(status, &code)),
    };
    let mut failure = Failure::new(class, told(status, &code));
    failure.retry_after = retry_after(&answer.headers, now);
    Reply::NotSent(failure)
}

/// The answer's code, empty if there is none. What is not a word of small letters is not shown: it
/// may be anything.
pub(super) fn documented(answer: &Answer) -> String {
    let word = |code: &String| {
        code.len() <= 40 && code.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase())
    };
    read::<Refusal>(answer).map(|refusal| refusal.code).filter(word).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::body::Bytes;
    use hyper::header::{HeaderValue, RETRY_AFTER};
    use hyper::{HeaderMap, StatusCode};
    use jiff::SignedDuration;

    fn answer(status: u16, body: Option<&str>) -> Answer {
        let status = StatusCode::from_u16(status).unwrap();
        let body = body.map(|body| Bytes::copy_from_slice(body.as_bytes()));
        Answer { status, headers: HeaderMap::new(), body }
    }

    fn with_code(status: u16, code: &str) -> Reply {
        reply(&answer(status, Some(&format!(r#"{{"code":"{code}"}}"#))), Timestamp::UNIX_EPOCH)
    }

    fn without(status: u16, body: Option<&str>) -> Reply {
        reply(&answer(status, body), Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn only_what_the_table_lists_is_a_proof() {
        let codes = [
            code::RATE_LIMITED,
            code::OVERLOADED,
            code::ACCOUNT_SUSPENDED,
            code::INVALID_REQUEST,
            code::TOO_LARGE,
            code::RECIPIENT_REFUSED,
            code::RECIPIENT_SUPPRESSED,
            code::MESSAGE_REJECTED,
            code::IN_FLIGHT,
            code::OTHER_BODY,
            code::DUPLICATE,
            code::NOT_FOUND,
            code::INTERNAL,
            "",
        ];
        let mut proofs = Vec::new();
        for status in 100..=599 {
            for code in codes {
                match with_code(status, code) {
                    Reply::NotSent(failure) if status != 429 => {
                        proofs.push((status, code, failure.class));
                    }
                    Reply::NotSent(failure) => assert_eq!(failure.class, FailureClass::RateLimited),
                    Reply::Accepted { message_id: None } => {
                        assert!(status / 100 == 2 || (status == 409 && code == code::DUPLICATE));
                    }
                    Reply::Accepted { .. } => panic!("no id was told"),
                    Reply::Unknown(_) => assert!(status / 100 != 2 && status != 429),
                }
            }
        }
        assert_eq!(
            proofs,
            [
                (400, code::INVALID_REQUEST, FailureClass::Schema),
                (403, code::ACCOUNT_SUSPENDED, FailureClass::Configuration),
                (413, code::TOO_LARGE, FailureClass::Schema),
                (422, code::RECIPIENT_REFUSED, FailureClass::Recipient),
                (422, code::RECIPIENT_SUPPRESSED, FailureClass::Suppressed),
                (422, code::MESSAGE_REJECTED, FailureClass::Rejected),
                (503, code::OVERLOADED, FailureClass::Overloaded),
            ]
        );
    }

    #[test]
    fn a_body_that_cannot_be_read_leaves_only_the_status() {
        for body in [None, Some(""), Some("<html>"), Some(r#"{"id":"sand"#)] {
            assert_eq!(without(200, body), Reply::Accepted { message_id: None });
            assert_eq!(without(503, body), Reply::Unknown("http 503".into()));
            assert_eq!(without(422, body), Reply::Unknown("http 422".into()));
            assert!(matches!(without(429, body), Reply::NotSent(_)));
        }
    }

    #[test]
    fn a_strangers_text_is_not_repeated() {
        let reply = with_code(500, "no such user ann@shop.example");
        assert_eq!(reply, Reply::Unknown("http 500".into()));
    }

    #[test]
    fn the_wait_asked_for_is_kept() {
        let mut answer = answer(429, None);
        answer.headers.insert(RETRY_AFTER, HeaderValue::from_static("7"));
        let wait = SignedDuration::from_secs(7);
        let failure = Failure::new(FailureClass::RateLimited, "http 429").after(wait);
        assert_eq!(reply(&answer, Timestamp::UNIX_EPOCH), Reply::NotSent(failure));
    }
}
