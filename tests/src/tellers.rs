//! What providers tell by their webhooks, as genuine requests, for tests of what listens.

use crate::api_server::twilio::PUBLIC_URL;
use crate::{svix, twilio};
use anyhow::{Context, Result};
use data_encoding::{BASE64, HEXLOWER};
use hmac::{Hmac, KeyInit, Mac};
use rcgen::{KeyPair, PublicKeyData as _, SigningKey as _};
use serde_json::json;
use sha2::Sha256;

/// One request to `/webhooks/<kind>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The query of its URL, with its question mark; mostly empty.
    pub query: String,
    /// Its headers.
    pub headers: Vec<(&'static str, String)>,
    /// Its body.
    pub body: String,
}

/// Whoever tells, with what it signs by.
pub enum Teller {
    /// Resend, which signs as Svix does.
    Resend,
    /// Postmark, which signs nothing and has a password.
    Postmark,
    /// SendGrid, which signs with a key of its own.
    Sendgrid(Box<KeyPair>),
    /// Mailgun, which signs a time and a token.
    Mailgun,
    /// Twilio, which signs the URL that it was told, and the form.
    Twilio,
}

const SVIX_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const ACCOUNT: &str = "hook:word";
const SIGNING_KEY: &str = "signing-key";
const AUTH_TOKEN: &str = "auth-token";

impl Teller {
    /// SendGrid with a fresh key.
    ///
    /// # Errors
    /// Where no key can be drawn.
    pub fn sendgrid() -> Result<Self> {
        Ok(Self::Sendgrid(Box::new(KeyPair::generate().context("draw a key")?)))
    }

    /// What belongs into `DIGESTD_WEBHOOK_SECRET`.
    #[must_use]
    pub fn secret(&self) -> String {
        match self {
            Self::Resend => SVIX_SECRET.to_owned(),
            Self::Postmark => ACCOUNT.to_owned(),
            Self::Sendgrid(pair) => BASE64.encode(&pair.subject_public_key_info()),
            Self::Mailgun => SIGNING_KEY.to_owned(),
            Self::Twilio => AUTH_TOKEN.to_owned(),
        }
    }

    /// That the message `id`, which carries `key`, was delivered; sent at `at`, in seconds since 1970.
    ///
    /// # Errors
    /// Where nothing can be signed.
    pub fn delivered(&self, key: &str, id: &str, at: i64) -> Result<Told> {
        Ok(match self {
            Self::Resend => {
                let data = json!({"email_id": id, "tags": {"operation_key": key}});
                let body = json!({"type": "email.delivered", "data": data}).to_string();
                let headers = svix::sign(SVIX_SECRET, id, at, body.as_bytes())?;
                Told { query: String::new(), headers, body }
            }
            Self::Postmark => {
                let metadata = json!({"operation_key": key});
                let body = json!({"RecordType": "Delivery", "MessageID": id, "Metadata": metadata});
                let basic = format!("Basic {}", BASE64.encode(ACCOUNT.as_bytes()));
                let headers = vec![("authorization", basic)];
                Told { query: String::new(), headers, body: body.to_string() }
            }
            Self::Sendgrid(pair) => {
                let body = json!([{
                    "event": "delivered", "sg_event_id": format!("event of {id}"),
                    "sg_message_id": format!("{id}.filter"), "operation_key": key,
                }])
                .to_string();
                let signature = pair.sign(format!("{at}{body}").as_bytes()).context("sign")?;
                let headers = vec![
                    ("x-twilio-email-event-webhook-signature", BASE64.encode(&signature)),
                    ("x-twilio-email-event-webhook-timestamp", at.to_string()),
                ];
                Told { query: String::new(), headers, body }
            }
            Self::Mailgun => {
                let mac = Hmac::<Sha256>::new_from_slice(SIGNING_KEY.as_bytes())?;
                let mac = mac.chain_update(format!("{at}{id}")).finalize().into_bytes();
                let signature = HEXLOWER.encode(&mac);
                let body = json!({
                    "signature": {"timestamp": at.to_string(), "token": id, "signature": signature},
                    "event-data": {
                        "event": "delivered",
                        "message": {"headers": {"message-id": id}},
                        "user-variables": {"operation_key": key},
                    },
                });
                Told { query: String::new(), headers: Vec::new(), body: body.to_string() }
            }
            Self::Twilio => {
                let fields = [("MessageSid", id), ("MessageStatus", "delivered"), ("To", "+1")];
                let query = format!("?operation={key}");
                let url = format!("{PUBLIC_URL}/webhooks/twilio{query}");
                let headers = vec![(twilio::SIGNATURE, twilio::sign(AUTH_TOKEN, &url, &fields))];
                Told { query, headers, body: twilio::form(&fields) }
            }
        })
    }
}
