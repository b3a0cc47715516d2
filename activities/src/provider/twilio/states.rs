//! What a message's status and error code say about it, in Twilio's records and callbacks alike
//! (<https://www.twilio.com/docs/messaging/guides/outbound-message-status-in-status-callbacks>,
//! <https://www.twilio.com/docs/api/errors>).
//!
//! | status | means |
//! | --- | --- |
//! | `accepted`, `scheduled`, `queued`, `sending`, `sent`, `delivered`, `partially_delivered`, `read` | accepted and tried |
//! | `undelivered` | accepted and tried, and given up |
//! | `failed`, `canceled` | accepted, then refused: by the code |
//! | everything else | nothing |
//!
//! | code | refused as |
//! | --- | --- |
//! | 21610 (opted out), 30004 (blocked) | `suppressed` |
//! | 30003 (unreachable), 30005 (unknown), 30006 (a landline), other 2xxxx | `recipient` |
//! | everything else (30007 filtered, 30008, …), and none | `rejected` |
//!
//! Twilio warns against much logic on single codes, which it adjusts all the time; so only those that
//! tell how the operation ends are told apart.

use digest_workflows::operation::{FailureClass, Finding};

/// What a record or callback of the message `sid` with this `status` and error `code` says, in order;
/// nothing for a status that says nothing about acceptance.
pub(crate) fn findings(status: &str, code: Option<u32>, sid: &str) -> Vec<Finding> {
    let accepted = Finding::Accepted { message_id: Some(sid.to_owned()) };
    match status {
        "accepted"
        | "scheduled"
        | "queued"
        | "sending"
        | "sent"
        | "delivered"
        | "partially_delivered"
        | "read" => vec![accepted],
        "undelivered" => vec![accepted, Finding::Refused(class(code))],
        "failed" | "canceled" => vec![Finding::Refused(class(code))],
        _ => Vec::new(),
    }
}

fn class(code: Option<u32>) -> FailureClass {
    match code {
        Some(21_610 | 30_004) => FailureClass::Suppressed,
        Some(30_003 | 30_005 | 30_006 | 20_000..=29_999) => FailureClass::Recipient,
        _ => FailureClass::Rejected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_by_the_table_with_its_code() {
        let accepted = || Finding::Accepted { message_id: Some("SM1".to_owned()) };
        let found = |status, code| findings(status, code, "SM1");
        for status in ["accepted", "scheduled", "queued", "sending", "sent", "delivered", "read"] {
            assert_eq!(found(status, None), [accepted()], "{status}");
        }
        for (code, class) in [
            (Some(21_610), FailureClass::Suppressed),
            (Some(30_004), FailureClass::Suppressed),
            (Some(30_003), FailureClass::Recipient),
            (Some(30_005), FailureClass::Recipient),
            (Some(30_006), FailureClass::Recipient),
            (Some(21_614), FailureClass::Recipient),
            (Some(30_007), FailureClass::Rejected),
            (Some(30_008), FailureClass::Rejected),
            (None, FailureClass::Rejected),
        ] {
            assert_eq!(found("failed", code), [Finding::Refused(class)], "{code:?}");
            let given_up = [accepted(), Finding::Refused(class)];
            assert_eq!(found("undelivered", code), given_up, "{code:?}");
        }
        for status in ["received", "receiving", "", "Delivered", "something new"] {
            assert_eq!(found(status, None), [], "{status}");
        }
    }
}
