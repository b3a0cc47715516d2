//! An operation key in a provider's field that does not take every key: a shorter name of it.

use data_encoding::BASE32_NOPAD;
use digest_workflows::operation::OperationKey;
use sha2::{Digest, Sha256};

/// The short name of `key`: `base32(sha256(key))` in lower case, 52 characters of `a-z2-7`. The
/// ledger keeps it beside the key, so that an event that carries it finds its operation.
#[must_use]
pub fn alias(key: &OperationKey) -> String {
    BASE32_NOPAD.encode(&Sha256::digest(key.to_string())).to_ascii_lowercase()
}

/// `key` itself where the field takes it, which is `chars_max` characters for which `takes` holds;
/// otherwise its [`alias`].
#[must_use]
pub fn for_field(key: &OperationKey, chars_max: usize, takes: fn(char) -> bool) -> String {
    let text = key.to_string();
    if text.chars().count() <= chars_max && text.chars().all(takes) { text } else { alias(key) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use digest_workflows::operation::Period;

    fn key(customer: &str) -> OperationKey {
        OperationKey::new("digest", Period::parse("2026-W42").unwrap(), customer).unwrap()
    }

    #[test]
    fn a_key_that_fits_is_sent_as_it_is_and_any_other_by_its_alias() {
        let anything = |_| true;
        assert_eq!(for_field(&key("customer-1842"), 80, anything), "digest:2026-W42:customer-1842");
        let long = for_field(&key(&"x".repeat(80)), 80, anything);
        assert_eq!(long, alias(&key(&"x".repeat(80))));
        let plain = |c: char| c.is_ascii_alphanumeric();
        let short = for_field(&key("1"), 80, plain);
        assert_eq!(short.len(), 52);
        assert!(short.chars().all(plain));
        assert_ne!(short, for_field(&key("2"), 80, plain));
    }
}
