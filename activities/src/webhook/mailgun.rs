//! Mailgun's events (<https://documentation.mailgun.com/docs/mailgun/user-manual/tracking-messages/#webhooks>).
//! The operation is in the variable `operation_key`.
//!
//! The signature is an HMAC-SHA256 over a time and a token, and not over the event: somebody who has
//! seen one could put another event beside it. So the token is the event's id here, and counts once.
//! Whether a later try is signed anew is not documented; the time may be as old as Mailgun tries.
//!
//! | event | means |
//! | --- | --- |
//! | `accepted`, `delivered`, `opened`, `clicked`, `failed` for a while | accepted and tried |
//! | `complained` | accepted and tried; a complaint |
//! | `unsubscribed` | accepted and tried; an opt-out |
//! | `failed` for good | accepted and tried, and given up; with the reason `bounce`: a hard bounce; by Mailgun's own suppression list: accepted, then refused: `suppressed` |
//! | `rejected` | accepted, then refused: `rejected` |
//! | everything else | nothing |

use super::{ProviderEvent, Received, Refused, SecretError, SuppressionReason, Webhook, fresh};
use crate::message::Redacted;
use data_encoding::HEXLOWER;
use digest_workflows::operation::{FailureClass, Finding};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use hmac::{Hmac, KeyInit, Mac};
use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::Value;
use sha2::Sha256;
use std::collections::BTreeMap;
use std::fmt;

const WHAT: &str = "the HTTP webhook signing key of the account";

/// Mailgun tries for eight hours.
const TRIES_FOR: SignedDuration = SignedDuration::from_hours(9);

/// Mailgun's webhook.
#[derive(Clone)]
pub struct MailgunWebhook {
    keys: Vec<Hmac<Sha256>>,
}

impl fmt::Debug for MailgunWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MailgunWebhook({})", self.keys.len())
    }
}

impl MailgunWebhook {
    /// The webhook that is signed with one of these keys.
    ///
    /// # Errors
    /// [`SecretError`].
    pub fn new(secrets: &[Redacted<String>]) -> Result<Self, SecretError> {
        if secrets.is_empty() {
            return Err(SecretError::None(WHAT));
        }
        let key = |secret: &Redacted<String>| {
            let secret = Some(secret.reveal()).filter(|secret| !secret.is_empty())?;
            Hmac::new_from_slice(secret.as_bytes()).ok()
        };
        let keys: Option<Vec<_>> = secrets.iter().map(key).collect();
        keys.map(|keys| Self { keys }).ok_or(SecretError::Malformed(WHAT))
    }

    fn verify(&self, signature: &Signature, request: &Received<'_>) -> Result<(), Refused> {
        let given = HEXLOWER.decode(signature.mac.as_bytes()).map_err(|_| Refused::Forged)?;
        let genuine = self.keys.iter().any(|key| {
            let mac = key.clone().chain_update(&signature.timestamp);
            mac.chain_update(&signature.token).verify_slice(&given).is_ok()
        });
        if !genuine {
            return Err(Refused::Forged);
        }
        fresh(&signature.timestamp, request.now, TRIES_FOR)
    }
}

#[derive(Deserialize)]
struct Signed {
    signature: Signature,
}

#[derive(Deserialize)]
struct Signature {
    timestamp: String,
    token: String,
    #[serde(rename = "signature")]
    mac: String,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "event-data")]
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    event: String,
    #[serde(default)]
    severity: String,
    #[serde(default)]
    reason: String,
    #[serde(default, rename = "user-variables")]
    variables: BTreeMap<String, Value>,
    #[serde(default)]
    message: Message,
}

impl Data {
    fn suppresses(&self) -> Option<SuppressionReason> {
        match (self.event.as_str(), self.severity.as_str(), self.reason.as_str()) {
            ("failed", "permanent", "bounce") => Some(SuppressionReason::HardBounce),
            ("complained", ..) => Some(SuppressionReason::Complaint),
            ("unsubscribed", ..) => Some(SuppressionReason::OptOut),
            _ => None,
        }
    }
}

#[derive(Default, Deserialize)]
struct Message {
    #[serde(default)]
    headers: BTreeMap<String, Value>,
}

impl MailgunWebhook {
    /// Verifies `request`, and reads its events.
    fn events(&self, request: &Received<'_>) -> Result<Vec<ProviderEvent>, Refused> {
        let Signed { signature } =
            serde_json::from_slice(request.body).map_err(|_| Refused::Unsigned)?;
        self.verify(&signature, request)?;
        let Event { data } =
            serde_json::from_slice(request.body).map_err(|_| Refused::Malformed)?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let message_id = data.message.headers.get("message-id").and_then(text);
        let accepted = Finding::Accepted { message_id };
        let findings = match (data.event.as_str(), data.severity.as_str()) {
            ("failed", "permanent") if data.reason.starts_with("suppress-") => {
                vec![Finding::Refused(FailureClass::Suppressed)]
            }
            ("failed", "permanent") => vec![accepted, Finding::Refused(FailureClass::Recipient)],
            ("rejected", _) => vec![Finding::Refused(FailureClass::Rejected)],
            (
                "accepted" | "delivered" | "opened" | "clicked" | "complained" | "unsubscribed"
                | "failed",
                _,
            ) => vec![accepted],
            _ => Vec::new(),
        };
        let carried = data.variables.get("operation_key").and_then(text);
        let suppresses = data.suppresses();
        Ok(vec![ProviderEvent { id: signature.token, carried, findings, suppresses }])
    }
}

