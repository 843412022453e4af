//! The stage: where a contained call does what it does, until its outcome commits.
//!
//! A stage is a directory beside the journal. The call runs on an overlay, with the workspace below and the stage above (see
//! `mount`). `changes::collect` says afterwards what it changed, and where somebody else was there in the meantime.
//! `sync::sync` makes the staged files durable, so that the outcome may be, with the list of the changes.
//! `publish::publish` brings them into the workspace; after a crash, the same again finishes it.
//!
//! Of a file, its content is published, its permission bits, the time it was modified, and its owner where the system lets
//! us. Extended attributes and access lists are not, two names of one file become two files, and the workspace's own
//! directory keeps its permissions.

mod changes;
mod diff;
mod disk;
mod git_paths;
mod locks;
mod mount;
mod order;
mod possible;
mod publish;
mod sync;
mod tree;

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cap_std::fs::Dir;
use deed_journal::Change;

pub use self::mount::{MountError, Mounted};
pub(crate) use self::possible::refusal;

pub(crate) use self::changes::Collected;
pub(crate) use self::publish::Left;

use self::mount::{UPPER, View, WORK};
use self::publish::Publication;

/// A stage that could not be made, read, published or dropped.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// A file of the stage, or of the workspace.
    #[error("{doing} `{}`: {source}", path.display())]
    File {
        /// What was to be done.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// What the outcome says is not what is staged.
    #[error(
        "publish `{}`: the file in the stage is not the one that was committed; somebody changed it, or the disk lost it",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// Git's lock is a file that must come into being as a whole.
    #[error(
        "take the lock of `{}`: {source}; its file system knows no hard links, so keep the repository on one that does",
        path.display()
    )]
    NoHardLinks {
        /// The file that the lock guards.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// Git, or somebody for it, is at work in the repository.
    #[error("take the lock `{}`, which somebody holds; when no git is at work there any more, remove it", lock.display())]
    Locked {
        /// The lock.
        lock: PathBuf,
    },
    /// A mount.
    #[error("{0}")]
    Mount(#[from] MountError),
}

impl StageError {
    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { doing, path, source }
    }
}

/// An instant by which the workspace's file system tells changes that were made before the call from those made since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timestamp {
    pub(crate) secs: i64,
    pub(crate) nanos: i64,
}

impl Timestamp {
    fn changed(metadata: &fs::Metadata) -> Self {
        Self { secs: metadata.ctime(), nanos: metadata.ctime_nsec() }
    }
}

/// The stage of one attempt, on its disk.
#[derive(Debug)]
pub(crate) struct Stage {
    directory: PathBuf,
    workspace: PathBuf,
}

impl Stage {
    /// The stage in `directory` over `workspace`; both absolute, without links. Nothing is made or looked at.
    pub(crate) fn new(directory: PathBuf, workspace: PathBuf) -> Self {
        Self { directory, workspace }
    }

