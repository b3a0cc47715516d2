//! What goes over the sandbox's wire, in both directions, and the codes that its answers carry.

use super::witness::{Acceptance, RequestRecord};
use crate::message::{FrozenMessage, Redacted};
use digest_workflows::operation::Contract;
use serde::{Deserialize, Serialize};

/// The header with the operation key of a message.
pub(super) const KEY_HEADER: &str = "idempotency-key";

/// A key may have this many bytes; an operation key has at most 250.
pub(super) const KEY_BYTES_MAX: usize = 256;

/// The longest list of witness records in one answer.
pub(super) const PAGE: usize = 5_000;

/// The documented codes. A status without its code proves nothing.
pub(super) mod code {
    /// 429: slow down.
    pub(in super::super) const RATE_LIMITED: &str = "rate_limited";
    /// 503: not processed, try again later.
    pub(in super::super) const OVERLOADED: &str = "overloaded";
    /// 403: the account may not send.
    pub(in super::super) const ACCOUNT_SUSPENDED: &str = "account_suspended";
    /// 400: the request is not what the documentation asks for.
    pub(in super::super) const INVALID_REQUEST: &str = "invalid_request";
    /// 413: the request is too long.
    pub(in super::super) const TOO_LARGE: &str = "too_large";
    /// 422: the address does not exist.
    pub(in super::super) const RECIPIENT_REFUSED: &str = "recipient_refused";
    /// 422: the address is on the suppression list.
    pub(in super::super) const RECIPIENT_SUPPRESSED: &str = "recipient_suppressed";
    /// 422: this message is not wanted.
    pub(in super::super) const MESSAGE_REJECTED: &str = "message_rejected";
    /// 409: a request with this key is being processed.
    pub(in super::super) const IN_FLIGHT: &str = "in_flight";
    /// 409: another body was accepted under this key.
    pub(in super::super) const OTHER_BODY: &str = "key_used_with_other_body";
    /// 409: a message with this key was accepted before.
    pub(in super::super) const DUPLICATE: &str = "duplicate";
    /// 404: no message with this key, or not yet.
    pub(in super::super) const NOT_FOUND: &str = "not_found";
    /// 404: this sandbox offers no look-up.
    pub(in super::super) const NO_LOOKUP: &str = "no_lookup";
    /// 500: nobody knows.
    pub(in super::super) const INTERNAL: &str = "internal";
}

/// The body of `POST /v1/messages`. The order of its fields is the order of its bytes, so one
/// frozen message is one body, byte for byte.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewMessage {
    pub(super) to: Redacted<String>,
    pub(super) sender: String,
    pub(super) from: String,
    pub(super) subject: Redacted<String>,
    pub(super) text: Redacted<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) html: Option<Redacted<String>>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) content_hash: String,
}

impl From<&FrozenMessage> for NewMessage {
    fn from(message: &FrozenMessage) -> Self {
        Self {
            to: message.recipient.clone(),
            sender: message.sender.clone(),
            from: message.from.clone(),
            subject: message.subject.clone(),
            text: message.text.clone(),
            html: message.html.clone(),
            headers: message.headers.reveal().clone(),
            content_hash: message.content_hash.clone(),
        }
    }
}

/// The answer to an accepted message, and to a look-up that found one.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Accepted {
    pub(super) id: String,
    pub(super) key: String,
}

/// The answer that is not what was asked for.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Refusal {
    pub(super) code: String,
}

/// The answer of `GET /v1/health`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Health {
    pub(super) contract: Contract,
}

/// The answer of `GET /v1/acceptances?after=N`: at most [`PAGE`] records, whose number is above N.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Acceptances {
    pub(super) acceptances: Vec<Acceptance>,
}

/// The answer of `GET /v1/requests?after=N`: at most [`PAGE`] records, whose number is above N.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Requests {
    pub(super) requests: Vec<RequestRecord>,
}
