//! Postmark's events (<https://postmarkapp.com/developer/webhooks/webhooks-overview>). They are not
//! signed: the webhook's URL carries a user name and a password, which come as basic
//! authentication. The operation is in the metadata `operation_key`.
//!
//! | record | means |
//! | --- | --- |
//! | `Delivery`, `Open`, `Click` | accepted and tried |
//! | `SpamComplaint` | accepted and tried; a complaint |
//! | `SubscriptionChange` by the recipient that ends sending | accepted and tried; an opt-out |
//! | `Bounce` of a type that ends the delivery | accepted and tried, and given up; by the address itself: a hard bounce |
//! | any other `Bounce` | accepted and tried |
//! | everything else | nothing |
//!
//! An event has no id of its own; the same one, told again, has the same bytes, so their hash is it.

use super::{ProviderEvent, Received, Refused, SecretError, SuppressionReason, Webhook};
use crate::message::Redacted;
use data_encoding::{BASE64, HEXLOWER};
use digest_workflows::operation::{FailureClass, Finding};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use hmac::{Hmac, KeyInit, Mac};
use hyper::header::AUTHORIZATION;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;

const WHAT: &str = "user:password of the webhook's URL";

/// Bounces after which Postmark does not try again
/// (<https://postmarkapp.com/developer/api/bounce-api#bounce-types>).
const FINAL: [&str; 6] = [
    "HardBounce",
    "BadEmailAddress",
    "ManuallyDeactivated",
    "Blocked",
    "SpamNotification",
    "DMARCPolicy",
];

/// Those of them that speak of the address. `ManuallyDeactivated` is Postmark's own list, from which
/// taking an address must be enough; the others speak of the message or the sender.
const HARD: [&str; 2] = ["HardBounce", "BadEmailAddress"];

/// Postmark's webhook.
pub struct PostmarkWebhook {
    /// What the header must be.
    expected: Vec<Redacted<String>>,
}

impl fmt::Debug for PostmarkWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostmarkWebhook({})", self.expected.len())
    }
}

impl PostmarkWebhook {
    /// The webhook whose URL carries one of these, each `user:password`.
    ///
    /// # Errors
    /// [`SecretError`].
    pub fn new(secrets: &[Redacted<String>]) -> Result<Self, SecretError> {
        if secrets.is_empty() {
            return Err(SecretError::None(WHAT));
        }
        let whole = |secret: &Redacted<String>| {
            let parts = secret.reveal().split_once(':');
            parts.is_some_and(|(user, password)| !user.is_empty() && !password.is_empty())
        };
        if !secrets.iter().all(whole) {
            return Err(SecretError::Malformed(WHAT));
        }
        let header = |secret: &String| format!("Basic {}", BASE64.encode(secret.as_bytes()));
        Ok(Self { expected: secrets.iter().map(|secret| secret.map(header)).collect() })
    }

    fn verify(&self, request: &Received<'_>) -> Result<(), Refused> {
        let given = request.headers.get(AUTHORIZATION).ok_or(Refused::Unsigned)?;
        let is = |expected: &Redacted<String>| is_same(expected.reveal(), given.as_bytes());
        // Every one is compared, whichever it is.
        let same = self.expected.iter().filter(|expected| is(expected)).count();
        if same > 0 { Ok(()) } else { Err(Refused::Forged) }
    }
}

