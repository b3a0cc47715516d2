//! Twilio's status callbacks
//! (<https://www.twilio.com/docs/messaging/guides/outbound-message-status-in-status-callbacks>), each
//! sent to the URL that its message named, whose query carries the operation's alias.
//!
//! The signature (<https://www.twilio.com/docs/usage/security#validating-requests>) is an HMAC-SHA1
//! under the account's auth token, over that whole URL and the form's fields, sorted, each name
//! followed by its value; so nobody can put another key beside an event. It has no time: a callback
//! that somebody has seen and sends again is the same event, which counts once. Its id is that of the
//! message with the status.
//!
//! What a status means is told where records are read, in `provider/twilio/states.rs`.

use super::{ProviderEvent, Received, Refused, SecretError, Webhook};
use crate::message::Redacted;
use crate::provider::twilio::{OPERATION, states};
use data_encoding::BASE64;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use url::form_urlencoded;

const WHAT: &str = "the account's auth token";
const SIGNATURE: &str = "x-twilio-signature";

/// A callback has about a dozen short fields. What is longer, or has more, is none, and is not read:
/// the fields are read before it is known who sent them.
const BODY_BYTES_MAX: usize = 64_000;
const FIELDS_MAX: usize = 100;

/// Twilio's webhook.
#[derive(Clone)]
pub struct TwilioWebhook {
    keys: Vec<Hmac<Sha1>>,
    /// The URL that callbacks go to, without the query, in each way that it may be signed.
    urls: Vec<String>,
}

impl fmt::Debug for TwilioWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TwilioWebhook").field("urls", &self.urls).finish_non_exhaustive()
    }
}

impl TwilioWebhook {
    /// The webhook that is signed with one of these auth tokens, and called at `url`, which is
    /// [`callback`](crate::provider::twilio::callback) of its public address.
    ///
    /// # Errors
    /// [`SecretError`].
    pub fn new(tokens: &[Redacted<String>], url: &str) -> Result<Self, SecretError> {
        if tokens.is_empty() {
            return Err(SecretError::None(WHAT));
        }
        let key = |token: &Redacted<String>| {
            let token = Some(token.reveal()).filter(|token| !token.is_empty())?;
            Hmac::new_from_slice(token.as_bytes()).ok()
        };
        let keys: Option<Vec<_>> = tokens.iter().map(key).collect();
        let keys = keys.ok_or(SecretError::Malformed(WHAT))?;
        Ok(Self { keys, urls: as_signed(url) })
    }

    /// The fields of `request`, which it is signed with.
    fn verified(&self, request: &Received<'_>) -> Result<Vec<(String, String)>, Refused> {
        let given = request.headers.get(SIGNATURE).ok_or(Refused::Unsigned)?;
        let given = BASE64.decode(given.as_bytes()).map_err(|_| Refused::Forged)?;
        let is_short = request.body.len() <= BODY_BYTES_MAX
            && request.body.split(|b| *b == b'&').count() <= FIELDS_MAX;
        if !is_short {
            return Err(Refused::Unsigned);
        }
        let fields: Vec<(String, String)> =
            form_urlencoded::parse(request.body).into_owned().collect();
        // Each name with each of its values, once.
        let sorted: BTreeSet<&(String, String)> = fields.iter().collect();
        let is_genuine = |key: &Hmac<Sha1>, url: &str| {
            let mac = key.clone().chain_update(url).chain_update("?").chain_update(request.query);
            let signed = sorted.iter().fold(mac, |mac, (name, value)| {
                mac.chain_update(name.as_bytes()).chain_update(value.as_bytes())
            });
            signed.verify_slice(&given).is_ok()
        };
        let genuine = self.keys.iter().any(|key| self.urls.iter().any(|url| is_genuine(key, url)));
        if genuine { Ok(fields) } else { Err(Refused::Forged) }
    }

