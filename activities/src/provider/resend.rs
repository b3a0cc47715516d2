//! [Resend](https://resend.com/docs/api-reference/emails/send-email): the strongest contract. The
//! same request under the same `Idempotency-Key` returns the original answer for 24 hours and sends
//! nothing (<https://resend.com/docs/dashboard/emails/idempotency-keys>).
//!
//! What its answers mean (<https://resend.com/docs/api-reference/errors>):
//!
//! | answer | means |
//! | --- | --- |
//! | 200 with an id | accepted |
//! | 401 `missing_api_key`, `restricted_api_key`; 403 `invalid_api_key`, `suspended_api_key`, `invalid_permission`, `validation_error` | not sent: `configuration` |
//! | 429 `daily_quota_exceeded`, `monthly_quota_exceeded` | not sent: `configuration` |
//! | any other 429 | not sent: `rate_limited`, after `retry-after` or `ratelimit-reset` |
//! | 400 and 422 `validation_error` that names the field `to` | not sent: `recipient` |
//! | 400 and 422 `validation_error`, `missing_required_field`, `invalid_parameter`, `invalid_idempotency_key` | not sent: `schema` |
//! | 409 `concurrent_idempotent_requests`, `resource_locked` | unknown: the first request is still being processed |
//! | 409 `invalid_idempotent_request` | unknown, and an alarm: the key was used with another body |
//! | everything else, also a 2xx without an id, and no answer | unknown |
//!
//! A [batch](https://resend.com/docs/api-reference/emails/send-batch-emails) is an array of up to 100
//! of the same bodies under one key: with the validation `strict` all are accepted, each with an id in
//! the order of the request, or none is. Its refusals are those of a single message.
//!
//! `invalid_idempotent_request` proves that this request was not taken, but it also says that another
//! body was accepted under our key, so nothing may be sent again and a human must look.

use super::alias;
use super::api::{self, Api, ApiSettings, ApiSettingsError, KEY_VARIABLE, read, told};
use super::batch::{BatchReply, Batches, ReadyBatch};
use super::exchange::Answer;
use super::retry_after::{rate_reset, retry_after};
use super::{Provider, Ready, Reply};
use crate::message::FrozenMessage;
use digest_workflows::operation::{
    Batch, Contract, Failure, FailureClass, Lookup, OperationKey, ProviderRef, Replay,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HeaderName};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where the API is.
pub const URL: &str = "https://api.resend.com";

/// How many messages a batch may have.
pub const BATCH_MAX: u32 = 100;

/// The header that carries the key of a request.
const KEY_HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// Raised whenever [`Body`] gives other bytes for the same message.
const FORMAT: u32 = 1;

/// What a tag's value may be.
const TAG_CHARS_MAX: usize = 256;

fn is_tag_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// Headers that Resend sets itself.
const OWN_HEADERS: [&str; 2] = ["Message-ID", "Date"];

/// An account at Resend.
#[derive(Debug)]
pub struct Resend {
    api: Api,
    provider: ProviderRef,
    sender_domain: Option<String>,
    events: bool,
}

impl Resend {
    /// The account of `settings`, whose credential is the API key; connects to nothing yet.
    ///
    /// # Errors
    /// The setting that cannot be used.
    pub fn new(settings: &ApiSettings) -> Result<Self, ApiSettingsError> {
        let key = settings.key("resend", "API key of the account, which begins with re_")?;
        let api = settings.api(URL)?;
        let provider = api::account("resend", &api, key, FORMAT);
        let api = api.with_secret(AUTHORIZATION, &key.map(|key| format!("Bearer {key}")))?;
        let (sender_domain, events) = (settings.sender_domain.clone(), settings.events);
        Ok(Self { api, provider, sender_domain, events })
    }
}

/// The request's body. Its fields, and the entries of its maps, always come in the same order.
#[derive(Serialize)]
struct Body<'a> {
    from: &'a str,
    to: [&'a str; 1],
    subject: &'a str,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    html: Option<&'a str>,
    headers: BTreeMap<&'a str, &'a str>,
    tags: [Tag; 1],
}

/// A tag, which comes back in every event.
#[derive(Serialize)]
struct Tag {
    name: &'static str,
    value: String,
}

#[derive(Deserialize)]
struct Accepted {
    id: String,
}

#[derive(Deserialize)]
struct AllAccepted {
    data: Vec<Accepted>,
}

