//! What webhooks are verified with.

/// Why a secret cannot be used. The text says what belongs into the variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// There is none.
    #[error("webhooks need DIGESTD_WEBHOOK_SECRET, which is not set; put {0} there")]
    None(&'static str),
    /// It has another form.
    #[error("DIGESTD_WEBHOOK_SECRET has another form than it must; put {0} there")]
    Malformed(&'static str),
}
