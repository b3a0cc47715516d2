//! Webhooks: what providers tell by themselves. Each adapter has a table of which of its events mean
//! "accepted and tried", even a bounce, and which "accepted, then refused"; a signature is checked
//! on the bytes as they came, before anything is read from them.

mod mailgun;
mod postmark;
mod resend;
mod secret;
mod seldom;
mod sendgrid;
mod ses;
pub mod svix;
mod twilio;

pub use mailgun::MailgunWebhook;
pub use postmark::PostmarkWebhook;
pub use resend::ResendWebhook;
pub use secret::SecretError;
pub use seldom::Seldom;
pub use sendgrid::SendgridWebhook;
pub use ses::{Fetch, Https, SesWebhook, Topic, TopicError};
pub use twilio::TwilioWebhook;

use digest_workflows::operation::Finding;
use futures::future::BoxFuture;
use hyper::HeaderMap;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// A signature that is made anew for every try, and is older or further ahead than this, is refused:
/// it may be a recorded one that somebody sends again.
pub const TOLERANCE: SignedDuration = SignedDuration::from_mins(5);

/// A request as it came.
#[derive(Clone, Copy)]
pub struct Received<'a> {
    /// The query of its URL, as it was written; empty without one.
    pub query: &'a str,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// Its body, byte for byte.
    pub body: &'a [u8],
    /// When it came.
    pub now: Timestamp,
}

/// What one event says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProviderEvent {
    /// The provider's id of the event: the same event, told again, has the same.
    pub id: String,
    /// The operation key, or its alias, that the event carries; `None` for a message that is not
    /// one of ours.
    pub carried: Option<String>,
    /// What it says about the operation, in order; empty for an event that says nothing about
    /// acceptance.
    pub findings: Vec<Finding>,
    /// Why the customer is not to be written to any more, if the event says that.
    pub suppresses: Option<SuppressionReason>,
}

/// Why a customer is not written to any more, as a provider told after a message was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuppressionReason {
    /// The address does not exist, or takes no mail for good. A bounce that may pass is none.
    HardBounce,
    /// The customer has reported the message as unwanted.
    Complaint,
    /// The customer has opted out by the provider's own means.
    OptOut,
}

impl SuppressionReason {
    /// Every reason.
    pub const ALL: [Self; 3] = [Self::HardBounce, Self::Complaint, Self::OptOut];

    /// The reason as the ledger and JSON have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HardBounce => "hard_bounce",
            Self::Complaint => "complaint",
            Self::OptOut => "opt_out",
        }
    }

    /// The reason with this [`name`](Self::name), if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }

    /// Why an operation of the customer ended, for its timeline.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::HardBounce => "suppressed: hard bounce",
            Self::Complaint => "suppressed: complaint",
            Self::OptOut => "suppressed: opt-out",
        }
    }
}

/// The seconds since 1970 in `text`, if they are less than `tolerance` away from `now`.
fn fresh(text: &str, now: Timestamp, tolerance: SignedDuration) -> Result<(), Refused> {
    let at = text.parse().ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    near(at.ok_or(Refused::Unsigned)?, now, tolerance)
}

/// Whether `at` is no more than `tolerance` away from `now`.
fn near(at: Timestamp, now: Timestamp, tolerance: SignedDuration) -> Result<(), Refused> {
    if now.duration_since(at).abs() > tolerance { Err(Refused::Stale) } else { Ok(()) }
}

/// Why a request is refused; nothing of it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It has no signature, or not in the form that the provider documents.
    #[error("the request is not signed as the provider signs")]
    Unsigned,
    /// No secret of ours gives its signature.
    #[error("the signature is not of a secret in DIGESTD_WEBHOOK_SECRET")]
    Forged,
    /// It is of a topic that `[webhooks] topics` does not name; anybody may have one.
    #[error("the request is of a topic that [webhooks] topics does not name")]
    Elsewhere,
    /// It is not signed by the certificate that it names.
    #[error("the signature is not of the certificate that the request names")]
    NotOfCertificate,
    /// What is needed to verify or to answer it could not be fetched; the same request may be taken
    /// later.
    #[error("the provider did not give what is needed to verify or confirm the request")]
    NotNow,
    /// Its time is too far away.
    #[error("the signature's time is too far away")]
    Stale,
    /// It is signed, and not an event as the provider documents them.
    #[error("the request is not an event of this provider")]
    Malformed,
}

impl Refused {
    /// The names of all reasons, as a metric has them.
    pub const NAMES: [&str; 7] = [
        Self::Unsigned.name(),
        Self::Forged.name(),
        Self::Elsewhere.name(),
        Self::NotOfCertificate.name(),
        Self::NotNow.name(),
        Self::Stale.name(),
        Self::Malformed.name(),
    ];

    /// The reason as a metric has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unsigned => "unsigned",
            Self::Forged => "forged",
            Self::Elsewhere => "elsewhere",
            Self::NotOfCertificate => "not_of_certificate",
            Self::NotNow => "not_now",
            Self::Stale => "stale",
            Self::Malformed => "malformed",
        }
    }
}

/// How one provider tells.
pub trait Webhook: Send + Sync {
    /// The provider's name, as in `provider.kind` and the path of the webhook.
    fn kind(&self) -> &'static str;

    /// Checks who sent `request`, and reads its events. Whoever verifies with a certificate may have
    /// to fetch it first.
    ///
    /// # Errors
    /// [`Refused`].
    fn read<'a>(
        &'a self,
        request: &'a Received<'a>,
    ) -> BoxFuture<'a, Result<Vec<ProviderEvent>, Refused>>;
}
