//! Bringing the changes of a contained call into the workspace. The same function is the redo after a crash.
//!
//! The list of changes is durable by now, and so is what is staged. So at whichever instant this ends, doing it again from the
//! beginning comes to the same: a target that is the staged version is done, one that is the base is replaced, and anything
//! else belongs to somebody who came in between. No other state can be seen, since each target is replaced by one rename; only
//! between a directory and something else there is an instant at which nothing is there, which then counts as the base.
//!
//! Files are written beside their target and synced before they are renamed. When all is in place, every directory in which a
//! name came or went is synced: once this has returned, a loss of power takes nothing back.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cap_std::fs::Dir;
use deed_journal::{Change, PathBytes, Version};

use super::StageError;
use super::disk::{Disk, OPEN, Observer, READABLE, Unobserved};
use super::git_paths::{Part, part};
use super::locks::{Locks, PATIENCE};
use super::sync::parent;
use super::tree::{self, Found, Stat};

/// What a new directory of ours may have before it has its own mode; it may inherit that its files belong to its group.
const JUST_MADE: u32 = 0o2000 | OPEN;

/// Changes that are to be brought into a workspace.
pub(crate) struct Publication<'a> {
    /// As they were committed, in their order.
    pub(crate) changes: &'a [Change],
    /// What the call wrote.
    pub(crate) upper: &'a Dir,
    /// Where it goes.
    pub(crate) workspace: &'a Dir,
    /// Tells the temporary files of this call from all others; the same each time.
    pub(crate) key: &'a str,
    /// The owner's word: versions of somebody else's are replaced. A directory that is not empty stays all the same, as nobody
    /// has been asked about what is in it.
    pub(crate) replace: bool,
    /// Told the place of each change once it is there.
    pub(crate) passed: &'a dyn Fn(usize),
}

/// A change that is not in the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) path: PathBytes,
    pub(crate) why: Why,
}

/// What kept a change out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Why {
    /// This is there, and it is neither what the call found nor what it made of it.
    Changed(Version),
    /// A directory that is to go has something in it that the call did not see.
    NotEmpty,
    /// The directory that it belongs in is gone.
    NoDirectory,
    /// Git, or somebody for it, holds this lock. Nothing that git guards was replaced.
    Locked(PathBuf),
    /// The stage is gone, and with it what the call made of it.
    Lost,
}

impl Left {
    /// The lock that keeps it out.
    pub(crate) fn lock(&self) -> Option<&Path> {
        match &self.why {
            Why::Locked(lock) => Some(lock),
            _ => None,
        }
    }

    /// Whether there is nothing any more that could be published.
    pub(crate) fn is_lost(&self) -> bool {
        self.why == Why::Lost
    }
}

/// What is not in the workspace of changes whose stage is gone, so that nothing more can be brought there.
pub(crate) fn lost(workspace: &Dir, changes: &[Change]) -> Result<Vec<Left>, StageError> {
    let mut left = Vec::new();
    for change in changes {
        let path = change.path.as_path();
        let found = tree::at(workspace, path).map_err(StageError::file("read", path))?;
        let is_there = match &found {
            Some(found) => is_staged(&found.version, change),
            None => change.staged == Version::Absent,
        };
        if !is_there {
            left.push(Left { path: change.path.clone(), why: Why::Lost });
        }
    }
    Ok(left)
}

/// In words that follow the path.
impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Why::Changed(Version::Absent) => f.write_str("somebody else deleted it"),
            Why::Changed(Version::File { size_bytes, mode, .. }) => {
                write!(f, "somebody else wrote it: {size_bytes} bytes, mode {mode:o}")
            }
            Why::Changed(Version::Directory { mode }) => {
                write!(f, "somebody else made a directory there, or changed its mode: {mode:o}")
            }
            Why::Changed(Version::Link { target }) => write!(f, "somebody else made it a link to `{target}`"),
            Why::Changed(Version::Special) => f.write_str("somebody else made it a pipe, socket or device"),
            Why::NotEmpty => f.write_str("somebody else put something into this directory, which was to go"),
            Why::NoDirectory => f.write_str("somebody else removed the directory that it belongs in"),
            Why::Lost => f.write_str("what the step made of it is gone, with its stage"),
            Why::Locked(lock) => write!(
                f,
                "the lock `{}` is held; when no git is at work there any more, remove it",
                lock.display()
            ),
        }
    }
}

