//! [Mailgun](https://documentation.mailgun.com/docs/mailgun/api-reference/send/mailgun/messages):
//! no idempotency key, so a second request is a second message.
//!
//! The whole message goes as our own bytes (`messages.mime`, a multipart form as documented), so
//! that `Message-ID` and `Date` are ours. Our key travels as the variable `v:operation_key`, which
//! comes back in every event but is no filter; so each message also gets one of 32 tags made from
//! its key, which is
//! (<https://documentation.mailgun.com/docs/mailgun/api-reference/send/mailgun/events>). A look-up
//! reads the events of that tag from the attempt on, a bounded number of pages, and compares the
//! variable. Mailgun itself trusts a page of events only after half an hour, so a miss never counts.
//!
//! What its answers mean (<https://documentation.mailgun.com/docs/mailgun/api-reference/api-responses>),
//! where "told" is a JSON body with a `message`:
//!
//! | answer | means |
//! | --- | --- |
//! | 200 with an id, told `Queued` | accepted; a wrong path answers 200 and tells something else |
//! | 400, told that the domain or account may not send | not sent: `configuration` |
//! | 400, told that `to` is not a valid address | not sent: `recipient` |
//! | 400, told anything else; 413 | not sent: `schema` |
//! | 401; 402, 403 and 404, told anything | not sent: `configuration` |
//! | 429 | not sent: `rate_limited`, after `Retry-After` |
//! | everything else, and no answer | unknown: mail was seen to go out after a 5xx |

use super::alias::{alias, for_field};
use super::api::{self, Api, ApiSettings, ApiSettingsError, KEY_VARIABLE, query, read, told};
use super::exchange::Answer;
use super::retry_after::retry_after;
use super::{Found, Provider, Ready, Reply};
use crate::message::FrozenMessage;
use data_encoding::BASE64;
use digest_workflows::operation::{
    Contract, Failure, FailureClass, Lookup, OperationKey, ProviderRef,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::StatusCode;
use hyper::header::AUTHORIZATION;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

/// Where the API is; in the European Union it is `https://api.eu.mailgun.net`.
pub const URL: &str = "https://api.mailgun.net";

/// Raised whenever [`look_up`](Provider::look_up) could not find what an earlier version sent.
const FORMAT: u32 = 1;

/// Name of the variable that carries our key. Mailgun shows variables to the recipient.
const OPERATION_KEY: &str = "operation_key";

/// What a variable may be.
const VARIABLE_CHARS_MAX: usize = 16_000;

/// How many pages of [`EVENTS_PER_PAGE`] one look-up reads.
const PAGES_MAX: usize = 5;

/// The most that Mailgun gives at once.
const EVENTS_PER_PAGE: &str = "300";

/// How much earlier than the attempt the events are read, for clocks that differ.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_mins(1);

/// A sending domain at Mailgun.
#[derive(Debug)]
pub struct Mailgun {
    api: Api,
    provider: ProviderRef,
    domain: String,
    events: bool,
}

impl Mailgun {
    /// The sending domain `domain` (where none is named: the domain of the campaign's `from`) in the
    /// account of `settings`, whose credential is the API key; connects to nothing yet.
    ///
    /// # Errors
    /// The setting that cannot be used.
    pub fn new(settings: &ApiSettings, domain: Option<&str>) -> Result<Self, ApiSettingsError> {
        let key = settings.key("mailgun", "API key of the account, or one that may only send")?;
        let wrong = |why: &str| ApiSettingsError::Setting {
            setting: "domain",
            why: format!(
                "{why}; write the sending domain that Mailgun shows, such as mg.shop.example"
            ),
        };
        let domain = domain.or(settings.sender_domain.as_deref());
        let domain =
            domain.ok_or_else(|| wrong("is missing, and message.from names no fixed one"))?;
        let ldh = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        if !domain.split('.').all(|label| !label.is_empty() && label.bytes().all(ldh)) {
            return Err(wrong("is not a domain"));
        }
        let api = settings.api(URL)?;
        let provider =
            api::account("mailgun", &api, &key.map(|key| format!("{domain}\n{key}")), FORMAT);
        let basic =
            key.map(|key| format!("Basic {}", BASE64.encode(format!("api:{key}").as_bytes())));
        let api = api.with_secret(AUTHORIZATION, &basic)?;
        Ok(Self { api, provider, domain: domain.to_ascii_lowercase(), events: settings.events })
    }
}

#[derive(Default, Deserialize)]
struct Told {
    id: Option<String>,
    message: Option<String>,
}

#[derive(Deserialize)]
struct Events {
    items: Vec<Event>,
    #[serde(default)]
    paging: Paging,
}

#[derive(Default, Deserialize)]
struct Paging {
    next: Option<String>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(default, rename = "event")]
    kind: String,
    #[serde(default)]
    reason: Option<String>,
    /// An object of whatever was sent, or an empty list.
    #[serde(default, rename = "user-variables")]
    variables: serde_json::Value,
    #[serde(default)]
    message: serde_json::Value,
}

