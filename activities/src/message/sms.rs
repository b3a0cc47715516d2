//! Text messages: what their number and sender may be, and what is frozen of them.
//!
//! A frozen text message is its recipient, its sender and its text, and nothing beside them. So two
//! operations whose messages say the same to the same number have the same content hash, which tells
//! who else can have sent what a provider finds by content.

mod length;

pub use length::{Encoding, Length};

use super::{FrozenMessage, Redacted};

/// A text may have this many UTF-16 code units: Twilio takes 1,600 characters and does not say how it
/// counts those beyond the basic plane
/// (<https://www.twilio.com/docs/messaging/api/message-resource#create-a-message>).
pub const TEXT_UNITS_MAX: usize = 1_600;

/// Digits of a number behind its `+`: at most 15 by E.164, section 6; the shortest ones in use, on
/// islands, have 7.
const NUMBER_DIGITS: std::ops::RangeInclusive<usize> = 7..=15;

/// Digits of a short code.
const SHORT_CODE_DIGITS: std::ops::RangeInclusive<usize> = 3..=8;

/// Characters of an alphanumeric sender
/// (<https://www.twilio.com/docs/glossary/what-alphanumeric-sender-id>).
const NAME_CHARS_MAX: usize = 11;

/// Characters of a messaging service's id, which begins with `MG`
/// (<https://www.twilio.com/docs/glossary/what-is-a-sid>).
const SERVICE_CHARS: usize = 34;

/// Why a text is not a usable number. It never carries the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NumberError {
    #[error("missing")]
    Missing,
    #[error("not a phone number in e.164")]
    NotInE164,
}

/// Checks a recipient: `+`, the country code and the rest, digits alone. Nothing is trimmed or
/// repaired: what stands for the country in a number without it, nobody knows here.
pub(super) fn check_number(text: &str) -> Result<(), NumberError> {
    if text.trim().is_empty() {
        Err(NumberError::Missing)
    } else if is_number(text) {
        Ok(())
    } else {
        Err(NumberError::NotInE164)
    }
}

/// What a text message comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender<'a> {
    /// A phone number in E.164, such as `+15005550006`.
    Number(&'a str),
    /// A short code, such as `12345`.
    ShortCode(&'a str),
    /// A name of at most eleven letters, digits, spaces and `+-_&`, which cannot be answered.
    Name(&'a str),
    /// The id of a messaging service, `MG` and 32 hexadecimal digits, which chooses among its senders.
    Service(&'a str),
}

impl<'a> Sender<'a> {
    /// Reads a sender; `None` for what is none of them.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        let is_digit = |b: u8| b.is_ascii_digit();
        if is_number(text) {
            Some(Self::Number(text))
        } else if text.bytes().all(is_digit) {
            SHORT_CODE_DIGITS.contains(&text.len()).then_some(Self::ShortCode(text))
        } else if text.len() == SERVICE_CHARS
            && let Some(rest) = text.strip_prefix("MG")
        {
            rest.bytes().all(|b| b.is_ascii_hexdigit()).then_some(Self::Service(text))
        } else {
            let taken = |b: u8| b.is_ascii_alphanumeric() || b" +-_&".contains(&b);
            let usable = text.len() <= NAME_CHARS_MAX
                && text.bytes().all(taken)
                && text.bytes().any(|b| b.is_ascii_alphabetic())
                && text.trim() == text;
            usable.then_some(Self::Name(text))
        }
    }
}

fn is_number(text: &str) -> bool {
    text.strip_prefix('+').is_some_and(|digits| {
        NUMBER_DIGITS.contains(&digits.len())
            && digits.bytes().all(|b| b.is_ascii_digit())
            && !digits.starts_with('0')
    })
}

/// The message from `sender` to `recipient`, both checked, whose `text` has LF line ends.
pub(super) fn build(recipient: &str, sender: &str, text: String) -> FrozenMessage {
    let message = FrozenMessage {
        recipient: Redacted::new(recipient.to_owned()),
        sender: sender.to_owned(),
        from: sender.to_owned(),
        subject: Redacted::new(String::new()),
        text: Redacted::new(text),
        html: None,
        headers: Redacted::new(Vec::new()),
        mime: Redacted::new(Vec::new()),
        content_hash: String::new(),
    };
    message.sealed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipient_is_a_number_in_e164_and_nothing_else() {
        for number in ["+15005550006", "+4915112345678", "+6834000", "+123456789012345"] {
            assert_eq!(check_number(number), Ok(()), "{number}");
        }
        for missing in ["", " ", "\n"] {
            assert_eq!(check_number(missing), Err(NumberError::Missing), "{missing:?}");
        }
        for other in [
            "15005550006",
            "+05005550006",
            "+1 500 555 0006",
            "+1500555000a",
            "+15005550006\n",
            " +15005550006",
            "+15005550006,+15005550007",
            "+1234567890123456",
            "+683400",
            "++15005550006",
            "+１５００５５５０００６",
            "ann@shop.example",
            "whatsapp:+15005550006",
        ] {
            assert_eq!(check_number(other), Err(NumberError::NotInE164), "{other:?}");
        }
    }

    #[test]
    fn a_sender_is_a_number_a_short_code_a_name_or_a_service() {
        let service = "MG0123456789abcdef0123456789ABCDEF";
        for (text, sender) in [
            ("+15005550006", Sender::Number("+15005550006")),
            ("12345", Sender::ShortCode("12345")),
            ("Shop", Sender::Name("Shop")),
            ("A&B +Co_1-2", Sender::Name("A&B +Co_1-2")),
            ("MG", Sender::Name("MG")),
            (service, Sender::Service(service)),
        ] {
            assert_eq!(Sender::parse(text), Some(sender), "{text}");
        }
        for none in [
            "",
            "+1",
            "12",
            "123456789",
            "Shop <digest@shop.example>",
            "Bücher",
            "Shop, Ltd",
            "Twelve chars",
            " Shop",
            "+",
            &service[..33],
            "MG0123456789abcdef0123456789abcdeg",
        ] {
            assert_eq!(Sender::parse(none), None, "{none:?}");
        }
    }
}
