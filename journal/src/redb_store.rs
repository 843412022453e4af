//! The store on redb: the only module that names it.

mod adapter;
mod content;

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::backends::FileBackend;
use redb::{
    Builder, CommitError, CompactionError, Database, DatabaseError, ReadOnlyDatabase, ReadTransaction,
    ReadableDatabase, ReadableTable, Table, TableDefinition, TableError, TransactionError, WriteTransaction,
};

use self::adapter::{Counters, Counting};
use self::content::Content;
use crate::medium::Medium;
use crate::storage::{Durability, IoCounts, Snapshot, Storage, StorageError, Transaction};

/// What commits together lies together: one table, whose keys begin with the run or the session.
const RECORDS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");

/// redb's default is 1 GiB. A turn touches some dozens of 4 KiB pages; 32 MiB hold the upper levels of a tree over tens
/// of millions of records and the recent leaves of many runs.
const CACHE_BYTES: usize = 32 << 20;

/// Refuse a file that is no store before anything is written beside it. One that holds nothing will become one: says
/// whether it is such a one, or missing.
pub(crate) fn check(path: &Path) -> Result<bool, StorageError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(StorageError::Io(error)),
    };
    match Content::of(&*file_medium(file)?).map_err(StorageError::Io)? {
        Content::SomethingElse => Err(StorageError::NotAStore),
        Content::Nothing | Content::Unfinished => Ok(true),
        Content::Store => Ok(false),
    }
}

/// A store in a redb file, or on another medium.
///
/// redb reads pages without verifying them, and panics on some that are damaged. A panic is damage here, as any other; one
/// in the middle of a write may have left a part of it, and the store then takes no more of them.
pub struct RedbStore {
    /// There until drop.
    handle: Option<Handle>,
    counters: Arc<Counters>,
    /// A write has panicked.
    broken: AtomicBool,
}

/// Do something with redb; a panic is damage.
fn contained<T>(work: impl FnOnce() -> Result<T, StorageError>) -> Result<T, StorageError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason was given");
        Err(StorageError::Damaged(format!("reading it came to a dead end ({words})")))
    })
}

enum Handle {
    Writer(Database),
    Reader(ReadOnlyDatabase),
}

impl RedbStore {
    /// Open for writing, creating the file if it is missing. Repairs after a crash.
    pub fn open(path: &Path) -> Result<Self, StorageError> {
        Self::open_watched(path, |_| {})
    }

    /// The same; `repairing` is told how far a repair is, from 0 to 1.
    pub fn open_watched(path: &Path, repairing: impl Fn(f64) + 'static) -> Result<Self, StorageError> {
        let file = owner_only().create(true).open(path).map_err(StorageError::Io)?;
        Self::create(file_medium(file)?, repairing)
    }

    /// Open a cleanly closed file for reading, beside other readers. Writes nothing.
    pub fn open_read_only(path: &Path) -> Result<Self, StorageError> {
        let file = OpenOptions::new().read(true).open(path).map_err(StorageError::Io)?;
        Self::open_medium_read_only(file_medium(file)?)
    }

    /// Open `medium` for writing, creating the store if it is empty. Repairs after a crash, and creates the store again
    /// if the crash came while it was created.
    #[cfg(feature = "test-support")]
    pub fn open_medium(medium: Box<dyn Medium>) -> Result<Self, StorageError> {
        Self::create(medium, |_| {})
    }

    fn create(medium: Box<dyn Medium>, repairing: impl Fn(f64) + 'static) -> Result<Self, StorageError> {
        match Content::of(&*medium).map_err(StorageError::Io)? {
            Content::Unfinished => medium.set_len(0).map_err(StorageError::Io)?,
            Content::SomethingElse => return Err(StorageError::NotAStore),
            Content::Nothing | Content::Store => {}
        }
        let counters = Arc::new(Counters::default());
        let backend = Counting { medium, counters: Arc::clone(&counters) };
        let mut builder = builder();
        builder.set_repair_callback(move |session| repairing(session.progress()));
        let database = contained(|| builder.create_with_backend(backend).map_err(database_error))?;
        Ok(Self::over(Handle::Writer(database), counters))
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
        let database = contained(|| builder().open_read_only_with_backend(backend).map_err(database_error))?;
        Ok(Self::over(Handle::Reader(database), counters))
    }

    fn over(handle: Handle, counters: Arc<Counters>) -> Self {
        Self { handle: Some(handle), counters, broken: AtomicBool::new(false) }
    }

    fn handle(&self) -> &Handle {
        self.handle.as_ref().expect("it is there until drop")
    }

    /// Move what is stored to the front of the medium and cut off the rest. Refused while anybody reads.
    pub fn compact(&mut self) -> Result<(), StorageError> {
        let Some(Handle::Writer(database)) = &mut self.handle else { return Err(read_only()) };
        contained(|| database.compact().map(drop).map_err(compaction_error))
    }
}

impl Drop for RedbStore {
    fn drop(&mut self) {
        let handle = self.handle.take();
        // What closing it could not do, the next opening does.
        let _ = contained(|| {
            drop(handle);
            Ok(())
        });
    }
}

