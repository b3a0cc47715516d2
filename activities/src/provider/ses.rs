//! [Amazon SES, API v2](https://docs.aws.amazon.com/ses/latest/APIReference-V2/API_SendEmail.html):
//! no idempotency key, so a second request is a second message, and no look-up: its records are
//! found by SES's own id, or by an export of the account's traffic that takes minutes. A doubt is
//! for a late answer, an event or a person.
//!
//! The message goes as our own bytes; SES replaces `Message-ID` and `Date` in them
//! (<https://docs.aws.amazon.com/ses/latest/dg/header-fields.html>). Our key travels as the tag
//! `operation_key`, always by its alias, since a tag takes no colon; tags come back in the events of
//! a configuration set (setting `configuration_set`).
//!
//! Where messages share requests, see [`bulk`]: SES then builds them itself, so every attempt goes that
//! way, also alone, and a message that is too large for it never does.
//!
//! The credentials are the access key id and the secret of an IAM user who may `ses:SendEmail`, and
//! `ses:SendBulkEmail` where messages share requests, in the variables of user name and password.
//! Temporary credentials are not taken: a worker outlives them.

pub mod bulk;
mod signature;
mod table;

use self::signature::Signer;
use self::table::{CREDENTIALS, PERMISSIONS, refusal, reply};
use super::alias::alias;
use super::api::{
    self, Api, ApiSettings, ApiSettingsError, PASSWORD_VARIABLE, Table, USERNAME_VARIABLE, read,
    told,
};
use super::batch::{Batches, ReadyBatch, Seal};
use super::exchange::Answer;
use super::{Provider, Ready};
use crate::message::{FrozenMessage, Redacted};
use data_encoding::BASE64;
use digest_workflows::operation::{
    Batch, Contract, Failure, FailureClass, OperationKey, ProviderRef,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use url::Url;

/// The settings that only SES has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SesSettings {
    /// The region, where the URL does not name it.
    pub region: Option<String>,
    /// The configuration set, whose event destinations tell what became of a message.
    pub configuration_set: Option<String>,
    /// Whether messages share requests.
    pub bulk: bool,
}

/// An account at Amazon SES in one region.
#[derive(Debug)]
pub struct Ses {
    api: Api,
    provider: ProviderRef,
    signer: Arc<Signer>,
    bulk: bool,
    sender_domain: Option<String>,
    configuration_set: Option<String>,
    events: bool,
}

impl Ses {
    /// The account of `settings`, whose credentials are the access key id and its secret; connects
    /// to nothing yet.
    ///
    /// # Errors
    /// The setting that cannot be used.
    pub fn new(settings: &ApiSettings, own: &SesSettings) -> Result<Self, ApiSettingsError> {
        let missing =
            |variable, what| ApiSettingsError::NoCredential { kind: "ses", variable, what };
        let id = settings.username.as_ref();
        let id =
            id.ok_or_else(|| missing(USERNAME_VARIABLE, "access key id, which begins with AKIA"))?;
        let secret = settings.password.as_ref();
        let secret = secret.ok_or_else(|| missing(PASSWORD_VARIABLE, "secret access key"))?;
        let plain = |text: &Redacted<String>| text.reveal().bytes().all(|b| b.is_ascii_graphic());
        for (text, variable) in [(id, USERNAME_VARIABLE), (secret, PASSWORD_VARIABLE)] {
            if !plain(text) {
                return Err(ApiSettingsError::BadCredential(variable));
            }
        }
        let region = region(settings.url.as_deref(), own.region.as_deref())?;
        let api = settings.api(&format!("https://email.{region}.amazonaws.com"))?;
        // Nothing sent earlier is looked up or replayed, so no format tells accounts apart.
        let provider = api::account("ses", &api, &id.map(|id| format!("{region}\n{id}")), 1);
        let signer =
            Signer { access_key_id: id.clone(), secret: secret.clone(), region, service: "ses" };
        Ok(Self {
            api,
            provider,
            signer: Arc::new(signer),
            bulk: own.bulk,
            sender_domain: settings.sender_domain.clone(),
            configuration_set: own.configuration_set.clone(),
            events: settings.events,
        })
    }
}

/// The region that requests are signed for: the named one, else that of the URL's host.
fn region(url: Option<&str>, named: Option<&str>) -> Result<String, ApiSettingsError> {
    let wrong = |why: &str| ApiSettingsError::Setting {
        setting: "region",
        why: format!("{why}; write the region of the account's identities, such as \"eu-west-1\""),
    };
    let host = url.and_then(|url| Url::parse(url).ok()?.host_str().map(ToOwned::to_owned));
    let of_host = host.as_deref().filter(|host| host.contains(".amazonaws.com"));
    let of_host = of_host.and_then(|host| host.split('.').nth(1));
    let region = named.or(of_host).ok_or_else(|| wrong("is missing"))?;
    if region.is_empty() || !region.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Err(wrong("is no region"));
    }
    Ok(region.to_owned())
}

