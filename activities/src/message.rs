//! Rendering: the user's templates and one operation's frozen data become one frozen message, whose
//! bytes are built once, stored, and sent by every attempt.
//!
//! Rendering is a pure function of the templates (read once, at [`Templates::load`]) and of
//! [`RenderInput`]: no clock, no randomness, no file is read while rendering. What comes out holds
//! exactly one recipient and exactly the headers listed at [`FrozenMessage::headers`], whatever the
//! data contains; a message that cannot be built so is a failure, whose code names template and
//! line and never quotes data.

mod address;
mod load;
mod mime;
mod sms;
mod templates;
mod unsubscribe;

pub use crate::redacted::Redacted;
pub use load::TemplateError;
pub use sms::{Encoding, Length, Sender, TEXT_UNITS_MAX};
pub use templates::{RESERVED_NAMES, Templates};
pub use unsubscribe::{UNSUBSCRIBE_SECRET_VARIABLE, UnsubscribeSecret};

use digest_workflows::operation::OperationKey;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A finished message may have this many bytes, as providers commonly allow; a larger one fails
/// with class `schema`.
pub const MESSAGE_BYTES_MAX: usize = 10_000_000;

/// A subject, or a rendered `from`, may have this many characters.
pub const HEADER_CHARS_MAX: usize = 2_000;

/// The table `[message]` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageSettings {
    /// The sender, a template: the `From` mailbox, such as `Shop <digest@shop.example>`, or what
    /// [`Sender`] takes for a text message.
    pub from: String,
    /// The subject's template file. Paths are relative to the configuration file. A message without
    /// a subject is a text message.
    #[serde(default)]
    pub subject: Option<PathBuf>,
    /// The plain text part's template file.
    pub text: PathBuf,
    /// The HTML part's template file; without it the message is plain text only. A text message has
    /// none.
    #[serde(default)]
    pub html: Option<PathBuf>,
    /// Where a customer unsubscribes; a template. In a mail an https URL gets one-click headers
    /// (RFC 8058); a text message has it where its template prints it.
    #[serde(default)]
    pub unsubscribe_url: Option<String>,
    /// What happens to a customer without rows.
    #[serde(default)]
    pub when_empty: WhenEmpty,
}

/// What happens to a customer without rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenEmpty {
    /// Nothing is sent: the operation ends suppressed, "nothing to send".
    #[default]
    Skip,
    /// The message is rendered and sent with an empty `rows`.
    Send,
}

/// One operation's frozen data, all that rendering depends on besides the templates.
#[derive(Clone, Copy)]
pub struct RenderInput<'a> {
    /// The operation; names period, campaign and customer, and becomes the `Message-ID`.
    pub key: &'a OperationKey,
    /// The frozen row of `customers`: every column by its name, `customer_id` and `address` among
    /// them. Exact decimals are strings.
    pub customer: &'a serde_json::Map<String, serde_json::Value>,
    /// The frozen rows of this customer, in the order of the selection.
    pub rows: &'a [serde_json::Value],
    /// When the selection was frozen; becomes the `Date` header.
    pub selected_at: Timestamp,
}

/// What rendering came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rendered {
    /// The message to send.
    Message(Box<FrozenMessage>),
    /// The customer has no rows, and [`WhenEmpty::Skip`] holds.
    NothingToSend,
}

