//! The sandbox's memory, and the file that keeps it over a killed process.
//!
//! The file is JSON lines. An acceptance is on the disk before it is answered; a request's line is
//! written at once but not forced, since losing it loses no message.

use super::faults::FaultKind;
use super::witness::{Acceptance, RequestRecord, Witness};
use data_encoding::HEXLOWER;
use digest_workflows::operation::Replay;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// What the sandbox remembers.
#[derive(Debug)]
pub(super) struct Journal {
    witness: Witness,
    keys: HashMap<String, KeyState>,
    file: Option<File>,
    /// A file that another sandbox writes to, and how much of it is remembered.
    followed: Option<(PathBuf, u64)>,
    /// Closed by [`Journal::close`] or by a failed write, after which the file's end is unknown.
    closed: bool,
}

#[derive(Debug, Default)]
struct KeyState {
    requests: u64,
    /// Indexes into the acceptances, in order.
    accepted: Vec<usize>,
    in_flight: bool,
}

/// What became of a message that passed the door.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Accepted, with this id.
    New(String),
    /// Accepted before, with this id.
    Original(String),
    /// Accepted before, and the contract is to refuse it as a duplicate.
    Duplicate,
    /// Another body was accepted under this key.
    OtherBody,
    /// Not accepted: the script refuses it, and nothing was accepted under its key before.
    Refused(FaultKind),
}

/// Why a journal cannot be opened or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file cannot be read or written.
    #[error("the sandbox log {path} cannot be used: {error}; check its path and permissions")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Another sandbox writes to it.
    #[error(
        "the sandbox log {0} is in use by another sandbox; stop that one or configure another log"
    )]
    InUse(PathBuf),
    /// A line is not one of ours.
    #[error("line {line} of the sandbox log {path} is not a record of a sandbox: {error}")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        error: serde_json::Error,
    },
}

/// The journal is closed, or a write to its file failed: nothing more is accepted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Closed;

#[derive(Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line {
    Request(RequestRecord),
    Acceptance(Acceptance),
}

