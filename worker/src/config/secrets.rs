//! Secrets come from the environment alone: each from its variable, or from the file that the
//! variable with `_FILE` behind its name points to.

use digest_activities::message::Redacted;
use std::ffi::OsString;
use std::path::PathBuf;

/// The ledger's database URL.
pub const LEDGER_URL: &str = "DIGESTD_LEDGER_URL";
/// The source's database URL.
pub const SOURCE_URL: &str = "DIGESTD_SOURCE_URL";
/// The provider's user name.
pub const PROVIDER_USERNAME: &str = "DIGESTD_PROVIDER_USERNAME";
/// The provider's password.
pub const PROVIDER_PASSWORD: &str = "DIGESTD_PROVIDER_PASSWORD";
/// The provider's API key.
pub const PROVIDER_API_KEY: &str = "DIGESTD_PROVIDER_API_KEY";
/// What webhooks are verified with: one secret, or two with a comma between them while rotating.
pub const WEBHOOK_SECRET: &str = "DIGESTD_WEBHOOK_SECRET";
/// The token that digestd's own HTTP interface asks for.
pub const HTTP_TOKEN: &str = "DIGESTD_HTTP_TOKEN";
/// What unsubscribe tokens are derived from.
pub const UNSUBSCRIBE_SECRET: &str = "DIGESTD_UNSUBSCRIBE_SECRET";

/// Every secret's variable, in the order in which they are listed.
pub const VARIABLES: [&str; 8] = [
    LEDGER_URL,
    SOURCE_URL,
    PROVIDER_USERNAME,
    PROVIDER_PASSWORD,
    PROVIDER_API_KEY,
    WEBHOOK_SECRET,
    HTTP_TOKEN,
    UNSUBSCRIBE_SECRET,
];

/// All secrets. Nothing of their values can be printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secrets {
    /// The value of [`LEDGER_URL`].
    pub ledger_url: Option<Redacted<String>>,
    /// The value of [`SOURCE_URL`].
    pub source_url: Option<Redacted<String>>,
    /// The value of [`PROVIDER_USERNAME`].
    pub provider_username: Option<Redacted<String>>,
    /// The value of [`PROVIDER_PASSWORD`].
    pub provider_password: Option<Redacted<String>>,
    /// The value of [`PROVIDER_API_KEY`].
    pub provider_api_key: Option<Redacted<String>>,
    /// The one or two secrets in [`WEBHOOK_SECRET`]; empty where it is not set.
    pub webhook_secrets: Vec<Redacted<String>>,
    /// The value of [`HTTP_TOKEN`].
    pub http_token: Option<Redacted<String>>,
    /// The value of [`UNSUBSCRIBE_SECRET`].
    pub unsubscribe_secret: Option<Redacted<String>>,
    listing: Vec<Listed>,
}

/// Whether one secret is set, and how; never its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its variable.
    pub variable: &'static str,
    /// Where it was found; `None` if it is not set.
    pub from: Option<SecretFrom>,
}

/// Where a secret was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretFrom {
    /// In its variable.
    Variable,
    /// In this file, named by the variable with `_FILE`.
    File(PathBuf),
}

