//! What a contained call changed: the overlay's upper directory, held against the workspace as it is now.
//!
//! The base of a change is what the workspace has, so nobody else may have changed it since the call began: what has been
//! is a conflict, unless it is what the call made of it. The kernel's own time of a file's last change tells, which nobody
//! can set back.
//!
//! overlayfs notes three things in the upper directory. A name that is gone is a character device 0:0. A directory that
//! hides what is below it has the attribute `user.overlay.opaque`, `y`; so has one that the call made, where nothing was.
//! What was copied up has `user.overlay.origin`, but for links, and files with several names.
//!
//! The cost is that of what changed: of the workspace only those directories are looked at that have something in the upper
//! one, and of these only the same names.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use cap_std::fs::Dir;
use deed_journal::{Change, PathBytes, Version};
use rustix::fs::{Access, AtFlags, FileType};
use rustix::io::Errno;

use super::disk::{OPEN, READABLE, set_mode};
use super::sync::parent;
use super::tree::{self, Found, Stat};
use super::{StageError, Timestamp, diff, order};

const OPAQUE: &str = "user.overlay.opaque";
const ORIGIN: &str = "user.overlay.origin";

/// The longest path that the kernel takes, without the zero at its end.
const MAX_PATH_BYTES: usize = 4095;

/// What a call changed, and what stands in the way of publishing it.
#[derive(Debug)]
pub(crate) struct Collected {
    /// In the order in which they are published.
    pub(crate) changes: Vec<Change>,
    /// For people: how the texts of the work tree differ, in unified form, as far as there is room.
    pub(crate) diff: String,
    /// With any, nothing may be published.
    pub(crate) conflicts: Vec<Conflict>,
    /// Pipes, sockets and devices that the call made or changed. They are not published: what was there stays.
    pub(crate) skipped: Vec<PathBytes>,
}

/// A path at which the call's version must not be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) path: PathBytes,
    /// What is in the way.
    pub(crate) what: String,
}

/// Find what a call that `began` then left in `upper`, over the workspace in `lower`. `began` is later than every change
/// that was made before the call.
///
/// What the call made unreadable for its owner becomes readable in `upper`, so this is done once for each attempt; the changes
/// have the modes that the call set.
pub(crate) fn collect(upper: &Dir, lower: &Dir, began: Timestamp) -> Result<Collected, StageError> {
    let root = Path::new("");
    let open = |directory: &Dir| tree::directory(directory, root).map_err(StageError::file("open", root));
    let (upper_root, lower_root) = (open(upper)?, open(lower)?);
    let device = tree::stat_of(&lower_root).map_err(StageError::file("look at", root))?.device;
    let mut walk = Walk {
        began,
        device,
        opened: BTreeMap::new(),
        changes: Vec::new(),
        conflicts: Vec::new(),
        skipped: Vec::new(),
    };
    walk.directory(root, &upper_root, Some(&lower_root), false)?;
    let Walk { mut changes, mut conflicts, skipped, .. } = walk;
    order::sort(&mut changes);
    refuse_unpublishable(lower, &changes, &mut conflicts)?;
    let diff = diff::of(upper, lower, &changes)?;
    Ok(Collected { changes, diff, conflicts, skipped })
}

/// Find out now what would stop a publication in the middle.
fn refuse_unpublishable(
    lower: &Dir,
    changes: &[Change],
    conflicts: &mut Vec<Conflict>,
) -> Result<(), StageError> {
    let mut conflict = |path: &Path, what: &str| {
        conflicts.push(Conflict { path: path.into(), what: what.to_owned() });
    };
    // Those that are made, removed or get another mode are made fit.
    let own: BTreeSet<&Path> = changes.iter().map(|change| change.path.as_path()).collect();
    let parents: BTreeSet<&Path> = changes.iter().map(|change| parent(change.path.as_path())).collect();
    for directory in parents.difference(&own) {
        let writable = tree::passage(lower, directory).map(|passage| {
            rustix::fs::accessat(passage, c".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
        });
        match writable {
            Ok(Err(Errno::ACCESS | Errno::PERM | Errno::ROFS)) => {
                conflict(
                    directory,
                    "the call changed what is in this directory, and the user of the host may not",
                );
            }
            Err(error) if !tree::is_missing(&error) => {
                return Err(StageError::file("look into", directory)(error));
            }
            // A directory that is gone was found to be in conflict already.
            _ => {}
        }
    }
    for change in changes.iter().filter(|change| change.path.as_bytes().len() > MAX_PATH_BYTES) {
        conflict(change.path.as_path(), "the path has more than 4095 bytes, and no program could open it");
    }
    Ok(())
}

struct Walk {
    began: Timestamp,
    /// The workspace's file system.
    device: (u32, u32),
    /// Staged files that were made readable, by their inode, as one may have several names: with the modes that the call set.
    opened: BTreeMap<u64, u32>,
    changes: Vec<Change>,
    conflicts: Vec<Conflict>,
    skipped: Vec<PathBytes>,
}

/// A name in a directory of either layer.
#[derive(Clone, Copy)]
struct At<'a> {
    directory: &'a OwnedFd,
    name: &'a OsStr,
}

