//! [Postmark](https://postmarkapp.com/developer/api/email-api): no idempotency key, so a second
//! request is a second message; but its message search finds our key, which travels as metadata
//! (<https://postmarkapp.com/developer/api/messages-api>). How soon a message can be found is not
//! documented, so a miss never counts.
//!
//! What its answers mean
//! (<https://postmarkapp.com/developer/api/overview#error-codes>). The code is that of the body,
//! whose numbers look like HTTP statuses and are none:
//!
//! | answer | means |
//! | --- | --- |
//! | 200 with `ErrorCode` 0 and a `MessageID` | accepted |
//! | 401 with code 10 | not sent: `configuration` (the token) |
//! | 422 with code 400, 401 | not sent: `configuration` (the sender signature) |
//! | 422 with code 405 | not sent: `configuration` (out of credits) |
//! | 422 with code 412, 413 | not sent: `configuration` (the account is pending or blocked) |
//! | 422 with code 406 | not sent: `suppressed` (a hard bounce, complaint or suppression before) |
//! | 422 with code 300 that speaks of `'To'` | not sent: `recipient` |
//! | 422 with code 300, 402, 403, 409, 411; 413; 415 | not sent: `schema` |
//! | 429 | not sent: `rate_limited`, after `Retry-After` |
//! | 503 with code 100 (maintenance) | not sent: `overloaded` |
//! | everything else, and no answer | unknown; a 500 loses the message in most cases only |
//!
//! `Message-ID` stays ours, since `X-PM-KeepID` asks for it; `Date` is Postmark's.

use super::alias;
use super::api::{self, Api, ApiSettings, ApiSettingsError, KEY_VARIABLE, query, read, told};
use super::exchange::Answer;
use super::retry_after::retry_after;
use super::{Found, Provider, Ready, Reply};
use crate::message::FrozenMessage;
use digest_workflows::operation::{
    Contract, Failure, FailureClass, Lookup, OperationKey, ProviderRef, Replay,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::StatusCode;
use hyper::header::HeaderName;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where the API is.
pub const URL: &str = "https://api.postmarkapp.com";

/// The message stream that every server has for mail to many.
pub const MESSAGE_STREAM: &str = "broadcast";

/// Raised whenever [`look_up`](Provider::look_up) could not find what an earlier version sent.
const FORMAT: u32 = 1;

/// What a value of the metadata may be.
const METADATA_CHARS_MAX: usize = 80;

/// Name of the metadata that carries our key.
const OPERATION_KEY: &str = "operation_key";

/// A server at Postmark.
#[derive(Debug)]
pub struct Postmark {
    api: Api,
    provider: ProviderRef,
    message_stream: String,
}

impl Postmark {
    /// The server of `settings`, whose credential is its token; connects to nothing yet.
    /// `message_stream` is [`MESSAGE_STREAM`] where none is named.
    ///
    /// # Errors
    /// The setting that cannot be used.
    pub fn new(
        settings: &ApiSettings,
        message_stream: Option<&str>,
    ) -> Result<Self, ApiSettingsError> {
        let key = settings.key("postmark", "API token of the Postmark server")?;
        let message_stream = message_stream.unwrap_or(MESSAGE_STREAM).to_owned();
        if !message_stream.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)) {
            return Err(ApiSettingsError::Setting {
                setting: "message_stream",
                why: "is not the id of a stream, such as \"broadcast\"; its page at Postmark shows it"
                    .to_owned(),
            });
        }
        let api = settings.api(URL)?;
        let provider = api::account("postmark", &api, key, FORMAT);
        let api = api.with_secret(HeaderName::from_static("x-postmark-server-token"), key)?;
        Ok(Self { api, provider, message_stream })
    }
}

/// The request's body. Its fields always come in the same order.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Body<'a> {
    from: &'a str,
    to: &'a str,
    subject: &'a str,
    text_body: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    html_body: Option<&'a str>,
    message_stream: &'a str,
    metadata: BTreeMap<&'static str, String>,
    headers: Vec<Header<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Header<'a> {
    name: &'a str,
    value: &'a str,
}