/// Bring every change into the workspace that is not there, whatever an earlier attempt did of it. Returns what was left.
pub(crate) fn publish(publication: &Publication<'_>) -> Result<Vec<Left>, StageError> {
    publish_observed(publication, &Unobserved, PATIENCE)
}

/// The same, watched; a lock of somebody else's is waited for with `patience`.
pub(super) fn publish_observed(
    publication: &Publication<'_>,
    observer: &dyn Observer,
    patience: Duration,
) -> Result<Vec<Left>, StageError> {
    let disk = Disk::new(publication.workspace, observer);
    let name = |place| temporary_name(publication.key, place);
    let locks = Locks::new(&disk, patience, publication.changes, name);
    Publisher { publication, disk: &disk, locks, is_locked: false }.run()
}

fn temporary_name(key: &str, place: usize) -> PathBuf {
    PathBuf::from(format!(".deed-{key}-{place}"))
}

/// Where a target stands.
enum Verdict {
    /// The staged version is there.
    Done,
    /// The base is there, or whatever the owner gave up.
    Pending(Found),
    Left(Why),
}

struct Publisher<'a> {
    publication: &'a Publication<'a>,
    disk: &'a Disk<'a>,
    locks: Locks<'a>,
    /// Whether the locks were taken, or refused.
    is_locked: bool,
}