impl Walk {
    fn conflict(&mut self, path: &Path, what: &str) {
        self.conflicts.push(Conflict { path: path.into(), what: what.to_owned() });
    }

    fn change(&mut self, path: &Path, base: Version, staged: Version) {
        self.changes.push(Change { path: path.into(), base, staged });
    }

    /// Whether somebody changed it after the call began.
    fn is_late(&self, stat: &Stat) -> bool {
        stat.changed >= self.began
    }

    /// Go through a directory of the upper layer. When it is `opaque`, what the lower one has besides is gone.
    fn directory(
        &mut self,
        path: &Path,
        upper: &OwnedFd,
        lower: Option<&OwnedFd>,
        opaque: bool,
    ) -> Result<(), StageError> {
        let names = tree::names(upper).map_err(StageError::file("list the staged", path))?;
        for name in &names {
            let path = &path.join(name);
            let staged = At { directory: upper, name };
            let base = lower.map(|directory| At { directory, name });
            let stat = tree::stat(upper, name).map_err(StageError::file("look at the staged", path))?;
            match stat {
                None => {}
                Some(stat) if stat.is_whiteout() => self.deleted(path, base)?,
                Some(stat) if stat.is_directory() => {
                    self.staged_directory(path, staged, &stat, base, opaque)?;
                }
                Some(stat) if matches!(stat.kind, FileType::RegularFile | FileType::Symlink) => {
                    self.staged_file(path, staged, &stat, base)?;
                }
                Some(_) => self.skipped.push(path.as_path().into()),
            }
        }
        match lower {
            Some(lower) if opaque => self.hidden(path, lower, &names),
            _ => Ok(()),
        }
    }

    /// What a directory hides by standing in its place.
    fn hidden(&mut self, path: &Path, lower: &OwnedFd, staged: &[OsString]) -> Result<(), StageError> {
        for name in tree::names(lower).map_err(StageError::file("list", path))? {
            if staged.binary_search(&name).is_err() {
                self.deleted(&path.join(&name), Some(At { directory: lower, name: &name }))?;
            }
        }
        Ok(())
    }

    /// Everything at a path of the workspace is gone. A pipe or socket goes as a file does: it has no content to be lost, and
    /// its time says whether it is still the one that the call saw.
    fn deleted(&mut self, path: &Path, base: Option<At<'_>>) -> Result<(), StageError> {
        let Some(base) = base else { return Ok(()) };
        let found = version(path, base)?;
        let Some(stat) = found.stat else { return Ok(()) };
        if self.is_late(&stat) {
            self.conflict(path, "was made or changed after the call began, which deleted what was there");
        }
        if stat.is_directory() {
            self.deleted_below(path, base, &stat)?;
        }
        self.change(path, found.version, Version::Absent);
        Ok(())
    }

    fn deleted_below(&mut self, path: &Path, base: At<'_>, stat: &Stat) -> Result<(), StageError> {
        if let Some(lower) = self.open_lower(path, base, stat)? {
            self.hidden(path, &lower, &[])?;
        }
        Ok(())
    }

    /// Open a directory of the workspace; none, and a conflict, when it belongs to another file system.
    fn open_lower(&mut self, path: &Path, at: At<'_>, stat: &Stat) -> Result<Option<OwnedFd>, StageError> {
        if stat.device != self.device {
            self.conflict(path, "another file system is mounted here, which the call did not see");
            return Ok(None);
        }
        match tree::directory(at.directory, Path::new(at.name)) {
            Ok(lower) => Ok(Some(lower)),
            Err(error) if tree::is_missing(&error) => {
                self.conflict(path, "somebody else is changing this directory");
                Ok(None)
            }
            Err(error) => Err(StageError::file("open", path)(error)),
        }
    }

    fn staged_directory(
        &mut self,
        path: &Path,
        staged: At<'_>,
        stat: &Stat,
        base: Option<At<'_>>,
        inside_opaque: bool,
    ) -> Result<(), StageError> {
        let failed = |error| StageError::file("open the staged", path)(error);
        let upper = open_upper(staged, stat).map_err(failed)?;
        let copied_up = has(&upper, ORIGIN).map_err(failed)?;
        let opaque = inside_opaque || is_opaque(&upper).map_err(failed)?;
        let version_staged = Version::Directory { mode: stat.mode };
        let found = lower_version(path, base)?;
        let lower = match (base, found.stat) {
            (Some(base), Some(found)) if found.is_directory() => {
                if found.mode != stat.mode && self.is_late(&found) {
                    self.conflict(
                        path,
                        "this directory was changed after the call began, which changed its mode",
                    );
                }
                if found.mode != stat.mode || found.owner != stat.owner && !self.is_late(&found) {
                    self.change(path, Version::Directory { mode: found.mode }, version_staged);
                }
                self.open_lower(path, base, &found)?
            }
            // The call changed something in a directory that was there.
            (_, Some(_)) if copied_up => {
                self.conflict(path, "was a directory when the call began, and is none any more");
                None
            }
            (_, None) if copied_up => {
                self.conflict(path, "this directory is gone since the call began");
                None
            }
            (_, stat) => {
                if stat.is_some_and(|stat| self.is_late(&stat)) {
                    self.conflict(
                        path,
                        "was made or changed after the call began, which made a directory here",
                    );
                }
                self.change(path, found.version, version_staged);
                None
            }
        };
        self.directory(path, &upper, lower.as_ref(), opaque)
    }

