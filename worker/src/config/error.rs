//! What can be wrong with a configuration, in words that say what to do.

use super::secrets::SecretError;
use std::fmt;
use std::path::PathBuf;

/// Why there is no usable configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file does not exist.
    #[error(
        "there is no configuration file at {}; `digestd init` writes one with comments, or name another with --config FILE",
        path.display()
    )]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The file exists but cannot be read.
    #[error("the configuration file {} cannot be read; it must be a file that this user may read", path.display())]
    Unreadable {
        /// Where it is.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The file can be read, and something in it is wrong.
    #[error("{}", list(path, problems))]
    Invalid {
        /// Where it is.
        path: PathBuf,
        /// Everything that was found, in the order of the file.
        problems: Vec<Problem>,
    },
    /// A secret in the environment is wrong.
    #[error(transparent)]
    Secret(#[from] SecretError),
}

/// One thing that is wrong in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1; `None` where nothing in the file could be pointed at.
    pub line: Option<usize>,
    /// The path of the key or table, such as `provider.timeout`; empty for a syntax error.
    pub key: String,
    /// What is wrong and what to write, never a secret.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}, ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

fn list(path: &std::path::Path, problems: &[Problem]) -> String {
    let path = path.display();
    match problems {
        [one] => format!("{path}, {one}"),
        many => {
            let lines: Vec<String> = many.iter().map(|problem| format!("\n  {problem}")).collect();
            format!("{path} has {} problems:{}", many.len(), lines.concat())
        }
    }
}
