//! Resend's events (<https://resend.com/docs/dashboard/webhooks/event-types>), signed by Svix's
//! scheme. The operation is in the tag `operation_key`, the provider's id in `email_id`.
//!
//! | event | means |
//! | --- | --- |
//! | `email.sent`, `email.delivered`, `email.delivery_delayed`, `email.opened`, `email.clicked` | accepted and tried |
//! | `email.complained` | accepted and tried; a complaint |
//! | `email.bounced` | accepted and tried, and given up; for good, and not by Resend's own list: a hard bounce |
//! | `email.suppressed` | accepted, then refused: `suppressed` |
//! | `email.failed` | accepted, then refused: `rejected` |
//! | everything else | nothing |

use super::svix::Secrets;
use super::{ProviderEvent, Received, Refused, SecretError, SuppressionReason, Webhook};
use crate::message::Redacted;
use digest_workflows::operation::{FailureClass, Finding};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Resend's webhook.
#[derive(Debug)]
pub struct ResendWebhook {
    secrets: Secrets,
}

impl ResendWebhook {
    /// The webhook whose signing secrets these are.
    ///
    /// # Errors
    /// [`SecretError`].
    pub fn new(secrets: &[Redacted<String>]) -> Result<Self, SecretError> {
        Ok(Self { secrets: Secrets::new(secrets)? })
    }
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    name: String,
    #[serde(default)]
    data: Data,
}

#[derive(Default, Deserialize)]
struct Data {
    email_id: Option<String>,
    #[serde(default)]
    tags: Tags,
    #[serde(default)]
    bounce: Bounce,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Bounce {
    #[serde(rename = "type")]
    kind: String,
    sub_type: String,
}

impl Bounce {
    /// What an address on Resend's own list bounces with says nothing new of the address, and taking
    /// it from that list must be enough.
    fn is_hard(&self) -> bool {
        self.kind == "Permanent" && !self.sub_type.contains("Suppress")
    }
}

/// Tags are an object in events and a list of pairs in requests; either is read.
#[derive(Deserialize)]
#[serde(untagged)]
enum Tags {
    Named(BTreeMap<String, String>),
    Listed(Vec<Tag>),
}

#[derive(Deserialize)]
struct Tag {
    name: String,
    value: String,
}

impl Default for Tags {
    fn default() -> Self {
        Self::Listed(Vec::new())
    }
}

impl Tags {
    fn operation_key(self) -> Option<String> {
        const NAME: &str = "operation_key";
        match self {
            Self::Named(mut tags) => tags.remove(NAME),
            Self::Listed(tags) => {
                tags.into_iter().find(|tag| tag.name == NAME).map(|tag| tag.value)
            }
        }
    }
}

impl ResendWebhook {
    /// Verifies `request`, and reads its events.
    fn events(&self, request: &Received<'_>) -> Result<Vec<ProviderEvent>, Refused> {
        let id = self.secrets.verify(request)?;
        let Event { name, data } =
            serde_json::from_slice(request.body).map_err(|_| Refused::Malformed)?;
        let accepted = Finding::Accepted { message_id: data.email_id };
        let suppresses = match name.as_str() {
            "email.complained" => Some(SuppressionReason::Complaint),
            "email.bounced" if data.bounce.is_hard() => Some(SuppressionReason::HardBounce),
            _ => None,
        };
        let findings = match name.as_str() {
            "email.sent"
            | "email.delivered"
            | "email.delivery_delayed"
            | "email.opened"
            | "email.clicked"
            | "email.complained" => vec![accepted],
            "email.bounced" => {
                vec![accepted, Finding::Refused(FailureClass::Recipient)]
            }
            "email.suppressed" => vec![Finding::Refused(FailureClass::Suppressed)],
            "email.failed" => vec![Finding::Refused(FailureClass::Rejected)],
            _ => Vec::new(),
        };
        Ok(vec![ProviderEvent { id, carried: data.tags.operation_key(), findings, suppresses }])
    }
}

impl Webhook for ResendWebhook {
    fn kind(&self) -> &'static str {
        "resend"
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
    use data_encoding::BASE64;
    use hyper::HeaderMap;
    use hyper::header::{HeaderName, HeaderValue};
    use jiff::Timestamp;

