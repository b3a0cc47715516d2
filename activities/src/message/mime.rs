//! The bytes of a message (RFC 5322, RFC 2045), built so that the same parts give the same bytes.

use super::address::{Address, Mailbox};
use super::{FrozenMessage, Redacted};
use data_encoding::{BASE64, HEXLOWER};
use digest_workflows::operation::OperationKey;
use jiff::Timestamp;
use mail_builder::MessageBuilder;
use mail_builder::headers::HeaderType;
use mail_builder::headers::address::Address as AddressHeader;
use mail_builder::headers::content_type::ContentType;
use mail_builder::headers::date::Date;
use mail_builder::headers::raw::Raw;
use mail_builder::headers::text::Text;
use mail_builder::mime::MimePart;
use sha2::{Digest, Sha256};
use url::Url;

/// What a message is made of, all checked: one line each but for the bodies, whose lines end with
/// LF and hold no other control character than tabs.
pub(super) struct Parts<'a> {
    pub(super) key: &'a OperationKey,
    pub(super) recipient: &'a Address,
    pub(super) from: &'a Mailbox,
    pub(super) subject: String,
    pub(super) text: String,
    pub(super) html: Option<String>,
    pub(super) unsubscribe_url: Option<&'a Url>,
    pub(super) date: Timestamp,
}

/// Builds the message.
pub(super) fn build(parts: Parts<'_>) -> FrozenMessage {
    let headers = further_headers(&parts);
    let mut builder = MessageBuilder::new()
        .header("From", from_header(parts.from))
        .to(AddressHeader::new_address(None::<&str>, parts.recipient.as_str()))
        .header("Subject", text_header(&parts.subject));
    for (name, value) in &headers {
        builder = builder.header(name.as_str(), Raw::new(value.as_str()));
    }
    let mut mime = Vec::new();
    builder.header("MIME-Version", Raw::new("1.0")).body(body(&parts)).serialize(&mut mime);
    let message = FrozenMessage {
        recipient: Redacted::new(parts.recipient.as_str().to_owned()),
        sender: parts.from.address.as_str().to_owned(),
        from: parts.from.to_header(),
        subject: Redacted::new(parts.subject),
        text: Redacted::new(parts.text),
        html: parts.html.map(Redacted::new),
        headers: Redacted::new(headers),
        content_hash: String::new(),
        mime: Redacted::new(mime),
    };
    message.sealed()
}

/// SHA-256 of envelope, parts, headers and bytes, each with its length before it, so that no two
/// messages share one.
pub(super) fn hash(message: &FrozenMessage) -> String {
    let FrozenMessage { recipient, sender, from, subject, text, html, headers, mime, .. } = message;
    let mut hash = Sha256::new();
    let mut add = |bytes: &[u8]| {
        hash.update(bytes.len().to_be_bytes());
        hash.update(bytes);
    };
    for field in [recipient.reveal(), sender, from, subject.reveal(), text.reveal()] {
        add(field.as_bytes());
    }
    add(if html.is_some() { b"html" } else { b"" });
    add(html.as_ref().map_or("", |html| html.reveal().as_str()).as_bytes());
    for (name, value) in headers.reveal() {
        add(name.as_bytes());
        add(value.as_bytes());
    }
    add(mime.reveal());
    HEXLOWER.encode(&hash.finalize())
}

/// The headers that a provider's interface takes as a list. None of them holds a space that a
/// folded line would need, except the date, which is short.
fn further_headers(parts: &Parts<'_>) -> Vec<(String, String)> {
    let mut headers = vec![
        ("Message-ID", parts.key.message_id(parts.from.address.domain())),
        ("Date", Date::new(parts.date.as_second()).to_rfc822()),
        ("X-Operation-Key", parts.key.to_string()),
    ];
    if let Some(url) = parts.unsubscribe_url {
        headers.push(("List-Unsubscribe", format!("<{url}>")));
        if url.scheme() == "https" {
            // One click needs an https URI (RFC 8058, 3.1).
            headers.push(("List-Unsubscribe-Post", "List-Unsubscribe=One-Click".to_owned()));
        }
    }
    headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn body<'a>(parts: &Parts<'a>) -> MimePart<'a> {
    // Both encodings of text, base64 too, want canonical line ends inside (RFC 2049, 4).
    let part = |kind, text: &str| MimePart::new(kind, text.replace('\n', "\r\n"));
    let text = part("text/plain", &parts.text);
    let Some(html) = &parts.html else { return text };
    // The boundary depends on the content, so no content can hold its own boundary.
    let mut hash = Sha256::new();
    for piece in [&parts.key.to_string(), &parts.text, html] {
        hash.update(piece.as_bytes());
        hash.update([0]);
    }
    let boundary = HEXLOWER.encode(&hash.finalize()[..20]);
    let kind = ContentType::new("multipart/alternative").attribute("boundary", boundary);
    MimePart::new(kind, vec![text, part("text/html", html)])
}

fn from_header(from: &Mailbox) -> HeaderType<'static> {
    let address = from.address.as_str();
    match &from.name {
        Some(name) if name.contains("=?") => {
            Raw::new(format!("{} <{address}>", encoded_words(name))).into()
        }
        name => AddressHeader::new_address(name.clone(), address.to_owned()).into(),
    }
}

fn text_header(text: &str) -> HeaderType<'static> {
    if text.contains("=?") {
        Raw::new(encoded_words(text)).into()
    } else {
        Text::new(text.to_owned()).into()
    }
}

/// `text` in encoded words (RFC 2047). The builder encodes what is not ASCII by itself, but leaves
/// an encoded word in the data as it is; the reader's program would decode that to anything, so it
/// is encoded once more and read as it was written.
fn encoded_words(text: &str) -> String {
    // 45 bytes make 60 characters of base64, and a word of at most 75 with its frame.
    const WORD_BYTES_MAX: usize = 45;
    let mut words = Vec::new();
    let mut word = String::new();
    for c in text.chars() {
        if word.len() + c.len_utf8() > WORD_BYTES_MAX {
            words.push(std::mem::take(&mut word));
        }
        word.push(c);
    }
    words.push(word);
    let encoded =
        words.iter().map(|word| format!("=?utf-8?B?{}?=", BASE64.encode(word.as_bytes())));
    encoded.collect::<Vec<_>>().join(" ")
}

/// How the bytes are stored: a message is all ASCII, so it is kept as text, not as a list of numbers.
pub(super) mod ascii {
    use super::Redacted;
    use serde::{Deserialize, Deserializer, Serializer, de, ser};

    pub(in super::super) fn serialize<S: Serializer>(
        bytes: &Redacted<Vec<u8>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(bytes.reveal()) {
            Ok(text) if text.is_ascii() => serializer.serialize_str(text),
            _ => Err(ser::Error::custom("a message that is not ascii")),
        }
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Redacted<Vec<u8>>, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_ascii() {
            Ok(Redacted::new(text.into_bytes()))
        } else {
            Err(de::Error::custom("a message that is not ascii"))
        }
    }
}
