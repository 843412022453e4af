//! Opening a journal: one owner, named while it lives.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::id::StoreId;
use crate::record::ReadError;
use crate::storage::StorageError;

/// Why a journal could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no file.
    #[error("there is no journal at `{}`", .0.display())]
    Missing(PathBuf),
    /// Another process owns it.
    #[error("journal `{}` is in use by process {}", path.display(), pid.map_or_else(|| "(unknown)".to_owned(), |pid| pid.to_string()))]
    InUse {
        /// The journal.
        path: PathBuf,
        /// The owner, if it could be told.
        pid: Option<u32>,
    },
    /// Another process reads it: try again in a moment.
    #[error("journal `{}` is being read by another process", .0.display())]
    BeingRead(PathBuf),
    /// It was not closed cleanly, and a reader cannot repair it: open it as its owner first.
    #[error("journal `{}` was not closed cleanly; a writer has to open it first", .0.display())]
    NeedsRepair(PathBuf),
    /// The file is empty, and an earlier owner found a store in it.
    #[error(
        "journal `{}` was emptied: it held store {store}; put a backup in its place, or remove `{}.owner` to begin anew",
        path.display(),
        path.display()
    )]
    Emptied {
        /// The journal.
        path: PathBuf,
        /// The store that is lost.
        store: StoreId,
    },
    /// The file is something else.
    #[error("`{}` is no journal; name another file, or none for the default", .0.display())]
    NotAJournal(PathBuf),
    /// It is damaged, or of a newer version.
    #[error("journal `{}` cannot be read: {source}", path.display())]
    Unreadable {
        /// The journal.
        path: PathBuf,
        /// What is wrong.
        source: ReadError,
    },
    /// The system failed.
    #[error("failed to open journal `{}`: {source}", path.display())]
    Io {
        /// The file concerned.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path: path.clone(), source }
    }

    pub(crate) fn storage(path: &Path) -> impl Fn(StorageError) -> Self {
        let path = path.to_owned();
        move |error| match error {
            StorageError::NotAStore => Self::NotAJournal(path.clone()),
            StorageError::NeedsRepair => Self::NeedsRepair(path.clone()),
            StorageError::InUse => Self::BeingRead(path.clone()),
            StorageError::Io(source) => Self::Io { path: path.clone(), source },
            StorageError::Lost(_) => Self::Io { path: path.clone(), source: io::Error::other(error) },
            StorageError::Damaged(_) => Self::Unreadable { path: path.clone(), source: error.into() },
        }
    }

    pub(crate) fn read(path: &Path) -> impl Fn(ReadError) -> Self {
        let path = path.to_owned();
        move |source| Self::Unreadable { path: path.clone(), source }
    }
}

/// The one record about the store itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoreRecord {
    pub(crate) id: StoreId,
    /// +1 with every opening by an owner. A commit names the one it belongs to.
    pub(crate) generation: u64,
    /// Runs created so far: the number of the next one.
    pub(crate) created: u64,
    /// Runs that are there: a run that vanishes is noticed.
    pub(crate) runs: u64,
}

impl StoreRecord {
    pub(crate) fn missing() -> ReadError {
        ReadError::Damaged { record: "store".to_owned(), reason: "it is missing".to_owned() }
    }
}

/// The lock that makes a process the owner. It holds the process's id for others to read; the id alone locks nothing.
#[derive(Debug)]
pub(crate) struct OwnerLock {
    file: File,
    /// The store that an earlier owner found here.
    pub(crate) known: Option<StoreId>,
}

impl OwnerLock {
    /// Become the owner of the journal at `journal`, or learn who is.
    pub(crate) fn acquire(journal: &Path) -> Result<Self, OpenError> {
        let path = Self::path(journal);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(OpenError::io(&path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::InUse { path: journal.to_owned(), pid: Self::holder(journal) });
            }
            Err(TryLockError::Error(error)) => return Err(OpenError::io(&path)(error)),
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(OpenError::io(&path))?;
        let known = text.lines().nth(1).and_then(|line| line.parse().ok());
        let mut lock = Self { file, known };
        lock.write(known).map_err(OpenError::io(&path))?;
        Ok(lock)
    }

    /// The file is gone: somebody removed it, and a new store begins.
    pub(crate) fn forget(&mut self, journal: &Path) -> Result<(), OpenError> {
        self.known = None;
        self.write(None).map_err(OpenError::io(&Self::path(journal)))
    }

    /// Write down which store is here, so that one that was emptied since is not taken for a new one.
    pub(crate) fn remember(&mut self, journal: &Path, store: StoreId) -> Result<(), OpenError> {
        if self.known == Some(store) {
            return Ok(());
        }
        self.write(Some(store)).map_err(OpenError::io(&Self::path(journal)))
    }

    fn write(&mut self, store: Option<StoreId>) -> io::Result<()> {
        let store = store.map_or_else(String::new, |store| format!("{store}\n"));
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(format!("{}\n{store}", std::process::id()).as_bytes())
    }

    /// The process that owns the journal, as it wrote itself down.
    pub(crate) fn holder(journal: &Path) -> Option<u32> {
        let mut text = String::new();
        File::open(Self::path(journal)).ok()?.read_to_string(&mut text).ok()?;
        text.lines().next()?.parse().ok()
    }

    pub(crate) fn path(journal: &Path) -> PathBuf {
        beside(journal, "owner")
    }
}

/// A file that belongs to the journal: `journal.redb` has `journal.redb.owner`.
pub(crate) fn beside(journal: &Path, suffix: &str) -> PathBuf {
    let mut name = journal.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    PathBuf::from(name)
}
