//! The store on redb: the only module that names it.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::backends::FileBackend;
use redb::{
    BackendError, Builder, CommitError, CompactionError, Database, DatabaseError, ReadOnlyDatabase,
    ReadTransaction, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition, TableError,
    TransactionError, WriteTransaction,
};

use crate::medium::{IfHeld, LockMode, LockRange, Medium};
use crate::storage::{Durability, IoCounts, Snapshot, Storage, StorageError, Transaction};

/// What commits together lies together: one table, whose keys begin with the run or the session.
const RECORDS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");

/// redb's default is 1 GiB. A turn touches some dozens of 4 KiB pages; 32 MiB hold the upper levels of a tree over tens
/// of millions of records and the recent leaves of many runs.
const CACHE_BYTES: usize = 32 << 20;

/// What every redb file begins with. redb writes it last when it creates a store.
const MAGIC: &[u8; 9] = b"redb\x1a\x0a\xa9\x0d\x0a";

/// Of them, those that tell a store that is damaged from a file that is something else.
const MAGIC_NAME: usize = 4;

/// redb's header: all it has written when the creation of a store is cut short.
const HEADER_BYTES: usize = 320;

/// A store whose creation was cut short is no longer than this: redb begins with about 100 KiB.
const NEW_STORE_BYTES: u64 = 1 << 20;

/// What a medium holds.
#[derive(Debug, PartialEq, Eq)]
enum Content {
    Nothing,
    /// The beginning of a store that nobody has ever written to: a crash came in between.
    Unfinished,
    Store,
    SomethingElse,
}

impl Content {
    fn of(medium: &dyn Medium) -> io::Result<Self> {
        let len = medium.len()?;
        let start = |bytes: u64| {
            let mut start = vec![0; usize::try_from(len.min(bytes)).expect("it is at most 1 MiB")];
            medium.read(0, &mut start).map(|()| start)
        };
        let found = start(MAGIC.len() as u64)?;
        if found.is_empty() {
            return Ok(Self::Nothing);
        }
        if found == MAGIC {
            return Ok(Self::Store);
        }
        let torn = found.iter().zip(MAGIC).all(|(found, magic)| found == magic || *found == 0);
        if torn && len <= NEW_STORE_BYTES && start(len)?.iter().skip(HEADER_BYTES).all(|byte| *byte == 0) {
            return Ok(Self::Unfinished);
        }
        // One that is damaged in the rest of its magic is left to redb, which says so.
        Ok(if found.starts_with(&MAGIC[..MAGIC_NAME]) { Self::Store } else { Self::SomethingElse })
    }
}

/// Refuse a file that is no store before anything is written beside it. An empty file will become one.
pub(crate) fn check(path: &Path) -> Result<(), StorageError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(StorageError::Io(error)),
    };
    match Content::of(&*file_medium(file)?).map_err(StorageError::Io)? {
        Content::SomethingElse => Err(StorageError::NotAStore),
        Content::Nothing | Content::Unfinished | Content::Store => Ok(()),
    }
}

/// A store in a redb file, or on another medium.
pub struct RedbStore {
    handle: Handle,
    counters: Arc<Counters>,
}

enum Handle {
    Writer(Database),
    Reader(ReadOnlyDatabase),
}

impl RedbStore {
    /// Open for writing, creating the file if it is missing. Repairs after a crash.
    pub fn open(path: &Path) -> Result<Self, StorageError> {
        let file = owner_only().create(true).open(path).map_err(StorageError::Io)?;
        Self::open_medium(file_medium(file)?)
    }

    /// Open a cleanly closed file for reading, beside other readers. Writes nothing.
    pub fn open_read_only(path: &Path) -> Result<Self, StorageError> {
        let file = OpenOptions::new().read(true).open(path).map_err(StorageError::Io)?;
        Self::open_medium_read_only(file_medium(file)?)
    }

    /// Open `medium` for writing, creating the store if it is empty. Repairs after a crash, and creates the store again
    /// if the crash came while it was created.
    pub fn open_medium(medium: Box<dyn Medium>) -> Result<Self, StorageError> {
        match Content::of(&*medium).map_err(StorageError::Io)? {
            Content::Unfinished => medium.set_len(0).map_err(StorageError::Io)?,
            Content::SomethingElse => return Err(StorageError::NotAStore),
            Content::Nothing | Content::Store => {}
        }
        let counters = Arc::new(Counters::default());
        let backend = Counting { medium, counters: Arc::clone(&counters) };
        let database = builder().create_with_backend(backend).map_err(database_error)?;
        Ok(Self { handle: Handle::Writer(database), counters })
    }

