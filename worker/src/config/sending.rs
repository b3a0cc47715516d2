//! How it is sent: the tables `[provider]`, `[dispatch]`, `[worker]`, `[retry.*]`, `[unknown]`,
//! `[hold]`, `[replay]` and `[retention]`.

use super::database::refuse_password;
use super::reader::Section;
use super::secrets;
use digest_activities::provider::{postmark, resend, ses, twilio};
use digest_workflows::operation::policy::UnknownRules;
use digest_workflows::operation::{FailureClass, RetryPolicy, Rules};
use jiff::SignedDuration;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use url::{Host, Url};

/// `[provider]`: who delivers.
#[derive(Clone, Debug, PartialEq)]
pub struct Provider {
    /// Which adapter.
    pub kind: ProviderKind,
    /// The server; required for SMTP, where it is `smtps://`, `smtp://` or `smtp+insecure://`, and
    /// for the others the base of their API, if not the usual one. Never with credentials.
    pub url: Option<String>,
    /// Hand-overs a second for the whole deployment, retries included.
    pub rate_per_second: f64,
    /// The answer is unknown after this long.
    pub timeout: SignedDuration,
    /// How long a late answer is still listened for.
    pub lease: SignedDuration,
    /// How long after the lease "not delivered" is not yet acted on.
    pub settle: SignedDuration,
    /// How many messages may share a request; `None` where each has its own.
    pub batch: Option<u32>,
    /// A PEM file of certificate authorities that are trusted beside the platform's own.
    pub ca_file: Option<PathBuf>,
    /// What only one adapter takes.
    pub own: ProviderOwn,
}

/// Settings of `[provider]` that only one adapter takes, and that are refused with any other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderOwn {
    /// SMTP: what EHLO says; by default the address that the connection comes from.
    pub ehlo_name: Option<String>,
    /// Postmark: the message stream; by default its broadcast stream.
    pub message_stream: Option<String>,
    /// SendGrid: whether the account has Email Activity and the key may read it.
    pub lookup: bool,
    /// Mailgun: the sending domain; by default that of `message.from`.
    pub domain: Option<String>,
    /// SES: the region, where the URL does not name it.
    pub region: Option<String>,
    /// SES: the configuration set that messages are sent with.
    pub configuration_set: Option<String>,
    /// Twilio: the account's SID, where the user name is that of an API key.
    pub account_sid: Option<String>,
    /// Twilio: how long a message may wait in its queue; by default as long as it may.
    pub validity: Option<SignedDuration>,
}

impl ProviderOwn {
    /// Each setting, and the adapter that takes it.
    const KINDS: [(&'static str, ProviderKind); 8] = [
        ("ehlo_name", ProviderKind::Smtp),
        ("message_stream", ProviderKind::Postmark),
        ("lookup", ProviderKind::Sendgrid),
        ("domain", ProviderKind::Mailgun),
        ("region", ProviderKind::Ses),
        ("configuration_set", ProviderKind::Ses),
        ("account_sid", ProviderKind::Twilio),
        ("validity", ProviderKind::Twilio),
    ];

    fn read(section: &mut Section<'_>, kind: Option<ProviderKind>) -> Self {
        for (key, its) in Self::KINDS {
            if section.has(key) && kind.is_some_and(|kind| kind != its) {
                section.refuse(
                    key,
                    format!("only kind = {:?} takes this; leave the line out", its.name()),
                );
            }
        }
        let validity = section.optional("validity");
        if validity.is_some_and(|validity| !VALIDITY.contains(&validity)) {
            section
                .refuse("validity", "this is not between 5s and 10h, which is what Twilio takes");
        }
        Self {
            ehlo_name: section.optional("ehlo_name"),
            message_stream: section.optional("message_stream"),
            lookup: section.or("lookup", false),
            domain: section.optional("domain"),
            region: section.optional("region"),
            configuration_set: section.optional("configuration_set"),
            account_sid: section.optional("account_sid"),
            validity,
        }
    }
}

/// A shorter wait is nearly none (<https://www.twilio.com/docs/messaging/api/message-resource>).
const VALIDITY: RangeInclusive<SignedDuration> =
    SignedDuration::from_secs(5)..=twilio::VALIDITY_MAX;

/// The adapters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderKind {
    /// A provider with planted faults, for trying digestd out.
    Sandbox,
    /// Any mail server.
    Smtp,
    /// Resend.
    Resend,
    /// Postmark.
    Postmark,
    /// SendGrid.
    Sendgrid,
    /// Mailgun.
    Mailgun,
    /// Amazon SES.
    Ses,
    /// Twilio, for text messages.
    Twilio,
}

