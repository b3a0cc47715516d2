//! Operation keys: `campaign:period:customer`, the one identity of a message.
//!
//! The key is the child workflow's id, the provider's idempotency key, the ledger's primary key and
//! the field that every log line carries. It never contains an attempt number.

use super::period::Period;
use serde::{Deserialize, Serialize};
use std::fmt;

/// An encoded key above this many bytes is refused.
pub const KEY_BYTES_MAX: usize = 250;

/// The identity of one message: one campaign, one period, one customer.
///
/// The customer's id is percent-encoded (everything but ASCII letters, digits, `_`, `-` and `~`),
/// so that it round-trips, stays unique, and never contains the separators `:` and `.`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OperationKey {
    campaign: String,
    period: Period,
    customer: String,
}

/// Why a text is not an operation key, or an id cannot become one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The customer has no id, so nothing could tell its messages apart.
    #[error(
        "the customer id is empty; select a column that is unique and never empty as customer_id"
    )]
    EmptyCustomer,
    /// An address must not become an id: ids are seen in the engine, in logs and metrics.
    #[error(
        "the customer id contains '@'; ids are visible in the engine and in logs, so select another column as customer_id"
    )]
    AddressAsId,
    /// PostgreSQL stores no such character, so the ledger of a campaign could not be moved there.
    #[error(
        "the customer id contains a NUL character, which databases don't store; select another column as customer_id"
    )]
    Nul,
    /// The encoded key is longer than [`KEY_BYTES_MAX`].
    #[error(
        "the encoded operation key has {bytes} bytes, more than {KEY_BYTES_MAX}; select a shorter column as customer_id"
    )]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The campaign's name has other characters than `a-z`, `0-9` and `-`, or is empty or too long.
    #[error("the campaign name {0:?} is not made of 1 to 40 of the characters a-z, 0-9 and '-'")]
    Campaign(String),
    /// The text is not of the form `campaign:period:customer`.
    #[error("{0:?} is not an operation key; one looks like digest:2026-W42:customer-1842")]
    Malformed(String),
}

impl OperationKey {
    /// The key of `customer_id` (as the source has it) in `campaign` and `period`.
    ///
    /// # Errors
    /// [`KeyError`] when the id is empty, contains `@` or a NUL, or makes the key too long, or the campaign's
    /// name is not usable.
    pub fn new(campaign: &str, period: Period, customer_id: &str) -> Result<Self, KeyError> {
        check_campaign(campaign)?;
        if customer_id.is_empty() {
            return Err(KeyError::EmptyCustomer);
        }
        if customer_id.contains('@') {
            return Err(KeyError::AddressAsId);
        }
        if customer_id.contains('\0') {
            return Err(KeyError::Nul);
        }
        let key = Self { campaign: campaign.to_owned(), period, customer: encode(customer_id) };
        let bytes = key.to_string().len();
        if bytes > KEY_BYTES_MAX {
            return Err(KeyError::TooLong { bytes });
        }
        Ok(key)
    }

    /// Reads a key as it is printed.
    ///
    /// # Errors
    /// [`KeyError::Malformed`] when it is not exactly what [`OperationKey`] prints.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        Self::from_parts(text, text.splitn(3, ':'))
    }

    /// Reads a key from a `Message-ID` (`<digest.2026-W42.customer-1842@shop.example>`, with or
    /// without the angle brackets).
    ///
    /// # Errors
    /// [`KeyError::Malformed`] when it is not one of ours.
    pub fn from_message_id(text: &str) -> Result<Self, KeyError> {
        let inner = text.trim().trim_start_matches('<').trim_end_matches('>');
        let local = inner.split_once('@').map_or(inner, |(local, _)| local);
        Self::from_parts(text, local.splitn(3, '.'))
    }

    fn from_parts<'a>(
        text: &str,
        mut parts: impl Iterator<Item = &'a str>,
    ) -> Result<Self, KeyError> {
        let malformed = || KeyError::Malformed(text.to_owned());
        let mut part = || parts.next().ok_or_else(malformed);
        let (campaign, period, customer) = (part()?, part()?, part()?);
        let period = Period::parse(period).map_err(|_| malformed())?;
        let customer = decode(customer).ok_or_else(malformed)?;
        // An id that `new` refuses has no key, so its text is not one either.
        Self::new(campaign, period, &customer).map_err(|_| malformed())
    }

    /// The campaign's name.
    #[must_use]
    pub fn campaign(&self) -> &str {
        &self.campaign
    }

    /// The period the message is for.
    #[must_use]
    pub fn period(&self) -> Period {
        self.period
    }

    /// The customer's id as the source has it.
    #[must_use]
    pub fn customer_id(&self) -> String {
        decode(&self.customer).unwrap_or_default()
    }

    /// The `Message-ID` of this operation's mail, in angle brackets, at `domain`. Its local part is
    /// a dot-atom of RFC 5322 (3.2.3), whatever the customer's id is.
    #[must_use]
    pub fn message_id(&self, domain: &str) -> String {
        format!("<{}.{}.{}@{domain}>", self.campaign, self.period, self.customer)
    }
}