#[derive(Default, Deserialize)]
struct Refusal {
    #[serde(default)]
    name: String,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct Domains {
    data: Vec<Domain>,
}

#[derive(Deserialize)]
struct Domain {
    name: String,
    status: String,
}

/// The body for `message` under `key`.
fn body(key: &OperationKey, message: &FrozenMessage) -> Result<Vec<u8>, Failure> {
    let headers = message.headers.reveal().iter();
    let headers = headers.filter(|(name, _)| !OWN_HEADERS.contains(&name.as_str()));
    let body = Body {
        from: &message.from,
        to: [message.recipient.reveal()],
        subject: message.subject.reveal(),
        text: message.text.reveal(),
        html: message.html.as_ref().map(|html| html.reveal().as_str()),
        headers: headers.map(|(name, value)| (name.as_str(), value.as_str())).collect(),
        tags: [Tag {
            name: "operation_key",
            value: alias::for_field(key, TAG_CHARS_MAX, is_tag_char),
        }],
    };
    serde_json::to_vec(&body)
        .map_err(|_| Failure::new(FailureClass::Schema, "resend message malformed"))
}

/// What `answer`, which came at `now`, says about its attempt.
fn reply(answer: &Answer, now: Timestamp) -> Reply {
    let status = answer.status;
    if status == StatusCode::OK {
        return match read::<Accepted>(answer) {
            Some(Accepted { id }) => Reply::Accepted { message_id: Some(id) },
            // A page of somebody in between; the same request under the same key tells.
            None => Reply::Unknown("http 200 without an id".to_owned()),
        };
    }
    let Refusal { name, message } = read(answer).unwrap_or_default();
    let code = told(status, &name);
    match class(status, &name, &message) {
        Some(class) => {
            let mut failure = Failure::new(class, code);
            failure.retry_after = retry_after(&answer.headers, now)
                .or_else(|| rate_reset(&answer.headers, "ratelimit-reset"));
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
    match read::<AllAccepted>(answer) {
        Some(AllAccepted { data }) if data.len() == members => {
            let accepted = |Accepted { id }| Reply::Accepted { message_id: Some(id) };
            BatchReply::Each(data.into_iter().map(accepted).collect())
        }
        // The same request under the same key tells.
        _ => BatchReply::Whole(Reply::Unknown("http 200 without an id for each".to_owned())),
    }
}

/// The class of a refusal that is proven not sent.
fn class(status: StatusCode, name: &str, message: &str) -> Option<FailureClass> {
    Some(match (status.as_u16(), name) {
        (429, "daily_quota_exceeded" | "monthly_quota_exceeded")
        | (401, "missing_api_key" | "restricted_api_key")
        | (
            403,
            "invalid_api_key" | "suspended_api_key" | "invalid_permission" | "validation_error",
        ) => FailureClass::Configuration,
        (429, _) => FailureClass::RateLimited,
        (400 | 422, "validation_error") if message.contains("`to`") => FailureClass::Recipient,
        (
            400 | 422,
            "validation_error"
            | "missing_required_field"
            | "invalid_parameter"
            | "invalid_idempotency_key",
        ) => FailureClass::Schema,
        _ => return None,
    })
}

impl Provider for Resend {
    fn provider_ref(&self) -> ProviderRef {
        self.provider.clone()
    }

    fn contract(&self) -> Contract {
        Contract {
            replay: Replay::ReturnsOriginal {
                window: SignedDuration::from_hours(24),
                margin: SignedDuration::from_hours(1),
            },
            // Its lists have no filter, and inside the window a replay tells more.
            lookup: Lookup::None,
            events: self.events,
            batch: Batch::AllOrNothing,
        }
    }

    fn prepare<'a>(
        &'a self,
        key: &'a OperationKey,
        message: &'a FrozenMessage,
    ) -> BoxFuture<'a, Result<Box<dyn Ready>, Failure>> {
        async move {
            let further = [(KEY_HEADER, key.to_string())];
            let body = body(key, message)?;
            let request = self.api.post("/emails", &further, "application/json", body)?;
            self.api.ready(request, reply).await
        }
        .boxed()
    }

    fn batches(&self) -> Option<&dyn Batches> {
        Some(self)
    }

    fn check(&self) -> BoxFuture<'_, Result<String, String>> {
        async move {
            let asked = format!("Resend ({}) was asked for the account's domains", self.api.base());
            let answer =
                self.api.get("/domains").await.map_err(|code| format!("{asked}: {code}"))?;
            let Refusal { name, .. } = read(&answer).unwrap_or_default();
            match (answer.status.as_u16(), name.as_str()) {
                (200, _) => self.check_domain(read(&answer)),
                (401, "restricted_api_key") => Ok(
                    "Resend takes the API key, which may only send: whether the domain of message.from is verified could not be asked"
                        .to_owned(),
                ),
                (400 | 401 | 403, "missing_api_key" | "invalid_api_key" | "validation_error") => {
                    Err(format!(
                        "{asked} and does not know the API key; put a valid one into {KEY_VARIABLE}"
                    ))
                }
                (403, "suspended_api_key") => Err(format!(
                    "{asked} and has suspended the API key; clear it up with Resend, or use another"
                )),
                (429, "daily_quota_exceeded" | "monthly_quota_exceeded") => Err(format!(
                    "{asked} and says that the account's quota is used up ({name}); raise it, or wait until it begins anew"
                )),
                _ => Err(format!(
                    "{asked} and answered {}; look at provider.url",
                    told(answer.status, &name)
                )),
            }
        }
        .boxed()
    }
}

impl Batches for Resend {
    fn item(
        &self,
        key: &OperationKey,
        message: &FrozenMessage,
    ) -> Result<Option<Vec<u8>>, Failure> {
        body(key, message).map(Some)
    }

    fn prepare(&self) -> BoxFuture<'_, Result<Box<dyn ReadyBatch>, Failure>> {
        async move {
            // Said although it is the default: what all or nothing rests on is not left to one.
            let strict = (HeaderName::from_static("x-batch-validation"), "strict".to_owned());
            self.api
                .ready_batch("/emails/batch", &[strict], Some(KEY_HEADER), None, batch_reply)
                .await
        }
        .boxed()
    }
}

impl Resend {
    fn check_domain(&self, domains: Option<Domains>) -> Result<String, String> {
        let Some(Domains { data }) = domains else {
            return Err(format!(
                "what answers at {} is not Resend's API; correct provider.url",
                self.api.base()
            ));
        };
        let Some(sender) = &self.sender_domain else {
            return Ok("Resend takes the API key".to_owned());
        };
        match data.iter().find(|domain| domain.name.eq_ignore_ascii_case(sender)) {
            Some(domain) if domain.status == "verified" => {
                Ok(format!("Resend takes the API key, and {sender} is verified"))
            }
            Some(_) => Err(format!(
                "the domain {sender} of message.from is not verified at Resend; set the DNS records that its page shows, or send from a verified domain"
            )),
            None => Err(format!(
                "Resend does not know the domain {sender} of message.from; add it there, or send from a verified domain"
            )),
        }
    }
}
