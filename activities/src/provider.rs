//! Providers: one file each, each declaring its duplicate-control contract as data.
//!
//! An adapter never decides what happens next. It says at which point of the conversation the
//! hand-over begins, and maps everything that it sees to one of three replies: accepted, not sent
//! (with the proof), or unknown.

pub mod alias;
pub mod api;
pub mod batch;
#[cfg(test)]
mod examples;
pub mod exchange;
pub mod mailgun;
pub mod postmark;
pub mod resend;
pub mod retry_after;
pub mod sandbox;
pub mod sendgrid;
pub mod ses;
pub mod smtp;
pub(crate) mod tls;
pub mod twilio;

pub use tls::TlsError;

use crate::message::FrozenMessage;
use batch::Batches;
use digest_workflows::operation::{Contract, Failure, FailureClass, OperationKey, ProviderRef};
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;

/// What a provider answered to one attempt, once the message was handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The provider has taken responsibility for the message.
    Accepted {
        /// The provider's own id of the message, where its answer named one.
        message_id: Option<String>,
    },
    /// The provider definitely did not take the message. `class` is never
    /// [`FailureClass::Ambiguous`].
    NotSent(Failure),
    /// It may or may not have. The text is a short code such as `smtp connection lost after dot`.
    Unknown(String),
}

/// What a look-up found. Where the contract's look-up is by content, a record that is exactly the
/// message counts like one that carries our key; whether another operation can have made it is asked
/// of the ledger, not of the adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A record that carries our key: accepted and tried, whatever became of it later.
    Accepted {
        /// The provider's id of the message.
        message_id: Option<String>,
    },
    /// A record that carries our key, whose state means accepted and then refused.
    Refused(FailureClass),
    /// No record with our key, or not yet.
    Miss,
    /// The look-up itself failed; it says nothing about the message.
    Unavailable(String),
}

/// A delivery that is ready: connected and, where the protocol allows it, checked up to the last
/// moment before the hand-over. Dropping it abandons the delivery; nothing was sent.
pub trait Ready: Send {
    /// Hands the message over and waits for the final reply, as long as the caller keeps polling.
    /// The hand-over begins with the first poll. Dropping the future closes the connection at once
    /// with a reset, so nothing of it can be accepted later than the drop plus what was in flight.
    fn hand_over(self: Box<Self>) -> BoxFuture<'static, Reply>;

    /// Gives the delivery up without handing it over, closing what was opened so that the provider
    /// cannot take it for a message.
    fn abandon(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// An adapter for one provider account.
pub trait Provider: Send + Sync {
    /// Which provider and account this is; recorded with each attempt.
    fn provider_ref(&self) -> ProviderRef;

    /// What it can promise about a message whose answer was lost.
    fn contract(&self) -> Contract;

    /// Prepares to deliver `message` under `key`: connects and goes as far as the protocol allows
    /// without handing anything over (for SMTP up to the reply 354, for HTTP the connection).
    ///
    /// # Errors
    /// The failure with its class, when the delivery cannot begin. Everything before the hand-over
    /// is proven not sent.
    fn prepare<'a>(
        &'a self,
        key: &'a OperationKey,
        message: &'a FrozenMessage,
    ) -> BoxFuture<'a, Result<Box<dyn Ready>, Failure>>;

    /// What it can do with several messages in one request; `None` where its contract has no
    /// batches.
    fn batches(&self) -> Option<&dyn Batches> {
        None
    }

    /// Asks the provider what became of `key`, first handed over at `since`. Only called where the
    /// contract offers a look-up; what does not offer one has nothing to say. `message` is what was
    /// handed over, where the contract's look-up is by content and it is still stored.
    fn look_up<'a>(
        &'a self,
        _key: &'a OperationKey,
        _message: Option<&'a FrozenMessage>,
        _since: Timestamp,
    ) -> BoxFuture<'a, Found> {
        async { Found::Unavailable("the provider has no look-up by key".to_owned()) }.boxed()
    }

    /// Checks endpoint and credentials without sending anything; for `digestd check`.
    ///
    /// # Errors
    /// What is wrong, in a sentence for the operator, without secrets.
    fn check(&self) -> BoxFuture<'_, Result<String, String>>;
}