impl Publisher<'_> {
    fn run(mut self) -> Result<Vec<Left>, StageError> {
        self.open_up()?;
        self.sweep()?;
        let mut left = Vec::new();
        let changes = self.publication.changes;
        let first_lock =
            changes.iter().position(|change| part(&change.path) == Part::Lock && has_content(&change.staged));
        for (place, change) in changes.iter().enumerate() {
            if Some(place) == first_lock {
                // After a loss of power it must not be there without what came before: it would keep the redo out.
                self.sync(touched(&changes[..place]))?;
            }
            let why = self.one(place, change)?;
            // Unless it became the target.
            self.locks.release(place)?;
            match why {
                None => (self.publication.passed)(place),
                Some(why) => left.push(Left { path: change.path.clone(), why }),
            }
        }
        self.finish(&left)?;
        Ok(left)
    }

    /// Remove what a killed attempt left.
    fn sweep(&self) -> Result<(), StageError> {
        self.locks.sweep()?;
        for (place, change) in self.publication.changes.iter().enumerate() {
            if self.locks.guard(place).is_none() && has_content(&change.staged) {
                let temporary = self.beside(place, change);
                self.disk.unlink(&temporary).map_err(StageError::file("remove", &temporary))?;
            }
        }
        Ok(())
    }

    /// Make it possible to change what is in directories that are to go, and in those that an earlier attempt has closed.
    fn open_up(&self) -> Result<(), StageError> {
        for change in self.publication.changes {
            let closed = [&change.base, &change.staged]
                .into_iter()
                .any(|version| matches!(version, Version::Directory { mode } if mode & OPEN != OPEN));
            if closed
                && let Some(Found { version: Version::Directory { mode }, .. }) = self.look(change)?
                && (is_base(&Version::Directory { mode }, change)
                    || is_staged(&Version::Directory { mode }, change))
            {
                self.set_directory_mode(change, mode | OPEN)?;
            }
        }
        Ok(())
    }

    fn one(&mut self, place: usize, change: &Change) -> Result<Option<Why>, StageError> {
        let mut verdict = self.verdict(change)?;
        if matches!(verdict, Verdict::Pending(_)) && self.locks.guard(place).is_some() {
            if let Some(why) = self.lock(place)? {
                return Ok(Some(why));
            }
            // What counts is what is there now that nobody else writes.
            verdict = self.verdict(change)?;
        }
        let found = match verdict {
            Verdict::Done => return self.settle(change).map(|()| None),
            Verdict::Left(why) => return Ok(Some(why)),
            Verdict::Pending(found) => found,
        };
        match &change.staged {
            Version::Absent => self.remove(change, &found),
            Version::Directory { .. } => self.make_directory(change, &found),
            Version::File { .. } | Version::Link { .. } => self.put(place, change, found),
            Version::Special => Err(StageError::Damaged { path: change.path.as_path().to_owned() }),
        }
    }

    /// Hold the lock of a change that is to be made; the first time, take all that are needed. Says why it cannot be had.
    fn lock(&mut self, place: usize) -> Result<Option<Why>, StageError> {
        if let Some(lock) = self.locks.refused() {
            return Ok(Some(Why::Locked(lock.to_owned())));
        }
        if self.locks.is_held(place) {
            return Ok(None);
        }
        let mut wanted = vec![place];
        if !self.is_locked {
            for other in self.locks.places() {
                let pending = self.verdict(&self.publication.changes[other])?;
                if other != place && matches!(pending, Verdict::Pending(_)) {
                    wanted.push(other);
                }
            }
            self.is_locked = true;
        }
        let Self { locks, disk, publication, .. } = self;
        locks.take(&wanted, |place, temporary| {
            write(disk, publication.upper, &publication.changes[place], temporary)
        })?;
        Ok(match locks.refused() {
            Some(lock) => Some(Why::Locked(lock.to_owned())),
            None if locks.is_held(place) => None,
            None => Some(Why::NoDirectory),
        })
    }

    fn look(&self, change: &Change) -> Result<Option<Found>, StageError> {
        let path = change.path.as_path();
        match tree::at(self.disk.root(), path) {
            // The staged version may be one that its owner cannot read.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => match self.unreadable(change)? {
                Some(found) => Ok(Some(found)),
                None => Err(StageError::file("read", path)(error)),
            },
            found => found.map_err(StageError::file("read", path)),
        }
    }

    /// A file of the staged mode, size and time that cannot be read is the staged version.
    fn unreadable(&self, change: &Change) -> Result<Option<Found>, StageError> {
        let path = change.path.as_path();
        let Version::File { size_bytes, mode, .. } = change.staged else { return Ok(None) };
        let stat = self.disk.stat(path).map_err(StageError::file("look at", path))?;
        let staged = staged_stat(self.publication.upper, path)?;
        Ok(stat
            .filter(|stat| {
                (stat.kind, stat.mode, stat.size_bytes) == (staged.kind, mode, size_bytes)
                    && stat.modified == staged.modified
            })
            .map(|stat| Found { version: change.staged.clone(), stat: Some(stat) }))
    }

    fn verdict(&self, change: &Change) -> Result<Verdict, StageError> {
        let Some(found) = self.look(change)? else {
            let is_done = change.staged == Version::Absent;
            return Ok(if is_done { Verdict::Done } else { Verdict::Left(Why::NoDirectory) });
        };
        Ok(if is_staged(&found.version, change) {
            Verdict::Done
        } else if self.publication.replace || is_base(&found.version, change) {
            Verdict::Pending(found)
        } else {
            Verdict::Left(Why::Changed(found.version))
        })
    }

    /// What a target that is the staged version still lacks: the time of a file, the owner, the mode of a directory.
    fn settle(&self, change: &Change) -> Result<(), StageError> {
        let path = change.path.as_path();
        match &change.staged {
            Version::Absent | Version::Special => Ok(()),
            Version::Directory { mode } => {
                self.set_directory_mode(change, mode | OPEN)?;
                self.set_owner(change, path)
            }
            Version::Link { .. } => self.set_owner(change, path),
            Version::File { mode, .. } => {
                let like = staged_stat(self.publication.upper, path)?;
                let stat = self.disk.stat(path).map_err(StageError::file("look at", path))?;
                let is_settled = stat.is_none_or(|own| {
                    (own.mode, own.owner, own.modified) == (*mode, like.owner, like.modified)
                });
                if is_settled {
                    return Ok(());
                }
                self.set_attributes(path, *mode, &like)
            }
        }
    }

    fn set_attributes(&self, path: &Path, mode: u32, like: &Stat) -> Result<(), StageError> {
        let set = || {
            let file = open(self.disk.root(), path)?;
            if self.disk.set_attributes(path, &file, mode, like)? {
                self.disk.sync_file(path, &file)?;
            }
            Ok(())
        };
        set().map_err(StageError::file("set the mode and time of", path))
    }

    fn set_directory_mode(&self, change: &Change, mode: u32) -> Result<(), StageError> {
        let path = change.path.as_path();
        self.disk.set_directory_mode(path, mode).map_err(StageError::file("set the mode of", path))
    }

    /// Give the staged owner of `change` to the link or directory at `path`.
    fn set_owner(&self, change: &Change, path: &Path) -> Result<(), StageError> {
        let staged = staged_stat(self.publication.upper, change.path.as_path())?;
        self.disk.set_owner(path, staged.owner).map_err(StageError::file("set the owner of", path))
    }

    fn remove(&self, change: &Change, found: &Found) -> Result<Option<Why>, StageError> {
        let path = change.path.as_path();
        if found.version.is_directory() {
            return self.remove_directory(change);
        }
        self.disk.unlink(path).map_err(StageError::file("remove", path))?;
        Ok(None)
    }

    fn remove_directory(&self, change: &Change) -> Result<Option<Why>, StageError> {
        let path = change.path.as_path();
        if self.disk.remove_directory(path).map_err(StageError::file("remove", path))? {
            return Ok(None);
        }
        if let Version::Directory { mode } = change.base {
            // It stays after all.
            self.set_directory_mode(change, mode)?;
        }
        Ok(Some(Why::NotEmpty))
    }

    fn make_directory(&self, change: &Change, found: &Found) -> Result<Option<Why>, StageError> {
        let path = change.path.as_path();
        if !found.version.is_directory() {
            if found.version != Version::Absent {
                self.disk.unlink(path).map_err(StageError::file("remove", path))?;
            }
            match self.disk.make_directory(path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    // Somebody was faster.
                    if let Verdict::Left(why) = self.verdict(change)? {
                        return Ok(Some(why));
                    }
                }
                made => made.map_err(StageError::file("make the directory", path))?,
            }
        }
        self.settle(change).map(|()| None)
    }

    /// Put a file or a link in its place.
    fn put(&mut self, place: usize, change: &Change, found: Found) -> Result<Option<Why>, StageError> {
        let path = change.path.as_path();
        // One that its owner cannot read is told by its mode and its time. In place they come one after the other, and with the
        // first alone nobody could tell any more what it is.
        if self.locks.guard(place).is_none()
            && let (Version::File { digest, .. }, Version::File { digest: wanted, mode, .. }) =
                (&found.version, &change.staged)
            && digest == wanted
            && mode & READABLE != 0
        {
            let like = staged_stat(self.publication.upper, path)?;
            return self.set_attributes(path, *mode, &like).map(|()| None);
        }
        if let Some(guard) = self.locks.guard(place) {
            assert!(self.locks.is_held(place), "a guarded file is replaced under its lock");
            let why = self.rename(&guard.lock, change, found)?;
            if why.is_none() {
                self.locks.became_target(place);
            }
            return Ok(why);
        }
        let temporary = self.beside(place, change);
        write(self.disk, self.publication.upper, change, &temporary)?;
        let why = self.rename(&temporary, change, found)?;
        if why.is_some() {
            self.disk.unlink(&temporary).map_err(StageError::file("remove", &temporary))?;
        }
        Ok(why)
    }

    /// Give a file that is ready its target's name, if the target still is what was `found`.
    fn rename(&self, source: &Path, change: &Change, mut found: Found) -> Result<Option<Why>, StageError> {
        let path = change.path.as_path();
        loop {
            let now = self.disk.stat(path).map_err(StageError::file("look at", path))?;
            if self.publication.replace {
                found.stat = now;
            } else if now != found.stat {
                match self.verdict(change)? {
                    // Only the looks of it changed.
                    Verdict::Pending(same) => found = same,
                    Verdict::Left(why) => return Ok(Some(why)),
                    // Somebody made the same of it; ours has the right time and owner.
                    Verdict::Done => found = Found { stat: now, ..found },
                }
                continue;
            }
            if found.stat.is_some_and(|stat| stat.is_directory()) {
                if let Some(why) = self.remove_directory(change)? {
                    return Ok(Some(why));
                }
                found = Found::NOTHING;
            }
            match self.disk.rename(source, path, found.stat.is_some()) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) if error.kind() == ErrorKind::IsADirectory => {}
                renamed => {
                    renamed.map_err(StageError::file("replace", path))?;
                    return Ok(None);
                }
            }
        }
    }

    /// The temporary file of a change that has no lock.
    fn beside(&self, place: usize, change: &Change) -> PathBuf {
        parent(change.path.as_path()).join(temporary_name(self.publication.key, place))
    }

    /// Make directories durable, those below before those above.
    fn sync(&self, directories: BTreeSet<&Path>) -> Result<(), StageError> {
        directories.into_iter().rev().try_for_each(|directory| {
            self.disk.sync_directory(directory).map(drop).map_err(StageError::file("sync", directory))
        })
    }

    /// Everything is in place: give directories their last modes, and make it all durable.
    fn finish(&mut self, left: &[Left]) -> Result<(), StageError> {
        let left: BTreeSet<&PathBytes> = left.iter().map(|left| &left.path).collect();
        let mut closed = Vec::new();
        for change in self.publication.changes {
            if let Version::Directory { mode } = change.staged
                && mode & OPEN != OPEN
                && !left.contains(&change.path)
            {
                closed.push((change.path.as_path(), mode));
            }
        }
        // They were opened above; while they are still open, and before the names in them are out of reach.
        self.sync(touched(self.publication.changes))?;
        self.locks.finish()?;
        for (path, mode) in closed.into_iter().rev() {
            self.disk.close_directory(path, mode).map_err(StageError::file("set the mode of", path))?;
        }
        Ok(())
    }
}

