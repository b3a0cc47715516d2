//! A file system that can be full: a small one in memory, mounted by root.

use crate::absent::skipped;
use anyhow::Context as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// How large it is, in MiB.
const SIZE: usize = 8;
/// The file that fills it.
const FILLER: &str = "filler";

/// A mounted file system of its own; dropped, it is unmounted and gone.
#[derive(Debug)]
pub struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    /// Mounts one. `None`, after a line that says so, where nobody may mount.
    ///
    /// # Errors
    /// When there is no folder to mount it on.
    pub fn mount(not_tested: &str) -> anyhow::Result<Option<Self>> {
        let folder = tempfile::tempdir()?;
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={SIZE}m"), "tmpfs"])
            .arg(folder.path())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        if !mounted {
            skipped(not_tested, "run it as a user who may mount a tmpfs");
            return Ok(None);
        }
        Ok(Some(Self { folder }))
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Leaves no byte free.
    ///
    /// # Errors
    /// When it cannot be written to for another reason.
    pub fn fill(&self) -> anyhow::Result<()> {
        let mut file = File::create(self.path().join(FILLER))?;
        let block = vec![0; 4096];
        while file.write_all(&block).is_ok() {
            let size = file.metadata()?.len();
            anyhow::ensure!(size <= 1024 * 1024 * SIZE as u64, "it never gets full");
        }
        Ok(())
    }

    /// Takes out what fills it.
    ///
    /// # Errors
    /// When it was not full.
    pub fn clear(&self) -> anyhow::Result<()> {
        std::fs::remove_file(self.path().join(FILLER)).context("nothing fills the disk")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: somebody may still have a file open. There is nobody to tell of a failure.
        Command::new("umount").arg("-l").arg(self.folder.path()).status().ok();
    }
}