impl Journal {
    /// A journal that remembers what `log` holds, or an empty one in memory. The file is created
    /// where it is absent; a last line that was cut off was never answered and is removed.
    pub(super) fn open(log: Option<&Path>) -> Result<Self, JournalError> {
        let mut journal = Self::empty();
        let Some(path) = log else { return Ok(journal) };
        let failed = |error| JournalError::Io { path: path.to_owned(), error };
        let mut file =
            OpenOptions::new().create(true).read(true).append(true).open(path).map_err(failed)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => JournalError::InUse(path.to_owned()),
            TryLockError::Error(error) => failed(error),
        })?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed)?;
        let whole = journal.read(path, &text)?;
        file.set_len(u64::try_from(whole).unwrap_or(u64::MAX)).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        journal.file = Some(file);
        Ok(journal)
    }

    /// A journal that accepts nothing and remembers what another sandbox has written to `log` and
    /// goes on writing; it never writes to it. A file that is absent holds nothing yet.
    pub(super) fn follow(log: &Path) -> Result<Self, JournalError> {
        let mut journal =
            Self { followed: Some((log.to_owned(), 0)), closed: true, ..Self::empty() };
        journal.catch_up()?;
        Ok(journal)
    }

    /// Remembers what was written to the followed file since.
    pub(super) fn catch_up(&mut self) -> Result<(), JournalError> {
        let Some((path, from)) = self.followed.clone() else { return Ok(()) };
        let failed = |error| JournalError::Io { path: path.clone(), error };
        let mut file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file.map_err(failed)?,
        };
        let mut text = Vec::new();
        file.seek(SeekFrom::Start(from)).map_err(failed)?;
        file.read_to_end(&mut text).map_err(failed)?;
        let read = self.read(&path, &text)?;
        self.followed = Some((path, from + read as u64));
        Ok(())
    }

    fn empty() -> Self {
        Self {
            witness: Witness::default(),
            keys: HashMap::new(),
            file: None,
            followed: None,
            closed: false,
        }
    }

    /// Remembers the whole lines of `text`; how many bytes those have.
    fn read(&mut self, path: &Path, text: &[u8]) -> Result<usize, JournalError> {
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let before = self.witness.requests.len() + self.witness.acceptances.len();
        for (index, line) in text[..whole].split_inclusive(|byte| *byte == b'\n').enumerate() {
            let line = serde_json::from_slice(line).map_err(|error| JournalError::Corrupt {
                path: path.to_owned(),
                line: before + index + 1,
                error,
            })?;
            self.remember(line);
        }
        Ok(whole)
    }

    /// Everything so far.
    pub(super) fn witness(&self) -> &Witness {
        &self.witness
    }

    /// Records a request and says how many there were under `key` with this one. `fault` chooses
    /// its fault by that number.
    pub(super) fn request(
        &mut self,
        key: &str,
        body_hash: &str,
        now: Timestamp,
        fault: impl FnOnce(u64) -> Option<FaultKind>,
    ) -> Result<RequestRecord, Closed> {
        let nth = self.keys.get(key).map_or(0, |state| state.requests) + 1;
        let number = next_number(self.witness.requests.len());
        let (key, body_hash) = (key.to_owned(), body_hash.to_owned());
        let record = RequestRecord { number, key, nth, body_hash, at: now, fault: fault(nth) };
        self.write(Line::Request(record.clone()), false)?;
        Ok(record)
    }

    /// Marks `key` as being processed; `false` if it is already.
    pub(super) fn enter(&mut self, key: &str) -> bool {
        let state = self.keys.entry(key.to_owned()).or_default();
        !std::mem::replace(&mut state.in_flight, true)
    }

    /// Ends the processing of `key` by what `replay` promises: finds that it was accepted before,
    /// or accepts the message unless it is to be refused. An acceptance is on the disk when this
    /// returns.
    pub(super) fn finish(
        &mut self,
        replay: Replay,
        key: &str,
        body_hash: &str,
        refusal: Option<FaultKind>,
        now: Timestamp,
    ) -> Result<Taken, Closed> {
        if self.closed {
            return Err(Closed);
        }
        if let Some(state) = self.keys.get_mut(key) {
            state.in_flight = false;
        }
        let accepted = self.accepted(key);
        let last = accepted.last();
        if let Replay::ReturnsOriginal { window, .. } | Replay::RejectsDuplicate { window, .. } =
            replay
            && let Some(last) = last
            && now.duration_since(last.at) < window
        {
            return Ok(match replay {
                _ if last.body_hash != body_hash => Taken::OtherBody,
                Replay::RejectsDuplicate { .. } => Taken::Duplicate,
                _ => Taken::Original(last.id.clone()),
            });
        }
        if let Some(refusal) = refusal {
            return Ok(Taken::Refused(refusal));
        }
        let id = message_id(key, accepted.len());
        let acceptance = Acceptance {
            number: next_number(self.witness.acceptances.len()),
            key: key.to_owned(),
            id: id.clone(),
            body_hash: body_hash.to_owned(),
            at: now,
        };
        self.write(Line::Acceptance(acceptance), true)?;
        Ok(Taken::New(id))
    }

    /// The acceptances of `key`, oldest first.
    pub(super) fn accepted(&self, key: &str) -> Vec<&Acceptance> {
        let indexes = self.keys.get(key).map_or(&[][..], |state| &state.accepted);
        indexes.iter().filter_map(|index| self.witness.acceptances.get(*index)).collect()
    }

    /// Accepts nothing any more and releases the file. What was accepted can still be read.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.file = None;
    }

    fn write(&mut self, line: Line, force: bool) -> Result<(), Closed> {
        if self.closed {
            return Err(Closed);
        }
        if let Some(file) = &mut self.file
            && let Err(error) = append(file, &line, force)
        {
            // The end of the file may hold half a line, and nothing may follow it.
            tracing::error!(%error, "the sandbox log cannot be written; nothing more is accepted");
            self.close();
            return Err(Closed);
        }
        self.remember(line);
        Ok(())
    }

    fn remember(&mut self, line: Line) {
        match line {
            Line::Request(record) => {
                self.keys.entry(record.key.clone()).or_default().requests += 1;
                self.witness.requests.push(record);
            }
            Line::Acceptance(acceptance) => {
                let index = self.witness.acceptances.len();
                self.keys.entry(acceptance.key.clone()).or_default().accepted.push(index);
                self.witness.acceptances.push(acceptance);
            }
        }
    }
}

fn append(file: &mut File, line: &Line, force: bool) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    file.write_all(&bytes)?;
    if force { file.sync_data() } else { Ok(()) }
}

fn next_number(len: usize) -> u64 {
    u64::try_from(len).map_or(u64::MAX, |len| len + 1)
}