/// The directories that are new, and those in which a name came or went.
fn touched(changes: &[Change]) -> BTreeSet<&Path> {
    let made =
        changes.iter().filter(|change| change.staged.is_directory()).map(|change| change.path.as_path());
    changes.iter().map(|change| parent(change.path.as_path())).chain(made).collect()
}

/// Write a temporary file with everything that the target is to be, and make it durable; an empty one for a target that is to
/// go, or to become a directory, which is good for a lock.
fn write(disk: &Disk<'_>, upper: &Dir, change: &Change, temporary: &Path) -> Result<(), StageError> {
    let path = change.path.as_path();
    let failed = |error| StageError::file("write", temporary)(error);
    match &change.staged {
        Version::Link { target } => {
            disk.symlink(target, temporary).map_err(failed)?;
            disk.set_owner(temporary, staged_stat(upper, path)?.owner).map_err(failed)
        }
        Version::File { digest, size_bytes, mode } => {
            let source = open(upper, path).map_err(StageError::file("open the staged", path))?;
            let file = disk.create(temporary).map_err(failed)?;
            if disk.fill(temporary, &file, &source).map_err(failed)? != (*digest, *size_bytes) {
                return Err(StageError::Damaged { path: path.to_owned() });
            }
            let like = tree::stat_of(&source).map_err(StageError::file("look at the staged", path))?;
            disk.set_attributes(temporary, &file, *mode, &like).map_err(failed)?;
            disk.sync_file(temporary, &file).map_err(failed)
        }
        _ => disk.create(temporary).map(drop).map_err(failed),
    }
}