    fn read(body: &str) -> Result<Vec<ProviderEvent>, Refused> {
        let secret = format!("whsec_{}", BASE64.encode(b"secret"));
        let webhook = ResendWebhook::new(&[Redacted::new(secret.clone())]).unwrap();
        let now = Timestamp::from_second(1_790_000_000).unwrap();
        let signed = digest_tests::svix::sign(&secret, "e1", now.as_second(), body.as_bytes());
        let headers: HeaderMap = signed
            .unwrap()
            .into_iter()
            .map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_str(&value).unwrap())
            })
            .collect();
        webhook.events(&Received { query: "", headers: &headers, body: body.as_bytes(), now })
    }

    #[test]
    fn an_event_is_read_by_the_table() {
        let event = |name: &str| {
            let body = format!(
                r#"{{"type":"{name}","created_at":"2026-10-12T07:00:01Z","data":{{"email_id":"m1","to":["ann@shop.example"],"tags":{{"operation_key":"abc"}}}}}}"#
            );
            let [event] = <[_; 1]>::try_from(read(&body).unwrap()).unwrap();
            assert_eq!((event.id.as_str(), event.carried.as_deref()), ("e1", Some("abc")));
            event.findings
        };
        let accepted = Finding::Accepted { message_id: Some("m1".to_owned()) };
        assert_eq!(event("email.sent"), std::slice::from_ref(&accepted));
        let bounced = [accepted, Finding::Refused(FailureClass::Recipient)];
        assert_eq!(event("email.bounced"), bounced);
        assert_eq!(event("email.suppressed"), [Finding::Refused(FailureClass::Suppressed)]);
        assert_eq!(event("email.scheduled"), []);
        assert_eq!(event("domain.created"), []);
    }

    #[test]
    fn only_a_hard_bounce_and_a_complaint_suppress() {
        let suppresses = |name: &str, bounce: &str| {
            let body =
                format!(r#"{{"type":"{name}","data":{{"email_id":"m1","bounce":{bounce}}}}}"#);
            read(&body).unwrap()[0].suppresses
        };
        let bounced = |bounce| suppresses("email.bounced", bounce);
        let hard = Some(SuppressionReason::HardBounce);
        assert_eq!(bounced(r#"{"type":"Permanent","subType":"General"}"#), hard);
        for soft in [
            "{}",
            r#"{"type":"Transient","subType":"MailboxFull"}"#,
            r#"{"type":"Undetermined"}"#,
            r#"{"type":"Permanent","subType":"Suppressed"}"#,
            r#"{"type":"Permanent","subType":"OnAccountSuppressionList"}"#,
        ] {
            assert_eq!(bounced(soft), None, "{soft}");
        }
        let complaint = Some(SuppressionReason::Complaint);
        assert_eq!(suppresses("email.complained", "{}"), complaint);
        assert_eq!(suppresses("email.delivered", "{}"), None);
    }

    #[test]
    fn what_is_no_event_is_refused_and_what_is_not_ours_is_kept_without_a_key() {
        for body in ["", "[]", "{}", "<html>", r#"{"type":7}"#] {
            assert_eq!(read(body), Err(Refused::Malformed), "{body}");
        }
        let other = read(r#"{"type":"email.sent","data":{"email_id":"m2"}}"#).unwrap();
        assert_eq!(other[0].carried, None);
        let listed =
            r#"{"type":"email.sent","data":{"tags":[{"name":"operation_key","value":"k"}]}}"#;
        assert_eq!(read(listed).unwrap()[0].carried.as_deref(), Some("k"));
    }
}
