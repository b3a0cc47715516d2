//! [Twilio](https://www.twilio.com/docs/messaging/api/message-resource), for text messages: no
//! idempotency key, so a second request is a second message.
//!
//! A message has no field for our key. Where webhooks listen, its status callback carries the
//! [`alias`] in its URL, so that what Twilio tells finds its operation. A look-up asks for the
//! messages to the recipient's number and compares sender and text; a record that was made since the
//! first hand-over and is exactly the message counts, unless another operation may have made it,
//! which the gate asks the ledger. Other programs must not send the same text to the same number
//! from the same sender within those minutes. How soon a message can be found is not documented, so
//! a miss never counts; nor does Twilio keep a text as it was sent where its Smart Encoding or a
//! trial account changes it, or redaction hides it: then nothing is found.
//!
//! What its answers mean (<https://www.twilio.com/docs/api/errors>), where the code is that of the
//! JSON body:
//!
//! | answer | means |
//! | --- | --- |
//! | 201 with a `sid` | accepted |
//! | 400 or 403 with code 21610 | not sent: `suppressed` (opted out) |
//! | 400 or 403 with code 21611 | not sent: `overloaded` (the sender's queue is full) |
//! | 400 with code 10001, 20003, 20005, 20008, 30002 | not sent: `configuration` (credentials, account) |
//! | 400 with code 21212, 21603, 21606, 21659, 21660, 21661, 21701, 21703, 21705 | not sent: `configuration` (the sender) |
//! | 400 with code 21408, 21608, 21609, 63038 | not sent: `configuration` (the region is off, a trial account, the callback's URL, the daily limit) |
//! | 400 with code 21602, 21617, 21619 | not sent: `schema` (the text) |
//! | 400 with another code from 21000 to 29999, such as 21211, 21612, 21614 | not sent: `recipient` |
//! | 400 with any other code | not sent: `schema` |
//! | 401, 403 and 404 with a code | not sent: `configuration` |
//! | 429 with code 63038 | not sent: `configuration` (the daily limit) |
//! | 429 | not sent: `rate_limited`, after `Retry-After` |
//! | everything else, and no answer | unknown |

mod check;
pub(crate) mod states;

