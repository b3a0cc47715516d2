//! [SendGrid](https://www.twilio.com/docs/sendgrid/api-reference/mail-send/mail-send): no
//! idempotency key, so a second request is a second message, and a yes is an empty 202.
//!
//! Our key travels in `custom_args`, always by its alias, since SendGrid asks for no personal data
//! there. Accounts that bought Email Activity can be asked for it
//! (<https://www.twilio.com/docs/sendgrid/api-reference/email-activity/filter-all-messages>); the
//! setting `lookup = true` says so. How soon a message can be found is not documented, so a miss
//! never counts.
//!
//! What its answers mean
//! (<https://www.twilio.com/docs/sendgrid/api-reference/how-to-use-the-sendgrid-v3-api/responses>):
//!
//! | answer | means |
//! | --- | --- |
//! | 202 with `X-Message-Id` | accepted |
//! | 401 with `errors` | not sent: `configuration` (the key, or no credits left) |
//! | 403 with `errors` | not sent: `configuration` (the sender is not verified, or the key may not send) |
//! | 400 with `errors`, the first about `personalizations.0.to` | not sent: `recipient` |
//! | any other 400 with `errors`; 413 | not sent: `schema` |
//! | 429 | not sent: `rate_limited`, until `X-RateLimit-Reset` |
//! | everything else, also a 200 (sandbox mode), and no answer | unknown |
//!
//! Whoever is on a suppression list is accepted and dropped later; a look-up sees that. `Message-ID`
//! and `Date` are SendGrid's.

mod check;

use super::alias::alias;
use super::api::{self, Api, ApiSettings, ApiSettingsError, query, read, told};
use super::exchange::Answer;
use super::retry_after::{rate_reset_at, retry_after};
use super::{Found, Provider, Ready, Reply};
use crate::message::FrozenMessage;
use digest_workflows::operation::{
    Contract, Failure, FailureClass, Lookup, OperationKey, ProviderRef,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::StatusCode;
use hyper::header::AUTHORIZATION;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where the API is; in the European Union it is `https://api.eu.sendgrid.com`.
pub const URL: &str = "https://api.sendgrid.com";

/// Raised whenever [`look_up`](Provider::look_up) could not find what an earlier version sent.
const FORMAT: u32 = 1;

/// Headers that SendGrid sets itself.
const OWN_HEADERS: [&str; 2] = ["Message-ID", "Date"];

/// How many records one look-up reads.
const RECORDS_MAX: usize = 10;

/// An account at SendGrid.
#[derive(Debug)]
pub struct Sendgrid {
    api: Api,
    provider: ProviderRef,
    sender_domain: Option<String>,
    has_look_up: bool,
    events: bool,
}

impl Sendgrid {
    /// The account of `settings`, whose credential is the API key; connects to nothing yet.
    /// `has_look_up` says that the account has Email Activity and the key may read it.
    ///
    /// # Errors
    /// The setting that cannot be used.
    pub fn new(settings: &ApiSettings, has_look_up: bool) -> Result<Self, ApiSettingsError> {
        let key = settings.key("sendgrid", "API key of the account, which begins with SG.")?;
        let api = settings.api(URL)?;
        let provider = api::account("sendgrid", &api, key, FORMAT);
        let api = api.with_secret(AUTHORIZATION, &key.map(|key| format!("Bearer {key}")))?;
        let (sender_domain, events) = (settings.sender_domain.clone(), settings.events);
        Ok(Self { api, provider, sender_domain, has_look_up, events })
    }
}

/// The request's body. Its fields, and the entries of its maps, always come in the same order.
#[derive(Serialize)]
struct Body<'a> {
    personalizations: [Personalization<'a>; 1],
    from: Mailbox<'a>,
    subject: &'a str,
    content: Vec<Content<'a>>,
    headers: BTreeMap<&'a str, &'a str>,
}

#[derive(Serialize)]
struct Personalization<'a> {
    to: [Mailbox<'a>; 1],
    custom_args: CustomArgs,
}

#[derive(Serialize)]
struct CustomArgs {
    operation_key: String,
}

#[derive(Serialize)]
struct Mailbox<'a> {
    email: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

#[derive(Serialize)]
struct Content<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    value: &'a str,
}

