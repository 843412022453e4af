//! The journal: what its owner does with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::commit::{CommitError, Op};
use crate::id::{IdempotencyKey, RunId, StoreId};
use crate::live::Server;
use crate::marks::{BootId, MarkPlace, Marks, Started};
use crate::open::{OpenError, OwnerLock, StoreRecord, beside};
use crate::reader::Reader;
use crate::record::{self, Key};
use crate::redb_store::{self, RedbStore};
use crate::run::Run;
use crate::source::Entropy;
use crate::step::Step;
use crate::storage::{Durability, Snapshot, Storage, StorageError};
use crate::writer::{Idle, Writer};

/// What a journal needs from outside.
pub struct Options {
    /// Randomness for the store's id and the epochs of start marks.
    pub entropy: Arc<dyn Entropy>,
    /// The boot that start marks belong to; none where the system does not tell.
    pub boot: Option<BootId>,
    /// Who decides that the writer is idle.
    pub idle: Idle,
}

/// An open journal. One process owns it at a time, and writes through this handle, from any number of threads.
pub struct Journal {
    // In this order: nobody asks any more, the writer finishes, the store closes, and only then somebody else may own it.
    live: Option<Server>,
    writer: Arc<Writer>,
    reader: Reader,
    entropy: Arc<dyn Entropy>,
    marks: Option<Marks>,
    store: StoreId,
    generation: u64,
    path: PathBuf,
    owner: Option<OwnerLock>,
}

impl Journal {
    /// Become the owner of the journal at `path`, creating it if it is missing (its directory has to be there), and
    /// repairing what a crash left. The file is readable by its owner only. One sync.
    ///
    /// # Errors
    /// [`OpenError::InUse`] with the owner's pid; [`OpenError::BeingRead`] while a reader has it open, which passes;
    /// [`OpenError::NotAJournal`], before anything is written; damage; a newer schema.
    pub fn open(path: &Path, options: Options) -> Result<Self, OpenError> {
        Self::open_watched(path, options, |_| {})
    }

    /// The same. After a crash of a busy owner the file is read once; `repairing` is told how far that is, from 0 to 1.
    pub fn open_watched(
        path: &Path,
        options: Options,
        repairing: impl Fn(f64) + 'static,
    ) -> Result<Self, OpenError> {
        let nothing = redb_store::check(path).map_err(OpenError::storage(path))?;
        let mut owner = OwnerLock::acquire(path)?;
        if nothing && !path.exists() {
            owner.forget(path)?;
        }
        if let Some(store) = owner.known.filter(|_| nothing) {
            return Err(OpenError::Emptied { path: path.to_owned(), store });
        }
        let store = RedbStore::open_watched(path, repairing).map_err(OpenError::storage(path))?;
        let storage: Arc<dyn Storage> = Arc::new(store);
        if nothing {
            sync_directories(path).map_err(OpenError::io(path))?;
        }
        Self::start(path, storage, options, Some(owner))
    }

    /// A journal on any store. There is no owner lock and there are no start marks: the caller sees to it that one
    /// owner at a time uses the store.
    #[cfg(feature = "test-support")]
    pub fn open_storage(storage: Arc<dyn Storage>, options: Options) -> Result<Self, OpenError> {
        Self::start(Path::new("(a store of a test)"), storage, Options { boot: None, ..options }, None)
    }

    fn start(
        path: &Path,
        storage: Arc<dyn Storage>,
        options: Options,
        mut owner: Option<OwnerLock>,
    ) -> Result<Self, OpenError> {
        let StoreRecord { id, generation, .. } = begin_generation(path, &*storage, &*options.entropy)?;
        if let Some(owner) = &mut owner {
            owner.remember(path, id)?;
        }
        let marks_path = beside(path, "marks");
        let marks = options
            .boot
            .map(|boot| Marks::open(&marks_path, boot, &*options.entropy))
            .transpose()
            .map_err(OpenError::io(&marks_path))?;
        Ok(Self {
            live: None,
            writer: Arc::new(Writer::start(Arc::clone(&storage), generation, options.idle)),
            reader: Reader::over(storage),
            entropy: options.entropy,
            marks,
            store: id,
            generation,
            path: path.to_owned(),
            owner,
        })
    }

