//! A copy of what a journal holds, made of one view of it, whoever owns it meanwhile.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::reader::Reader;
use crate::record;
use crate::redb_store::RedbStore;
use crate::storage::{Durability, Snapshot, Storage, StorageError, Transaction};

/// Written per transaction: what a transaction changes is held in memory until it commits.
const BATCH_BYTES: u64 = 8 << 20;

/// What a backup holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BackedUp {
    /// Records.
    pub records: u64,
    /// The size of its file.
    pub bytes: u64,
    /// Records among them that are damaged, copied as they are.
    pub damaged: u64,
}

/// Why there is no backup. Nothing is left at its place.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// Something is there already.
    #[error("`{}` exists; a backup replaces nothing", .0.display())]
    Exists(PathBuf),
    /// The journal could not be read.
    #[error(transparent)]
    Read(StorageError),
    /// The backup could not be written.
    #[error("failed to write `{}`: {source}", path.display())]
    Write {
        /// The backup.
        path: PathBuf,
        /// What failed.
        source: io::Error,
    },
}

impl BackupError {
    fn io(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Write { path: path.to_owned(), source }
    }

    fn write(path: &Path) -> impl Fn(StorageError) -> Self {
        move |error| {
            Self::io(path)(match error {
                StorageError::Io(error) => error,
                other => io::Error::other(other),
            })
        }
    }
}

impl Reader {
    /// Copy every record, as of one instant, to a new journal at `to` that its owner alone can read. It is written beside
    /// its place and put there when it is whole and durable; a process that is killed leaves a `.deed-backup-…` there at
    /// most. `progress` is told records and bytes copied so far.
    ///
    /// The copy is the same store, with the same id. What lies beside the journal is not copied: of a call that the copy
    /// finds under way nothing is proven, and the owner is asked where the class says so.
    ///
    /// # Errors
    /// [`BackupError::Exists`]; the journal's store fails, or is damaged in its own structure; `to` cannot be written.
    pub fn backup(&self, to: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<BackedUp, BackupError> {
        if to.symlink_metadata().is_ok() {
            return Err(BackupError::Exists(to.to_owned()));
        }
        let directory = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // Its mode is 0600.
        let beside = tempfile::Builder::new()
            .prefix(".deed-backup-")
            .tempfile_in(directory)
            .map_err(BackupError::io(to))?;
        let store = RedbStore::open(beside.path()).map_err(BackupError::write(to))?;
        let view = self.view().map_err(BackupError::Read)?;
        let mut done = Copying::begin(to, &store)?.everything(&*view, progress)?;
        // Closed cleanly, so that a reader can have it.
        drop(store);
        beside.as_file().sync_all().map_err(BackupError::io(to))?;
        done.bytes = beside.as_file().metadata().map_err(BackupError::io(to))?.len();
        beside.persist_noclobber(to).map_err(|error| match error.error.kind() {
            io::ErrorKind::AlreadyExists => BackupError::Exists(to.to_owned()),
            _ => BackupError::io(to)(error.error),
        })?;
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(BackupError::io(to))?;
        Ok(done)
    }
}

/// A backup in the making.
struct Copying<'a> {
    to: &'a Path,
    store: &'a RedbStore,
    /// The open transaction: there until the end.
    batch: Option<Box<dyn Transaction + 'a>>,
    in_batch: u64,
    done: BackedUp,
}

impl<'a> Copying<'a> {
    fn begin(to: &'a Path, store: &'a RedbStore) -> Result<Self, BackupError> {
        let batch = Some(store.begin().map_err(BackupError::write(to))?);
        Ok(Self { to, store, batch, in_batch: 0, done: BackedUp::default() })
    }

    fn everything(
        mut self,
        view: &dyn Snapshot,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<BackedUp, BackupError> {
        let mut copied = Ok(());
        let read = view.scan(&[], &mut |key, value| {
            copied = self.add(key, value);
            progress(self.done.records, self.done.bytes);
            copied.is_ok()
        });
        copied.map_err(BackupError::write(self.to))?;
        read.map_err(BackupError::Read)?;
        self.commit(Durability::DurableForQuickOpen).map_err(BackupError::write(self.to))?;
        Ok(self.done)
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<(), StorageError> {
        if self.in_batch >= BATCH_BYTES {
            self.commit(Durability::Riding)?;
            self.batch = Some(self.store.begin()?);
            self.in_batch = 0;
        }
        let bytes = (key.len() + value.len()) as u64;
        self.batch.as_mut().expect("one is begun whenever one is committed").put(key, value)?;
        self.in_batch += bytes;
        self.done.records += 1;
        self.done.bytes += bytes;
        self.done.damaged += u64::from(record::is_damaged(key, value));
        Ok(())
    }

    fn commit(&mut self, durability: Durability) -> Result<(), StorageError> {
        self.batch.take().map_or(Ok(()), |batch| batch.commit(durability))
    }
}
