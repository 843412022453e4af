//! Locks that a killed attempt left behind.
//!
//! libgit2 makes a lock, writes, and renames; a SIGKILL in between leaves the lock, and whoever comes next is told that
//! somebody is at work. For the next attempt of the same step this would be the end of a commit that nobody refused.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use git2::Repository;

/// File times come from a clock that ticks at least every 10 ms, and so may lie that much before the intent.
const SLACK: Duration = Duration::from_secs(1);

/// When the earlier attempts of a step can have made a lock. Their process is dead: it held the journal, and this one does
/// now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Earlier {
    /// The intent of the step.
    pub(crate) intent: SystemTime,
    /// The start of this process's engine.
    pub(crate) started: SystemTime,
}

/// The locks that a commit to `branch` takes.
fn locks(repository: &Repository, branch: &str) -> [PathBuf; 2] {
    [repository.path().join("index.lock"), reference_lock(repository, branch)]
}

/// The locks that putting HEAD on `branch` takes.
fn head_locks(repository: &Repository, branch: &str) -> [PathBuf; 2] {
    [repository.path().join("HEAD.lock"), reference_lock(repository, branch)]
}

fn reference_lock(repository: &Repository, branch: &str) -> PathBuf {
    repository.commondir().join(format!("refs/heads/{branch}.lock"))
}

/// Whether one of the locks of a commit to `branch` is there.
pub(super) fn is_locked(repository: &Repository, branch: &str) -> bool {
    locks(repository, branch).iter().any(|lock| fs::symlink_metadata(lock).is_ok())
}

impl Earlier {
    /// Remove the locks that an earlier attempt to commit left; says which. A lock that is younger, older, or somebody
    /// else's stays.
    pub(super) fn remove_locks(self, repository: &Repository, branch: &str) -> Vec<PathBuf> {
        self.remove(locks(repository, branch))
    }

    /// The same for an earlier attempt to put HEAD on `branch`.
    pub(crate) fn remove_head_locks(self, repository: &Repository, branch: &str) -> Vec<PathBuf> {
        self.remove(head_locks(repository, branch))
    }

    fn remove(self, locks: [PathBuf; 2]) -> Vec<PathBuf> {
        let left = |lock: &PathBuf| {
            let Ok(metadata) = fs::symlink_metadata(lock) else { return false };
            let since = self.intent.checked_sub(SLACK).unwrap_or(self.intent);
            metadata.is_file()
                && metadata.uid() == rustix::process::geteuid().as_raw()
                && metadata.modified().is_ok_and(|made| since <= made && made < self.started)
        };
        locks.into_iter().filter(|lock| left(lock) && fs::remove_file(lock).is_ok()).collect()
    }
}