    /// Open `medium`, whose store was closed cleanly, for reading. Writes nothing.
    pub fn open_medium_read_only(medium: Box<dyn Medium>) -> Result<Self, StorageError> {
        match Content::of(&*medium).map_err(StorageError::Io)? {
            Content::Nothing | Content::Unfinished => return Err(StorageError::NeedsRepair),
            Content::SomethingElse => return Err(StorageError::NotAStore),
            Content::Store => {}
        }
        let counters = Arc::new(Counters::default());
        let backend = Counting { medium, counters: Arc::clone(&counters) };
        let database = builder().open_read_only_with_backend(backend).map_err(database_error)?;
        Ok(Self { handle: Handle::Reader(database), counters })
    }
}

impl RedbStore {
    /// Move what is stored to the front of the medium and cut off the rest. Refused while anybody reads.
    pub fn compact(&mut self) -> Result<(), StorageError> {
        match &mut self.handle {
            Handle::Writer(database) => database.compact().map(drop).map_err(compaction_error),
            Handle::Reader(_) => {
                Err(StorageError::Io(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "opened for reading")))
            }
        }
    }
}

fn file_medium(file: File) -> Result<Box<dyn Medium>, StorageError> {
    Ok(Box::new(FileBackend::new(file).map_err(database_error)?))
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

#[cfg(unix)]
fn owner_only() -> OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = OpenOptions::new();
    options.read(true).write(true).truncate(false).mode(0o600);
    options
}

impl Storage for RedbStore {
    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, StorageError> {
        let transaction = match &self.handle {
            Handle::Writer(database) => database.begin_read(),
            Handle::Reader(database) => database.begin_read(),
        };
        Ok(Box::new(View(transaction.map_err(transaction_error)?)))
    }

    fn begin(&self) -> Result<Box<dyn Transaction + '_>, StorageError> {
        match &self.handle {
            Handle::Writer(database) => {
                Ok(Box::new(Write(database.begin_write().map_err(transaction_error)?)))
            }
            Handle::Reader(_) => {
                Err(StorageError::Io(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "opened for reading")))
            }
        }
    }

    fn io_counts(&self) -> IoCounts {
        self.counters.get()
    }
}

struct View(ReadTransaction);

impl Snapshot for View {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        match self.0.open_table(RECORDS) {
            Ok(table) => get(&table, key),
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(table_error(error)),
        }
    }

    fn scan(&self, prefix: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StorageError> {
        match self.0.open_table(RECORDS) {
            Ok(table) => scan(&table, prefix, each),
            Err(TableError::TableDoesNotExist(_)) => Ok(()),
            Err(error) => Err(table_error(error)),
        }
    }
}

struct Write(WriteTransaction);

impl Snapshot for Write {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        get(&self.0.open_table(RECORDS).map_err(table_error)?, key)
    }

    fn scan(&self, prefix: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StorageError> {
        scan(&self.0.open_table(RECORDS).map_err(table_error)?, prefix, each)
    }
}

impl Transaction for Write {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StorageError> {
        let mut table = self.0.open_table(RECORDS).map_err(table_error)?;
        table.insert(key, value).map_err(storage_error)?;
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), StorageError> {
        let mut table = self.0.open_table(RECORDS).map_err(table_error)?;
        table.remove(key).map_err(storage_error)?;
        Ok(())
    }

    fn commit(mut self: Box<Self>, durability: Durability) -> Result<(), StorageError> {
        let level = match durability {
            Durability::Riding => redb::Durability::None,
            Durability::Durable | Durability::DurableForQuickOpen => redb::Durability::Immediate,
        };
        self.0.set_durability(level).map_err(|error| StorageError::Damaged(error.to_string()))?;
        self.0.set_quick_repair(durability == Durability::DurableForQuickOpen);
        self.0.commit().map_err(|error| match error {
            CommitError::Storage(error) => storage_error(error),
            other => StorageError::Damaged(other.to_string()),
        })
    }
}

fn get(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    key: &[u8],
) -> Result<Option<Vec<u8>>, StorageError> {
    Ok(table.get(key).map_err(storage_error)?.map(|value| value.value().to_vec()))
}