    /// An opt-out stays on Twilio's own list, from which the customer's word takes it.
    fn events(&self, request: &Received<'_>) -> Result<Vec<ProviderEvent>, Refused> {
        let fields = self.verified(request)?;
        let fields: BTreeMap<&str, &str> =
            fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let field = |name: &str| fields.get(name).copied().filter(|value| !value.is_empty());
        let (Some(sid), Some(status)) = (field("MessageSid"), field("MessageStatus")) else {
            return Err(Refused::Malformed);
        };
        let code = field("ErrorCode").and_then(|code| code.parse().ok());
        let mut query = form_urlencoded::parse(request.query.as_bytes());
        let carried =
            query.find(|(name, _)| name == OPERATION).map(|(_, alias)| alias.into_owned());
        let findings = states::findings(status, code, sid);
        Ok(vec![ProviderEvent {
            id: format!("{sid}:{status}"),
            carried,
            findings,
            suppresses: None,
        }])
    }
}

/// `url` as it is written, and with its scheme's own port added or left out, which Twilio may do
/// before it signs.
fn as_signed(url: &str) -> Vec<String> {
    let mut urls = vec![url.to_owned()];
    if let Some((scheme, rest)) = url.split_once("://") {
        let port = if scheme == "https" { ":443" } else { ":80" };
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        match host.strip_suffix(port) {
            Some(host) => urls.push(format!("{scheme}://{host}{path}")),
            None if !host.rsplit(']').next().unwrap_or_default().contains(':') => {
                urls.push(format!("{scheme}://{host}{port}{path}"));
            }
            None => {}
        }
    }
    urls
}

impl Webhook for TwilioWebhook {
    fn kind(&self) -> &'static str {
        "twilio"
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
    use digest_tests::twilio::sign;
    use digest_workflows::operation::{FailureClass, Finding};
    use hyper::HeaderMap;
    use hyper::header::HeaderValue;
    use jiff::Timestamp;

    const URL: &str = "https://hooks.shop.example/webhooks/twilio";
    const QUERY: &str = "operation=abc";

    fn webhook(url: &str) -> TwilioWebhook {
        let tokens = ["old", "new"].map(|token| Redacted::new(token.to_owned()));
        TwilioWebhook::new(&tokens, url).unwrap()
    }

    fn form(fields: &[(&str, &str)]) -> String {
        form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
    }

    fn read(
        signature: Option<&str>,
        query: &str,
        body: &str,
    ) -> Result<Vec<ProviderEvent>, Refused> {
        let mut headers = HeaderMap::new();
        if let Some(signature) = signature {
            headers.insert(SIGNATURE, HeaderValue::from_str(signature).unwrap());
        }
        let now = Timestamp::UNIX_EPOCH;
        webhook(URL).events(&Received { query, headers: &headers, body: body.as_bytes(), now })
    }

    const DELIVERED: [(&str, &str); 4] = [
        ("To", "+15005550006"),
        ("MessageSid", "SM1"),
        ("MessageStatus", "delivered"),
        ("From", "Söhne & Co"),
    ];

    #[test]
    fn the_documented_example_holds() {
        let fields = [
            ("CallSid", "CA1234567890ABCDE"),
            ("From", "+12349013030"),
            ("To", "+18005551212"),
            ("Caller", "+12349013030"),
            ("Digits", "1234"),
        ];
        let url = "https://mycompany.com/myapp.php";
        let tokens = [Redacted::new("12345".to_owned())];
        let webhook = TwilioWebhook::new(&tokens, url).unwrap();
        let mut headers = HeaderMap::new();
        let signature = HeaderValue::from_static("0/KCTR6DLpKmkAf8muzZqo1nDgQ=");
        headers.insert(SIGNATURE, signature);
        let body = form(&fields);
        let now = Timestamp::UNIX_EPOCH;
        let query = "foo=1&bar=2";
        let request = Received { query, headers: &headers, body: body.as_bytes(), now };
        // It is genuine, and no status callback.
        assert_eq!(webhook.events(&request), Err(Refused::Malformed));
        let other = Received { query: "foo=1&bar=3", ..request };
        assert_eq!(webhook.events(&other), Err(Refused::Forged));
    }

