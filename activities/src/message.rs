//! Rendering: the user's templates and one operation's frozen data become one frozen message, whose
//! bytes are built once, stored, and sent by every attempt.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A value that is private: an address, a name, content. It shows as `‹redacted›` wherever it might
/// be printed, and is read only through [`Redacted::reveal`].
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Redacted<T>(T);

impl<T> Redacted<T> {
    /// Wraps a private value.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The private value, for the few places that really need it.
    pub const fn reveal(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Redacted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("‹redacted›")
    }
}

impl<T> fmt::Display for Redacted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("‹redacted›")
    }
}

/// A message as it is stored in the ledger and sent by every attempt, byte for byte.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrozenMessage {
    /// The one envelope recipient.
    pub recipient: Redacted<String>,
    /// The envelope sender: the bare address of `from`.
    pub sender: String,
    /// The `From` header's value.
    pub from: String,
    /// The subject, unfolded and unencoded.
    pub subject: Redacted<String>,
    /// The plain text part.
    pub text: Redacted<String>,
    /// The HTML part, if the campaign has one.
    pub html: Option<Redacted<String>>,
    /// Further headers in order, for providers that take them as a list: `Message-ID`, `Date`,
    /// `List-Unsubscribe`, `List-Unsubscribe-Post`, `X-Operation-Key`.
    pub headers: Vec<(String, String)>,
    /// The whole RFC 5322 message with CRLF line ends, not dot-stuffed.
    pub mime: Redacted<Vec<u8>>,
    /// Lower-case hexadecimal SHA-256 of `mime`.
    pub content_hash: String,
}

/// A frozen message without its bytes, as it is stored beside them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MessageHead(FrozenMessage);

impl FrozenMessage {
    /// Takes the bytes apart from the rest, for storing each in its own column.
    #[must_use]
    pub fn split(mut self) -> (MessageHead, Vec<u8>) {
        let mime = std::mem::replace(&mut self.mime, Redacted::new(Vec::new()));
        (MessageHead(self), mime.0)
    }

    /// The message that [`split`](Self::split) took apart.
    #[must_use]
    pub fn join(head: MessageHead, mime: Vec<u8>) -> Self {
        Self { mime: Redacted::new(mime), ..head.0 }
    }
}