fn scan(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    prefix: &[u8],
    each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
) -> Result<(), StorageError> {
    for pair in table.range(prefix..).map_err(storage_error)? {
        let (key, value) = pair.map_err(storage_error)?;
        if !key.value().starts_with(prefix) || !each(key.value(), value.value()) {
            break;
        }
    }
    Ok(())
}

fn storage_error(error: redb::StorageError) -> StorageError {
    match error {
        redb::StorageError::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
            StorageError::Damaged(error.to_string())
        }
        redb::StorageError::Io(error) => StorageError::Io(error),
        redb::StorageError::Corrupted(what) => StorageError::Damaged(what),
        other => StorageError::Io(io::Error::other(other.to_string())),
    }
}

fn transaction_error(error: TransactionError) -> StorageError {
    match error {
        TransactionError::Storage(error) => storage_error(error),
        other => StorageError::Io(io::Error::other(other.to_string())),
    }
}

fn compaction_error(error: CompactionError) -> StorageError {
    match error {
        CompactionError::Storage(error) => storage_error(error),
        other => StorageError::Io(io::Error::other(other.to_string())),
    }
}

fn table_error(error: TableError) -> StorageError {
    match error {
        TableError::Storage(error) => storage_error(error),
        other => StorageError::Damaged(other.to_string()),
    }
}

fn database_error(error: DatabaseError) -> StorageError {
    match error {
        DatabaseError::DatabaseAlreadyOpen => StorageError::InUse,
        DatabaseError::RepairAborted => StorageError::NeedsRepair,
        DatabaseError::UpgradeRequired(version) => {
            StorageError::Damaged(format!("its file format {version} is not the one this version writes"))
        }
        DatabaseError::Storage(error) => storage_error(error),
        other => StorageError::Damaged(other.to_string()),
    }
}

#[derive(Debug, Default)]
struct Counters {
    syncs: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
}

impl Counters {
    fn get(&self) -> IoCounts {
        IoCounts {
            syncs: self.syncs.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
        }
    }
}

/// A medium as redb wants it, counting what it is asked to do.
#[derive(Debug)]
struct Counting {
    medium: Box<dyn Medium>,
    counters: Arc<Counters>,
}

impl StorageBackend for Counting {
    fn len(&self) -> Result<u64, io::Error> {
        self.medium.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.medium.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.medium.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        self.medium.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        self.counters.written_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        self.medium.write(offset, data)
    }

    fn close(&self) -> Result<(), io::Error> {
        self.medium.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        Ok(self.medium.lock((start, end), LockMode::Exclusive, IfHeld::GiveUp)?)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        Ok(self.medium.lock((start, end), LockMode::Shared, IfHeld::GiveUp)?)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.medium.lock((start, end), LockMode::Exclusive, IfHeld::Wait)?;
        Ok(())
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.medium.lock((start, end), LockMode::Shared, IfHeld::Wait)?;
        Ok(())
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        Ok(self.medium.unlock((start, end))?)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        Ok(self.medium.is_locked((start, end))?)
    }
}

/// A file. Its locks are those that every program on redb takes, so that any of them is kept out.
impl Medium for FileBackend {
    fn len(&self) -> io::Result<u64> {
        StorageBackend::len(self)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        StorageBackend::read(self, offset, out)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        StorageBackend::write(self, offset, data)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        StorageBackend::set_len(self, len)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn close(&self) -> io::Result<()> {
        StorageBackend::close(self)
    }

    fn lock(&self, (start, end): LockRange, mode: LockMode, if_held: IfHeld) -> io::Result<bool> {
        let taken = match (mode, if_held) {
            (LockMode::Exclusive, IfHeld::GiveUp) => self.try_lock_range(start, end),
            (LockMode::Shared, IfHeld::GiveUp) => self.try_lock_shared_range(start, end),
            (LockMode::Exclusive, IfHeld::Wait) => self.lock_range(start, end).map(|()| true),
            (LockMode::Shared, IfHeld::Wait) => self.lock_shared_range(start, end).map(|()| true),
        };
        Ok(taken?)
    }

    fn unlock(&self, (start, end): LockRange) -> io::Result<()> {
        Ok(self.unlock_range(start, end)?)
    }

    fn is_locked(&self, (start, end): LockRange) -> io::Result<bool> {
        Ok(self.query_lock_range(start, end)?)
    }
}