impl ProviderKind {
    /// Every kind, in the order of the documentation.
    pub const ALL: [Self; 8] = [
        Self::Sandbox,
        Self::Smtp,
        Self::Resend,
        Self::Postmark,
        Self::Sendgrid,
        Self::Mailgun,
        Self::Ses,
        Self::Twilio,
    ];

    /// The kind as it is written in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Smtp => "smtp",
            Self::Resend => "resend",
            Self::Postmark => "postmark",
            Self::Sendgrid => "sendgrid",
            Self::Mailgun => "mailgun",
            Self::Ses => "ses",
            Self::Twilio => "twilio",
        }
    }

    /// How long a process that was stopped between its check and its write may still hand over:
    /// ten minutes on a mail session, two in one HTTP request.
    #[must_use]
    pub const fn default_settle(self) -> SignedDuration {
        match self {
            Self::Smtp => SignedDuration::from_mins(10),
            _ => SignedDuration::from_mins(2),
        }
    }

    /// How many messages one request may have; `None` where it is one.
    #[must_use]
    pub const fn batch_max(self) -> Option<u32> {
        match self {
            Self::Resend => Some(resend::BATCH_MAX),
            Self::Postmark => Some(postmark::BATCH_MAX),
            Self::Ses => Some(ses::bulk::BATCH_MAX),
            _ => None,
        }
    }
}

impl Provider {
    pub(super) fn read(section: &mut Section<'_>, folder: &Path) -> Self {
        let kinds = ProviderKind::ALL.map(|kind| (kind.name(), kind));
        if !section.has("kind") {
            section.refuse("kind", "this is missing; it says who delivers, such as \"smtp\"");
        }
        let kind = section.choice("kind", &kinds);
        let provider = Self {
            kind: kind.unwrap_or(ProviderKind::Sandbox),
            url: section.optional("url"),
            rate_per_second: section.or("rate_per_second", 50.0),
            timeout: section.or("timeout", SignedDuration::from_secs(30)),
            lease: section.or("lease", SignedDuration::from_mins(15)),
            settle: section.or("settle", kind.unwrap_or(ProviderKind::Smtp).default_settle()),
            batch: read_batch(section, kind),
            ca_file: section.optional::<String>("ca_file").map(|path| folder.join(path)),
            own: ProviderOwn::read(section, kind),
        };
        if provider.rate_per_second <= 0.0 || provider.rate_per_second > 10_000.0 {
            let rate = provider.rate_per_second;
            section.refuse("rate_per_second", format!("{rate} is not above 0 and up to 10000"));
        }
        match &provider.url {
            Some(url) => {
                if let Err(message) = check_url(kind, url) {
                    section.refuse("url", message);
                }
            }
            None if kind == Some(ProviderKind::Smtp) => section.refuse(
                "url",
                "this is missing; it is the mail server, such as \"smtps://mail.shop.example\"",
            ),
            None => {}
        }
        provider
    }
}

/// How many messages may share a request, as far as the provider takes that.
fn read_batch(section: &mut Section<'_>, kind: Option<ProviderKind>) -> Option<u32> {
    let batch: u32 = section.optional("batch")?;
    let kind = kind?;
    match kind.batch_max() {
        _ if batch == 1 => return None,
        None => section.refuse(
            "batch",
            format!("kind = {:?} takes one message a request; leave the line out", kind.name()),
        ),
        Some(most) if batch == 0 || batch > most => section.refuse(
            "batch",
            format!("{batch} is not from 1 to {most}, which {} takes in a request", kind.name()),
        ),
        Some(_) => {}
    }
    Some(batch)
}

/// The endpoint without quoting it, since a wrong one may carry credentials.
fn check_url(kind: Option<ProviderKind>, text: &str) -> Result<(), String> {
    refuse_password(text, secrets::PROVIDER_PASSWORD)?;
    let url = Url::parse(text).map_err(|error| format!("this is not a URL: {error}"))?;
    if !url.username().is_empty() {
        return Err(format!(
            "a user name does not belong into this URL; set the variable {}",
            secrets::PROVIDER_USERNAME
        ));
    }
    let schemes: &[&str] = match kind {
        Some(ProviderKind::Smtp) => &["smtps", "smtp", "smtp+insecure"],
        Some(ProviderKind::Sandbox) => &["http", "https", "smtp"],
        Some(_) => &["https", "http"],
        None => return Ok(()),
    };
    if !schemes.contains(&url.scheme()) || !url.has_host() {
        return Err(format!("this must begin with {}://, then a host", schemes.join(":// or ")));
    }
    if url.scheme() == "http" && !is_loopback(&url) {
        return Err("http:// would send the key in clear text; use https://".to_owned());
    }
    Ok(())
}

pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// `[dispatch]`: how fast operations are started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// Operations started by one page workflow.
    pub page_size: u32,
    /// Operations enqueued and not yet past their first attempt.
    pub in_flight: u32,
}

