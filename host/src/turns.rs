//! Taking turns: writers of one workspace, whichever journal they use, run their effectful calls one after the other.

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

    /// Wait for this writer's turn. `waiting` is called once when it is somebody else's, and then `stop` each time this
    /// looks: when that says so, there is no turn.
    pub fn turn(&self, waiting: impl FnOnce(), stop: impl Fn() -> bool) -> io::Result<Option<Turn>> {
        if let Some(directory) = self.path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&self.path)?;
        let mut waiting = Some(waiting);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(Turn { _file: file })),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if stop() => return Ok(None),
                Err(TryLockError::WouldBlock) => {
                    if let Some(waiting) = waiting.take() {
                        waiting();
                    }
                    std::thread::sleep(BETWEEN_LOOKS);
                }
            }
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
        let turn = lock.turn(|| panic!("nobody else is there"), || false).unwrap().unwrap();
        let waited = Cell::new(0);
        let other = lock.turn(|| waited.set(1), || waited.get() > 0).unwrap();
        assert!(other.is_none() && waited.get() == 1);
        let elsewhere = WorkspaceLock::new(&directory.path().join("locks"), Path::new("/v"));
        assert!(elsewhere.turn(|| (), || false).unwrap().is_some());
        drop(turn);
        assert!(lock.turn(|| (), || false).unwrap().is_some());
    }
}