/// The id of the message that is accepted under `key` after `before` others: the same in every run.
fn message_id(key: &str, before: usize) -> String {
    let hash = Sha256::digest(format!("{before}\n{key}"));
    format!("sandbox-{}", HEXLOWER.encode(&hash[..12]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;

    const KEY: &str = "digest:2026-W42:customer-1";

    fn now() -> Timestamp {
        "2026-10-12T07:00:00Z".parse().unwrap()
    }

    fn window(replay: fn(SignedDuration) -> Replay) -> (Journal, Replay) {
        (Journal::open(None).unwrap(), replay(SignedDuration::from_hours(24)))
    }

    fn returns(window: SignedDuration) -> Replay {
        Replay::ReturnsOriginal { window, margin: SignedDuration::ZERO }
    }

    fn rejects(window: SignedDuration) -> Replay {
        Replay::RejectsDuplicate { window, margin: SignedDuration::ZERO }
    }

    #[test]
    fn the_window_ends_where_the_contract_says() {
        let (mut journal, replay) = window(returns);
        let mut send = |body, hours: i64, seconds: i64| {
            let at = now() + SignedDuration::from_hours(hours) + SignedDuration::from_secs(seconds);
            journal.finish(replay, KEY, body, None, at).unwrap()
        };
        let Taken::New(id) = send("a", 0, 0) else { panic!("the first is new") };
        assert_eq!(send("a", 24, -1), Taken::Original(id.clone()));
        // A clock that steps back does not make it new.
        assert_eq!(send("a", -1, 0), Taken::Original(id.clone()));
        assert_eq!(send("b", 1, 0), Taken::OtherBody);
        let Taken::New(second) = send("a", 24, 0) else { panic!("the window is over") };
        assert_ne!(id, second);
        // The second message opens a window of its own.
        assert_eq!(send("a", 47, 0), Taken::Original(second));
        assert_eq!(journal.witness().duplicates(), [KEY]);
    }

    #[test]
    fn a_rejected_duplicate_is_not_accepted_again() {
        let (mut journal, replay) = window(rejects);
        assert!(matches!(journal.finish(replay, KEY, "a", None, now()), Ok(Taken::New(_))));
        assert_eq!(journal.finish(replay, KEY, "a", None, now()), Ok(Taken::Duplicate));
        assert_eq!(journal.witness().acceptances.len(), 1);
    }

    #[test]
    fn a_refusal_does_not_undo_what_was_accepted() {
        let (mut journal, replay) = window(returns);
        let refusal = Some(FaultKind::RefuseRecipient);
        let refused = Ok(Taken::Refused(FaultKind::RefuseRecipient));
        assert_eq!(journal.finish(replay, KEY, "a", refusal, now()), refused);
        assert!(journal.accepted(KEY).is_empty());
        let Ok(Taken::New(id)) = journal.finish(replay, KEY, "a", None, now()) else {
            panic!("nothing was accepted before")
        };
        assert_eq!(journal.finish(replay, KEY, "a", refusal, now()), Ok(Taken::Original(id)));
    }

    #[test]
    fn without_a_replay_contract_the_same_request_is_a_second_message() {
        let mut journal = Journal::open(None).unwrap();
        for _ in 0..2 {
            assert!(matches!(
                journal.finish(Replay::None, KEY, "a", None, now()),
                Ok(Taken::New(_))
            ));
        }
        assert_eq!(journal.witness().duplicates(), [KEY]);
    }

    #[test]
    fn a_closed_journal_accepts_nothing() {
        let mut journal = Journal::open(None).unwrap();
        journal.finish(Replay::None, KEY, "a", None, now()).unwrap();
        journal.close();
        assert_eq!(journal.finish(Replay::None, KEY, "a", None, now()), Err(Closed));
        assert_eq!(journal.request(KEY, "a", now(), |_| None), Err(Closed));
        assert_eq!(journal.accepted(KEY).len(), 1);
    }

    #[test]
    fn a_follower_sees_what_is_written_later_and_writes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut follower = Journal::follow(&path).unwrap();
        let mut journal = Journal::open(Some(&path)).unwrap();
        for (customer, count) in [("a", 1), ("b", 2)] {
            let key = format!("digest:2026-W42:{customer}");
            assert!(follower.accepted(&key).is_empty());
            journal.finish(Replay::None, &key, "a", None, now()).unwrap();
            follower.catch_up().unwrap();
            assert_eq!(follower.accepted(&key).len(), 1);
            assert_eq!(follower.witness().acceptances.len(), count);
        }
        assert_eq!(follower.finish(Replay::None, KEY, "a", None, now()), Err(Closed));
        let before = std::fs::read(&path).unwrap();
        // Half a line is not there yet.
        std::fs::write(&path, [&before[..], b"{\"event\":"].concat()).unwrap();
        follower.catch_up().unwrap();
        assert_eq!(follower.witness().acceptances.len(), 2);
        assert_eq!(std::fs::read(&path).unwrap().len(), before.len() + 9);
    }

    #[test]
    fn a_line_that_was_cut_off_is_dropped_and_a_wrong_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut journal = Journal::open(Some(&path)).unwrap();
        assert!(matches!(Journal::open(Some(&path)), Err(JournalError::InUse(_))));
        journal.request(KEY, "a", now(), |_| None).unwrap();
        journal.finish(Replay::None, KEY, "a", None, now()).unwrap();
        let before = journal.witness().clone();
        drop(journal);

        let whole = std::fs::read(&path).unwrap();
        let mut cut = whole.clone();
        cut.extend(br#"{"event":"acceptance","number":2"#);
        std::fs::write(&path, &cut).unwrap();
        let mut journal = Journal::open(Some(&path)).unwrap();
        assert_eq!(*journal.witness(), before);
        // The ordinal goes on, and so does the file.
        assert_eq!(journal.request(KEY, "a", now(), |_| None).unwrap().nth, 2);
        drop(journal);
        assert_eq!(Journal::open(Some(&path)).unwrap().witness().requests.len(), 2);

        std::fs::write(&path, [&whole[..], b"{}\n"].concat()).unwrap();
        let error = Journal::open(Some(&path)).unwrap_err();
        assert!(matches!(error, JournalError::Corrupt { line: 3, .. }), "{error}");
    }
}