impl fmt::Display for OperationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.campaign, self.period, self.customer)
    }
}

impl From<OperationKey> for String {
    fn from(key: OperationKey) -> Self {
        key.to_string()
    }
}

impl TryFrom<String> for OperationKey {
    type Error = KeyError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

/// Checks a campaign's name: 1 to 40 of `a-z`, `0-9` and `-`, so that it fits every id it is part of.
///
/// # Errors
/// [`KeyError::Campaign`] otherwise.
pub fn check_campaign(name: &str) -> Result<(), KeyError> {
    let usable = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    if (1..=40).contains(&name.len()) && name.bytes().all(usable) {
        Ok(())
    } else {
        Err(KeyError::Campaign(name.to_owned()))
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'~')
}

fn encode(id: &str) -> String {
    let mut encoded = String::with_capacity(id.len());
    for byte in id.bytes() {
        if is_plain(byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// The id that [`encode`] made `text` from; `None` if there is none.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            let digits = std::str::from_utf8(&digits).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    let id = String::from_utf8(bytes).ok()?;
    // Only the one canonical spelling is a key: two texts never name one customer.
    (encode(&id) == text).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn period() -> Period {
        Period::parse("2026-W42").unwrap()
    }

    #[test]
    fn a_plain_key_reads_as_in_the_documentation() {
        let key = OperationKey::new("digest", period(), "customer-1842").unwrap();
        assert_eq!(key.to_string(), "digest:2026-W42:customer-1842");
        assert_eq!(key.message_id("shop.example"), "<digest.2026-W42.customer-1842@shop.example>");
    }

    #[test]
    fn ids_that_cannot_be_keys_are_refused_with_advice() {
        let new = |id: &str| OperationKey::new("digest", period(), id);
        assert_eq!(new(""), Err(KeyError::EmptyCustomer));
        assert_eq!(new("ann@shop.example"), Err(KeyError::AddressAsId));
        assert_eq!(new("a\0b"), Err(KeyError::Nul));
        assert!(matches!(new(&"x".repeat(240)), Err(KeyError::TooLong { .. })));
        assert!(matches!(new(&"ü".repeat(60)), Err(KeyError::TooLong { .. })));
        assert!(new(&"x".repeat(200)).is_ok());
        assert!(matches!(OperationKey::new("Di:gest", period(), "1"), Err(KeyError::Campaign(_))));
    }

    #[test]
    fn only_the_canonical_spelling_is_a_key() {
        for text in [
            "digest:2026-W42",
            "digest:2026-W42:",
            "digest:2026-W42:a:b",
            "digest:2026-W42:%61",
            "digest:2026-W42:%2f",
            "digest:2026-W42:a%2",
            "digest:2026-W42:a%40b",
            "digest:2026-W42:a%00b",
            "digest:2025-W53:a",
            "digest:2026-42:a",
            "",
        ] {
            assert!(OperationKey::parse(text).is_err(), "{text} was taken for a key");
        }
    }

    proptest! {
        #[test]
        fn keys_round_trip_and_stay_unique(a in "[^@]{1,60}", b in "[^@]{1,60}") {
            if let (Ok(one), Ok(other)) = (
                OperationKey::new("digest", period(), &a),
                OperationKey::new("digest", period(), &b),
            ) {
                prop_assert_eq!(OperationKey::parse(&one.to_string()), Ok(one.clone()));
                prop_assert_eq!(
                    OperationKey::from_message_id(&one.message_id("shop.example")),
                    Ok(one.clone())
                );
                prop_assert_eq!(one.customer_id(), a.clone());
                prop_assert_eq!(one == other, a == b);
                prop_assert_eq!(one.to_string() == other.to_string(), a == b);
            }
        }
    }
}
