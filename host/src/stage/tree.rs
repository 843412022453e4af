//! Reading what is at a path, without ever following a link.
//!
//! Commands may put links anywhere, and others may do so while the host looks. So a directory is opened beneath a root, no
//! part of its path being a link, and what is in it is looked at by its name alone.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use deed_journal::{Digest, PathBytes, Version};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;

use super::Timestamp;

/// Permission bits, with those of set-user-id and its like.
const PERMISSIONS: u32 = 0o7777;

/// What the host needs to know of a file besides its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) kind: FileType,
    pub(super) mode: u32,
    pub(super) owner: (u32, u32),
    pub(super) size_bytes: u64,
    pub(super) device: (u32, u32),
    /// Of a character device: which one it is.
    pub(super) special: (u32, u32),
    pub(super) inode: u64,
    pub(super) changed: Timestamp,
    pub(super) modified: Timestamp,
}

impl Stat {
    /// How overlayfs says that a name is gone.
    pub(super) fn is_whiteout(&self) -> bool {
        self.kind == FileType::CharacterDevice && self.special == (0, 0)
    }

    pub(super) fn is_directory(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// Whether both are one file.
    pub(super) fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

impl From<Statx> for Stat {
    fn from(stat: Statx) -> Self {
        let mode = u32::from(stat.stx_mode);
        let time = |secs, nanos| Timestamp { secs, nanos: i64::from(nanos) };
        Self {
            kind: FileType::from_raw_mode(mode),
            mode: mode & PERMISSIONS,
            owner: (stat.stx_uid, stat.stx_gid),
            size_bytes: stat.stx_size,
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            special: (stat.stx_rdev_major, stat.stx_rdev_minor),
            inode: stat.stx_ino,
            changed: time(stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
            modified: time(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
        }
    }
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) version: Version,
    /// None when nothing is there.
    pub(super) stat: Option<Stat>,
}

impl Found {
    pub(super) const NOTHING: Self = Self { version: Version::Absent, stat: None };
}

/// A directory below `root`, ready to be listed and synced. An empty path is the root itself. Refused as `ELOOP` when a
/// part of the path is a link.
pub(super) fn directory(root: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    open_beneath(root, path, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// The same, to reach what is in it: it may be one that must not be listed.
pub(super) fn passage(root: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    open_beneath(root, path, OFlags::PATH | OFlags::DIRECTORY)
}

fn open_beneath(root: impl AsFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)?)
}

/// Whether `error`, of opening a directory by its path, says that there is no such directory.
pub(super) fn is_missing(error: &io::Error) -> bool {
    let missing = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| missing.contains(&code))
}

/// A path's directory and its name in it. Every path of a change has both.
pub(super) fn split(path: &Path) -> io::Result<(&Path, &OsStr)> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok((parent, name)),
        _ => Err(io::Error::new(ErrorKind::InvalidInput, "the path names no file below the workspace")),
    }
}

/// The names in a directory, sorted: what is made of them is the same each time.
pub(super) fn names(directory: impl AsFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name));
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// A descriptor of what is at a name, which allows nothing but to ask for more by it.
pub(super) fn handle(directory: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(directory, name, flags, Mode::empty())?)
}

/// What is at a name; none when nothing is.
pub(super) fn stat(directory: impl AsFd, name: &OsStr) -> io::Result<Option<Stat>> {
    match rustix::fs::statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS) {
        Ok(stat) => Ok(Some(stat.into())),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What an open file is.
pub(super) fn stat_of(file: impl AsFd) -> io::Result<Stat> {
    Ok(rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?.into())
}

/// A file at a name, for reading. It need not be a regular one; opening it does not wait for the other end of a pipe.
pub(super) fn open(directory: impl AsFd, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(directory, name, flags, Mode::empty())?))
}

/// What a link leads to.
pub(super) fn target(directory: impl AsFd, name: &OsStr) -> io::Result<PathBytes> {
    Ok(PathBytes::new(rustix::fs::readlinkat(directory, name, Vec::new())?.into_bytes()))
}

/// What is at a name. The content of a file is read; what else is known of it is of the time after that.
pub(super) fn version(directory: impl AsFd, name: &OsStr) -> io::Result<Found> {
    let directory = directory.as_fd();
    let Some(stat) = stat(directory, name)? else { return Ok(Found::NOTHING) };
    let version = match stat.kind {
        FileType::Directory => Version::Directory { mode: stat.mode },
        FileType::Symlink => match target(directory, name) {
            Ok(target) => Version::Link { target },
            Err(error) => return replaced(&error).ok_or(error),
        },
        FileType::RegularFile => {
            return match open(directory, name).and_then(|file| file_version(&file)) {
                Ok(found) => Ok(found),
                Err(error) => replaced(&error).ok_or(error),
            };
        }
        _ => Version::Special,
    };
    Ok(Found { version, stat: Some(stat) })
}

/// Something was there, and now it is gone, or a link. That is for the caller to notice, who compares.
fn replaced(error: &io::Error) -> Option<Found> {
    match Errno::from_io_error(error)? {
        Errno::NOENT => Some(Found::NOTHING),
        Errno::LOOP | Errno::INVAL | Errno::NXIO => Some(Found { version: Version::Special, stat: None }),
        _ => None,
    }
}

fn file_version(file: &File) -> io::Result<Found> {
    if stat_of(file)?.kind != FileType::RegularFile {
        return Ok(Found { version: Version::Special, stat: None });
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file)?;
    let stat = stat_of(file)?;
    let digest = Digest::from_bytes(*hasher.finalize().as_bytes());
    let version = Version::File { digest, size_bytes: hasher.count(), mode: stat.mode };
    Ok(Found { version, stat: Some(stat) })
}

/// What is at a path below `root`. None when the directory that it would be in is missing, or is not one.
pub(super) fn at(root: impl AsFd, path: &Path) -> io::Result<Option<Found>> {
    let (parent, name) = split(path)?;
    match passage(root, parent) {
        Ok(parent) => version(parent, name).map(Some),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}
