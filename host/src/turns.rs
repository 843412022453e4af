//! Taking turns: writers of one workspace, whichever journal they use, run their effectful calls one after the other.
//!
//! No order is kept among those who wait: whoever looks first when a call has ended is next.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use deed_journal::Digest;

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
    _file: File,
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
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&self.path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Turn { _file: file })),
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
