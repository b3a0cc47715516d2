//! Values that several commands take.

use clap::Args;
use digest_activities::message::Redacted;
use digest_workflows::operation::{KeyError, OperationKey};
use digest_workflows::signal::check_words;

/// Who decides something, and why; both are kept in the ledger and may be seen in the engine.
#[derive(Clone, Debug, Args)]
pub struct Decision {
    /// Why, in your words; kept in the ledger and visible in the engine, so without addresses
    #[arg(long, value_name = "TEXT", value_parser = words)]
    pub reason: String,
    /// Who decides; your user name if left out
    #[arg(long, value_name = "NAME", env = "USER", hide_env = true, value_parser = words)]
    pub by: Option<String>,
}

impl Decision {
    /// Who decides: the name given, else the user's, else the number of the user.
    #[must_use]
    pub fn who(&self) -> String {
        self.by.clone().unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()))
    }
}

/// A person's own words.
///
/// # Errors
/// Nothing said, too much said, or an address in it.
pub fn words(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("write something; it is kept beside the decision".to_owned());
    }
    check_words(text, "this")?;
    Ok(text.to_owned())
}

/// A value that is shown nowhere, not even where a command line is printed for debugging.
#[expect(clippy::unnecessary_wraps, reason = "a parser of clap's answers a result")]
pub(super) fn private(text: &str) -> Result<Redacted<String>, std::convert::Infallible> {
    Ok(Redacted::new(text.to_owned()))
}

/// An operation key, or the `Message-ID` of its mail.
///
/// # Errors
/// [`KeyError`] when it is neither.
pub fn key(text: &str) -> Result<OperationKey, KeyError> {
    OperationKey::parse(text)
        .or_else(|error| OperationKey::from_message_id(text).map_err(|_| error))
}