/// Compares in a time that tells nothing about where they differ.
fn is_same(expected: &str, given: &[u8]) -> bool {
    let mac = |key: &[u8]| Hmac::<Sha256>::new_from_slice(key).map(|mac| mac.chain_update("same"));
    match (mac(expected.as_bytes()), mac(given)) {
        (Ok(expected), Ok(given)) => given.verify_slice(&expected.finalize().into_bytes()).is_ok(),
        _ => false,
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Event {
    record_type: String,
    #[serde(rename = "MessageID")]
    message_id: Option<String>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    #[serde(rename = "Type")]
    kind: Option<String>,
    #[serde(default)]
    suppress_sending: bool,
    suppression_reason: Option<String>,
    origin: Option<String>,
}

impl Event {
    /// Whether the recipient has ended the subscription, and not the shop or a bounce.
    fn is_opt_out(&self) -> bool {
        self.record_type == "SubscriptionChange"
            && self.suppress_sending
            && self.suppression_reason.as_deref() == Some("ManualSuppression")
            && self.origin.as_deref() == Some("Recipient")
    }

    fn suppresses(&self) -> Option<SuppressionReason> {
        match (self.record_type.as_str(), self.kind.as_deref()) {
            ("Bounce", Some(kind)) if HARD.contains(&kind) => Some(SuppressionReason::HardBounce),
            ("SpamComplaint", _) => Some(SuppressionReason::Complaint),
            _ if self.is_opt_out() => Some(SuppressionReason::OptOut),
            _ => None,
        }
    }
}

impl PostmarkWebhook {
    /// Verifies `request`, and reads its events.
    fn events(&self, request: &Received<'_>) -> Result<Vec<ProviderEvent>, Refused> {
        self.verify(request)?;
        let mut event: Event =
            serde_json::from_slice(request.body).map_err(|_| Refused::Malformed)?;
        let suppresses = event.suppresses();
        let opts_out = event.is_opt_out();
        let accepted = Finding::Accepted { message_id: event.message_id };
        let findings = match (event.record_type.as_str(), event.kind.as_deref()) {
            ("Bounce", Some(kind)) if FINAL.contains(&kind) => {
                vec![accepted, Finding::Refused(FailureClass::Recipient)]
            }
            ("Delivery" | "Open" | "Click" | "SpamComplaint" | "Bounce", _) => vec![accepted],
            _ if opts_out => vec![accepted],
            _ => Vec::new(),
        };
        let id = HEXLOWER.encode(&Sha256::digest(request.body));
        let carried = event.metadata.remove("operation_key");
        Ok(vec![ProviderEvent { id, carried, findings, suppresses }])
    }
}

impl Webhook for PostmarkWebhook {
    fn kind(&self) -> &'static str {
        "postmark"
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
    use hyper::header::HeaderValue;
    use jiff::Timestamp;

    fn read(authorization: Option<&str>, body: &str) -> Result<Vec<ProviderEvent>, Refused> {
        let secrets = ["old:word", "hook:pass:word"].map(|text| Redacted::new(text.to_owned()));
        let webhook = PostmarkWebhook::new(&secrets).unwrap();
        let mut headers = HeaderMap::new();
        if let Some(value) = authorization {
            headers.insert(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        let body = body.as_bytes();
        webhook.events(&Received { query: "", headers: &headers, body, now: Timestamp::UNIX_EPOCH })
    }

    fn basic(text: &str) -> String {
        format!("Basic {}", BASE64.encode(text.as_bytes()))
    }

    #[test]
    fn only_the_configured_account_is_genuine() {
        let body = r#"{"RecordType":"Delivery","MessageID":"m1"}"#;
        for account in ["old:word", "hook:pass:word"] {
            assert!(read(Some(&basic(account)), body).is_ok());
        }
        for account in ["", "old:wor", "old:words", "hook:pass", "hook:pass:word "] {
            assert_eq!(read(Some(&basic(account)), body), Err(Refused::Forged), "{account}");
        }
        assert_eq!(read(Some("Bearer old:word"), body), Err(Refused::Forged));
        assert_eq!(read(None, body), Err(Refused::Unsigned));
        for secret in ["plain", ":", "user:", ":word"] {
            let error = PostmarkWebhook::new(&[Redacted::new(secret.to_owned())]).unwrap_err();
            assert_eq!(error, SecretError::Malformed(WHAT));
        }
    }

    #[test]
    fn only_what_speaks_of_the_address_or_for_the_customer_suppresses() {
        let suppresses = |rest: &str| {
            let body = format!(r#"{{"MessageID":"m1",{rest}}}"#);
            read(Some(&basic("old:word")), &body).unwrap()[0].suppresses
        };
        let bounce = |kind| suppresses(&format!(r#""RecordType":"Bounce","Type":"{kind}""#));
        for kind in HARD {
            assert_eq!(bounce(kind), Some(SuppressionReason::HardBounce), "{kind}");
        }
        for kind in ["SoftBounce", "Transient", "Blocked", "ManuallyDeactivated", "AutoResponder"] {
            assert_eq!(bounce(kind), None, "{kind}");
        }
        let complaint = r#""RecordType":"SpamComplaint","Type":"SpamComplaint""#;
        assert_eq!(suppresses(complaint), Some(SuppressionReason::Complaint));
        let change = |ends: bool, reason: &str, origin: &str| {
            suppresses(&format!(
                r#""RecordType":"SubscriptionChange","SuppressSending":{ends},"SuppressionReason":"{reason}","Origin":"{origin}""#
            ))
        };
        let opt_out = change(true, "ManualSuppression", "Recipient");
        assert_eq!(opt_out, Some(SuppressionReason::OptOut));
        assert_eq!(change(false, "ManualSuppression", "Recipient"), None);
        assert_eq!(change(true, "ManualSuppression", "Customer"), None);
        assert_eq!(change(true, "HardBounce", "Recipient"), None);
        assert_eq!(
            suppresses(r#""RecordType":"SubscriptionChange","SuppressionReason":null"#),
            None
        );
    }

    #[test]
    fn an_event_is_read_by_the_table() {
        let findings = |record: &str, kind: &str| {
            let body = format!(
                r#"{{"RecordType":"{record}","Type":"{kind}","MessageID":"m1","Email":"ann@shop.example","Metadata":{{"operation_key":"k"}}}}"#
            );
            let [event] =
                <[_; 1]>::try_from(read(Some(&basic("old:word")), &body).unwrap()).unwrap();
            assert_eq!(event.carried.as_deref(), Some("k"));
            event.findings
        };
        let accepted = Finding::Accepted { message_id: Some("m1".to_owned()) };
        assert_eq!(findings("Delivery", ""), std::slice::from_ref(&accepted));
        assert_eq!(findings("Bounce", "SoftBounce"), std::slice::from_ref(&accepted));
        let given_up = [accepted, Finding::Refused(FailureClass::Recipient)];
        assert_eq!(findings("Bounce", "HardBounce"), given_up);
        assert_eq!(findings("SubscriptionChange", ""), []);
        let again = |body| read(Some(&basic("old:word")), body).unwrap()[0].id.clone();
        let (one, other) = (r#"{"RecordType":"Open"}"#, r#"{"RecordType":"Click"}"#);
        assert_eq!(again(one), again(one));
        assert_ne!(again(one), again(other));
        assert_eq!(read(Some(&basic("old:word")), "<html>"), Err(Refused::Malformed));
    }
}