#[derive(Deserialize)]
struct DomainDetails {
    domain: Domain,
}

#[derive(Deserialize)]
struct Domain {
    #[serde(default)]
    state: String,
    #[serde(default, rename = "type")]
    kind: String,
}

/// The tag that the look-up of `key` filters by.
fn tag(key: &OperationKey) -> String {
    format!("digestd-{}", alias(key).get(..1).unwrap_or_default())
}

/// Our key as the variable carries it.
fn variable(key: &OperationKey) -> String {
    for_field(key, VARIABLE_CHARS_MAX, |c| c.is_ascii_graphic())
}

/// The form for `message` under `key` (RFC 7578), and its content type. The boundary is a hash of
/// the message, so it cannot stand in it.
fn form(key: &OperationKey, message: &FrozenMessage) -> (String, Vec<u8>) {
    let boundary = format!("digestd-{}", message.content_hash.get(..40).unwrap_or_default());
    let mut body = Vec::with_capacity(message.mime.reveal().len() + 1_000);
    let recipient = message.recipient.reveal();
    for (name, value) in
        [("to", recipient), ("o:tag", &tag(key)), ("v:operation_key", &variable(key))]
    {
        let part = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
        );
        body.extend_from_slice(part.as_bytes());
    }
    let file = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"message\"; filename=\"message.eml\"\r\n\
         Content-Type: message/rfc822\r\n\r\n"
    );
    body.extend_from_slice(file.as_bytes());
    body.extend_from_slice(message.mime.reveal());
    body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    (format!("multipart/form-data; boundary={boundary}"), body)
}

/// What `answer`, which came at `now`, says about its attempt.
fn reply(answer: &Answer, now: Timestamp) -> Reply {
    let status = answer.status;
    let Told { id, message } = read(answer).unwrap_or_default();
    if status == StatusCode::OK {
        let queued = message.is_some_and(|message| message.starts_with("Queued"));
        return match id {
            Some(id) if queued => {
                let id = id.trim_matches(['<', '>']).to_owned();
                Reply::Accepted { message_id: Some(id) }
            }
            _ => Reply::Unknown("http 200 without queued".to_owned()),
        };
    }
    let code = told(status, "");
    match class(status, message.as_deref()) {
        Some(class) => {
            let mut failure = Failure::new(class, code);
            failure.retry_after = retry_after(&answer.headers, now);
            Reply::NotSent(failure)
        }
        None => Reply::Unknown(code),
    }
}

/// The class of a refusal that is proven not sent.
fn class(status: StatusCode, message: Option<&str>) -> Option<FailureClass> {
    Some(match (status.as_u16(), message) {
        (400, Some(message)) => refused(message),
        (401, _) | (402..=404, Some(_)) => FailureClass::Configuration,
        (413, _) => FailureClass::Schema,
        (429, _) => FailureClass::RateLimited,
        _ => return None,
    })
}

/// The class of a 400 that tells `message`: there is no code, only text.
fn refused(message: &str) -> FailureClass {
    let message = message.to_ascii_lowercase().replace(['\'', '"', '`'], "");
    let has = |words: &str| message.contains(words);
    if has("to parameter is not a valid address") {
        FailureClass::Recipient
    } else if [
        "not allowed to send",
        "unverified",
        "disabled",
        "inactive",
        "free account",
        "authorized recipient",
    ]
    .into_iter()
    .any(has)
    {
        FailureClass::Configuration
    } else {
        FailureClass::Schema
    }
}

/// What a page of `events` says about the message whose variable is `value`; `None` if nothing.
fn found(events: &[Event], value: &str) -> Option<Found> {
    let ours = |event: &&Event| event.variables[OPERATION_KEY].as_str() == Some(value);
    let ours: Vec<&Event> = events.iter().filter(ours).collect();
    let refused = |event: &&Event| match (event.kind.as_str(), event.reason.as_deref()) {
        ("failed", Some(reason)) if reason.starts_with("suppress") => {
            Some(FailureClass::Suppressed)
        }
        ("rejected", _) => Some(FailureClass::Rejected),
        _ => None,
    };
    if let Some(class) = ours.iter().find_map(refused) {
        return Some(Found::Refused(class));
    }
    // Accepted, or even failed at the other side: it was taken and tried.
    let first = ours.first()?;
    let message_id = first.message["headers"]["message-id"].as_str().map(ToOwned::to_owned);
    Some(Found::Accepted { message_id })
}

