//! Resend's events (<https://resend.com/docs/dashboard/webhooks/event-types>), signed by Svix's
//! scheme. The operation is in the tag `operation_key`, the provider's id in `email_id`.
//!
//! | event | means |
//! | --- | --- |
//! | `email.sent`, `email.delivered`, `email.delivery_delayed`, `email.opened`, `email.clicked`, `email.complained` | accepted and tried |
//! | `email.bounced` | accepted and tried, and given up |
//! | `email.suppressed` | accepted, then refused: `suppressed` |
//! | `email.failed` | accepted, then refused: `rejected` |
//! | everything else | nothing |

use super::svix::Secrets;
use super::{ProviderEvent, Received, Refused, SecretError, Webhook};
use crate::message::Redacted;
use digest_workflows::operation::{FailureClass, Finding};
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

impl Webhook for ResendWebhook {
    fn kind(&self) -> &'static str {
        "resend"
    }

    fn read(&self, request: &Received<'_>) -> Result<Vec<ProviderEvent>, Refused> {
        let id = self.secrets.verify(request)?;
        let Event { name, data } =
            serde_json::from_slice(request.body).map_err(|_| Refused::Malformed)?;
        let accepted = Finding::Accepted { message_id: data.email_id };
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
        Ok(vec![ProviderEvent { id, carried: data.tags.operation_key(), findings }])
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
        webhook.read(&Received { query: "", headers: &headers, body: body.as_bytes(), now })
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
