//! SendGrid's events (<https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/event>),
//! signed with ECDSA on P-256 over the time and the bytes
//! (<https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/getting-started-event-webhook-security-features>).
//! The operation is in the custom argument `operation_key`, which stands at the event's top level.
//!
//! | event | means |
//! | --- | --- |
//! | `processed`, `deferred`, `delivered`, `open`, `click`, `group_resubscribe` | accepted and tried |
//! | `spamreport` | accepted and tried; a complaint |
//! | `unsubscribe`, `group_unsubscribe` | accepted and tried; an opt-out |
//! | `bounce` | accepted and tried, and given up; unless its type is `blocked`: a hard bounce |
//! | `dropped` | accepted, then refused: by its reason `suppressed`, `recipient` or `rejected` |
//! | everything else | nothing |
//!
//! Whether a later try is signed anew is not documented; the time may be as old as SendGrid tries.

use super::{ProviderEvent, Received, Refused, SecretError, SuppressionReason, Webhook, fresh};
use crate::message::Redacted;
use data_encoding::BASE64;
use digest_workflows::operation::{FailureClass, Finding};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use jiff::SignedDuration;
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use serde::Deserialize;
use std::fmt;

const WHAT: &str = "the verification key of the signed event webhook";
const SIGNATURE: &str = "x-twilio-email-event-webhook-signature";
const TIMESTAMP: &str = "x-twilio-email-event-webhook-timestamp";

/// SendGrid tries for a day.
const TRIES_FOR: SignedDuration = SignedDuration::from_hours(25);

/// What stands before the point in a public key of the curve P-256 (RFC 5480, section 2).
const P256_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
const POINT_BYTES: usize = 65;

/// SendGrid's webhook.
pub struct SendgridWebhook {
    keys: Vec<UnparsedPublicKey<Vec<u8>>>,
}

impl fmt::Debug for SendgridWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendgridWebhook({})", self.keys.len())
    }
}

impl SendgridWebhook {
    /// The webhook that is verified with one of these public keys, in base64 as SendGrid shows them.
    ///
    /// # Errors
    /// [`SecretError`].
    pub fn new(keys: &[Redacted<String>]) -> Result<Self, SecretError> {
        if keys.is_empty() {
            return Err(SecretError::None(WHAT));
        }
        let key = |text: &Redacted<String>| {
            let der = BASE64.decode(text.reveal().trim().as_bytes()).ok()?;
            let point = der.strip_prefix(&P256_PREFIX)?;
            let whole = point.len() == POINT_BYTES && point.first() == Some(&4);
            whole.then(|| UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point.to_vec()))
        };
        let keys: Option<Vec<_>> = keys.iter().map(key).collect();
        keys.map(|keys| Self { keys }).ok_or(SecretError::Malformed(WHAT))
    }

    fn verify(&self, request: &Received<'_>) -> Result<(), Refused> {
        let header = |name: &str| {
            let value = request.headers.get(name).and_then(|value| value.to_str().ok());
            value.ok_or(Refused::Unsigned)
        };
        let (signature, time) = (header(SIGNATURE)?, header(TIMESTAMP)?);
        let signature = BASE64.decode(signature.as_bytes()).map_err(|_| Refused::Forged)?;
        let signed = [time.as_bytes(), request.body].concat();
        if !self.keys.iter().any(|key| key.verify(&signed, &signature).is_ok()) {
            return Err(Refused::Forged);
        }
        fresh(time, request.now, TRIES_FOR)
    }
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "event")]
    name: String,
    sg_event_id: String,
    sg_message_id: Option<String>,
    operation_key: Option<String>,
    #[serde(default)]
    reason: String,
    /// Of a bounce: `bounce`, or `blocked` for one that may pass.
    #[serde(default, rename = "type")]
    kind: String,
}

impl Event {
    fn suppresses(&self) -> Option<SuppressionReason> {
        match self.name.as_str() {
            "bounce" if self.kind == "bounce" => Some(SuppressionReason::HardBounce),
            "spamreport" => Some(SuppressionReason::Complaint),
            "unsubscribe" | "group_unsubscribe" => Some(SuppressionReason::OptOut),
            _ => None,
        }
    }

    fn findings(&self) -> Vec<Finding> {
        // What an answer names is the part before the first dot.
        let message_id = self.sg_message_id.as_deref();
        let message_id = message_id.and_then(|id| id.split('.').next()).map(str::to_owned);
        let accepted = Finding::Accepted { message_id };
        match self.name.as_str() {
            "processed" | "deferred" | "delivered" | "open" | "click" | "spamreport"
            | "unsubscribe" | "group_unsubscribe" | "group_resubscribe" => vec![accepted],
            "bounce" => vec![accepted, Finding::Refused(FailureClass::Recipient)],
            "dropped" => vec![Finding::Refused(match self.reason.as_str() {
                "Bounced Address"
                | "Unsubscribed Address"
                | "Spam Reporting Address"
                | "Recipient List over Package Quota" => FailureClass::Suppressed,
                "Invalid" => FailureClass::Recipient,
                _ => FailureClass::Rejected,
            })],
            _ => Vec::new(),
        }
    }
}

impl SendgridWebhook {
    /// Verifies `request`, and reads its events.
    fn events(&self, request: &Received<'_>) -> Result<Vec<ProviderEvent>, Refused> {
        self.verify(request)?;
        let events: Vec<Event> =
            serde_json::from_slice(request.body).map_err(|_| Refused::Malformed)?;
        let event = |event: Event| {
            let (findings, suppresses) = (event.findings(), event.suppresses());
            let (id, carried) = (event.sg_event_id, event.operation_key);
            ProviderEvent { id, carried, findings, suppresses }
        };
        Ok(events.into_iter().map(event).collect())
    }
}

