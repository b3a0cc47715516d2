//! Failure classes: why an attempt failed. The class, never a bare count, decides what happens next.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// The connection failed before the hand-over: DNS, connect, TLS, reset. Retried.
    Transport,
    /// A definite temporary refusal (SMTP 4yz, a documented 503). Retried, slower.
    Overloaded,
    /// Told to slow down (429, SMTP throttling). Retried after the time the provider names.
    RateLimited,
    /// The address is malformed or does not exist. Dead letter.
    Recipient,
    /// Opted out, erased, cancelled, nothing to send, or on the provider's suppression list.
    /// Terminal and counted as skipped.
    Suppressed,
    /// An explicit permanent refusal of this message. Dead letter.
    Rejected,
    /// The message cannot be built or is malformed: our data or template. Dead letter.
    Schema,
    /// Our account or settings: credentials, unverified domain, quota. Holds the run and counts
    /// against no bound.
    Configuration,
    /// Too late to be useful, nothing in doubt. Dead letter that cannot be replayed.
    Stale,
    /// The provider may or may not have accepted. Never "not sent".
    Ambiguous,
}

impl FailureClass {
    /// Every class, in the order in which tables show them.
    pub const ALL: [Self; 10] = [
        Self::Transport,
        Self::Overloaded,
        Self::RateLimited,
        Self::Recipient,
        Self::Suppressed,
        Self::Rejected,
        Self::Schema,
        Self::Configuration,
        Self::Stale,
        Self::Ambiguous,
    ];

    /// The class as it is written everywhere: configuration, ledger, metrics, JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Transport => "transport",
            Self::Overloaded => "overloaded",
            Self::RateLimited => "rate_limited",
            Self::Recipient => "recipient",
            Self::Suppressed => "suppressed",
            Self::Rejected => "rejected",
            Self::Schema => "schema",
            Self::Configuration => "configuration",
            Self::Stale => "stale",
            Self::Ambiguous => "ambiguous",
        }
    }

    /// The class with this [`name`](Self::name), if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }
}

impl fmt::Display for FailureClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A proof that one attempt was not sent, and why.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Failure {
    /// What kind of failure it was.
    pub class: FailureClass,
    /// A short technical code such as `smtp rcpt 550 5.1.1` or `http 429`. Never a provider's free
    /// text, which may quote an address.
    pub code: String,
    /// How long the provider asked to wait, counted from the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<SignedDuration>,
}

impl Failure {
    /// A failure of `class`, told by `code`, without a wish of the provider.
    #[must_use]
    pub fn new(class: FailureClass, code: impl Into<String>) -> Self {
        Self { class, code: code.into(), retry_after: None }
    }

    /// The same failure with the provider's wish to wait `retry_after`.
    #[must_use]
    pub fn after(mut self, retry_after: SignedDuration) -> Self {
        self.retry_after = Some(retry_after);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.class, self.code)
    }
}