/// What an answer's body holds, whether yes or no.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Told {
    error_code: Option<u32>,
    #[serde(default)]
    message: String,
    #[serde(rename = "MessageID")]
    message_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Messages {
    messages: Vec<Message>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Message {
    #[serde(rename = "MessageID")]
    message_id: String,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Server {
    #[serde(default)]
    delivery_type: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Stream {
    #[serde(default)]
    archived_at: Option<String>,
}

/// Our key as the metadata carries it.
fn metadata(key: &OperationKey) -> String {
    alias::for_field(key, METADATA_CHARS_MAX, |_| true)
}

/// The body for `message` under `key`.
fn body(
    key: &OperationKey,
    message: &FrozenMessage,
    message_stream: &str,
) -> Result<Vec<u8>, Failure> {
    let own = message.headers.reveal().iter().filter(|(name, _)| name != "Date");
    let own = own.map(|(name, value)| Header { name, value });
    let keep = Header { name: "X-PM-KeepID", value: "true" };
    let body = Body {
        from: &message.from,
        to: message.recipient.reveal(),
        subject: message.subject.reveal(),
        text_body: message.text.reveal(),
        html_body: message.html.as_ref().map(|html| html.reveal().as_str()),
        message_stream,
        metadata: BTreeMap::from([(OPERATION_KEY, metadata(key))]),
        headers: own.chain([keep]).collect(),
    };
    serde_json::to_vec(&body)
        .map_err(|_| Failure::new(FailureClass::Schema, "postmark message malformed"))
}

/// What `answer`, which came at `now`, says about its attempt.
fn reply(answer: &Answer, now: Timestamp) -> Reply {
    let status = answer.status;
    let Told { error_code, message, message_id } = read(answer).unwrap_or_default();
    if status == StatusCode::OK {
        return match (error_code, message_id) {
            (Some(0), Some(id)) => Reply::Accepted { message_id: Some(id) },
            _ => Reply::Unknown("http 200 without an id".to_owned()),
        };
    }
    let code = told(status, &error_code.map(|code| code.to_string()).unwrap_or_default());
    match class(status, error_code, &message) {
        Some(class) => {
            let mut failure = Failure::new(class, code);
            failure.retry_after = retry_after(&answer.headers, now);
            Reply::NotSent(failure)
        }
        None => Reply::Unknown(code),
    }
}

/// The class of a refusal that is proven not sent.
fn class(status: StatusCode, code: Option<u32>, message: &str) -> Option<FailureClass> {
    Some(match (status.as_u16(), code) {
        (401, Some(10)) | (422, Some(400 | 401 | 405 | 412 | 413)) => FailureClass::Configuration,
        (422, Some(406)) => FailureClass::Suppressed,
        (422, Some(300)) if message.contains("'To'") => FailureClass::Recipient,
        (422, Some(300 | 402 | 403 | 409 | 411)) | (413 | 415, _) => FailureClass::Schema,
        (429, _) => FailureClass::RateLimited,
        (503, Some(100)) => FailureClass::Overloaded,
        _ => return None,
    })
}

/// What the search's `answer` says about the message whose metadata is `value`.
fn found(answer: &Answer, value: &str) -> Found {
    if answer.status != StatusCode::OK {
        let Told { error_code, .. } = read(answer).unwrap_or_default();
        let code = error_code.map(|code| code.to_string()).unwrap_or_default();
        return Found::Unavailable(told(answer.status, &code));
    }
    let Some(Messages { messages }) = read(answer) else {
        return Found::Unavailable("http 200 without messages".to_owned());
    };
    let ours = |message: &Message| message.metadata.get(OPERATION_KEY).is_some_and(|v| v == value);
    match messages.into_iter().find(ours) {
        // Queued, processed or sent: it was taken.
        Some(message) => Found::Accepted { message_id: Some(message.message_id) },
        None => Found::Miss,
    }
}

impl Provider for Postmark {
    fn provider_ref(&self) -> ProviderRef {
        self.provider.clone()
    }

    fn contract(&self) -> Contract {
        Contract {
            replay: Replay::None,
            lookup: Lookup::ByKey { miss_counts: false },
            events: false,
        }
    }

    fn prepare<'a>(
        &'a self,
        key: &'a OperationKey,
        message: &'a FrozenMessage,
    ) -> BoxFuture<'a, Result<Box<dyn Ready>, Failure>> {
        async move {
            let body = body(key, message, &self.message_stream)?;
            let request = self.api.post("/email", &[], "application/json", body)?;
            self.api.ready(request, reply).await
        }
        .boxed()
    }

    fn look_up<'a>(&'a self, key: &'a OperationKey, _since: Timestamp) -> BoxFuture<'a, Found> {
        async move {
            let value = metadata(key);
            let name = format!("metadata_{OPERATION_KEY}");
            let asked = [("count", "10"), ("offset", "0"), (&name, value.as_str())];
            match self.api.get(&query("/messages/outbound", &asked)).await {
                Ok(answer) => found(&answer, &value),
                Err(code) => Found::Unavailable(code),
            }
        }
        .boxed()
    }

    fn check(&self) -> BoxFuture<'_, Result<String, String>> {
        async move {
            let asked = format!("Postmark ({}) was asked for the token's server", self.api.base());
            let answer = self.api.get("/server").await.map_err(|code| format!("{asked}: {code}"))?;
            let Told { error_code, .. } = read(&answer).unwrap_or_default();
            let delivery = match (answer.status.as_u16(), error_code) {
                (200, _) => read::<Server>(&answer).map(|server| server.delivery_type),
                (401, Some(10)) => {
                    return Err(format!(
                        "{asked} and does not know the token; put a valid server token (not an account token) into {KEY_VARIABLE}"
                    ));
                }
                (status, code) => {
                    let code = code.map(|code| code.to_string()).unwrap_or_default();
                    let status = StatusCode::from_u16(status).unwrap_or_default();
                    return Err(format!(
                        "{asked} and answered {}; look at provider.url",
                        told(status, &code)
                    ));
                }
            };
            let Some(delivery) = delivery else {
                return Err(format!(
                    "what answers at {} is not Postmark's API; correct provider.url",
                    self.api.base()
                ));
            };
            self.check_stream().await?;
            let sandbox = if delivery == "Sandbox" {
                "; its server is a sandbox, which delivers nothing"
            } else {
                ""
            };
            Ok(format!(
                "Postmark takes the token and has the stream {}{sandbox}; whether the sender of message.from is confirmed and credits are left, a server token cannot ask: the first message tells",
                self.message_stream
            ))
        }
        .boxed()
    }
}

