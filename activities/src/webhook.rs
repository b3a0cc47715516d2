//! Webhooks: what providers tell by themselves. Each adapter has a table of which of its events mean
//! "accepted and tried", even a bounce, and which "accepted, then refused"; a signature is checked
//! on the bytes as they came, before anything is read from them.

mod mailgun;
mod postmark;
mod resend;
mod secret;
mod sendgrid;
pub mod svix;
mod twilio;

pub use mailgun::MailgunWebhook;
pub use postmark::PostmarkWebhook;
pub use resend::ResendWebhook;
pub use secret::SecretError;
pub use sendgrid::SendgridWebhook;
pub use twilio::TwilioWebhook;

use digest_workflows::operation::Finding;
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
}

/// The seconds since 1970 in `text`, if they are less than `tolerance` away from `now`.
fn fresh(text: &str, now: Timestamp, tolerance: SignedDuration) -> Result<(), Refused> {
    let at = text.parse().ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    let away = now.duration_since(at.ok_or(Refused::Unsigned)?).abs();
    if away > tolerance { Err(Refused::Stale) } else { Ok(()) }
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
    /// Its time is too far away.
    #[error("the signature's time is too far away")]
    Stale,
    /// It is signed, and not an event as the provider documents them.
    #[error("the request is not an event of this provider")]
    Malformed,
}

/// How one provider tells.
pub trait Webhook: Send + Sync {
    /// The provider's name, as in `provider.kind` and the path of the webhook.
    fn kind(&self) -> &'static str;

    /// Checks who sent `request`, and reads its events.
    ///
    /// # Errors
    /// [`Refused`].
    fn read(&self, request: &Received<'_>) -> Result<Vec<ProviderEvent>, Refused>;
}
