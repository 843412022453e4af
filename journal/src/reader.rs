//! Reading a journal.

use std::path::Path;
use std::sync::Arc;

use crate::id::{Digest, IdempotencyKey, RunId, SessionId, WaitId};
use crate::open::{OpenError, OwnerLock, StoreRecord};
use crate::record::{self, Key, Listing, ReadError};
use crate::redb_store::{self, RedbStore};
use crate::run::Run;
use crate::session::{Head, Message, Rewrite, Session};
use crate::step::{Step, StepEvent};
use crate::storage::{IoCounts, Snapshot, Storage, StorageError};
use crate::stored;
use crate::wait::Wait;

/// A handle that reads. Loading never writes.
pub struct Reader {
    storage: Arc<dyn Storage>,
}

impl Reader {
    /// Open the journal at `path` for reading, beside other readers. The file is not touched.
    ///
    /// # Errors
    /// [`OpenError::Missing`]; [`OpenError::InUse`] while a process owns it; [`OpenError::NeedsRepair`] after a crash of
    /// its owner, until the next owner opens it; damage.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        if !path.exists() {
            return Err(OpenError::Missing(path.to_owned()));
        }
        redb_store::check(path).map_err(OpenError::storage(path))?;
        let storage = RedbStore::open_read_only(path).map_err(|error| match error {
            StorageError::InUse => OpenError::InUse { path: path.to_owned(), pid: OwnerLock::holder(path) },
            other => OpenError::storage(path)(other),
        })?;
        let reader = Self { storage: Arc::new(storage) };
        // A store of a newer schema is refused before anything is made of it.
        record::read::<StoreRecord>(&*reader.view().map_err(OpenError::storage(path))?, &Key::store())
            .map_err(OpenError::read(path))?;
        Ok(reader)
    }

    /// A reader of any store.
    pub fn over(storage: Arc<dyn Storage>) -> Self {
        Self { storage }
    }

    pub(crate) fn storage(&self) -> Arc<dyn Storage> {
        Arc::clone(&self.storage)
    }

    pub(crate) fn view(&self) -> Result<Box<dyn Snapshot + '_>, StorageError> {
        self.storage.snapshot()
    }

    /// What the medium was asked to do since this handle was opened.
    pub fn io_counts(&self) -> IoCounts {
        self.storage.io_counts()
    }

    /// Every run, oldest first.
    pub fn runs(&self) -> Result<Listing<Run>, StorageError> {
        let mut runs: Listing<Run> = record::read_each(&*self.view()?, &Key::runs())?;
        runs.items.sort_by_key(|run| run.number);
        Ok(runs)
    }

    /// The runs that have not ended, oldest first.
    pub fn open_runs(&self) -> Result<Listing<Run>, StorageError> {
        let view = self.view()?;
        let Listing { items: ids, mut unreadable } = record::read_each::<RunId>(&*view, &Key::open_runs())?;
        let mut items = Vec::new();
        for id in ids {
            match record::read(&*view, &Key::run(id)) {
                Ok(Some(run)) => items.push(run),
                Ok(None) => unreadable.push(record::damaged(Key::run(id).as_bytes(), "it is missing")),
                Err(ReadError::Storage(error @ StorageError::Lost(_))) => return Err(error),
                Err(error) => unreadable.push(error),
            }
        }
        Ok(Listing { items, unreadable })
    }

    /// One run.
    pub fn run(&self, run: RunId) -> Result<Option<Run>, ReadError> {
        record::read(&*self.view()?, &Key::run(run))
    }

    /// What a run executes, as it was given.
    pub fn run_source(&self, run: RunId) -> Result<Option<serde_json::Value>, ReadError> {
        record::read(&*self.view()?, &Key::run_source(run))
    }

    /// The run that a caller's own key stands for.
    pub fn run_of_call_key(&self, key: &Digest) -> Result<Option<RunId>, ReadError> {
        record::read(&*self.view()?, &Key::call_key(key))
    }

    /// Every step of a run, in order. One that is missing is damage.
    pub fn steps(&self, run: RunId) -> Result<Vec<Step>, ReadError> {
        let view = self.view()?;
        let steps = stored::steps(&*view, run)?;
        let counted = record::read::<Run>(&*view, &Key::run(run))?.map_or(0, |run| run.steps);
        if steps.len() as u64 == counted {
            Ok(steps)
        } else {
            Err(stored::damaged_step(run, steps.len() as u64 + 1, "it is missing"))
        }
    }

    /// One step, if it is planned.
    pub fn step(&self, run: RunId, seq: u64) -> Result<Option<Step>, ReadError> {
        Ok(stored::step(&*self.view()?, run, seq)?.map(|(step, _)| step))
    }

    /// The events of one step, in the order they were recorded; none when it is not planned.
    pub fn events(&self, run: RunId, seq: u64) -> Result<Vec<StepEvent>, ReadError> {
        stored::events(&*self.view()?, run, seq)
    }

    /// The idempotency key of a step.
    pub fn key(&self, run: &Run, seq: u64) -> Result<IdempotencyKey, ReadError> {
        let store: StoreRecord =
            record::read(&*self.view()?, &Key::store())?.ok_or_else(StoreRecord::missing)?;
        Ok(IdempotencyKey::mint(&store.id, &run.nonce, seq))
    }

    /// The questions of a run, in the order of its steps.
    pub fn waits(&self, run: RunId) -> Result<Vec<Wait>, ReadError> {
        record::read_all(&*self.view()?, &Key::waits(run))
    }

    /// One question.
    pub fn wait(&self, id: WaitId) -> Result<Option<Wait>, ReadError> {
        record::read(&*self.view()?, &Key::wait(id))
    }

    /// Every session, oldest first.
    pub fn sessions(&self) -> Result<Listing<Session>, StorageError> {
        let mut sessions: Listing<Session> = record::read_each(&*self.view()?, &Key::sessions())?;
        sessions.items.sort_by_key(|session| (session.created_ms, session.id));
        Ok(sessions)
    }

    /// One session.
    pub fn session(&self, session: SessionId) -> Result<Option<Session>, ReadError> {
        record::read(&*self.view()?, &Key::session(session))
    }

    /// The messages of a session's `main`, first to last; none when there is no such session. Their hash chain is checked:
    /// a message that changed or vanished is damage, never a shorter transcript.
    pub fn transcript(&self, session: SessionId) -> Result<Vec<Message>, ReadError> {
        let view = self.view()?;
        let Some(session) = record::read::<Session>(&*view, &Key::session(session))? else {
            return Ok(Vec::new());
        };
        stored::branch(&*view, &session, session.main)
    }

    /// The messages of any branch of a session: of a named head, or of one that a rewrite left.
    pub fn branch(&self, session: &Session, head: Head) -> Result<Vec<Message>, ReadError> {
        stored::branch(&*self.view()?, session, Some(head))
    }

    /// The rewrites of a session, oldest first.
    pub fn rewrites(&self, session: SessionId) -> Result<Vec<Rewrite>, ReadError> {
        record::read_all(&*self.view()?, &Key::rewrites(session))
    }
}
