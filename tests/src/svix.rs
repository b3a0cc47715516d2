//! Signing as Svix does (<https://docs.svix.com/receiving/verifying-payloads/how-manual>), for tests of
//! what listens.

use anyhow::{Context, Result};
use data_encoding::BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The headers that come with `body` from a provider whose signing secret is `secret`, sent at `at`,
/// in seconds since 1970.
///
/// # Errors
/// When `secret` is not `whsec_` and base64.
pub fn sign(secret: &str, id: &str, at: i64, body: &[u8]) -> Result<Vec<(&'static str, String)>> {
    let key = secret.strip_prefix("whsec_").context("a secret begins with whsec_")?;
    let mac = Hmac::<Sha256>::new_from_slice(&BASE64.decode(key.as_bytes())?)?;
    let mac = mac.chain_update(format!("{id}.{at}.")).chain_update(body);
    let signature = format!("v1,{}", BASE64.encode(&mac.finalize().into_bytes()));
    Ok(vec![
        ("svix-id", id.to_owned()),
        ("svix-timestamp", at.to_string()),
        ("svix-signature", signature),
    ])
}