#[derive(Default, Deserialize)]
struct Refusal {
    #[serde(default)]
    errors: Vec<Fault>,
}

#[derive(Deserialize)]
struct Fault {
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    field: Option<String>,
}

#[derive(Deserialize)]
struct Messages {
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct Message {
    msg_id: String,
}

/// One message with everything that is recorded about it.
#[derive(Deserialize)]
struct Record {
    /// Documented as a text that holds an object.
    #[serde(default)]
    unique_args: serde_json::Value,
    #[serde(default)]
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    event_name: String,
    #[serde(default)]
    reason: Option<String>,
}

/// The body for `message` under `key`.
fn body(key: &OperationKey, message: &FrozenMessage) -> Result<Vec<u8>, Failure> {
    let headers = message.headers.reveal().iter();
    let headers = headers.filter(|(name, _)| !OWN_HEADERS.contains(&name.as_str()));
    let html = message.html.as_ref().map(|html| html.reveal().as_str());
    let content = [("text/plain", Some(message.text.reveal().as_str())), ("text/html", html)];
    let content = content.into_iter();
    let body = Body {
        personalizations: [Personalization {
            to: [Mailbox { email: message.recipient.reveal(), name: None }],
            custom_args: CustomArgs { operation_key: alias(key) },
        }],
        from: Mailbox { email: &message.sender, name: message.sender_name() },
        subject: message.subject.reveal(),
        content: content
            .filter_map(|(kind, value)| Some(Content { kind, value: value? }))
            .collect(),
        headers: headers.map(|(name, value)| (name.as_str(), value.as_str())).collect(),
    };
    serde_json::to_vec(&body)
        .map_err(|_| Failure::new(FailureClass::Schema, "sendgrid message malformed"))
}

/// What `answer`, which came at `now`, says about its attempt.
fn reply(answer: &Answer, now: Timestamp) -> Reply {
    let status = answer.status;
    if status == StatusCode::ACCEPTED {
        let id = answer.headers.get("x-message-id").and_then(|id| id.to_str().ok());
        return match id {
            Some(id) => Reply::Accepted { message_id: Some(id.to_owned()) },
            // An empty 202 without it may be anybody's.
            None => Reply::Unknown("http 202 without an id".to_owned()),
        };
    }
    let Refusal { errors } = read(answer).unwrap_or_default();
    let field = errors.first().map(|fault| fault.field.clone().unwrap_or_default());
    let code = told(status, field.as_deref().unwrap_or_default());
    match class(status, field.as_deref()) {
        Some(class) => {
            let mut failure = Failure::new(class, code);
            failure.retry_after = retry_after(&answer.headers, now)
                .or_else(|| rate_reset_at(&answer.headers, "x-ratelimit-reset", now));
            Reply::NotSent(failure)
        }
        None => Reply::Unknown(code),
    }
}

/// The class of a refusal that is proven not sent. `field` is what its first error is about, empty
/// where that names none; `None` where the body lists no error.
fn class(status: StatusCode, field: Option<&str>) -> Option<FailureClass> {
    Some(match (status.as_u16(), field) {
        (401 | 403, Some(_)) => FailureClass::Configuration,
        (400, Some(field)) if field.starts_with("personalizations.0.to") => FailureClass::Recipient,
        (400, Some(_)) | (413, _) => FailureClass::Schema,
        (429, _) => FailureClass::RateLimited,
        _ => return None,
    })
}

/// What `record` says about the message whose alias is `alias`; `None` if it is another's.
fn found(record: &Record, id: &str, alias: &str) -> Option<Found> {
    if !record.unique_args.to_string().contains(alias) {
        return None;
    }
    let delivered = record.events.iter().any(|event| event.event_name == "delivered");
    match record.events.iter().find(|event| event.event_name == "dropped") {
        // https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/event
        Some(dropped) if !delivered => {
            Some(Found::Refused(match dropped.reason.as_deref().unwrap_or_default() {
                "Unsubscribed Address" | "Bounced Address" | "Spam Reporting Address" => {
                    FailureClass::Suppressed
                }
                "Invalid" => FailureClass::Recipient,
                _ => FailureClass::Rejected,
            }))
        }
        // Processed, deferred, delivered, even bounced: it was taken and tried.
        _ => Some(Found::Accepted { message_id: Some(id.to_owned()) }),
    }
}

/// Whether `id` can stand in a path as it is.
fn is_plain(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

impl Provider for Sendgrid {
    fn provider_ref(&self) -> ProviderRef {
        self.provider.clone()
    }

    fn contract(&self) -> Contract {
        let by_key = Lookup::ByKey { miss_counts: false };
        Contract {
            lookup: if self.has_look_up { by_key } else { Lookup::None },
            events: self.events,
            ..Contract::NONE
        }
    }

    fn prepare<'a>(
        &'a self,
        key: &'a OperationKey,
        message: &'a FrozenMessage,
    ) -> BoxFuture<'a, Result<Box<dyn Ready>, Failure>> {
        async move {
            let body = body(key, message)?;
            let request = self.api.post("/v3/mail/send", &[], "application/json", body)?;
            self.api.ready(request, reply).await
        }
        .boxed()
    }

