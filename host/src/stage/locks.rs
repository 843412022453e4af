//! Git's locks on what a publication replaces in a repository.
//!
//! Git writes `HEAD.lock`, then renames it to `HEAD`; while the lock is there, nobody else writes. We do the same, but whoever
//! comes after a kill must tell our lock from that of a git at work. So the content is written to a temporary file of ours in
//! the git directory, which is then given the lock as a second name: a lock that is the same file as our temporary is ours.
//! That holds after a loss of power too, since the temporary's name is durable before the lock is there, and goes only when the
//! lock's end is durable.
//!
//! A repository that the call made or removed as a whole has no locks: nobody can be at work in it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use backon::{BlockingRetryable as _, ConstantBuilder};
use deed_journal::{Change, Version};
use rustix::io::Errno;

use super::StageError;
use super::disk::Disk;
use super::git_paths::{git_directory, lock, part};
use super::sync::parent;
use super::tree;

/// A git that holds a lock is done in milliseconds, unless a person or a hook keeps it waiting.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// How a guarded file is replaced.
#[derive(Debug)]
pub(super) struct Guard {
    /// Ours, in the git directory.
    pub(super) temporary: PathBuf,
    /// Beside the target: the same file, while we hold it.
    pub(super) lock: PathBuf,
}

/// The locks of one publication.
pub(super) struct Locks<'a> {
    disk: &'a Disk<'a>,
    patience: Duration,
    /// By the place of their change.
    guards: BTreeMap<usize, Guard>,
    /// Those whose temporary file is there.
    prepared: BTreeSet<usize>,
    /// Those whose lock is there.
    held: BTreeSet<usize>,
    /// Somebody else's, for which we have waited in vain.
    refused: Option<PathBuf>,
}

/// What came of an attempt to take locks.
enum Taken {
    Held,
    /// There is no directory that it could be in.
    NoDirectory,
}

impl<'a> Locks<'a> {
    /// Those that `changes` need, none of them taken. `name` is that of the temporary file of a change.
    pub(super) fn new(
        disk: &'a Disk<'a>,
        patience: Duration,
        changes: &[Change],
        name: impl Fn(usize) -> PathBuf,
    ) -> Self {
        let whole: BTreeSet<&Path> = changes
            .iter()
            .filter(|change| !change.base.is_directory() || !change.staged.is_directory())
            .map(|change| change.path.as_path())
            .collect();
        let guard = |(index, change): (usize, &Change)| {
            let git = git_directory(&change.path)?;
            let is_guarded = part(&change.path).is_guarded()
                && [&change.base, &change.staged].into_iter().any(is_file)
                && !whole.contains(&*git);
            let guard = || Guard { temporary: git.join(name(index)), lock: lock(&change.path) };
            is_guarded.then(|| (index, guard()))
        };
        let guards = changes.iter().enumerate().filter_map(guard).collect();
        Self { disk, patience, guards, prepared: BTreeSet::new(), held: BTreeSet::new(), refused: None }
    }

    /// How a change is guarded, if it is.
    pub(super) fn guard(&self, index: usize) -> Option<&Guard> {
        self.guards.get(&index)
    }

    /// The places of all guarded changes.
    pub(super) fn places(&self) -> Vec<usize> {
        self.guards.keys().copied().collect()
    }

    /// Whether the lock of a change is ours.
    pub(super) fn is_held(&self, index: usize) -> bool {
        self.held.contains(&index)
    }

    /// The lock for which we waited in vain. Then no guarded file is touched, as they belong together.
    pub(super) fn refused(&self) -> Option<&Path> {
        self.refused.as_deref()
    }

    /// Remove what a killed attempt left.
    pub(super) fn sweep(&self) -> Result<(), StageError> {
        let mut freed = BTreeSet::new();
        let mut left = Vec::new();
        for Guard { temporary, lock } in self.guards.values() {
            let stat = |path: &Path| self.disk.stat(path).map_err(StageError::file("look at", path));
            let Some(ours) = stat(temporary)? else { continue };
            if stat(lock)?.is_some_and(|lock| lock.is_same_file(&ours)) {
                self.unlink(lock)?;
                freed.insert(parent(lock));
            }
            left.push(temporary);
        }
        self.sync_directories(freed)?;
        left.into_iter().try_for_each(|temporary| self.unlink(temporary))
    }

