//! Signing as Twilio does (<https://www.twilio.com/docs/usage/security#validating-requests>), for tests
//! of what listens.

use data_encoding::BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

/// The header that carries the signature.
pub const SIGNATURE: &str = "x-twilio-signature";

/// A form with these fields.
#[must_use]
pub fn form(fields: &[(&str, &str)]) -> String {
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

/// The signature of a form with these fields, each name once, that is sent to `url` for an account
/// with this auth token; empty where the token cannot sign.
#[must_use]
pub fn sign(token: &str, url: &str, fields: &[(&str, &str)]) -> String {
    let Ok(mac) = Hmac::<Sha1>::new_from_slice(token.as_bytes()) else { return String::new() };
    let mut sorted = fields.to_vec();
    sorted.sort_unstable();
    let text: String = sorted.iter().flat_map(|(name, value)| [*name, *value]).collect();
    BASE64.encode(&mac.chain_update(url).chain_update(text).finalize().into_bytes())
}
