//! Unsubscribe tokens: an unforgeable name for one customer of one campaign (RFC 8058, 3.1: the URI
//! must identify recipient and list, and is called without cookies or credentials).

use super::Redacted;
use data_encoding::BASE64URL_NOPAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;

/// The variable that holds the secret.
pub const UNSUBSCRIBE_SECRET_VARIABLE: &str = "DIGESTD_UNSUBSCRIBE_SECRET";

/// The secret under which unsubscribe tokens are made; 32 random bytes in any printable form are
/// what it should hold, since every customer sees a token.
///
/// # The token
/// ```text
/// subject = campaign ":" customer_id                         as UTF-8
/// token   = base64url(subject) "." base64url(HMAC-SHA256(secret, subject))
/// ```
/// base64url is that of RFC 4648, section 5, without padding; the key is the secret's UTF-8 bytes as
/// they stand in the variable; `customer_id` is the id as the source's text has it. A campaign's
/// name holds no colon, so the first colon ends it. The token names campaign and customer by itself
/// and holds only characters that a URL needs no escapes for.
///
/// An endpoint splits the token at the dot, decodes both halves, computes the HMAC over the first,
/// compares it with the second in constant time, and then unsubscribes the customer on POST. In
/// Python:
/// ```text
/// subject, mac = (base64.urlsafe_b64decode(part + "==") for part in token.split("."))
/// if not hmac.compare_digest(mac, hmac.digest(secret, subject, "sha256")): refuse()
/// campaign, customer_id = subject.decode().split(":", 1)
/// ```
/// Example: under the secret `example-secret`, customer `customer-1842` of campaign `digest` has
/// `ZGlnZXN0OmN1c3RvbWVyLTE4NDI.` followed by `OejejgQHIcKPa9XHQ7hNbPCrH-4IAsEJkRYDaM-kRLw`.
#[derive(Clone)]
pub struct UnsubscribeSecret(Hmac<Sha256>);

impl UnsubscribeSecret {
    /// The secret as the variable holds it; `None` when it is empty, which protects nothing.
    #[must_use]
    pub fn new(secret: &Redacted<String>) -> Option<Self> {
        let secret = secret.reveal().as_bytes();
        if secret.is_empty() {
            return None;
        }
        Hmac::new_from_slice(secret).ok().map(Self)
    }

    /// The token of `customer_id` in `campaign`.
    #[must_use]
    pub fn token(&self, campaign: &str, customer_id: &str) -> String {
        let subject = format!("{campaign}:{customer_id}");
        let mac = self.0.clone().chain_update(subject.as_bytes()).finalize().into_bytes();
        let [subject, mac] =
            [subject.as_bytes(), mac.as_slice()].map(|x| BASE64URL_NOPAD.encode(x));
        format!("{subject}.{mac}")
    }
}

impl fmt::Debug for UnsubscribeSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("‹redacted›")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> UnsubscribeSecret {
        UnsubscribeSecret::new(&Redacted::new(text.to_owned())).unwrap()
    }

    #[test]
    fn the_documented_example_holds() {
        let token = secret("example-secret").token("digest", "customer-1842");
        assert_eq!(
            token,
            "ZGlnZXN0OmN1c3RvbWVyLTE4NDI.OejejgQHIcKPa9XHQ7hNbPCrH-4IAsEJkRYDaM-kRLw"
        );
    }

    #[test]
    fn customer_campaign_and_secret_all_count() {
        let token = secret("one").token("digest", "1");
        assert_ne!(token, secret("one").token("digest", "2"));
        assert_ne!(token, secret("one").token("reminder", "1"));
        assert_ne!(token, secret("two").token("digest", "1"));
        let mac = |token: &str| token.split_once('.').unwrap().1.to_owned();
        assert_ne!(mac(&token), mac(&secret("two").token("digest", "1")));
        assert!(UnsubscribeSecret::new(&Redacted::new(String::new())).is_none());
    }

    #[test]
    fn any_id_makes_a_token_of_url_characters_that_names_it() {
        let token = secret("s").token("digest", "ü:/?&\r\n");
        assert!(token.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)), "{token}");
        let subject = BASE64URL_NOPAD.decode(token.split_once('.').unwrap().0.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(subject).unwrap(), "digest:ü:/?&\r\n");
    }
}