fn read_only() -> StorageError {
    StorageError::Io(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "opened for reading"))
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
        contained(|| {
            let transaction = match self.handle() {
                Handle::Writer(database) => database.begin_read(),
                Handle::Reader(database) => database.begin_read(),
            };
            Ok(Box::new(View(transaction.map_err(transaction_error)?)) as Box<dyn Snapshot>)
        })
    }

    fn begin(&self) -> Result<Box<dyn Transaction + '_>, StorageError> {
        let Handle::Writer(database) = self.handle() else { return Err(read_only()) };
        let broken = &self.broken;
        if broken.load(Ordering::Acquire) {
            return Err(StorageError::Damaged("a write came to a dead end before; open it again".to_owned()));
        }
        contained(|| {
            let transaction = Some(database.begin_write().map_err(transaction_error)?);
            Ok(Box::new(Write { transaction, broken }) as Box<dyn Transaction>)
        })
    }

    fn io_counts(&self) -> IoCounts {
        self.counters.get()
    }
}

struct View(ReadTransaction);

impl Snapshot for View {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        match contained(|| no_table_is_empty(self.0.open_table(RECORDS)))? {
            Some(table) => get(&table, key),
            None => Ok(None),
        }
    }

    fn scan(&self, prefix: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StorageError> {
        match contained(|| no_table_is_empty(self.0.open_table(RECORDS)))? {
            Some(table) => scan(&table, Bound::Included(prefix), prefix, each),
            None => Ok(()),
        }
    }

    fn scan_after(
        &self,
        prefix: &[u8],
        after: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StorageError> {
        match contained(|| no_table_is_empty(self.0.open_table(RECORDS)))? {
            // All keys with the prefix are beyond it, unless `after` is beyond it as well.
            Some(table) if after < prefix => scan(&table, Bound::Included(prefix), prefix, each),
            Some(table) => scan(&table, Bound::Excluded(after), prefix, each),
            None => Ok(()),
        }
    }
}

/// Before the first commit there is no table.
fn no_table_is_empty<T>(opened: Result<T, TableError>) -> Result<Option<T>, StorageError> {
    match opened {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(table_error(error)),
    }
}

struct Write<'a> {
    /// There until it is committed or dropped.
    transaction: Option<WriteTransaction>,
    broken: &'a AtomicBool,
}

impl Write<'_> {
    /// Do something with the table. After a panic the transaction is not to be committed.
    fn with<T>(
        &self,
        work: impl FnOnce(&mut Table<'_, &'static [u8], &'static [u8]>) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let transaction = self.transaction.as_ref().expect("it is there until it is committed");
        let mut finished = false;
        let result = contained(|| {
            let result =
                transaction.open_table(RECORDS).map_err(table_error).and_then(|mut table| work(&mut table));
            finished = true;
            result
        });
        if !finished {
            self.broken.store(true, Ordering::Release);
        }
        result
    }
}

impl Snapshot for Write<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.with(|table| get(table, key))
    }

    fn scan(&self, prefix: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StorageError> {
        self.with(|table| scan(table, Bound::Included(prefix), prefix, each))
    }
}

impl Transaction for Write<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StorageError> {
        self.with(|table| table.insert(key, value).map(drop).map_err(storage_error))
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), StorageError> {
        self.with(|table| table.remove(key).map(drop).map_err(storage_error))
    }

    fn commit(mut self: Box<Self>, durability: Durability) -> Result<(), StorageError> {
        if self.broken.load(Ordering::Acquire) {
            return Err(StorageError::Damaged("a part of it came to a dead end; open it again".to_owned()));
        }
        let level = match durability {
            Durability::Riding => redb::Durability::None,
            Durability::Durable | Durability::DurableForQuickOpen => redb::Durability::Immediate,
        };
        let mut transaction = self.transaction.take().expect("it is committed once");
        let mut finished = false;
        let result = contained(|| {
            let set = transaction.set_durability(level);
            transaction.set_quick_repair(durability == Durability::DurableForQuickOpen);
            let result = match set {
                Ok(()) => transaction.commit().map_err(commit_error),
                Err(error) => Err(StorageError::Damaged(error.to_string())),
            };
            finished = true;
            result
        });
        if !finished {
            self.broken.store(true, Ordering::Release);
        }
        result
    }
}

impl Drop for Write<'_> {
    fn drop(&mut self) {
        let transaction = self.transaction.take();
        let dropped = contained(|| {
            drop(transaction);
            Ok(())
        });
        if dropped.is_err() {
            self.broken.store(true, Ordering::Release);
        }
    }
}

fn get(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    key: &[u8],
) -> Result<Option<Vec<u8>>, StorageError> {
    contained(|| Ok(table.get(key).map_err(storage_error)?.map(|value| value.value().to_vec())))
}

fn scan(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    from: Bound<&[u8]>,
    prefix: &[u8],
    each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
) -> Result<(), StorageError> {
    let mut range = contained(|| table.range::<&[u8]>((from, Bound::Unbounded)).map_err(storage_error))?;
    // What the caller does with a pair is not redb's: it is not contained.
    while let Some((key, value)) = contained(|| range.next().transpose().map_err(storage_error))? {
        let (key, value) = contained(|| Ok((key.value(), value.value())))?;
        if !key.starts_with(prefix) || !each(key, value) {
            break;
        }
    }
    Ok(())
}

fn storage_error(error: redb::StorageError) -> StorageError {
    match error {
        // redb reads what its own pages say is there.
        redb::StorageError::Io(error)
            if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
        {
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

fn commit_error(error: CommitError) -> StorageError {
    match error {
        CommitError::Storage(error) => storage_error(error),
        other => StorageError::Damaged(other.to_string()),
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