/// Open a file below a root for reading.
fn open(root: impl std::os::fd::AsFd, path: &Path) -> std::io::Result<File> {
    let (parent, name) = tree::split(path)?;
    tree::open(tree::passage(root, parent)?, name)
}

/// What the stage has at a path.
fn staged_stat(upper: &Dir, path: &Path) -> Result<Stat, StageError> {
    let stat = || {
        let (parent, name) = tree::split(path)?;
        tree::stat(tree::passage(upper, parent)?, name)
    };
    stat()
        .map_err(StageError::file("look at the staged", path))?
        .ok_or_else(|| StageError::Damaged { path: path.to_owned() })
}

fn has_content(version: &Version) -> bool {
    matches!(version, Version::File { .. } | Version::Link { .. })
}

/// Whether two versions are one. What the owner may do with a directory is changed on the way, and does not count.
fn is_same(found: &Version, expected: &Version) -> bool {
    match (found, expected) {
        (Version::Directory { mode: found }, Version::Directory { mode }) => found | OPEN == mode | OPEN,
        (found, expected) => found == expected,
    }
}

fn is_staged(found: &Version, change: &Change) -> bool {
    let is_just_made = |mode: u32| mode & !JUST_MADE == 0 && !change.base.is_directory();
    match (found, &change.staged) {
        (Version::Directory { mode }, Version::Directory { .. }) if is_just_made(*mode) => true,
        (found, staged) => is_same(found, staged),
    }
}

fn is_base(found: &Version, change: &Change) -> bool {
    let is_between = *found == Version::Absent
        && change.base != Version::Absent
        && change.staged != Version::Absent
        && change.base.is_directory() != change.staged.is_directory();
    is_between || is_same(found, &change.base)
}