/// A message as it is stored in the ledger and sent by every attempt, byte for byte. A text message
/// has neither subject nor HTML, headers nor bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrozenMessage {
    /// The one envelope recipient: a bare ASCII address, an international domain in its A-labels; of
    /// a text message a number in E.164.
    pub recipient: Redacted<String>,
    /// The envelope sender: the bare address of `from`; of a text message a [`Sender`].
    pub sender: String,
    /// The `From` header's value, unencoded: `Shop <digest@shop.example>`; of a text message its
    /// sender.
    pub from: String,
    /// The subject, unfolded and unencoded: one line, no control characters, never empty in a mail.
    pub subject: Redacted<String>,
    /// The plain text part; lines end with LF, and in a mail so does the last.
    pub text: Redacted<String>,
    /// The HTML part, if the campaign has one; lines as in `text`.
    pub html: Option<Redacted<String>>,
    /// Further headers in order, unfolded ASCII, for providers that take them as a list:
    /// `Message-ID`, `Date`, `X-Operation-Key`, and where there is an unsubscribe URL
    /// `List-Unsubscribe` and (https only) `List-Unsubscribe-Post`. Private, since the URL carries
    /// the customer's token.
    pub headers: Redacted<Vec<(String, String)>>,
    /// The whole RFC 5322 message: ASCII, CRLF line ends only, not dot-stuffed, the last line ended.
    /// Empty in a text message.
    #[serde(with = "mime::ascii")]
    pub mime: Redacted<Vec<u8>>,
    /// Lower-case hexadecimal SHA-256 of all of the above: what one provider takes from the bytes,
    /// another takes from the fields. See [`sealed`](Self::sealed).
    pub content_hash: String,
}

/// A frozen message without its bytes, as it is stored beside them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MessageHead(FrozenMessage);

/// The domain of the setting `message.from`; `None` where it is a template, whose address differs
/// from customer to customer, or no mailbox.
#[must_use]
pub fn sender_domain(from: &str) -> Option<String> {
    if from.contains("{{") || from.contains("{%") {
        return None;
    }
    Some(address::Mailbox::parse(from).ok()?.address.domain().to_owned())
}

/// The setting `message.from` of text messages; `None` where it is a template, or no [`Sender`].
#[must_use]
pub fn fixed_sender(from: &str) -> Option<&str> {
    let from = from.trim();
    Sender::parse(from).is_some().then_some(from)
}

impl FrozenMessage {
    /// The length of a text message; `None` for a mail.
    #[must_use]
    pub fn length(&self) -> Option<Length> {
        self.mime.reveal().is_empty().then(|| Length::of(self.text.reveal()))
    }

    /// Takes the bytes apart from the rest, for storing each in its own column.
    #[must_use]
    pub fn split(mut self) -> (MessageHead, Vec<u8>) {
        let mime = std::mem::replace(&mut self.mime, Redacted::new(Vec::new()));
        (MessageHead(self), mime.into_inner())
    }

    /// The display name in `from`, unquoted, for providers that take it apart from the address.
    #[must_use]
    pub fn sender_name(&self) -> Option<String> {
        address::Mailbox::parse(&self.from).ok()?.name
    }

    /// The message that [`split`](Self::split) took apart.
    #[must_use]
    pub fn join(head: MessageHead, mime: Vec<u8>) -> Self {
        Self { mime: Redacted::new(mime), ..head.0 }
    }

    /// The message with the hash of what it holds.
    #[must_use]
    pub fn sealed(self) -> Self {
        Self { content_hash: mime::hash(&self), ..self }
    }

    /// Whether nothing of it has changed since it was sealed.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.content_hash == mime::hash(self)
    }
}

#[cfg(test)]
mod tests {
    use super::{fixed_sender, sender_domain};

    #[test]
    fn a_fixed_sender_of_text_messages_is_known_and_a_template_is_not() {
        assert_eq!(fixed_sender(" +15005550006 "), Some("+15005550006"));
        assert_eq!(fixed_sender("Shop"), Some("Shop"));
        for from in ["{{ brand }}", "{% if a %}b{% endif %}", "Shop <digest@shop.example>"] {
            assert_eq!(fixed_sender(from), None, "{from}");
        }
    }

    #[test]
    fn a_fixed_sender_has_a_domain_and_a_template_has_none() {
        for (from, domain) in [
            ("Shop <digest@Shop.example>", Some("shop.example")),
            ("digest@news.shop.example", Some("news.shop.example")),
            ("{{ brand }} <digest@shop.example>", None),
            ("digest", None),
        ] {
            assert_eq!(sender_domain(from).as_deref(), domain, "{from}");
        }
    }
}
