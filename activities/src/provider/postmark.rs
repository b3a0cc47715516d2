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
//! A [batch](https://postmarkapp.com/developer/api/email-api#send-batch-emails) is an array of up to
//! 500 of the same bodies. Its answer is 200 with an array in the order of the request, whose entries
//! have codes of their own, which mean what they mean under 422; any other answer is one to all.
//!
//! `Message-ID` stays ours, since `X-PM-KeepID` asks for it; `Date` is Postmark's.

use super::alias;
use super::api::{self, Api, ApiSettings, ApiSettingsError, KEY_VARIABLE, query, read, told};
use super::batch::{BatchReply, Batches, ReadyBatch};
use super::exchange::Answer;
use super::retry_after::retry_after;
use super::{Found, Provider, Ready, Reply};
use crate::message::FrozenMessage;
use digest_workflows::operation::{
    Batch, Contract, Failure, FailureClass, Lookup, OperationKey, ProviderRef, Replay,
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

/// How many messages a batch may have.
pub const BATCH_MAX: u32 = 500;

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
    events: bool,
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
        Ok(Self { api, provider, message_stream, events: settings.events })
    }
}

/// The request's body. Its fields always come in the same order.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Body<'a> {
    from: &'a str,
    to: &'a str,
    subject: &'a str,
    #[serde(rename = "TextBody")]
    text: &'a str,
    #[serde(rename = "HtmlBody", skip_serializing_if = "Option::is_none")]
    html: Option<&'a str>,
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
        text: message.text.reveal(),
        html: message.html.as_ref().map(|html| html.reveal().as_str()),
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

/// What `answer`, which came at `now`, says about the `members` of a batch.
fn batch_reply(answer: &Answer, now: Timestamp, members: usize) -> BatchReply {
    if answer.status != StatusCode::OK {
        return BatchReply::Whole(reply(answer, now));
    }
    match read::<Vec<serde_json::Value>>(answer) {
        Some(entries) if entries.len() == members => {
            BatchReply::Each(entries.into_iter().map(entry_reply).collect())
        }
        _ => BatchReply::Whole(Reply::Unknown("http 200 without an entry for each".to_owned())),
    }
}

/// What one entry of an answer to a batch says about its message.
fn entry_reply(entry: serde_json::Value) -> Reply {
    let Told { error_code, message, message_id } =
        serde_json::from_value(entry).unwrap_or_default();
    if let (Some(0), Some(id)) = (error_code, message_id) {
        return Reply::Accepted { message_id: Some(id) };
    }
    let code = told(StatusCode::OK, &error_code.map(|code| code.to_string()).unwrap_or_default());
    match class(StatusCode::UNPROCESSABLE_ENTITY, error_code, &message) {
        Some(class) => Reply::NotSent(Failure::new(class, code)),
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
            events: self.events,
            batch: Batch::PerItem,
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

    fn batches(&self) -> Option<&dyn Batches> {
        Some(self)
    }

    fn look_up<'a>(
        &'a self,
        key: &'a OperationKey,
        _message: Option<&'a FrozenMessage>,
        _since: Timestamp,
    ) -> BoxFuture<'a, Found> {
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

impl Batches for Postmark {
    fn item(
        &self,
        key: &OperationKey,
        message: &FrozenMessage,
    ) -> Result<Option<Vec<u8>>, Failure> {
        body(key, message, &self.message_stream).map(Some)
    }

    fn prepare(&self) -> BoxFuture<'_, Result<Box<dyn ReadyBatch>, Failure>> {
        self.api.ready_batch("/email/batch", &[], None, None, batch_reply).boxed()
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
mod tests;