/// The last part of the address of a page, if it can stand in a path as it is.
fn page_of(next: &str) -> Option<&str> {
    let page = next.rsplit('/').next()?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_=.~%:+".contains(&b);
    (!page.is_empty() && page.bytes().all(plain)).then_some(page)
}

impl Provider for Mailgun {
    fn provider_ref(&self) -> ProviderRef {
        self.provider.clone()
    }

    fn contract(&self) -> Contract {
        Contract {
            lookup: Lookup::ByKey { miss_counts: false },
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
            let (content_type, body) = form(key, message);
            let path = format!("/v3/{}/messages.mime", self.domain);
            let request = self.api.post(&path, &[], &content_type, body)?;
            self.api.ready(request, reply).await
        }
        .boxed()
    }

    fn look_up<'a>(
        &'a self,
        key: &'a OperationKey,
        _message: Option<&'a FrozenMessage>,
        since: Timestamp,
    ) -> BoxFuture<'a, Found> {
        async move { self.search(key, since).await.unwrap_or_else(Found::Unavailable) }.boxed()
    }

    fn check(&self) -> BoxFuture<'_, Result<String, String>> {
        async move {
            let domain = &self.domain;
            let asked = format!("Mailgun ({}) was asked for the domain {domain}", self.api.base());
            let answer = self.api.get(&format!("/v4/domains/{domain}")).await;
            let answer = answer.map_err(|code| format!("{asked}: {code}"))?;
            match (answer.status.as_u16(), read::<DomainDetails>(&answer)) {
                (200, Some(DomainDetails { domain: details })) => self.state(&details),
                (200, None) => Err(format!(
                    "what answers at {} is not Mailgun's API; correct provider.url",
                    self.api.base()
                )),
                (401, _) => Err(format!(
                    "{asked} and does not know the API key; put a valid one into {KEY_VARIABLE}"
                )),
                (403, _) => Ok(format!(
                    "Mailgun takes the API key, which may only send: whether {domain} is verified could not be asked, and look-ups need a key that may read events"
                )),
                (404, _) => Err(format!(
                    "Mailgun has no domain {domain} in this account and region; correct provider.domain, and for an account in the European Union set provider.url to https://api.eu.mailgun.net"
                )),
                _ => Err(format!(
                    "{asked} and answered {}; look at provider.url",
                    told(answer.status, "")
                )),
            }
        }
        .boxed()
    }
}

impl Mailgun {
    async fn search(&self, key: &OperationKey, since: Timestamp) -> Result<Found, String> {
        let value = variable(key);
        let begin = since.saturating_sub(CLOCKS_DIFFER).unwrap_or(since).as_second().to_string();
        let events = format!("/v3/{}/events", self.domain);
        let mut path = query(
            &events,
            &[
                ("begin", &begin),
                ("ascending", "yes"),
                ("limit", EVENTS_PER_PAGE),
                ("event", "accepted OR failed OR rejected"),
                ("tags", &tag(key)),
            ],
        );
        for _ in 0..PAGES_MAX {
            let answer = self.api.get(&path).await?;
            let Some(Events { items, paging }) =
                read(&answer).filter(|_| answer.status == StatusCode::OK)
            else {
                return Err(told(answer.status, ""));
            };
            if let Some(found) = found(&items, &value) {
                return Ok(found);
            }
            // The address of the next page is taken apart: the key goes to nobody else.
            match paging.next.as_deref().and_then(page_of) {
                Some(page) if !items.is_empty() => path = format!("{events}/{page}"),
                _ => break,
            }
        }
        Ok(Found::Miss)
    }

    fn state(&self, details: &Domain) -> Result<String, String> {
        let domain = &self.domain;
        match (details.state.as_str(), details.kind.as_str()) {
            ("active", "sandbox") => Ok(format!(
                "Mailgun takes the API key; {domain} is a sandbox, which delivers only to its authorised recipients"
            )),
            ("active", _) => Ok(format!("Mailgun takes the API key, and {domain} is verified")),
            ("unverified", _) => Err(format!(
                "the domain {domain} is not verified at Mailgun; set the DNS records that its page shows, or name another in provider.domain"
            )),
            _ => Err(format!(
                "the domain {domain} may not send at Mailgun ({}); clear it up with Mailgun, or name another in provider.domain",
                told(StatusCode::OK, &details.state)
            )),
        }
    }
}

#[cfg(test)]
mod tests;