/// The request's body. Its fields always come in the same order.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Body<'a> {
    destination: Destination<'a>,
    content: Content,
    email_tags: [Tag; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    configuration_set_name: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Destination<'a> {
    to_addresses: [&'a str; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Content {
    raw: Raw,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Raw {
    data: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Tag {
    name: &'static str,
    value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Account {
    sending_enabled: bool,
    #[serde(default)]
    production_access_enabled: bool,
    #[serde(default)]
    send_quota: Quota,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Quota {
    /// -1 where there is none.
    #[serde(rename = "Max24HourSend")]
    max_24_hour_send: f64,
    #[serde(rename = "SentLast24Hours")]
    sent_last_24_hours: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Identities {
    email_identities: Vec<Identity>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Identity {
    identity_name: String,
    sending_enabled: bool,
}

/// Our key, as an event carries it.
fn tag(key: &OperationKey) -> Tag {
    Tag { name: "operation_key", value: alias(key) }
}

/// The body for `message` under `key`.
fn body(
    key: &OperationKey,
    message: &FrozenMessage,
    configuration_set: Option<&str>,
) -> Result<Vec<u8>, Failure> {
    let body = Body {
        destination: Destination { to_addresses: [message.recipient.reveal()] },
        content: Content { raw: Raw { data: BASE64.encode(message.mime.reveal()) } },
        email_tags: [tag(key)],
        configuration_set_name: configuration_set,
    };
    serde_json::to_vec(&body)
        .map_err(|_| Failure::new(FailureClass::Schema, "ses message malformed"))
}

impl Provider for Ses {
    fn provider_ref(&self) -> ProviderRef {
        self.provider.clone()
    }

    fn contract(&self) -> Contract {
        let batch = if self.bulk { Batch::PerItem } else { Batch::None };
        Contract { events: self.events, batch, ..Contract::NONE }
    }

    fn prepare<'a>(
        &'a self,
        key: &'a OperationKey,
        message: &'a FrozenMessage,
    ) -> BoxFuture<'a, Result<Box<dyn Ready>, Failure>> {
        async move {
            let item = self.own_item(key, message)?;
            let (path, body, table): (_, _, Table) = if let Some(item) = item {
                (bulk::PATH, bulk::request(&[&item]), bulk::only_reply)
            } else {
                let body = body(key, message, self.configuration_set.as_deref())?;
                ("/v2/email/outbound-emails", body, reply)
            };
            let mut request = self.api.post(path, &[], "application/json", body.clone())?;
            sign(&self.signer, &mut request, &body)?;
            self.api.ready(request, table).await
        }
        .boxed()
    }

    fn batches(&self) -> Option<&dyn Batches> {
        self.bulk.then_some(self as &dyn Batches)
    }

    fn check(&self) -> BoxFuture<'_, Result<String, String>> {
        async move {
            let region = &self.signer.region;
            let asked = format!("Amazon SES ({}) was asked for the account", self.api.base());
            let answer =
                self.ask("/v2/email/account").await.map_err(|code| format!("{asked}: {code}"))?;
            let (name, _) = refusal(&answer);
            let account = match (answer.status.as_u16(), name.as_str()) {
                (200, _) => read::<Account>(&answer).ok_or_else(|| {
                    format!(
                        "what answers at {} is not Amazon SES; correct provider.url",
                        self.api.base()
                    )
                })?,
                (400 | 403, name) if CREDENTIALS.contains(&name) => {
                    return Err(format!(
                        "{asked} and does not take the access key ({name}); put a valid pair into {USERNAME_VARIABLE} and {PASSWORD_VARIABLE}, and check provider.region and this machine's clock"
                    ));
                }
                (400 | 403, name) if PERMISSIONS.contains(&name) => {
                    return Ok(
                        "Amazon SES takes the access key, which may not ask for the account: whether it may send, and the sender of message.from is verified, could not be asked"
                            .to_owned(),
                    );
                }
                _ => {
                    return Err(format!(
                        "{asked} and answered {}; look at provider.url and provider.region",
                        told(answer.status, &name)
                    ));
                }
            };
            self.check_account(&account)?;
            let sandbox = if account.production_access_enabled {
                ""
            } else {
                "; the account is in the sandbox, which delivers only to verified addresses"
            };
            let sender = match &self.sender_domain {
                Some(sender) => self.check_sender(sender).await?,
                None => "the sender of message.from is a template, and not asked for".to_owned(),
            };
            Ok(format!("Amazon SES in {region} takes the access key, and {sender}{sandbox}"))
        }
        .boxed()
    }
}

impl Batches for Ses {
    fn bytes_max(&self) -> usize {
        bulk::BYTES_MAX
    }

    fn counts_messages(&self) -> bool {
        true
    }

    fn item(
        &self,
        key: &OperationKey,
        message: &FrozenMessage,
    ) -> Result<Option<Vec<u8>>, Failure> {
        self.own_item(key, message)
    }

    fn common<'a>(&self, item: &'a [u8]) -> &'a [u8] {
        bulk::common(item)
    }

    fn request(&self, items: &[&[u8]]) -> Vec<u8> {
        bulk::request(items)
    }

    fn prepare(&self) -> BoxFuture<'_, Result<Box<dyn ReadyBatch>, Failure>> {
        let signer = Arc::clone(&self.signer);
        let seal: Seal = Box::new(move |request, body| sign(&signer, request, body));
        self.api.ready_batch(bulk::PATH, &[], None, Some(seal), bulk::replies).boxed()
    }
}

/// Signs `request`, whose body is `body`, as of now.
fn sign(signer: &Signer, request: &mut Request<Full<Bytes>>, body: &[u8]) -> Result<(), Failure> {
    signer
        .sign(request, body, Timestamp::now())
        .map_err(|_| Failure::new(FailureClass::Configuration, "ses not signable"))
}

impl Ses {
    /// What `message` is in a request that may be shared; `None` where it goes as its own bytes.
    fn own_item(
        &self,
        key: &OperationKey,
        message: &FrozenMessage,
    ) -> Result<Option<Vec<u8>>, Failure> {
        if !self.bulk {
            return Ok(None);
        }
        let item = bulk::item(tag(key), message, self.configuration_set.as_deref())?;
        Ok(item.filter(|item| item.len() <= bulk::BYTES_MAX))
    }

    /// Asks for `path`, signed.
    async fn ask(&self, path: &str) -> Result<Answer, String> {
        let mut request = self.api.question(path)?;
        let signed = self.signer.sign(&mut request, &[], Timestamp::now());
        signed.map_err(|_| "ses not signable".to_owned())?;
        self.api.ask(request).await
    }

    fn check_account(&self, account: &Account) -> Result<(), String> {
        let region = &self.signer.region;
        let Quota { max_24_hour_send: most, sent_last_24_hours: sent } = account.send_quota;
        if !account.sending_enabled {
            return Err(format!(
                "Amazon SES has paused sending for this account in {region}; its account dashboard shows why"
            ));
        }
        if most > 0.0 && sent >= most {
            return Err(format!(
                "the account's daily quota at Amazon SES in {region} is used up ({sent:.0} of {most:.0}); ask for a higher one, or wait"
            ));
        }
        Ok(())
    }

    /// Whether mail from `sender` may be sent: it or a domain above it is verified, or an address.
    async fn check_sender(&self, sender: &str) -> Result<String, String> {
        let asked = "Amazon SES was asked for the account's identities";
        let answer = self.ask("/v2/email/identities?PageSize=1000").await;
        let answer = answer.map_err(|code| format!("{asked}: {code}"))?;
        let (name, _) = refusal(&answer);
        let Some(Identities { email_identities: all }) =
            read(&answer).filter(|_| answer.status == StatusCode::OK)
        else {
            return if PERMISSIONS.contains(&name.as_str()) {
                Ok(format!("whether {sender} is verified could not be asked"))
            } else {
                Err(format!("{asked} and answered {}", told(answer.status, &name)))
            };
        };
        let sender_in_lower = sender.to_ascii_lowercase();
        let covers = |identity: &&Identity| {
            let name = identity.identity_name.to_ascii_lowercase();
            name == sender_in_lower
                || sender_in_lower.ends_with(&format!(".{name}"))
                || name.ends_with(&format!("@{sender_in_lower}"))
        };
        let covering: Vec<&Identity> = all.iter().filter(covers).collect();
        if covering.iter().any(|identity| identity.sending_enabled) {
            return Ok(format!("{sender} is verified"));
        }
        let region = &self.signer.region;
        Err(if covering.is_empty() {
            format!(
                "Amazon SES in {region} does not know the domain {sender} of message.from; create its identity there, or correct provider.region"
            )
        } else {
            format!(
                "the domain {sender} of message.from is not verified at Amazon SES in {region}; set the DNS records that its page shows"
            )
        })
    }
}

#[cfg(test)]
mod tests;