    /// Make it anew, and mount it, for commands too or for files alone.
    pub(crate) fn mount(
        &self,
        home: Option<&Path>,
        commands: bool,
    ) -> Result<(Arc<Mounted>, Timestamp), StageError> {
        self.remove()?;
        let private = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path);
        private(&self.directory).map_err(StageError::file("create", &self.directory))?;
        for (upper, work) in WORK {
            let (lower, is_needed) = match upper {
                UPPER => (Some(&*self.workspace), true),
                _ => (home, commands),
            };
            if !is_needed {
                continue;
            }
            for name in [upper, work] {
                let path = self.directory.join(name);
                private(&path).map_err(StageError::file("create", &path))?;
            }
            // In the overlay, the root is what the upper one is.
            if let Some(Ok(lower)) = lower.map(fs::metadata) {
                let path = self.directory.join(upper);
                like(&path, &lower).map_err(StageError::file("set the mode of", &path))?;
            }
        }
        let view = View::new(&self.workspace, &self.directory, home, commands)
            .map_err(StageError::file("mount", &self.workspace))?;
        let mounted = view.mount()?;
        Ok((Arc::new(mounted), self.now()?))
    }

    /// Later than every change that was made until now, and no later than any that is made from now on: files carry the
    /// time of the kernel's last tick, or a finer one when somebody has looked, so it is a file's change that tells.
    fn now(&self) -> Result<Timestamp, StageError> {
        /// Between two looks; a tick takes ten milliseconds at most.
        const A_WHILE: Duration = Duration::from_micros(200);
        let path = self.directory.join("began");
        let failed = |error| StageError::file("look at the clock of", &path)(error);
        let file = File::create(&path).map_err(failed)?;
        let changed = || file.metadata().map(|metadata| Timestamp::changed(&metadata));
        let first = changed().map_err(failed)?;
        loop {
            file.set_permissions(Permissions::from_mode(0o600)).map_err(failed)?;
            let now = changed().map_err(failed)?;
            if now > first {
                return Ok(now);
            }
            std::thread::sleep(A_WHILE);
        }
    }

    /// What the call changed that `began` to run on this stage at that time.
    pub(crate) fn collect(&self, began: Timestamp) -> Result<Collected, StageError> {
        changes::collect(&self.upper()?, &self.lower()?, began)
    }

    /// Make durable what is going to be published.
    pub(crate) fn sync(&self, changes: &[Change]) -> Result<(), StageError> {
        // Everybody's stages are in one directory, which is made with the first of them, beside the journal.
        let root = self.directory.ancestors().nth(2).unwrap_or(Path::new("/"));
        let written = self.written();
        let upper = written.strip_prefix(root).unwrap_or(&written);
        sync::sync(&open(root)?, upper, changes)
    }

    /// Bring the changes into the workspace, whatever an earlier process did of it; what is left has a version of somebody else's,
    /// which stays unless it is to be replaced. `key` tells the temporary files of this call from all others; `passed` is told
    /// the place of each change once it is there.
    pub(crate) fn publish(
        &self,
        changes: &[Change],
        key: &str,
        replace: bool,
        passed: &dyn Fn(usize),
    ) -> Result<Vec<Left>, StageError> {
        let workspace = &self.lower()?;
        let upper = &match self.upper() {
            Err(StageError::File { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return publish::lost(workspace, changes);
            }
            upper => upper?,
        };
        publish::publish(&Publication { changes, upper, workspace, key, replace, passed })
    }

    /// The workspace.
    pub(crate) fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// Where the files are that the call wrote.
    pub(crate) fn written(&self) -> PathBuf {
        self.directory.join(UPPER)
    }

    /// What the call wrote.
    fn upper(&self) -> Result<Dir, StageError> {
        open(&self.written())
    }

    /// The workspace as it is.
    fn lower(&self) -> Result<Dir, StageError> {
        open(&self.workspace)
    }

    /// Drop it, if it is there.
    pub(crate) fn remove(&self) -> Result<(), StageError> {
        remove(&self.directory).map_err(StageError::file("remove", &self.directory))
    }
}

fn open(path: &Path) -> Result<Dir, StageError> {
    Dir::open_ambient_dir(path, cap_std::ambient_authority()).map_err(StageError::file("open", path))
}

/// Give a directory the mode of another, and its owner where that is allowed.
fn like(path: &Path, other: &fs::Metadata) -> io::Result<()> {
    let own = fs::metadata(path)?;
    if (own.uid(), own.gid()) != (other.uid(), other.gid()) {
        let _ = std::os::unix::fs::chown(path, Some(other.uid()), Some(other.gid()));
    }
    fs::set_permissions(path, other.permissions())
}

/// Remove a directory and all in it, also what its owner may not read: an overlay leaves such, and a command may.
pub(crate) fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            open_up(directory)?;
            fs::remove_dir_all(directory)
        }
        done => done,
    }
}

fn open_up(directory: &Path) -> io::Result<()> {
    fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        // Not followed: a link is no directory.
        if entry.file_type()?.is_dir() {
            open_up(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