impl Postmark {
    async fn check_stream(&self) -> Result<(), String> {
        let stream = &self.message_stream;
        let asked = format!("Postmark was asked for the message stream {stream}");
        let answer = self.api.get(&format!("/message-streams/{stream}")).await;
        let answer = answer.map_err(|code| format!("{asked}: {code}"))?;
        match (answer.status.as_u16(), read::<Stream>(&answer)) {
            (200, Some(Stream { archived_at: None })) => Ok(()),
            (200, Some(_)) => Err(format!(
                "the message stream {stream} is archived at Postmark; restore it, or name another in provider.message_stream"
            )),
            (404 | 422, _) => Err(format!(
                "this Postmark server has no message stream {stream}; create it, or name another in provider.message_stream"
            )),
            _ => Err(format!("{asked} and answered {}", told(answer.status, ""))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::examples::{PRIVATE, answer, class_of, key, message, proofs, with_header};
    use super::*;
    use crate::message::Redacted;
    use jiff::SignedDuration;

    fn refusal(code: u32, message: &str) -> String {
        serde_json::json!({"ErrorCode": code, "Message": message}).to_string()
    }

    #[test]
    fn only_what_the_table_lists_is_a_proof() {
        let codes = [
            0, 10, 100, 300, 400, 401, 402, 403, 405, 406, 409, 410, 411, 412, 413, 429, 500, 1235,
        ];
        let mut bodies: Vec<String> =
            codes.iter().map(|code| refusal(*code, "ann@shop.example")).collect();
        bodies.push("<html>Grüße</html>".to_owned());
        let any = |status: u16| status == 413 || status == 415 || status == 429;
        let proofs = proofs(reply, &bodies);
        for status in [413, 415, 429] {
            let all = proofs.iter().filter(|(had, ..)| *had == status).count();
            assert_eq!(all, bodies.len(), "{status}");
        }
        let listed: Vec<_> = proofs
            .into_iter()
            .filter(|(status, ..)| !any(*status))
            .map(|(status, index, class)| (status, codes[index], class))
            .collect();
        use FailureClass::{Configuration, Overloaded, Schema, Suppressed};
        assert_eq!(
            listed,
            [
                (401, 10, Configuration),
                (422, 300, Schema),
                (422, 400, Configuration),
                (422, 401, Configuration),
                (422, 402, Schema),
                (422, 403, Schema),
                (422, 405, Configuration),
                (422, 406, Suppressed),
                (422, 409, Schema),
                (422, 411, Schema),
                (422, 412, Configuration),
                (422, 413, Configuration),
                (503, 100, Overloaded),
            ]
        );
    }

    #[test]
    fn an_address_at_fault_is_the_recipients_and_a_sender_at_fault_is_not() {
        let to = refusal(300, "Invalid 'To' address: 'ann@shop.example'.");
        assert_eq!(class_of(reply, &answer(422, &to)), Some(FailureClass::Recipient));
        let from = refusal(300, "Invalid 'From' address: 'digest'.");
        assert_eq!(class_of(reply, &answer(422, &from)), Some(FailureClass::Schema));
    }

    #[test]
    fn only_code_zero_with_an_id_is_a_yes() {
        let yes = answer(200, r#"{"ErrorCode":0,"Message":"OK","MessageID":"a-1"}"#);
        let accepted = Reply::Accepted { message_id: Some("a-1".to_owned()) };
        assert_eq!(reply(&yes, Timestamp::UNIX_EPOCH), accepted);
        for body in [r#"{"ErrorCode":0}"#, r#"{"ErrorCode":406,"MessageID":"a"}"#, "<html>", ""] {
            let reply = reply(&answer(200, body), Timestamp::UNIX_EPOCH);
            assert_eq!(reply, Reply::Unknown("http 200 without an id".to_owned()), "{body}");
        }
    }

    #[test]
    fn the_wish_to_wait_is_kept() {
        let slow = with_header(answer(429, ""), "retry-after", "7");
        let failure = Failure::new(FailureClass::RateLimited, "http 429");
        let expected = Reply::NotSent(failure.after(SignedDuration::from_secs(7)));
        assert_eq!(reply(&slow, Timestamp::UNIX_EPOCH), expected);
    }

    #[test]
    fn a_message_becomes_the_same_bytes_every_time() {
        let bytes = body(&key(), &message(), "broadcast").unwrap();
        assert_eq!(bytes, body(&key(), &message(), "broadcast").unwrap());
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            concat!(
                r#"{"From":"\"Shop, \\\"Ltd\\\"\" <digest@shop.example>","To":"ann+1@shop.example","#,
                r#""Subject":"Grüße & \"more\"","TextBody":"100% = a+b\nÄ\n","#,
                r#""HtmlBody":"<p>&amp; \"x\"</p>\n","MessageStream":"broadcast","#,
                r#""Metadata":{"operation_key":"digest:2026-W42:customer-1842"},"Headers":["#,
                r#"{"Name":"Message-ID","Value":"<digest.2026-W42.customer-1842@shop.example>"},"#,
                r#"{"Name":"X-Operation-Key","Value":"digest:2026-W42:customer-1842"},"#,
                r#"{"Name":"List-Unsubscribe","Value":"<https://shop.example/u/t>"},"#,
                r#"{"Name":"List-Unsubscribe-Post","Value":"List-Unsubscribe=One-Click"},"#,
                r#"{"Name":"X-PM-KeepID","Value":"true"}]}"#,
            )
        );
    }

    #[test]
    fn only_a_record_that_carries_the_key_is_a_hit() {
        let found = |status, body: &str| found(&answer(status, body), "k");
        let hit = r#"{"TotalCount":1,"Messages":[{"MessageID":"b","Metadata":{"operation_key":"other"}},{"MessageID":"a","Status":"Sent","Metadata":{"operation_key":"k"}}]}"#;
        assert_eq!(found(200, hit), Found::Accepted { message_id: Some("a".to_owned()) });
        let other = r#"{"TotalCount":1,"Messages":[{"MessageID":"b","Metadata":{"operation_key":"other"}},{"MessageID":"c"}]}"#;
        assert_eq!(found(200, other), Found::Miss);
        assert_eq!(found(200, r#"{"TotalCount":0,"Messages":[]}"#), Found::Miss);
        for (status, body) in [(200, "<html>"), (401, r#"{"ErrorCode":10}"#), (500, "")] {
            assert!(matches!(found(status, body), Found::Unavailable(_)), "{status} {body}");
        }
    }

    #[test]
    fn settings_are_checked_and_the_token_is_never_shown() {
        let key = Some(Redacted::new("verysecret".to_owned()));
        let settings = ApiSettings { key, ..ApiSettings::default() };
        let shown = format!("{:?}", Postmark::new(&settings, None).unwrap());
        assert!(!PRIVATE.iter().any(|private| shown.contains(private)), "{shown}");
        let error = Postmark::new(&settings, Some("a/b")).unwrap_err().to_string();
        assert!(error.starts_with("provider.message_stream is not"), "{error}");
        let error = Postmark::new(&ApiSettings::default(), None).unwrap_err().to_string();
        assert!(error.contains(KEY_VARIABLE), "{error}");
    }
}