use super::alias::alias;
use super::api::{
    self, Api, ApiSettings, ApiSettingsError, PASSWORD_VARIABLE, USERNAME_VARIABLE, query, read,
    told,
};
use super::exchange::Answer;
use super::retry_after::retry_after;
use super::{Found, Provider, Ready, Reply};
use crate::message::{FrozenMessage, Redacted, Sender};
use data_encoding::BASE64;
use digest_workflows::operation::{
    Contract, Failure, FailureClass, Finding, Lookup, OperationKey, ProviderRef,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::StatusCode;
use hyper::header::AUTHORIZATION;
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use url::form_urlencoded;

/// Where the API is; a region has its own, such as `https://api.dublin.ie1.twilio.com`.
pub const URL: &str = "https://api.twilio.com";

/// How long a message may wait in Twilio's queue, where nothing else is set; the most it takes.
pub const VALIDITY_MAX: SignedDuration = SignedDuration::from_secs(36_000);

/// Raised whenever [`look_up`](Provider::look_up) could not find what an earlier version sent.
const FORMAT: u32 = 1;

/// The path of the webhook, as it stands in callbacks.
const CALLBACK_PATH: &str = "/webhooks/twilio";

/// The field of a callback's query that carries the operation's alias.
pub(crate) const OPERATION: &str = "operation";

/// How many pages of [`PER_PAGE`] one look-up reads: what one number got lately.
const PAGES_MAX: usize = 5;

const PER_PAGE: &str = "100";

/// How much earlier than the attempt a record may seem to be made, for clocks that differ.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_mins(1);

/// Codes of credentials, account, sender and settings.
const CONFIGURATION: [u32; 18] = [
    10_001, 20_003, 20_005, 20_008, 30_002, 21_212, 21_603, 21_606, 21_659, 21_660, 21_661, 21_701,
    21_703, 21_705, 21_408, 21_608, 21_609, 63_038,
];

/// Codes of a text that cannot be sent.
const SCHEMA: [u32; 3] = [21_602, 21_617, 21_619];

/// What only this adapter takes.
#[derive(Clone, Debug, Default)]
pub struct TwilioSettings {
    /// The account's SID; needed where the user name is that of an API key.
    pub account_sid: Option<String>,
    /// The campaign's sender, which [`check`](super::Provider::check) asks about; `None` where it
    /// differs from message to message.
    pub sender: Option<String>,
    /// Where Twilio reaches the webhooks, without their path; `None` for no callbacks.
    pub public_url: Option<String>,
    /// How long a message may wait in Twilio's queue, in whole seconds; past it, it is not sent.
    /// [`VALIDITY_MAX`] where nothing is set.
    pub validity: Option<SignedDuration>,
}

/// An account at Twilio.
#[derive(Debug)]
pub struct Twilio {
    api: Api,
    /// Where messaging services are.
    services: Api,
    provider: ProviderRef,
    account: String,
    /// Whether the credentials are those of an API key, not the account's own.
    is_key: bool,
    sender: Option<String>,
    callback: Option<String>,
    validity: i64,
    events: bool,
}

/// The URL, without its query, under which Twilio calls back where `public_url` is reached.
#[must_use]
pub fn callback(public_url: &str) -> String {
    format!("{}{CALLBACK_PATH}", public_url.trim_end_matches('/'))
}

impl Twilio {
    /// The account of `settings`, whose user name and password are its SID and auth token, or those
    /// of an API key; connects to nothing yet.
    ///
    /// # Errors
    /// The setting that cannot be used.
    pub fn new(settings: &ApiSettings, own: &TwilioSettings) -> Result<Self, ApiSettingsError> {
        let missing =
            |variable, what| ApiSettingsError::NoCredential { kind: "twilio", variable, what };
        let username = settings.username.as_ref().ok_or_else(|| {
            missing(USERNAME_VARIABLE, "account SID (AC…), or the SID of an API key (SK…)")
        })?;
        let password = settings.password.as_ref().ok_or_else(|| {
            missing(PASSWORD_VARIABLE, "account's auth token, or the secret of the API key")
        })?;
        let plain = |text: &Redacted<String>| text.reveal().bytes().all(|b| b.is_ascii_graphic());
        if username.reveal().is_empty() || !plain(username) || username.reveal().contains(':') {
            return Err(ApiSettingsError::BadCredential(USERNAME_VARIABLE));
        }
        if !plain(password) {
            return Err(ApiSettingsError::BadCredential(PASSWORD_VARIABLE));
        }
        let account = account(username.reveal(), own.account_sid.as_deref())?;
        let is_key = account != *username.reveal();
        let basic = format!("{}:{}", username.reveal(), password.reveal());
        let basic = Redacted::new(format!("Basic {}", BASE64.encode(basic.as_bytes())));
        let url = settings.url.as_deref().unwrap_or(URL);
        let services = url.replacen("://api.", "://messaging.", 1);
        let services = Api::new(&services, settings.ca_file.as_deref())?;
        let api = settings.api(URL)?;
        // An account stays the same under another key.
        let provider = api::account("twilio", &api, &Redacted::new(account.clone()), FORMAT);
        Ok(Self {
            api: api.with_secret(AUTHORIZATION, &basic)?,
            services: services.with_secret(AUTHORIZATION, &basic)?,
            provider,
            account,
            is_key,
            sender: own.sender.clone(),
            callback: own.public_url.as_deref().map(callback),
            validity: own.validity.unwrap_or(VALIDITY_MAX).as_secs(),
            events: settings.events,
        })
    }
}

/// The account's SID: the one that is set, else the user name if it is one.
fn account(username: &str, set: Option<&str>) -> Result<String, ApiSettingsError> {
    let wrong = |why: String| {
        let why = format!("{why}; write the account's SID, AC and 32 digits, from its console");
        Err(ApiSettingsError::Setting { setting: "account_sid", why })
    };
    let named = is_account(username).then_some(username);
    match (set, named) {
        (Some(set), _) if !is_account(set) => wrong("is not the SID of an account".to_owned()),
        (Some(set), Some(named)) if set != named => {
            wrong(format!("is another account than the one that {USERNAME_VARIABLE} names"))
        }
        (Some(sid), _) | (None, Some(sid)) => Ok(sid.to_owned()),
        (None, None) => {
            wrong(format!("is missing, and {USERNAME_VARIABLE} is not the SID of an account"))
        }
    }
}

/// `AC` and 32 hexadecimal digits (<https://www.twilio.com/docs/glossary/what-is-a-sid>).
fn is_account(text: &str) -> bool {
    let digits = text.strip_prefix("AC").unwrap_or_default();
    digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

#[derive(Default, Deserialize)]
struct Told {
    sid: Option<String>,
    code: Option<u32>,
}

#[derive(Deserialize)]
struct Messages {
    messages: Vec<Record>,
    #[serde(default)]
    next_page_uri: Option<String>,
}

#[derive(Deserialize)]
struct Record {
    sid: String,
    #[serde(default)]
    status: String,
    error_code: Option<u32>,
    #[serde(default)]
    direction: String,
    to: Option<String>,
    from: Option<String>,
    messaging_service_sid: Option<String>,
    body: Option<String>,
    date_created: Option<String>,
}

impl Record {
    /// Whether it is `message`, made at `begin` or later.
    fn is(&self, message: &FrozenMessage, sender: Sender<'_>, begin: Timestamp) -> bool {
        let from = match sender {
            Sender::Service(_) => &self.messaging_service_sid,
            Sender::Number(_) | Sender::ShortCode(_) | Sender::Name(_) => &self.from,
        };
        let created = self.date_created.as_deref();
        let created = created.and_then(|at| DateTimeParser::new().parse_timestamp(at).ok());
        // A line end may come back as another one.
        let body = self.body.as_ref().map(|body| body.replace("\r\n", "\n"));
        self.direction == "outbound-api"
            && self.to.as_ref() == Some(message.recipient.reveal())
            && from.as_ref() == Some(&message.sender)
            && body.is_some_and(|body| body.trim() == message.text.reveal().trim())
            && created.is_some_and(|created| created >= begin)
    }
}

/// What the records of one message say together: one that was accepted counts before one that was
/// refused. `None` if they say nothing.
fn found<'a>(records: impl Iterator<Item = &'a Record>) -> Option<Found> {
    let mut refused = None;
    for record in records {
        match states::findings(&record.status, record.error_code, &record.sid).into_iter().next() {
            Some(Finding::Accepted { message_id }) => return Some(Found::Accepted { message_id }),
            Some(Finding::Refused(class)) => refused = Some(Found::Refused(class)),
            Some(Finding::Miss | Finding::Unavailable) | None => {}
        }
    }
    refused
}

/// What `answer`, which came at `now`, says about its attempt.
fn reply(answer: &Answer, now: Timestamp) -> Reply {
    let status = answer.status;
    let Told { sid, code } = read(answer).unwrap_or_default();
    if status == StatusCode::CREATED {
        return match sid {
            Some(sid) => Reply::Accepted { message_id: Some(sid) },
            None => Reply::Unknown("http 201 without a sid".to_owned()),
        };
    }
    let text = told(status, &code.map(|code| code.to_string()).unwrap_or_default());
    match class(status, code) {
        Some(class) => {
            let mut failure = Failure::new(class, text);
            failure.retry_after = retry_after(&answer.headers, now);
            Reply::NotSent(failure)
        }
        None => Reply::Unknown(text),
    }
}

/// The class of a refusal that is proven not sent.
fn class(status: StatusCode, code: Option<u32>) -> Option<FailureClass> {
    Some(match (status.as_u16(), code) {
        (400 | 403, Some(21_610)) => FailureClass::Suppressed,
        (400 | 403, Some(21_611)) => FailureClass::Overloaded,
        (400, Some(code)) if CONFIGURATION.contains(&code) => FailureClass::Configuration,
        (400, Some(code)) if SCHEMA.contains(&code) => FailureClass::Schema,
        (400, Some(21_000..=29_999)) => FailureClass::Recipient,
        (400, Some(_)) => FailureClass::Schema,
        (401 | 403 | 404, Some(_)) | (429, Some(63_038)) => FailureClass::Configuration,
        (429, _) => FailureClass::RateLimited,
        _ => return None,
    })
}

impl Provider for Twilio {
    fn provider_ref(&self) -> ProviderRef {
        self.provider.clone()
    }

    fn contract(&self) -> Contract {
        Contract { lookup: Lookup::ByContent, events: self.events, ..Contract::NONE }
    }

    fn prepare<'a>(
        &'a self,
        key: &'a OperationKey,
        message: &'a FrozenMessage,
    ) -> BoxFuture<'a, Result<Box<dyn Ready>, Failure>> {
        async move {
            let form = self.form(key, message)?;
            let path = self.path("Messages.json");
            let kind = "application/x-www-form-urlencoded";
            let request = self.api.post(&path, &[], kind, form.into_bytes())?;
            self.api.ready(request, reply).await
        }
        .boxed()
    }

    fn look_up<'a>(
        &'a self,
        _key: &'a OperationKey,
        message: Option<&'a FrozenMessage>,
        since: Timestamp,
    ) -> BoxFuture<'a, Found> {
        async move {
            match message {
                Some(message) => {
                    self.search(message, since).await.unwrap_or_else(Found::Unavailable)
                }
                None => Found::Unavailable("the message is not stored any more".to_owned()),
            }
        }
        .boxed()
    }

    fn check(&self) -> BoxFuture<'_, Result<String, String>> {
        async move {
            let account = self.check_account().await?;
            let sender = self.check_sender().await?;
            Ok(format!("{account}; {sender}"))
        }
        .boxed()
    }
}