/// The engine refuses a parent more pending children than this.
pub const IN_FLIGHT_MAX: u32 = 2_000;

/// Above this a page's own history would slow every child down.
pub const PAGE_SIZE_MAX: u32 = 500;

impl Dispatch {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let dispatch = Self {
            page_size: section.within("page_size", 100, 1..=PAGE_SIZE_MAX),
            in_flight: section.or("in_flight", 500),
        };
        if dispatch.in_flight > IN_FLIGHT_MAX {
            section.refuse(
                "in_flight",
                format!(
                    "{} is above the engine's limit of {IN_FLIGHT_MAX} pending operations",
                    dispatch.in_flight
                ),
            );
        }
        if dispatch.in_flight < dispatch.page_size && dispatch.page_size <= PAGE_SIZE_MAX {
            section.refuse(
                "in_flight",
                format!(
                    "{} is below dispatch.page_size ({}), so no page could ever start",
                    dispatch.in_flight, dispatch.page_size
                ),
            );
        }
        dispatch
    }
}

/// `[worker]`: one worker process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Activities at once.
    pub concurrency: u32,
    /// How long a worker that is told to stop finishes what it began.
    pub shutdown_grace: SignedDuration,
    /// Late answers listened for at once; beyond it nothing new begins.
    pub listening: u32,
}

impl Worker {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        Self {
            concurrency: section.within("concurrency", 100, 1..=10_000),
            shutdown_grace: section.or("shutdown_grace", SignedDuration::from_secs(45)),
            listening: section.within("listening", 200, 1..=10_000),
        }
    }
}

/// `[retry.*]`: the policy of each retried class, and of the cleanup.
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// One policy for each class of [`Rules::RETRIED`].
    pub classes: BTreeMap<FailureClass, RetryPolicy>,
    /// The policy of the cleanup.
    pub cleanup: RetryPolicy,
}

impl Retry {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let classes = Rules::RETRIED.map(|class| {
            (class, read_policy(section.table(class.name()), Rules::default_retry(class)))
        });
        let cleanup = read_policy(section.table("cleanup"), Rules::default_cleanup());
        for class in FailureClass::ALL {
            if !Rules::RETRIED.contains(&class) && section.has(class.name()) {
                let known: Vec<&str> = Rules::RETRIED.iter().map(|class| class.name()).collect();
                section.refuse(
                    class.name(),
                    format!("{class} is never retried; retried are {}, cleanup", known.join(", ")),
                );
            }
        }
        Self { classes: classes.into(), cleanup }
    }
}

fn read_policy(mut section: Section<'_>, default: RetryPolicy) -> RetryPolicy {
    let policy = RetryPolicy {
        base: section.or("base", default.base),
        cap: section.or("cap", default.cap),
        multiplier: section.within("multiplier", default.multiplier, 1.0..=1_000.0),
        jitter: section.within("jitter", default.jitter, 0.0..=1.0),
        max_attempts: section.within("max_attempts", default.max_attempts, 1..=1_000),
        max_age: section.or("max_age", default.max_age),
    };
    if policy.cap < policy.base {
        section.refuse("cap", "this is shorter than base");
    }
    section.finish();
    policy
}

pub(super) fn read_unknown(section: &mut Section<'_>) -> UnknownRules {
    let default = Rules::default().unknown;
    UnknownRules {
        lookup_every: section.or("lookup_every", default.lookup_every),
        escalate_after: section.or("escalate_after", default.escalate_after),
        keep_rows_for: section.or("keep_rows_for", default.keep_rows_for),
    }
}

/// `[hold]`: when the breaker holds a run by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Identical `schema` failures in a row.
    pub identical_schema_failures: u32,
    /// Unknown answers in a row.
    pub unknowns_in_a_row: u32,
}

impl Hold {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let key = "identical_schema_failures";
        Self {
            identical_schema_failures: section.within(key, 20, 1..=1_000_000),
            unknowns_in_a_row: section.within("unknowns_in_a_row", 20, 1..=1_000_000),
        }
    }
}

/// `[replay]`: how much one command may send again or decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// Keys in one `replay` or `resolve`.
    pub max_keys: u32,
}

impl Replay {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        Self { max_keys: section.within("max_keys", 100, 1..=10_000) }
    }
}

/// `[retention]`: what is kept, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Bytes, addresses and rows of dead, suppressed and expired operations.
    pub content: SignedDuration,
    /// Keys, states and times.
    pub records: SignedDuration,
}

impl Retention {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        Self {
            content: section.or("content", SignedDuration::from_hours(14 * 24)),
            records: section.or("records", SignedDuration::from_hours(400 * 24)),
        }
    }
}
