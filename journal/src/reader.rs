//! Reading a journal.

use std::path::Path;
use std::sync::Arc;

use crate::commit::load_step;
use crate::id::{Digest, IdempotencyKey, RunId, SessionId, WaitId};
use crate::open::{OpenError, OwnerLock, StoreRecord};
use crate::record::{self, Key, ReadError};
use crate::redb_store::{self, RedbStore};
use crate::run::Run;
use crate::session::{Message, Session};
use crate::step::{Step, StepEvent};
use crate::storage::{IoCounts, Snapshot, Storage, StorageError};
use crate::wait::{Answer, Asked, Wait};

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

    fn view(&self) -> Result<Box<dyn Snapshot + '_>, StorageError> {
        self.storage.snapshot()
    }

    /// What the medium was asked to do since this handle was opened.
    pub fn io_counts(&self) -> IoCounts {
        self.storage.io_counts()
    }

    /// Every run, oldest first.
    pub fn runs(&self) -> Result<Vec<Run>, ReadError> {
        let mut runs: Vec<Run> = values(record::read_all(&*self.view()?, &Key::runs())?);
        runs.sort_by_key(|run| run.number);
        Ok(runs)
    }

    /// The runs that have not ended, oldest first.
    pub fn open_runs(&self) -> Result<Vec<Run>, ReadError> {
        let view = self.view()?;
        let ids: Vec<RunId> = values(record::read_all(&*view, &Key::open_runs())?);
        ids.into_iter().filter_map(|id| record::read(&*view, &Key::run(id)).transpose()).collect()
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

    /// Every step of a run, in order. A gap in their numbers is damage.
    pub fn steps(&self, run: RunId) -> Result<Vec<Step>, ReadError> {
        let events = record::read_all::<StepEvent>(&*self.view()?, &Key::steps(run))?;
        let mut grouped: Vec<(u64, Vec<StepEvent>)> = Vec::new();
        for (key, event) in events {
            let seq = Key::seq_of_step_event(&key).unwrap_or_default();
            match grouped.last_mut() {
                Some((last, group)) if *last == seq => group.push(event),
                _ => grouped.push((seq, vec![event])),
            }
        }
        let damaged = |seq: u64, reason: &str| ReadError::Damaged {
            record: format!("step {seq} of run {run}"),
            reason: reason.to_owned(),
        };
        (1..)
            .zip(grouped)
            .map(|(expected, (seq, events))| {
                if seq != expected {
                    return Err(damaged(expected, "it is missing"));
                }
                Step::fold(seq, events).map_err(|reason| damaged(seq, reason))
            })
            .collect()
    }

    /// One step, if it is planned.
    pub fn step(&self, run: RunId, seq: u64) -> Result<Option<Step>, ReadError> {
        load_step(&*self.view()?, run, seq)
    }

    /// The events of one step, in the order they were recorded; none when it is not planned.
    pub fn events(&self, run: RunId, seq: u64) -> Result<Vec<StepEvent>, ReadError> {
        Ok(values(record::read_all(&*self.view()?, &Key::step(run, seq))?))
    }

    /// The idempotency key of a step.
    pub fn key(&self, run: &Run, seq: u64) -> Result<IdempotencyKey, ReadError> {
        let store: StoreRecord =
            record::read(&*self.view()?, &Key::store())?.ok_or_else(StoreRecord::missing)?;
        Ok(IdempotencyKey::mint(&store.id, &run.nonce, seq))
    }

    /// The questions of a run, in the order of its steps.
    pub fn waits(&self, run: RunId) -> Result<Vec<Wait>, ReadError> {
        let view = self.view()?;
        let mut asked: Vec<Asked> = Vec::new();
        let mut failure = None;
        view.scan(Key::waits(run).as_bytes(), &mut |key, bytes| {
            if key.last() != Some(&0) {
                return true;
            }
            match record::decode(key, bytes) {
                Ok(record) => asked.push(record),
                Err(error) => failure = Some(error),
            }
            failure.is_none()
        })?;
        if let Some(error) = failure {
            return Err(error);
        }
        asked.into_iter().map(|asked| with_answer(&*view, asked)).collect()
    }

    /// One question.
    pub fn wait(&self, id: WaitId) -> Result<Option<Wait>, ReadError> {
        let view = self.view()?;
        let asked: Option<Asked> = record::read(&*view, &Key::wait(id.run, id.seq, id.revision, 0))?;
        asked.map(|asked| with_answer(&*view, asked)).transpose()
    }

    /// One session.
    pub fn session(&self, session: SessionId) -> Result<Option<Session>, ReadError> {
        record::read(&*self.view()?, &Key::session(session))
    }

    /// The messages of a session's `main`, first to last. Their hash chain is checked: a message that changed or
    /// vanished is damage, never a shorter transcript.
    pub fn transcript(&self, session: SessionId) -> Result<Vec<Message>, ReadError> {
        let view = self.view()?;
        let damaged = |reason: &str| ReadError::Damaged {
            record: format!("session {session}"),
            reason: reason.to_owned(),
        };
        let Some(record) = record::read::<Session>(&*view, &Key::session(session))? else {
            return Ok(Vec::new());
        };
        let Some(head) = record.main else { return Ok(Vec::new()) };
        let stored: Vec<Message> = values(record::read_all(&*view, &Key::messages(session))?);
        let mut messages: Vec<Message> = Vec::new();
        let mut next = Some(head.message);
        for message in stored.into_iter().rev() {
            if Some(message.id) == next {
                next = message.parent;
                messages.push(message);
            }
        }
        messages.reverse();
        if next.is_some() || messages.len() as u64 != head.count {
            return Err(damaged("a message is missing"));
        }
        let mut parent = None;
        for message in &messages {
            if message.hash != Message::chain(parent.as_ref(), &message.body) {
                return Err(damaged(&format!("message {} does not fit its hash", message.id)));
            }
            parent = Some(message.hash);
        }
        if parent != Some(head.hash) {
            return Err(damaged("its head does not fit its last message"));
        }
        Ok(messages)
    }
}

fn values<T>(records: Vec<(Vec<u8>, T)>) -> Vec<T> {
    records.into_iter().map(|(_, record)| record).collect()
}

fn with_answer(view: &dyn Snapshot, asked: Asked) -> Result<Wait, ReadError> {
    let WaitId { run, seq, revision } = asked.id;
    let answer: Option<Answer> = record::read(view, &Key::wait(run, seq, revision, 1))?;
    Ok(Wait { asked, answer })
}