impl Twilio {
    /// The path of `resource` in the account.
    fn path(&self, resource: &str) -> String {
        format!("/2010-04-01/Accounts/{}/{resource}", self.account)
    }

    /// The form for `message` under `key`. Its fields always come in the same order.
    fn form(&self, key: &OperationKey, message: &FrozenMessage) -> Result<String, Failure> {
        let schema = |code| Failure::new(FailureClass::Schema, code);
        if message.length().is_none() {
            return Err(schema("twilio message is a mail"));
        }
        let sender = Sender::parse(&message.sender);
        let (field, sender) = match sender.ok_or_else(|| schema("twilio sender malformed"))? {
            Sender::Service(sid) => ("MessagingServiceSid", sid),
            Sender::Number(from) | Sender::ShortCode(from) | Sender::Name(from) => ("From", from),
        };
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("To", message.recipient.reveal())
            .append_pair(field, sender)
            .append_pair("Body", message.text.reveal())
            .append_pair("ValidityPeriod", &self.validity.to_string());
        if let Some(callback) = &self.callback {
            // The alias needs no encoding, which nobody on the way could do in another manner.
            let callback = format!("{callback}?{OPERATION}={}", alias(key));
            form.append_pair("StatusCallback", &callback);
        }
        Ok(form.finish())
    }