    /// Take the locks of the changes at `places`, each once `prepare` has written its temporary file, or none of them. Those
    /// whose directory is not there yet are left for later.
    pub(super) fn take(
        &mut self,
        places: &[usize],
        mut prepare: impl FnMut(usize, &Path) -> Result<(), StageError>,
    ) -> Result<(), StageError> {
        for place in places {
            // Before it is there: half a file is ours to remove as well.
            if self.prepared.insert(*place) {
                prepare(*place, &self.guards[place].temporary)?;
            }
        }
        let directories = places.iter().map(|place| parent(&self.guards[place].temporary)).collect();
        self.sync_directories(directories)?;
        let mut missing: Vec<usize> = places.to_vec();
        let looks =
            usize::try_from(self.patience.as_millis() / BETWEEN_LOOKS.as_millis()).unwrap_or(usize::MAX);
        let waiting = ConstantBuilder::default().with_delay(BETWEEN_LOOKS).with_max_times(looks);
        let mut take_missing = || {
            while let Some(place) = missing.last() {
                let guard = &self.guards[place];
                if let Taken::Held = take(self.disk, guard)? {
                    self.held.insert(*place);
                }
                missing.pop();
            }
            Ok(())
        };
        match (&mut take_missing).retry(waiting).when(|error| matches!(error, NotTaken::Busy(_))).call() {
            Ok(()) => Ok(()),
            Err(NotTaken::Busy(lock)) => {
                self.release_all()?;
                self.refused = Some(lock);
                Ok(())
            }
            Err(NotTaken::Failed(error)) => Err(error),
        }
    }

    /// The lock of a change became its target.
    pub(super) fn became_target(&mut self, index: usize) {
        self.held.remove(&index);
    }

    /// Let go of the lock of a change, if it is held.
    pub(super) fn release(&mut self, index: usize) -> Result<(), StageError> {
        if self.held.contains(&index) {
            self.unlink(&self.guards[&index].lock)?;
            self.held.remove(&index);
        }
        Ok(())
    }

    /// Remove the temporary files, once the directories of the locks are durable.
    pub(super) fn finish(&mut self) -> Result<(), StageError> {
        assert!(self.held.is_empty(), "every lock was released or became its target");
        let guards: Vec<&Guard> = self.prepared.iter().map(|place| &self.guards[place]).collect();
        guards.iter().try_for_each(|guard| self.unlink(&guard.temporary))?;
        self.sync_directories(guards.iter().map(|guard| parent(&guard.temporary)).collect())?;
        self.prepared.clear();
        Ok(())
    }

    /// Let go of everything that is held.
    fn release_all(&mut self) -> Result<(), StageError> {
        let locks = self.prepared.iter().map(|place| parent(&self.guards[place].lock));
        let directories: BTreeSet<PathBuf> = locks.map(Path::to_owned).collect();
        for place in self.held.clone() {
            self.release(place)?;
        }
        self.sync_directories(directories.iter().map(|directory| &**directory).collect())?;
        self.finish()
    }

    fn unlink(&self, path: &Path) -> Result<(), StageError> {
        self.disk.unlink(path).map_err(StageError::file("remove", path))
    }

    fn sync_directories(&self, directories: BTreeSet<&Path>) -> Result<(), StageError> {
        for directory in directories {
            self.disk.sync_directory(directory).map_err(StageError::file("sync", directory))?;
        }
        Ok(())
    }
}

/// On every way out: a lock that stays would stop each git from then on.
impl Drop for Locks<'_> {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next attempt.
        let _ = self.release_all();
    }
}

enum NotTaken {
    /// Somebody else holds this one.
    Busy(PathBuf),
    Failed(StageError),
}

fn take(disk: &Disk<'_>, guard: &Guard) -> Result<Taken, NotTaken> {
    let lock = guard.lock.clone();
    let no_hard_links = |error: &io::Error| {
        matches!(
            Errno::from_io_error(error),
            Some(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK)
        )
    };
    match disk.link(&guard.temporary, &lock) {
        Ok(()) => Ok(Taken::Held),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(NotTaken::Busy(lock)),
        Err(error) if tree::is_missing(&error) => Ok(Taken::NoDirectory),
        Err(source) if no_hard_links(&source) => {
            Err(NotTaken::Failed(StageError::NoHardLinks { path: lock.with_extension(""), source }))
        }
        Err(error) => Err(NotTaken::Failed(StageError::file("take the lock", &lock)(error))),
    }
}

fn is_file(version: &Version) -> bool {
    matches!(version, Version::File { .. } | Version::Link { .. } | Version::Special)
}
