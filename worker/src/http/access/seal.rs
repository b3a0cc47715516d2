//! Seals: what this process has written and can recognise, such as the contents of a session's cookie.

use data_encoding::BASE64URL_NOPAD;
use digest_activities::message::Redacted;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// Seals texts, each for one purpose.
pub(super) struct Seal(Hmac<Sha256>);

impl Seal {
    /// Under the operator's token every worker makes the same seals, and a new token ends all of them.
    /// Without one, each process has its own.
    pub(super) fn new(token: Option<&Redacted<String>>) -> Self {
        let secret = token.map_or_else(
            || format!("{}{}", Uuid::new_v4(), Uuid::new_v4()),
            |token| token.reveal().clone(),
        );
        let key = Sha256::digest(format!("seals of the console\n{secret}"));
        // An HMAC takes a key of any length, and this is one block of it.
        let mut block = [0; 64];
        block[..key.len()].copy_from_slice(&key);
        Self(Hmac::new(&block.into()))
    }

    /// The seal of `text`, in characters that a cookie or a form may carry.
    pub(super) fn sign(&self, purpose: &str, text: &str) -> String {
        BASE64URL_NOPAD.encode(&self.sealing(purpose, text).finalize().into_bytes())
    }

    /// Whether `seal` is that of `text`. Takes as long for a wrong one as for the right one.
    pub(super) fn verify(&self, purpose: &str, text: &str, seal: &str) -> bool {
        BASE64URL_NOPAD
            .decode(seal.as_bytes())
            .is_ok_and(|seal| self.sealing(purpose, text).verify_slice(&seal).is_ok())
    }

    /// Whether two texts are the same, in a time that does not tell where they differ.
    pub(super) fn is_same(&self, one: &str, other: &str) -> bool {
        let other = self.sealing("comparison", other).finalize().into_bytes();
        self.sealing("comparison", one).verify_slice(&other).is_ok()
    }

    fn sealing(&self, purpose: &str, text: &str) -> Hmac<Sha256> {
        // No purpose holds a line end.
        self.0.clone().chain_update(purpose).chain_update("\n").chain_update(text)
    }
}
