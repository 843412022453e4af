//! Every change that the host makes to a stage or a workspace, one operation at a time.
//!
//! Nothing else in this module's neighbours writes. So a test that watches sees all there is to a publication: it can end it
//! before any operation, as a kill would, and tell what a loss of power would leave of those before.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use deed_journal::{Digest, PathBytes};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_OMIT, Uid};
use rustix::io::Errno;

use super::tree::{self, Stat};

/// Bytes copied at a time. At 256 KiB the system calls are lost in the noise.
const COPY_BYTES: usize = 256 << 10;

/// Until its mode is set, which may be that of a secret.
const PRIVATE: u32 = 0o600;

/// Whoever runs the file becomes its owner, or one of its group.
const SET_ID: u32 = 0o6000;

/// Owners may read a file.
pub(super) const READABLE: u32 = 0o400;

/// Owners may list, reach and change what is in a directory.
pub(super) const OPEN: u32 = 0o700;

/// Something that is done to a path below the root of a [`Disk`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation<'a> {
    /// Make an empty file, which was not there.
    Create(&'a Path),
    /// Write all of its content.
    Write(&'a Path),
    /// Make a link, which was not there.
    Symlink(&'a Path),
    /// Set mode, owner or times.
    SetAttributes(&'a Path),
    /// Make a file's content and attributes durable.
    SyncFile(&'a Path),
    /// Give a file another name. What had that name is gone.
    Rename { from: &'a Path, to: &'a Path },
    /// Give a file one more name, which was not there.
    Link { from: &'a Path, to: &'a Path },
    /// Remove what is no directory.
    Unlink(&'a Path),
    /// Make a directory, which was not there.
    MakeDirectory(&'a Path),
    /// Remove an empty directory.
    RemoveDirectory(&'a Path),
    /// Make a directory's names durable.
    SyncDirectory(&'a Path),
}

/// Sees each operation before it is done.
pub(super) trait Observer {
    /// An error keeps the operation from being done. From then on it has to fail always, as for a dead process.
    fn before(&self, operation: Operation<'_>) -> io::Result<()>;

    /// Whether the disk is asked to make things durable. Who decides himself what is lost need not wait for it.
    fn syncs(&self) -> bool {
        true
    }
}

/// Sees nothing.
pub(super) struct Unobserved;

impl Observer for Unobserved {
    fn before(&self, _: Operation<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// A directory, and the only hands that change what is below it. All paths are relative to it, and no link is followed.
pub(super) struct Disk<'a> {
    root: BorrowedFd<'a>,
    observer: &'a dyn Observer,
}

impl<'a> Disk<'a> {
    pub(super) fn new(root: &'a impl AsFd, observer: &'a dyn Observer) -> Self {
        Self { root: root.as_fd(), observer }
    }

    pub(super) fn root(&self) -> BorrowedFd<'a> {
        self.root
    }

    fn place<'p>(&self, path: &'p Path) -> io::Result<(OwnedFd, &'p OsStr)> {
        let (parent, name) = tree::split(path)?;
        Ok((tree::passage(self.root, parent)?, name))
    }

    /// What is at a path, without its content; none when nothing is, or there is no such directory.
    pub(super) fn stat(&self, path: &Path) -> io::Result<Option<Stat>> {
        match self.place(path) {
            Ok((parent, name)) => tree::stat(parent, name),
            Err(error) if tree::is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Make an empty file that only its owner can read.
    pub(super) fn create(&self, path: &Path) -> io::Result<File> {
        let (parent, name) = self.place(path)?;
        self.observer.before(Operation::Create(path))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(PRIVATE))?))
    }

    /// Copy all of `source` into the empty `file` at `path`; returns what it was.
    pub(super) fn fill(&self, path: &Path, mut file: &File, mut source: &File) -> io::Result<(Digest, u64)> {
        self.observer.before(Operation::Write(path))?;
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; COPY_BYTES];
        loop {
            match source.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => {
                    hasher.update(&buffer[..read]);
                    file.write_all(&buffer[..read])?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok((Digest::from_bytes(*hasher.finalize().as_bytes()), hasher.count()))
    }

    /// Make a link.
    pub(super) fn symlink(&self, target: &PathBytes, path: &Path) -> io::Result<()> {
        let (parent, name) = self.place(path)?;
        self.observer.before(Operation::Symlink(path))?;
        Ok(rustix::fs::symlinkat(target.as_path(), parent, name)?)
    }

    /// Give a file the mode of its new version, and of `like` the time of modification, and the owner where that is allowed.
    /// Says whether that changed anything.
    pub(super) fn set_attributes(
        &self,
        path: &Path,
        file: &File,
        mode: u32,
        like: &Stat,
    ) -> io::Result<bool> {
        let own = tree::stat_of(file)?;
        if (own.mode, own.owner, own.modified) == (mode, like.owner, like.modified) {
            return Ok(false);
        }
        self.observer.before(Operation::SetAttributes(path))?;
        // A new owner takes set-user-id away, and a crash then would leave a mode that nobody set: such a file keeps its owner,
        // unless it is still to be renamed, when it has no such mode yet.
        if own.owner != like.owner && own.mode & SET_ID == 0 {
            let (owner, group) = like.owner;
            // Only root may give files away. Anybody else becomes the owner, as with an editor.
            let _ = rustix::fs::fchown(file, Some(Uid::from_raw(owner)), Some(Gid::from_raw(group)));
        }
        if tree::stat_of(file)?.mode != mode {
            rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?;
        }
        match rustix::fs::futimens(file, &modified(like)) {
            // A file of somebody else's, with the right content: it keeps its time.
            Err(Errno::PERM) => Ok(true),
            set => Ok(set.map(|()| true)?),
        }
    }

    /// Give a link or a directory an owner, where that is allowed.
    pub(super) fn set_owner(&self, path: &Path, owner: (u32, u32)) -> io::Result<()> {
        let (parent, name) = self.place(path)?;
        if tree::stat(&parent, name)?.is_none_or(|own| own.owner == owner) {
            return Ok(());
        }
        self.observer.before(Operation::SetAttributes(path))?;
        let (owner, group) = (Uid::from_raw(owner.0), Gid::from_raw(owner.1));
        let _ = rustix::fs::chownat(parent, name, Some(owner), Some(group), AtFlags::SYMLINK_NOFOLLOW);
        Ok(())
    }

    /// Set the mode of a directory, which its owner need not be able to read.
    pub(super) fn set_directory_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        let directory = tree::passage(self.root, path)?;
        if tree::stat_of(&directory)?.mode == mode {
            return Ok(());
        }
        self.observer.before(Operation::SetAttributes(path))?;
        set_mode(&directory, mode)
    }

    /// Set the mode that a directory keeps, and make it durable. Its owner may be unable to do so afterwards.
    pub(super) fn close_directory(&self, path: &Path, mode: u32) -> io::Result<()> {
        let directory = match tree::directory(self.root, path) {
            Err(error) if tree::is_missing(&error) => return Ok(()),
            directory => directory?,
        };
        self.observer.before(Operation::SetAttributes(path))?;
        rustix::fs::fchmod(&directory, Mode::from_raw_mode(mode))?;
        self.sync_open_directory(path, &directory)
    }

    /// Make a file durable.
    pub(super) fn sync_file(&self, path: &Path, file: &File) -> io::Result<()> {
        self.observer.before(Operation::SyncFile(path))?;
        if self.observer.syncs() { file.sync_all() } else { Ok(()) }
    }

    /// Give a file a new name. Unless it may `replace`, a name that is taken is an error: `AlreadyExists`.
    pub(super) fn rename(&self, from: &Path, to: &Path, replace: bool) -> io::Result<()> {
        let ((from_parent, from_name), (to_parent, to_name)) = (self.place(from)?, self.place(to)?);
        self.observer.before(Operation::Rename { from, to })?;
        if !replace {
            let flags = RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(&from_parent, from_name, &to_parent, to_name, flags) {
                // A file system that cannot.
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
                done => return Ok(done?),
            }
        }
        Ok(rustix::fs::renameat(from_parent, from_name, to_parent, to_name)?)
    }

    /// Give a file one more name.
    pub(super) fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((from_parent, from_name), (to_parent, to_name)) = (self.place(from)?, self.place(to)?);
        self.observer.before(Operation::Link { from, to })?;
        Ok(rustix::fs::linkat(from_parent, from_name, to_parent, to_name, AtFlags::empty())?)
    }

    /// Remove what is no directory, if it is there.
    pub(super) fn unlink(&self, path: &Path) -> io::Result<()> {
        self.remove(path, AtFlags::empty(), Operation::Unlink(path))
    }

    /// Remove a directory, if it is there; false when it is not empty.
    pub(super) fn remove_directory(&self, path: &Path) -> io::Result<bool> {
        match self.remove(path, AtFlags::REMOVEDIR, Operation::RemoveDirectory(path)) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            done => done.map(|()| true),
        }
    }

    fn remove(&self, path: &Path, flags: AtFlags, operation: Operation<'_>) -> io::Result<()> {
        let (parent, name) = match self.place(path) {
            Err(error) if tree::is_missing(&error) => return Ok(()),
            place => place?,
        };
        if tree::stat(&parent, name)?.is_none() {
            return Ok(());
        }
        self.observer.before(operation)?;
        match rustix::fs::unlinkat(parent, name, flags) {
            Err(Errno::NOENT) => Ok(()),
            done => Ok(done?),
        }
    }

    /// Make a directory that only its owner can use.
    pub(super) fn make_directory(&self, path: &Path) -> io::Result<()> {
        let (parent, name) = self.place(path)?;
        self.observer.before(Operation::MakeDirectory(path))?;
        Ok(rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(OPEN))?)
    }

    /// Make the names in a directory durable, and its own attributes; false when it is not there.
    pub(super) fn sync_directory(&self, path: &Path) -> io::Result<bool> {
        let directory = match tree::directory(self.root, path) {
            Err(error) if tree::is_missing(&error) => return Ok(false),
            directory => directory?,
        };
        self.sync_open_directory(path, &directory)?;
        Ok(true)
    }

    fn sync_open_directory(&self, path: &Path, directory: &OwnedFd) -> io::Result<()> {
        self.observer.before(Operation::SyncDirectory(path))?;
        if self.observer.syncs() { Ok(rustix::fs::fsync(directory)?) } else { Ok(()) }
    }
}

/// Set the mode of what a descriptor is of, that need not be open for reading.
pub(super) fn set_mode(file: &OwnedFd, mode: u32) -> io::Result<()> {
    // The call that takes such a descriptor is newer than the kernels we run on; this name is no link to be followed.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::chmod(path, Mode::from_raw_mode(mode))?)
}

fn modified(like: &Stat) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: like.modified.secs, tv_nsec: like.modified.nanos },
    }
}