/// Why a secret cannot be read. No text quotes a value.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// It is given in two ways, and nothing says which one is meant.
    #[error("both {0} and {0}_FILE are set; unset one of them")]
    Both(&'static str),
    /// Its file cannot be read.
    #[error("{variable}_FILE names {}, which cannot be read", path.display())]
    File {
        /// The secret's variable.
        variable: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Its file is empty.
    #[error("{variable}_FILE names {}, which is empty; write the secret into it", path.display())]
    EmptyFile {
        /// The secret's variable.
        variable: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// It is not UTF-8.
    #[error("the value of {0} is not UTF-8 text")]
    NotText(&'static str),
    /// It is no URL of a database that digestd knows.
    #[error("{variable} is not usable: {message}")]
    Database {
        /// The secret's variable.
        variable: &'static str,
        /// What is wrong.
        message: String,
    },
    /// [`WEBHOOK_SECRET`] holds an empty part or more than two.
    #[error("{WEBHOOK_SECRET} holds one secret, or two with a comma between them while rotating")]
    Webhook,
}

impl Secrets {
    /// Reads every secret from the environment. A variable that is set and empty counts as not set.
    ///
    /// # Errors
    /// [`SecretError`] when one is given twice or cannot be read.
    pub fn from_env() -> Result<Self, SecretError> {
        Self::from_lookup(|name| std::env::var_os(name))
    }

    /// Whether each secret is set, and how, in the order of [`VARIABLES`].
    #[must_use]
    pub fn listing(&self) -> &[Listed] {
        &self.listing
    }

    /// The same from any environment.
    pub(super) fn from_lookup(
        lookup: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, SecretError> {
        let mut secrets = Self::default();
        for variable in VARIABLES {
            let found = read(variable, &lookup)?;
            secrets
                .listing
                .push(Listed { variable, from: found.as_ref().map(|(_, from)| from.clone()) });
            let Some((value, _)) = found else { continue };
            let slot = match variable {
                LEDGER_URL => &mut secrets.ledger_url,
                SOURCE_URL => &mut secrets.source_url,
                PROVIDER_USERNAME => &mut secrets.provider_username,
                PROVIDER_PASSWORD => &mut secrets.provider_password,
                PROVIDER_API_KEY => &mut secrets.provider_api_key,
                HTTP_TOKEN => &mut secrets.http_token,
                UNSUBSCRIBE_SECRET => &mut secrets.unsubscribe_secret,
                _ => {
                    secrets.webhook_secrets = both_while_rotating(&value)?;
                    continue;
                }
            };
            *slot = Some(Redacted::new(value));
        }
        Ok(secrets)
    }
}

fn read(
    variable: &'static str,
    lookup: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<(String, SecretFrom)>, SecretError> {
    let set = |name: &str| lookup(name).filter(|value| !value.is_empty());
    match (set(variable), set(&format!("{variable}_FILE"))) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(SecretError::Both(variable)),
        (Some(value), None) => {
            let value = value.into_string().map_err(|_| SecretError::NotText(variable))?;
            Ok(Some((value, SecretFrom::Variable)))
        }
        (None, Some(path)) => {
            let path = PathBuf::from(path);
            let text = std::fs::read_to_string(&path).map_err(|source| SecretError::File {
                variable,
                path: path.clone(),
                source,
            })?;
            // Editors and `echo` end a file with a line end that is no part of the secret.
            let value = text.trim_end_matches(['\r', '\n']).to_owned();
            if value.is_empty() {
                return Err(SecretError::EmptyFile { variable, path });
            }
            Ok(Some((value, SecretFrom::File(path))))
        }
    }
}

fn both_while_rotating(value: &str) -> Result<Vec<Redacted<String>>, SecretError> {
    let parts: Vec<&str> = value.split(',').map(str::trim).collect();
    if parts.len() > 2 || parts.iter().any(|part| part.is_empty()) {
        return Err(SecretError::Webhook);
    }
    Ok(parts.into_iter().map(|part| Redacted::new(part.to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(variables: &[(&str, &str)]) -> Result<Secrets, SecretError> {
        Secrets::from_lookup(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        })
    }

    #[test]
    fn a_secret_comes_from_its_variable_or_from_a_file_and_is_never_printed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "hunter2\n").unwrap();
        let path = file.to_str().unwrap();
        let found = secrets(&[
            (PROVIDER_USERNAME, "shop"),
            ("DIGESTD_PROVIDER_PASSWORD_FILE", path),
            (HTTP_TOKEN, ""),
        ])
        .unwrap();
        assert_eq!(found.provider_password.as_ref().unwrap().reveal(), "hunter2");
        assert_eq!(found.provider_username.as_ref().unwrap().reveal(), "shop");
        assert_eq!(found.http_token, None);
        let from = |variable| {
            found.listing().iter().find(|listed| listed.variable == variable).unwrap().from.clone()
        };
        assert_eq!(from(PROVIDER_USERNAME), Some(SecretFrom::Variable));
        assert_eq!(from(PROVIDER_PASSWORD), Some(SecretFrom::File(file.clone())));
        assert_eq!(from(HTTP_TOKEN), None);
        assert_eq!(found.listing().len(), VARIABLES.len());
        let printed = format!("{found:?}");
        assert!(!printed.contains("hunter2") && !printed.contains("shop"), "{printed}");
    }

    #[test]
    fn a_secret_given_twice_or_unreadable_is_refused_by_name() {
        let text = |variables| secrets(variables).unwrap_err().to_string();
        assert_eq!(
            text(&[(LEDGER_URL, "x"), ("DIGESTD_LEDGER_URL_FILE", "/y")]),
            "both DIGESTD_LEDGER_URL and DIGESTD_LEDGER_URL_FILE are set; unset one of them"
        );
        assert_eq!(
            text(&[("DIGESTD_HTTP_TOKEN_FILE", "/no/such/file")]),
            "DIGESTD_HTTP_TOKEN_FILE names /no/such/file, which cannot be read"
        );
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("empty");
        std::fs::write(&file, "\n").unwrap();
        let error = text(&[("DIGESTD_HTTP_TOKEN_FILE", file.to_str().unwrap())]);
        assert!(error.contains("is empty"), "{error}");
    }

    #[test]
    fn two_webhook_secrets_overlap_while_rotating() {
        let of = |value| secrets(&[(WEBHOOK_SECRET, value)]);
        let values = |value| -> Vec<String> {
            of(value)
                .unwrap()
                .webhook_secrets
                .iter()
                .map(|secret| secret.reveal().clone())
                .collect()
        };
        assert_eq!(values("new"), ["new"]);
        assert_eq!(values("new, old"), ["new", "old"]);
        assert!(matches!(of("a,b,c"), Err(SecretError::Webhook)));
        assert!(matches!(of("a,"), Err(SecretError::Webhook)));
    }
}