impl Webhook for MailgunWebhook {
    fn kind(&self) -> &'static str {
        "mailgun"
    }

    fn read<'a>(
        &'a self,
        request: &'a Received<'a>,
    ) -> BoxFuture<'a, Result<Vec<ProviderEvent>, Refused>> {
        ready(self.events(request)).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::HeaderMap;
    use jiff::Timestamp;
    use serde_json::json;

    const NOW: i64 = 1_790_000_000;

    fn signed(key: &str, at: i64, token: &str, data: &Value) -> String {
        let mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).unwrap();
        let mac = mac.chain_update(format!("{at}{token}")).finalize().into_bytes();
        let signature = json!({
            "timestamp": at.to_string(), "token": token, "signature": HEXLOWER.encode(&mac),
        });
        json!({"signature": signature, "event-data": data}).to_string()
    }

    fn read(body: &str) -> Result<Vec<ProviderEvent>, Refused> {
        let secrets = ["old", "new"].map(|key| Redacted::new(key.to_owned()));
        let webhook = MailgunWebhook::new(&secrets).unwrap();
        let now = Timestamp::from_second(NOW).unwrap();
        webhook.events(&Received {
            query: "",
            headers: &HeaderMap::new(),
            body: body.as_bytes(),
            now,
        })
    }

    #[test]
    fn only_a_signature_of_ours_that_is_fresh_is_genuine() {
        let data = json!({"event": "delivered"});
        for key in ["old", "new"] {
            assert!(read(&signed(key, NOW, "t1", &data)).is_ok());
        }
        assert_eq!(read(&signed("other", NOW, "t1", &data)), Err(Refused::Forged));
        let other_token = signed("old", NOW, "t1", &data).replace("\"t1\"", "\"t2\"");
        assert_eq!(read(&other_token), Err(Refused::Forged));
        assert!(read(&signed("old", NOW - 8 * 3600, "t1", &data)).is_ok());
        for at in [NOW - 10 * 3600, NOW + 10 * 3600] {
            assert_eq!(read(&signed("old", at, "t1", &data)), Err(Refused::Stale));
        }
        for body in ["", "{}", "<html>", r#"{"signature":{}}"#] {
            assert_eq!(read(body), Err(Refused::Unsigned), "{body}");
        }
        assert_eq!(read(&signed("old", NOW, "t1", &json!([]))), Err(Refused::Malformed));
    }

    #[test]
    fn an_event_is_read_by_the_table() {
        let findings = |event: &str, severity: &str, reason: &str| {
            let data = json!({
                "event": event, "severity": severity, "reason": reason,
                "recipient": "ann@shop.example", "user-variables": {"operation_key": "k"},
                "message": {"headers": {"message-id": "m1"}},
            });
            let [event] =
                <[_; 1]>::try_from(read(&signed("old", NOW, "t1", &data)).unwrap()).unwrap();
            assert_eq!((event.id.as_str(), event.carried.as_deref()), ("t1", Some("k")));
            event.findings
        };
        let accepted = Finding::Accepted { message_id: Some("m1".to_owned()) };
        assert_eq!(findings("accepted", "", ""), std::slice::from_ref(&accepted));
        assert_eq!(findings("failed", "temporary", "generic"), std::slice::from_ref(&accepted));
        let given_up = [accepted, Finding::Refused(FailureClass::Recipient)];
        assert_eq!(findings("failed", "permanent", "bounce"), given_up);
        let suppressed = [Finding::Refused(FailureClass::Suppressed)];
        assert_eq!(findings("failed", "permanent", "suppress-bounce"), suppressed);
        assert_eq!(findings("rejected", "", ""), [Finding::Refused(FailureClass::Rejected)]);
        assert_eq!(findings("stored", "", ""), []);
    }

    #[test]
    fn only_a_hard_bounce_a_complaint_and_an_opt_out_suppress() {
        let suppresses = |event: &str, severity: &str, reason: &str| {
            let data = json!({"event": event, "severity": severity, "reason": reason});
            read(&signed("old", NOW, "t1", &data)).unwrap()[0].suppresses
        };
        let [hard, complaint, opt_out] = SuppressionReason::ALL.map(Some);
        assert_eq!(suppresses("failed", "permanent", "bounce"), hard);
        assert_eq!(suppresses("complained", "", ""), complaint);
        assert_eq!(suppresses("unsubscribed", "", ""), opt_out);
        for (event, severity, reason) in [
            ("failed", "temporary", "bounce"),
            ("failed", "permanent", "old"),
            ("failed", "permanent", "espblock"),
            ("failed", "permanent", "suppress-bounce"),
            ("delivered", "", ""),
        ] {
            assert_eq!(suppresses(event, severity, reason), None, "{event} {severity} {reason}");
        }
    }
}