impl Webhook for SendgridWebhook {
    fn kind(&self) -> &'static str {
        "sendgrid"
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
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};

    const NOW: i64 = 1_790_000_000;

    struct Sender(EcdsaKeyPair);

    impl Sender {
        fn new() -> Self {
            let random = SystemRandom::new();
            let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
            let pair = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
            Self(EcdsaKeyPair::from_pkcs8(algorithm, pair.as_ref(), &random).unwrap())
        }

        fn key(&self) -> Redacted<String> {
            let der = [&P256_PREFIX[..], self.0.public_key().as_ref()].concat();
            Redacted::new(BASE64.encode(&der))
        }

        fn sign(&self, at: i64, body: &str) -> HeaderMap {
            let time = at.to_string();
            let signed = format!("{time}{body}");
            let signature = self.0.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
            let mut headers = HeaderMap::new();
            let value = HeaderValue::from_str(&BASE64.encode(signature.as_ref())).unwrap();
            headers.insert(SIGNATURE, value);
            headers.insert(TIMESTAMP, HeaderValue::from_str(&time).unwrap());
            headers
        }
    }

    fn read(
        webhook: &SendgridWebhook,
        headers: &HeaderMap,
        body: &str,
    ) -> Result<Vec<ProviderEvent>, Refused> {
        let now = Timestamp::from_second(NOW).unwrap();
        webhook.events(&Received { query: "", headers, body: body.as_bytes(), now })
    }

    #[test]
    fn only_the_very_bytes_signed_with_a_key_of_ours_are_genuine() {
        let (old, new) = (Sender::new(), Sender::new());
        let webhook = SendgridWebhook::new(&[old.key(), new.key()]).unwrap();
        let body = r#"[{"event":"processed","sg_event_id":"e1"}]"#;
        for sender in [&old, &new] {
            assert!(read(&webhook, &sender.sign(NOW, body), body).is_ok());
        }
        let stranger = Sender::new().sign(NOW, body);
        assert_eq!(read(&webhook, &stranger, body), Err(Refused::Forged));
        let genuine = old.sign(NOW, body);
        assert_eq!(read(&webhook, &genuine, &body.replace("e1", "e2")), Err(Refused::Forged));
        let mut other_time = genuine.clone();
        other_time.insert(TIMESTAMP, HeaderValue::from_static("1790000001"));
        assert_eq!(read(&webhook, &other_time, body), Err(Refused::Forged));
        assert_eq!(read(&webhook, &HeaderMap::new(), body), Err(Refused::Unsigned));
        for at in [NOW - 26 * 3600, NOW + 26 * 3600] {
            assert_eq!(read(&webhook, &old.sign(at, body), body), Err(Refused::Stale));
        }
        for text in ["", "key", "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE"] {
            let error = SendgridWebhook::new(&[Redacted::new(text.to_owned())]).unwrap_err();
            assert_eq!(error, SecretError::Malformed(WHAT));
        }
    }

    #[test]
    fn a_batch_of_events_is_read_by_the_table() {
        let sender = Sender::new();
        let webhook = SendgridWebhook::new(&[sender.key()]).unwrap();
        let read = |body: &str| read(&webhook, &sender.sign(NOW, body), body);
        let body = r#"[
            {"event":"delivered","sg_event_id":"e1","sg_message_id":"m1.filter.1","operation_key":"k"},
            {"event":"bounce","sg_event_id":"e2","sg_message_id":"m1","operation_key":"k","type":"blocked"},
            {"event":"dropped","sg_event_id":"e3","reason":"Bounced Address","operation_key":"k"},
            {"event":"dropped","sg_event_id":"e4","reason":"Invalid","email":"ann@shop.example"},
            {"event":"something","sg_event_id":"e5"}]"#;
        let accepted = Finding::Accepted { message_id: Some("m1".to_owned()) };
        let expected = [
            vec![accepted.clone()],
            vec![accepted, Finding::Refused(FailureClass::Recipient)],
            vec![Finding::Refused(FailureClass::Suppressed)],
            vec![Finding::Refused(FailureClass::Recipient)],
            Vec::new(),
        ];
        let events = read(body).unwrap();
        let findings: Vec<_> = events.iter().map(|event| event.findings.clone()).collect();
        assert_eq!(findings, expected);
        assert!(events.iter().all(|event| event.suppresses.is_none()));
        let body = r#"[
            {"event":"bounce","sg_event_id":"e6","type":"bounce"},
            {"event":"spamreport","sg_event_id":"e7"},
            {"event":"unsubscribe","sg_event_id":"e8"},
            {"event":"group_unsubscribe","sg_event_id":"e9"}]"#;
        let suppresses: Vec<_> = read(body).unwrap().iter().map(|event| event.suppresses).collect();
        let [hard, complaint, opt_out] = SuppressionReason::ALL.map(Some);
        assert_eq!(suppresses, [hard, complaint, opt_out, opt_out]);
        assert_eq!(events[0].carried.as_deref(), Some("k"));
        assert_eq!(events[3].carried, None);
        for body in ["", "{}", "<html>", r#"[{"event":"open"}]"#] {
            assert_eq!(read(body), Err(Refused::Malformed), "{body}");
        }
    }
}