    fn look_up<'a>(
        &'a self,
        key: &'a OperationKey,
        _message: Option<&'a FrozenMessage>,
        _since: Timestamp,
    ) -> BoxFuture<'a, Found> {
        async move {
            if !self.has_look_up {
                return Found::Unavailable("sendgrid look-up not set".to_owned());
            }
            self.search(&alias(key)).await.unwrap_or_else(Found::Unavailable)
        }
        .boxed()
    }

    fn check(&self) -> BoxFuture<'_, Result<String, String>> {
        async move {
            self.check_key().await?;
            if self.has_look_up {
                self.messages("").await.map_err(|code| {
                    format!(
                        "provider.lookup = true needs Email Activity, which SendGrid answered with {code}; buy it and give the key access to it, or leave the setting out"
                    )
                })?;
            }
            match &self.sender_domain {
                Some(sender) => self.check_domain(sender).await,
                None => Ok("SendGrid takes the API key".to_owned()),
            }
        }
        .boxed()
    }
}

impl Sendgrid {
    /// The messages whose arguments hold `alias`, by SendGrid's own filter.
    async fn messages(&self, alias: &str) -> Result<Vec<Message>, String> {
        let limit = RECORDS_MAX.to_string();
        let filter = format!("unique_args=\"{alias}\"");
        let path = query("/v3/messages", &[("limit", &limit), ("query", &filter)]);
        let answer = self.api.get(&path).await?;
        match (answer.status, read::<Messages>(&answer)) {
            (StatusCode::OK, Some(Messages { messages })) => Ok(messages),
            (status, _) => Err(told(status, "")),
        }
    }

    /// Asks for each candidate's record: only one that itself carries the alias counts.
    async fn search(&self, alias: &str) -> Result<Found, String> {
        let messages = self.messages(alias).await?;
        for Message { msg_id } in messages.iter().take(RECORDS_MAX) {
            if !is_plain(msg_id) {
                continue;
            }
            let answer = self.api.get(&format!("/v3/messages/{msg_id}")).await?;
            let Some(record) = read::<Record>(&answer).filter(|_| answer.status == StatusCode::OK)
            else {
                return Err(told(answer.status, ""));
            };
            if let Some(found) = found(&record, msg_id, alias) {
                return Ok(found);
            }
        }
        Ok(Found::Miss)
    }
}

#[cfg(test)]
mod tests;
