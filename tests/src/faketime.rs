//! A process whose wall clock is wrong, by libfaketime (Debian's package `libfaketime`). Its monotonic
//! clocks stay right, as they do when a machine's time is set.

use crate::absent::absent;
use jiff::SignedDuration;
use std::path::PathBuf;

/// The wall clock of one process.
#[derive(Clone, Debug)]
pub struct WrongClock {
    library: PathBuf,
    file: PathBuf,
}

impl WrongClock {
    /// A clock that is right so far, and whose error is kept in `file`. `None`, after a line that says
    /// so, where libfaketime is not on the machine.
    ///
    /// # Panics
    /// As [`absent`], and when `file` cannot be written.
    #[must_use]
    pub fn new(file: PathBuf, not_tested: &str) -> Option<Self> {
        let Some(library) = library() else {
            absent("libfaketime", not_tested, "run `apt-get install libfaketime`");
            return None;
        };
        let clock = Self { library, file };
        clock.set(SignedDuration::ZERO);
        Some(clock)
    }

    /// Sets how far it is ahead, at once, in whichever process has it.
    ///
    /// # Panics
    /// When its file cannot be written.
    #[allow(clippy::expect_used, reason = "a test whose files cannot be written has failed")]
    pub fn set(&self, ahead: SignedDuration) {
        // Replaced as a whole, since it is read at any moment.
        let new = self.file.with_extension("new");
        std::fs::write(&new, format!("{:+}\n", ahead.as_secs())).expect("the clock's file");
        std::fs::rename(&new, &self.file).expect("the clock's file");
    }

    /// What a process has in its environment to have this clock.
    #[must_use]
    pub fn variables(&self) -> [(&'static str, &str); 4] {
        [
            ("LD_PRELOAD", self.library.to_str().unwrap_or_default()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.to_str().unwrap_or_default()),
            ("FAKETIME_NO_CACHE", "1"),
            ("DONT_FAKE_MONOTONIC", "1"),
        ]
    }
}

/// Where Debian has it.
fn library() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.flatten();
    folders
        .map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"))
        .find(|library| library.is_file())
}