    /// Commit `ops` together: all of them become visible at once, or none. Concurrent callers share syncs. Says of each
    /// whether it changed anything: what is there already is not written again.
    ///
    /// [`Durability::Riding`] returns when they are visible, and costs no sync; the other levels when they are durable.
    ///
    /// # Errors
    /// A refusal changes nothing, and says why. After [`CommitError::Unknown`] the commit may be there or not, and the
    /// journal takes no more work: open it again and look.
    pub fn commit(&self, ops: Vec<Op>, durability: Durability) -> Result<Vec<bool>, CommitError> {
        self.writer.commit(ops, durability)
    }

    /// Make every commit so far durable. No sync if they all are.
    pub fn sync(&self) -> Result<(), CommitError> {
        self.writer.commit(Vec::new(), Durability::Durable).map(drop)
    }

    /// Read what is committed, riding commits included.
    pub fn read(&self) -> &Reader {
        &self.reader
    }

    /// Let other processes of this user read the journal, and answer its questions, while it is open: by
    /// [`LiveJournal`](crate::LiveJournal), through a socket beside it. It goes when the journal is closed; threads of
    /// this process serve it, and hold nothing up.
    ///
    /// # Errors
    /// The socket cannot be made: its directory takes no new files, or no `/proc` is there. The journal is as it was.
    pub fn share(&mut self) -> std::io::Result<()> {
        if self.owner.is_none() {
            return Err(std::io::ErrorKind::Unsupported.into());
        }
        if self.live.is_none() {
            let storage = self.reader.storage();
            self.live = Some(Server::start(&self.path, storage, Arc::clone(&self.writer))?);
        }
        Ok(())
    }

    /// The store's id.
    pub fn store(&self) -> StoreId {
        self.store
    }

    /// The number of this ownership: +1 with every opening.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The idempotency key of a step.
    pub fn key(&self, run: &Run, seq: u64) -> IdempotencyKey {
        IdempotencyKey::mint(&self.store, &run.nonce, seq)
    }

    /// Where the next attempt's start mark will be: part of its intent.
    pub fn mark_place(&self) -> Option<MarkPlace> {
        // Without a file there is no proof, and none is claimed.
        self.marks.as_ref().and_then(|marks| marks.place(&*self.entropy).ok())
    }

    /// Say that an attempt starts now. Not synced: see [`Started`].
    ///
    /// # Errors
    /// The attempt must not start without its mark: its absence would count as proof that it never ran.
    pub fn mark_start(&self, run: RunId, seq: u64, attempt: u32) -> std::io::Result<()> {
        self.marks.as_ref().map_or(Ok(()), |marks| marks.mark(run, seq, attempt))
    }

    /// Whether the last attempt of a step can have run.
    pub fn started(&self, run: RunId, step: &Step) -> Started {
        match (&self.marks, step.attempts.last()) {
            (Some(marks), Some(attempt)) => {
                marks.started(run, step.seq, attempt.intent.attempt, attempt.intent.marks)
            }
            _ => Started::Unknown,
        }
    }
}

/// Write down that a new owner is here: from now on commits of an earlier one are refused.
fn begin_generation(
    path: &Path,
    storage: &dyn Storage,
    entropy: &dyn Entropy,
) -> Result<StoreRecord, OpenError> {
    let mut transaction = storage.begin().map_err(OpenError::storage(path))?;
    let stored: Option<StoreRecord> =
        record::read(&*transaction, &Key::store()).map_err(OpenError::read(path))?;
    let record = match stored {
        Some(stored) => StoreRecord { generation: stored.generation + 1, ..stored },
        None if !is_empty(&*transaction).map_err(OpenError::storage(path))? => {
            return Err(OpenError::read(path)(StoreRecord::missing()));
        }
        None => StoreRecord { id: StoreId::from_bytes(entropy.id()), generation: 1, created: 0, runs: 0 },
    };
    let key = Key::store();
    transaction
        .put(key.as_bytes(), &record::encode(&key, &record).bytes)
        .and_then(|()| transaction.commit(Durability::Durable))
        .map_err(OpenError::storage(path))?;
    Ok(record)
}

/// Make the name of a new file durable, and those of directories that may be as new: the store syncs only its content.
fn sync_directories(path: &Path) -> std::io::Result<()> {
    for directory in std::path::absolute(path)?.ancestors().skip(1) {
        match std::fs::File::open(directory) {
            Ok(directory) => directory.sync_all()?,
            // One that may not even be read was not made by this user.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_empty(view: &dyn Snapshot) -> Result<bool, StorageError> {
    let mut empty = true;
    view.scan(&[], &mut |_, _| {
        empty = false;
        false
    })?;
    Ok(empty)
}
