//! Taking turns: writers of one workspace, whichever journal they use, run their effectful calls one after the other.
//!
//! No order is kept among those who wait: whoever looks first when a call has ended is next.
//!
//! A writer that is about to publish what a call changed says so in the file of the lock, before it begins. Whoever is next
//! after a crash sees whose publication was cut short, and what is half there is not taken for the workspace.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use deed_journal::{Digest, RunId};
use serde::{Deserialize, Serialize};

/// How often a writer looks whether it is its turn. A call takes some milliseconds at least.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// The lock of one workspace. It lies outside, where no tool gets hold of it, under a name that the workspace's path gives
/// it.
#[derive(Debug, Clone)]
pub struct WorkspaceLock {
    path: PathBuf,
}

/// This writer's turn. It ends when this is dropped, or with the process.
#[derive(Debug)]
pub struct Turn {
    file: File,
}

/// A publication that was begun, and is not known to have ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unpublished {
    /// The journal that has it.
    pub journal: PathBuf,
    /// The run in that journal.
    pub run: RunId,
    /// The step whose changes they are.
    pub seq: u64,
}

/// Bytes read of a note: a path of 4096 bytes, twice as long when it is escaped, and the rest.
const NOTE_BYTES: u64 = 16 << 10;

impl Turn {
    /// The publication that was cut short here, if one was. A note that was not written to its end is none: the publication
    /// begins after it.
    pub fn unpublished(&self) -> io::Result<Option<Unpublished>> {
        let mut note = Vec::new();
        let mut file = &self.file;
        file.rewind()?;
        file.take(NOTE_BYTES).read_to_end(&mut note)?;
        Ok(serde_json::from_slice(&note).ok())
    }

    /// Say that a publication begins. Durable when this returns.
    pub fn begin_publishing(&self, unpublished: &Unpublished) -> io::Result<()> {
        let note = serde_json::to_vec(unpublished)?;
        self.end_publishing()?;
        let mut file = &self.file;
        file.rewind()?;
        file.write_all(&note)?;
        self.file.sync_data()
    }

    /// Say that it has ended. When this is lost with the power, whoever is next finds that there is nothing to publish.
    pub fn end_publishing(&self) -> io::Result<()> {
        self.file.set_len(0)
    }
}

impl WorkspaceLock {
    /// The lock of `workspace`, an absolute path without links, among the locks in `directory`.
    pub fn new(directory: &Path, workspace: &Path) -> Self {
        let name = Digest::of(workspace.as_os_str().as_encoded_bytes()).to_string();
        // Half of the digest tells any two workspaces apart.
        Self { path: directory.join(&name[..32]) }
    }

    /// This writer's turn, unless it is somebody else's.
    pub fn try_turn(&self) -> io::Result<Option<Turn>> {
        if let Some(directory) = self.path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Turn { file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Wait for this writer's turn. When `stop` says so, there is none.
    pub fn turn(&self, stop: impl Fn() -> bool) -> io::Result<Option<Turn>> {
        loop {
            if let Some(turn) = self.try_turn()? {
                return Ok(Some(turn));
            }
            if stop() {
                return Ok(None);
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_publication_that_was_cut_short_is_seen_by_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let lock = WorkspaceLock::new(directory.path(), Path::new("/w"));
        let turn = || lock.try_turn().unwrap().unwrap();
        assert_eq!(turn().unpublished().unwrap(), None);
        let note = |seq| Unpublished { journal: "/j".into(), run: RunId::from_bytes([7; 16]), seq };
        for seq in [1_000_000, 2] {
            turn().begin_publishing(&note(seq)).unwrap();
            assert_eq!(turn().unpublished().unwrap(), Some(note(seq)));
        }
        turn().end_publishing().unwrap();
        assert_eq!(turn().unpublished().unwrap(), None);
        std::fs::write(&lock.path, b"{\"journal\":").unwrap();
        assert_eq!(turn().unpublished().unwrap(), None, "it was not written to its end");
    }

    #[test]
    fn it_is_one_writers_turn_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let lock = WorkspaceLock::new(&directory.path().join("locks"), Path::new("/w"));
        let turn = lock.try_turn().unwrap().unwrap();
        let looks = Cell::new(0);
        let other = lock.turn(|| looks.replace(looks.get() + 1) == 1).unwrap();
        assert!(other.is_none() && looks.get() == 2);
        let elsewhere = WorkspaceLock::new(&directory.path().join("locks"), Path::new("/v"));
        assert!(elsewhere.try_turn().unwrap().is_some());
        drop(turn);
        assert!(lock.turn(|| false).unwrap().is_some());
    }
}