    fn staged_file(
        &mut self,
        path: &Path,
        staged: At<'_>,
        stat: &Stat,
        base: Option<At<'_>>,
    ) -> Result<(), StageError> {
        let version = self.staged_version(staged, stat).map_err(StageError::file("read the staged", path))?;
        let found = lower_version(path, base)?;
        let (Some(base), Some(lower)) = (base, found.stat) else {
            if let Some(base) = base
                && stat.kind == FileType::RegularFile
                && self.may_have_been_removed(path, staged, base)?
            {
                self.conflict(path, "is gone, perhaps since the call began: others changed its directory");
            }
            self.change(path, Version::Absent, version);
            return Ok(());
        };
        let is_late = self.is_late(&lower);
        if found.version == version {
            // Copied up and nothing else, or somebody else did the same, whose times stay.
            let is_touched = lower.kind == FileType::RegularFile && lower.modified != stat.modified;
            if !is_late && (is_touched || lower.owner != stat.owner) {
                self.change(path, found.version, version);
            }
            return Ok(());
        }
        if is_late {
            self.conflict(path, "was changed after the call began, which changed it as well");
        }
        if lower.is_directory() {
            self.deleted_below(path, base, &lower)?;
        }
        self.change(path, found.version, version);
        Ok(())
    }

    /// What the call made of a file, with the mode it gave it; the owner can read it from now on.
    fn staged_version(&mut self, at: At<'_>, stat: &Stat) -> io::Result<Version> {
        let mode = *self.opened.get(&stat.inode).unwrap_or(&stat.mode);
        if stat.kind == FileType::RegularFile && stat.mode & READABLE == 0 {
            self.opened.insert(stat.inode, stat.mode);
            set_mode(&tree::handle(at.directory, at.name)?, stat.mode | READABLE)?;
        }
        Ok(match tree::version(at.directory, at.name)?.version {
            Version::File { digest, size_bytes, .. } => Version::File { digest, size_bytes, mode },
            other => other,
        })
    }

    /// Whether a file that the workspace lacks may have been there when the call began. One that was copied up was, under this
    /// name or, if the call renamed it, under another. In a directory in which nothing came or went it was another.
    fn may_have_been_removed(&self, path: &Path, staged: At<'_>, base: At<'_>) -> Result<bool, StageError> {
        let copied_up = || has(tree::open(staged.directory, staged.name)?, ORIGIN);
        if !copied_up().map_err(StageError::file("read the staged", path))? {
            return Ok(false);
        }
        let directory = tree::stat_of(base.directory).map_err(StageError::file("look at", parent(path)))?;
        Ok(self.is_late(&directory))
    }
}

fn lower_version(path: &Path, base: Option<At<'_>>) -> Result<Found, StageError> {
    base.map_or(Ok(Found::NOTHING), |base| version(path, base))
}

fn version(path: &Path, at: At<'_>) -> Result<Found, StageError> {
    tree::version(at.directory, at.name).map_err(StageError::file("read", path))
}

/// Open a directory of the upper layer, which its owner can use from now on.
fn open_upper(at: At<'_>, stat: &Stat) -> io::Result<OwnedFd> {
    if stat.mode & OPEN != OPEN {
        set_mode(&tree::handle(at.directory, at.name)?, stat.mode | OPEN)?;
    }
    tree::directory(at.directory, Path::new(at.name))
}

fn is_opaque(directory: &OwnedFd) -> io::Result<bool> {
    let mut value = [0; 1];
    match rustix::fs::fgetxattr(directory, OPAQUE, &mut value) {
        Ok(length) => Ok(length == 1 && value == *b"y"),
        Err(Errno::RANGE) => Ok(false),
        Err(error) => absent(error),
    }
}

fn has(file: impl AsFd, attribute: &str) -> io::Result<bool> {
    rustix::fs::fgetxattr_query(file, attribute).map(|_| true).or_else(absent)
}

/// An attribute that a file lacks, or that its file system does not know.
fn absent(error: Errno) -> io::Result<bool> {
    if matches!(error, Errno::NODATA | Errno::OPNOTSUPP) { Ok(false) } else { Err(error.into()) }
}