    #[test]
    fn only_what_is_signed_with_a_token_of_ours_is_genuine_and_all_of_it_is_signed() {
        let body = form(&DELIVERED);
        let signed = |token: &str| sign(token, &format!("{URL}?{QUERY}"), &DELIVERED);
        for token in ["old", "new"] {
            assert!(read(Some(&signed(token)), QUERY, &body).is_ok(), "{token}");
        }
        let genuine = signed("new");
        for (signature, query, body) in [
            (signed("other").as_str(), QUERY, body.as_str()),
            (&genuine, "operation=abd", &body),
            (&genuine, "", &body),
            (&genuine, QUERY, &body.replace("delivered", "failed")),
            (&genuine, QUERY, &format!("{body}&ErrorCode=21610")),
            (&genuine, QUERY, ""),
            ("", QUERY, &body),
            ("no base64", QUERY, &body),
        ] {
            assert_eq!(read(Some(signature), query, body), Err(Refused::Forged), "{query} {body}");
        }
        assert_eq!(read(None, QUERY, &body), Err(Refused::Unsigned));
        assert_eq!(TwilioWebhook::new(&[], URL).unwrap_err(), SecretError::None(WHAT));
        let empty = [Redacted::new(String::new())];
        assert_eq!(TwilioWebhook::new(&empty, URL).unwrap_err(), SecretError::Malformed(WHAT));
        assert!(!format!("{:?}", webhook(URL)).contains("old"));
    }

    #[test]
    fn a_form_as_twilio_never_sends_it_is_not_read() {
        let url = format!("{URL}?{QUERY}");
        let many = |n: usize| -> Vec<(String, String)> {
            let rest = (DELIVERED.len()..n).map(|i| (format!("f{i}"), "a".to_owned()));
            let own = DELIVERED.map(|(name, value)| (name.to_owned(), value.to_owned()));
            own.into_iter().chain(rest).collect()
        };
        let answer = |fields: &[(String, String)]| {
            let fields: Vec<(&str, &str)> =
                fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            read(Some(&sign("new", &url, &fields)), QUERY, &form(&fields)).map(|all| all.len())
        };
        assert_eq!(answer(&many(FIELDS_MAX)), Ok(1));
        assert_eq!(answer(&many(FIELDS_MAX + 1)), Err(Refused::Unsigned));
        let long = |bytes: usize| {
            let mut fields = many(DELIVERED.len());
            fields.push(("Body".to_owned(), "a".repeat(bytes)));
            fields
        };
        assert_eq!(answer(&long(BODY_BYTES_MAX / 2)), Ok(1));
        assert_eq!(answer(&long(BODY_BYTES_MAX)), Err(Refused::Unsigned));
    }

    #[test]
    fn the_schemes_own_port_may_come_and_go() {
        for (written, signed) in [
            (URL, "https://hooks.shop.example:443/webhooks/twilio"),
            ("https://hooks.shop.example:443/webhooks/twilio", URL),
            ("http://[::1]/webhooks/twilio", "http://[::1]:80/webhooks/twilio"),
        ] {
            assert_eq!(as_signed(written), [written, signed]);
        }
        let with_port = "https://hooks.shop.example:8443/webhooks/twilio";
        assert_eq!(as_signed(with_port), [with_port]);
    }

    #[test]
    fn a_callback_tells_the_operation_of_its_url_and_its_status_once() {
        let event = |fields: &[(&str, &str)]| {
            let signature = sign("new", &format!("{URL}?{QUERY}"), fields);
            let [event] =
                <[_; 1]>::try_from(read(Some(&signature), QUERY, &form(fields)).unwrap()).unwrap();
            assert_eq!(event.carried.as_deref(), Some("abc"));
            event
        };
        let accepted = Finding::Accepted { message_id: Some("SM1".to_owned()) };
        let delivered = event(&DELIVERED);
        assert_eq!(delivered.findings, [accepted]);
        assert_eq!(delivered, event(&DELIVERED));
        let failed =
            event(&[("MessageSid", "SM1"), ("MessageStatus", "failed"), ("ErrorCode", "21610")]);
        assert_eq!(failed.findings, [Finding::Refused(FailureClass::Suppressed)]);
        assert_ne!(failed.id, delivered.id);
        for incomplete in
            [&DELIVERED[..2], &DELIVERED[2..], &[("MessageSid", ""), ("MessageStatus", "sent")]]
        {
            let signature = sign("new", &format!("{URL}?{QUERY}"), incomplete);
            assert_eq!(read(Some(&signature), QUERY, &form(incomplete)), Err(Refused::Malformed));
        }
        let signature = sign("new", &format!("{URL}?a=b"), &DELIVERED);
        let nobodys = read(Some(&signature), "a=b", &form(&DELIVERED)).unwrap();
        assert_eq!(nobodys[0].carried, None);
    }
}
