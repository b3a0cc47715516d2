//! Which file a SQLite ledger is. A file that is moved or replaced stays open, and would go on being
//! written to where nobody looks for it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file by its path and its identity on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ledger) struct LedgerFile {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl LedgerFile {
    /// The file that is at `path` now.
    pub(super) fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), identity: identity(path) }
    }

    /// Whether it is still there.
    pub(super) fn is_in_place(&self) -> bool {
        self.identity.is_some() && identity(&self.path) == self.identity
    }
}

/// Device and inode.
fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}
