//! The signature scheme of Svix, which several providers use
//! (<https://docs.svix.com/receiving/verifying-payloads/how-manual>): HMAC-SHA256 over
//! `id.timestamp.body`, under a secret that begins with `whsec_`.

use super::{Received, Refused, SecretError, TOLERANCE, fresh};
use crate::message::Redacted;
use data_encoding::BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;

const WHAT: &str = "the signing secret of the provider's webhook, which begins with whsec_";

/// The secrets that are valid now: one, or two while one is being replaced.
#[derive(Clone)]
pub struct Secrets(Vec<Hmac<Sha256>>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

impl Secrets {
    /// Reads the secrets.
    ///
    /// # Errors
    /// [`SecretError`].
    pub fn new(secrets: &[Redacted<String>]) -> Result<Self, SecretError> {
        if secrets.is_empty() {
            return Err(SecretError::None(WHAT));
        }
        let read = |secret: &Redacted<String>| {
            let encoded = secret.reveal().strip_prefix("whsec_")?;
            let key = BASE64.decode(encoded.as_bytes()).ok().filter(|key| !key.is_empty())?;
            Hmac::new_from_slice(&key).ok()
        };
        let keys: Option<Vec<_>> = secrets.iter().map(read).collect();
        keys.map(Self).ok_or(SecretError::Malformed(WHAT))
    }

    /// Checks `request`, and returns the event's id.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn verify(&self, request: &Received<'_>) -> Result<String, Refused> {
        let header = |name: &str| {
            let value = request.headers.get(name).and_then(|value| value.to_str().ok());
            value.filter(|value| !value.is_empty()).ok_or(Refused::Unsigned)
        };
        let (id, time) = (header("svix-id")?, header("svix-timestamp")?);
        let signatures = header("svix-signature")?;
        let genuine = signatures
            .split(' ')
            .filter_map(|signature| signature.strip_prefix("v1,"))
            .filter_map(|signature| BASE64.decode(signature.as_bytes()).ok())
            .any(|signature| {
                self.0.iter().any(|key| {
                    let mac = key.clone().chain_update(id).chain_update(".").chain_update(time);
                    // Compared in constant time.
                    mac.chain_update(".")
                        .chain_update(request.body)
                        .verify_slice(&signature)
                        .is_ok()
                })
            });
        if !genuine {
            return Err(Refused::Forged);
        }
        fresh(time, request.now, TOLERANCE)?;
        Ok(id.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::HeaderMap;
    use hyper::header::HeaderValue;
    use jiff::Timestamp;

    fn text(key: &str) -> String {
        format!("whsec_{}", BASE64.encode(key.as_bytes()))
    }

    fn secrets(all: &[&str]) -> Secrets {
        let all: Vec<_> = all.iter().map(|key| Redacted::new(text(key))).collect();
        Secrets::new(&all).unwrap()
    }

    fn sign(key: &str, id: &str, at: Timestamp, body: &[u8]) -> Vec<(&'static str, String)> {
        digest_tests::svix::sign(&text(key), id, at.as_second(), body).unwrap()
    }

    fn headers(pairs: &[(&'static str, String)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (
                    hyper::header::HeaderName::from_static(name),
                    HeaderValue::from_str(value).unwrap(),
                )
            })
            .collect()
    }

    fn now() -> Timestamp {
        Timestamp::from_second(1_790_000_000).unwrap()
    }

    fn verify(
        ours: &Secrets,
        pairs: &[(&'static str, String)],
        body: &[u8],
    ) -> Result<String, Refused> {
        ours.verify(&Received { query: "", headers: &headers(pairs), body, now: now() })
    }

    #[test]
    fn the_example_of_the_documentation_is_genuine() {
        // From Svix's page on manual verification.
        let secret = Redacted::new("whsec_plJ3nmyCDGBKInavdOK15jsl".to_owned());
        let ours = Secrets::new(&[secret]).unwrap();
        let body = br#"{"event_type":"ping","data":{"success":true}}"#;
        let pairs = [
            ("svix-id", "msg_loFOjxBNrRLzqYUf".to_owned()),
            ("svix-timestamp", "1731705121".to_owned()),
            ("svix-signature", "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0=".to_owned()),
        ];
        let at = Timestamp::from_second(1_731_705_125).unwrap();
        let request = Received { query: "", headers: &headers(&pairs), body, now: at };
        assert_eq!(ours.verify(&request).unwrap(), "msg_loFOjxBNrRLzqYUf");
    }

    #[test]
    fn only_the_very_bytes_at_the_right_time_are_genuine() {
        let ours = secrets(&["one", "two"]);
        let body = br#"{"type":"email.sent"}"#;
        for theirs in ["one", "two"] {
            assert_eq!(verify(&ours, &sign(theirs, "e1", now(), body), body), Ok("e1".to_owned()));
        }
        let genuine = sign("one", "e1", now(), body);
        for position in 0..body.len() {
            let mut other = body.to_vec();
            other[position] ^= 1;
            assert_eq!(verify(&ours, &genuine, &other), Err(Refused::Forged));
        }
        let mut other_id = genuine.clone();
        other_id[0].1 = "e2".to_owned();
        let mut other_time = genuine.clone();
        other_time[1].1 = (now().as_second() + 1).to_string();
        for pairs in [other_id, other_time, sign("three", "e1", now(), body)] {
            assert_eq!(verify(&ours, &pairs, body), Err(Refused::Forged));
        }
        for missing in 0..3 {
            let mut pairs = genuine.clone();
            pairs.remove(missing);
            assert_eq!(verify(&ours, &pairs, body), Err(Refused::Unsigned));
        }
        for seconds in [-301, 301] {
            let at = now() + jiff::SignedDuration::from_secs(seconds);
            let pairs = sign("one", "e1", at, body);
            assert_eq!(verify(&ours, &pairs, body), Err(Refused::Stale));
        }
        for seconds in [-299, 299] {
            let at = now() + jiff::SignedDuration::from_secs(seconds);
            assert!(verify(&ours, &sign("one", "e1", at, body), body).is_ok());
        }
        // Of several signatures one suffices, and only of the known version.
        let mut rotated = genuine.clone();
        rotated[2].1 = format!("v1,AAAA {}", genuine[2].1);
        assert!(verify(&ours, &rotated, body).is_ok());
        rotated[2].1 = genuine[2].1.replace("v1,", "v2,");
        assert_eq!(verify(&ours, &rotated, body), Err(Refused::Forged));
    }

    #[test]
    fn a_secret_of_another_form_is_refused_and_not_shown() {
        let secret = |text: &str| Secrets::new(&[Redacted::new(text.to_owned())]).unwrap_err();
        for text in ["plain", "whsec_", "whsec_%%%", "whsk_AAAA"] {
            assert_eq!(secret(text), SecretError::Malformed(WHAT));
            assert!(text == "whsec_" || !secret(text).to_string().contains(text));
        }
        assert_eq!(Secrets::new(&[]).unwrap_err(), SecretError::None(WHAT));
        assert_eq!(format!("{:?}", secrets(&["hidden"])), "Secrets(1)");
    }
}