    /// Reads the messages to the recipient's number. They are not asked for by a date: one that still
    /// waits has no date of sending.
    async fn search(&self, message: &FrozenMessage, since: Timestamp) -> Result<Found, String> {
        let sender = Sender::parse(&message.sender).ok_or("the message is no text message")?;
        let begin = since.saturating_sub(CLOCKS_DIFFER).unwrap_or(since);
        let messages = self.path("Messages.json");
        let mut asked = vec![("To", message.recipient.reveal().as_str()), ("PageSize", PER_PAGE)];
        // A service has chosen one of its senders, which it does not tell beforehand.
        if !matches!(sender, Sender::Service(_)) {
            asked.push(("From", &message.sender));
        }
        let mut path = query(&messages, &asked);
        let mut ours = Vec::new();
        for _ in 0..PAGES_MAX {
            let answer = self.api.get(&path).await?;
            let Some(page) = read::<Messages>(&answer).filter(|_| answer.status == StatusCode::OK)
            else {
                return Err(told(answer.status, ""));
            };
            ours.extend(page.messages.into_iter().filter(|r| r.is(message, sender, begin)));
            match page.next_page_uri {
                Some(next) if is_page_of(&next, &messages) => path = next,
                _ => break,
            }
        }
        Ok(found(ours.iter()).unwrap_or(Found::Miss))
    }
}

/// Whether `uri` is a page of `list` that can stand in a path as it is.
fn is_page_of(uri: &str, list: &str) -> bool {
    let query = uri.strip_prefix(list).and_then(|rest| rest.strip_prefix('?'));
    query.is_some_and(|query| query.bytes().all(|b| b.is_ascii_graphic() && b != b'#'))
}

#[cfg(test)]
mod tests;
