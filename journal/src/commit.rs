//! Commits: operations that become visible together, or not at all.

use std::collections::BTreeMap;

use crate::id::{Digest, RunId, SessionId, WaitId};
use crate::open::StoreRecord;
use crate::record::{self, Key, ReadError};
use crate::run::Run;
use crate::session::{MessageBody, Session, SnapshotConflict};
use crate::step::{Step, StepEvent};
use crate::storage::{Snapshot, StorageError, Transaction};
use crate::wait::{Answer, Asked};

/// One change. A commit holds any number of them.
#[derive(Debug, Clone)]
pub enum Op {
    /// Record a new run, with what it executes (as it was given) and its empty session.
    CreateRun {
        /// Its head record.
        run: Box<Run>,
        /// What it executes: read by whoever resumes it.
        source: serde_json::Value,
        /// The caller's own key, which from now on stands for this run.
        call_key: Option<Digest>,
    },
    /// Replace a run's head record. Refused once the run has ended.
    UpdateRun(Box<Run>),
    /// Add an event to a step. Each event has one place, and is refused when the place is taken or it does not follow
    /// from the events before it.
    Step {
        /// The run.
        run: RunId,
        /// The step.
        seq: u64,
        /// What happened.
        event: StepEvent,
    },
    /// Extend a session's `main`.
    Append {
        /// The session.
        session: SessionId,
        /// The revision this is based on.
        base: u64,
        /// The messages.
        messages: Vec<MessageBody>,
    },
    /// Ask the owner.
    Ask(Asked),
    /// Answer a question. The first answer wins; the same option and text again changes nothing.
    Answer {
        /// The question.
        id: WaitId,
        /// The answer.
        answer: Answer,
    },
}

/// Why a commit was refused. Nothing of it was written, unless the store itself failed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// A newer owner opened this journal: this handle may not write any more.
    #[error("this process (generation {mine}) no longer owns the journal: generation {stored} does")]
    Fenced {
        /// The generation of this handle.
        mine: u64,
        /// The generation in the store.
        stored: u64,
    },
    /// A run with this id, or for this caller's key, exists.
    #[error("run {0} exists already")]
    RunExists(RunId),
    /// There is no such run.
    #[error("there is no run {0}")]
    NoSuchRun(RunId),
    /// The run has ended.
    #[error("run {0} has ended; its record does not change any more")]
    RunEnded(RunId),
    /// The event does not follow from what is recorded.
    #[error("step {seq} of run {run} takes no {event}: {reason}", run = run.short())]
    StepConflict {
        /// The run.
        run: RunId,
        /// The step.
        seq: u64,
        /// The event.
        event: String,
        /// Why not.
        reason: &'static str,
    },
    /// There is no such session.
    #[error("there is no session {0}")]
    NoSuchSession(SessionId),
    /// The session has changed.
    #[error(transparent)]
    Snapshot(#[from] SnapshotConflict),
    /// The question was asked before.
    #[error("question {0} was asked before")]
    AskedBefore(WaitId),
    /// There is no such question.
    #[error("there is no question {0}")]
    NoSuchWait(WaitId),
    /// The option is none of the question's.
    #[error("`{option}` is no answer to question {id}: expected one of `{}`", expected.join("`, `"))]
    NoSuchOption {
        /// The question.
        id: WaitId,
        /// What was answered.
        option: String,
        /// What can be answered.
        expected: Vec<String>,
    },
    /// Another answer came first.
    #[error("question {id} was answered `{first}` before; an answer is not changed")]
    AnsweredBefore {
        /// The question.
        id: WaitId,
        /// The answer that counts.
        first: String,
    },
    /// A record that the commit depends on could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The store failed. Whether the commit happened is unknown: open the journal again and look.
    #[error("the commit may or may not have happened: {0}; open the journal again")]
    Unknown(String),
    /// An earlier commit failed, and this journal takes no more.
    #[error("the journal stopped after a failure: {0}; open it again")]
    Stopped(String),
}

impl From<StorageError> for CommitError {
    fn from(error: StorageError) -> Self {
        Self::Read(ReadError::Storage(error))
    }
}

/// The operations of one commit, checked and collected over a transaction that other commits may share: either all of
/// them are put into it, or none.
pub(crate) struct Staged<'a> {
    below: &'a dyn Snapshot,
    writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl Snapshot for Staged<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        match self.writes.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.below.get(key),
        }
    }

    fn scan(&self, prefix: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StorageError> {
        let mut pairs = BTreeMap::new();
        self.below.scan(prefix, &mut |key, value| {
            pairs.insert(key.to_vec(), value.to_vec());
            true
        })?;
        for (key, value) in self.writes.range(prefix.to_vec()..) {
            if !key.starts_with(prefix) {
                break;
            }
            match value {
                Some(value) => pairs.insert(key.clone(), value.clone()),
                None => pairs.remove(key),
            };
        }
        pairs.iter().all(|(key, value)| each(key, value));
        Ok(())
    }
}

impl<'a> Staged<'a> {
    pub(crate) fn new(below: &'a dyn Snapshot) -> Self {
        Self { below, writes: BTreeMap::new() }
    }

    /// The writes, if every operation is in order.
    pub(crate) fn apply_all(mut self, ops: &[Op]) -> Result<Writes, CommitError> {
        for op in ops {
            self.apply(op)?;
        }
        Ok(Writes(self.writes))
    }

    fn put<T: serde::Serialize>(&mut self, key: &Key, record: &T) {
        self.writes.insert(key.as_bytes().to_vec(), Some(record::encode(key, record)));
    }

    fn delete(&mut self, key: &Key) {
        self.writes.insert(key.as_bytes().to_vec(), None);
    }

    fn apply(&mut self, op: &Op) -> Result<(), CommitError> {
        match op {
            Op::CreateRun { run, source, call_key } => self.create_run(run, source, call_key.as_ref()),
            Op::UpdateRun(run) => self.update_run(run),
            Op::Step { run, seq, event } => self.step(*run, *seq, event),
            Op::Append { session, base, messages } => self.append(*session, *base, messages),
            Op::Ask(asked) => self.ask(asked),
            Op::Answer { id, answer } => self.answer(*id, answer),
        }
    }

    fn create_run(
        &mut self,
        run: &Run,
        source: &serde_json::Value,
        call_key: Option<&Digest>,
    ) -> Result<(), CommitError> {
        if self.get(Key::run(run.id).as_bytes())?.is_some() {
            return Err(CommitError::RunExists(run.id));
        }
        if let Some(call_key) = call_key {
            let key = Key::call_key(call_key);
            if let Some(first) = record::read::<RunId>(self, &key)? {
                return Err(CommitError::RunExists(first));
            }
            self.put(&key, &run.id);
        }
        let key = Key::store();
        let mut store: StoreRecord = record::read(self, &key)?.ok_or_else(StoreRecord::missing)?;
        let run = Run { number: store.runs, ..run.clone() };
        store.runs += 1;
        self.put(&key, &store);
        self.put(&Key::run(run.id), &run);
        self.put(&Key::run_source(run.id), source);
        self.put(&Key::open_run(run.number), &run.id);
        self.put(&Key::session(run.session), &Session::new(run.session, run.id, run.created_ms));
        Ok(())
    }

    fn update_run(&mut self, run: &Run) -> Result<(), CommitError> {
        let key = Key::run(run.id);
        let stored: Run = record::read(self, &key)?.ok_or(CommitError::NoSuchRun(run.id))?;
        if stored.status.has_ended() {
            return Err(CommitError::RunEnded(run.id));
        }
        if run.status.has_ended() {
            self.delete(&Key::open_run(stored.number));
        }
        self.put(&key, &Run { number: stored.number, ..run.clone() });
        Ok(())
    }

    fn step(&mut self, run: RunId, seq: u64, event: &StepEvent) -> Result<(), CommitError> {
        let conflict = |reason| CommitError::StepConflict { run, seq, event: event.describe(), reason };
        let key = event.key(run, seq);
        match load_step(self, run, seq)? {
            None => match event {
                StepEvent::Planned(_) if seq > 1 => {
                    let before = Key::step_event(run, seq - 1, 0, 0, 0);
                    if self.get(before.as_bytes())?.is_none() {
                        return Err(conflict("steps are numbered without gaps"));
                    }
                }
                StepEvent::Planned(_) if seq == 1 => {}
                StepEvent::Planned(_) => return Err(conflict("steps are numbered from 1")),
                _ => return Err(conflict("the step is not planned")),
            },
            Some(mut step) => step.apply(event).map_err(conflict)?,
        }
        self.put(&key, event);
        Ok(())
    }

    fn append(&mut self, id: SessionId, base: u64, bodies: &[MessageBody]) -> Result<(), CommitError> {
        let key = Key::session(id);
        let mut session: Session = record::read(self, &key)?.ok_or(CommitError::NoSuchSession(id))?;
        if session.revision != base {
            let stored_count = session.main.as_ref().map_or(0, |head| head.count);
            return Err(SnapshotConflict { session: id, base, stored: session.revision, stored_count }.into());
        }
        for message in session.extend(bodies) {
            self.put(&Key::message(id, message.id), &message);
        }
        self.put(&key, &session);
        Ok(())
    }

    fn ask(&mut self, asked: &Asked) -> Result<(), CommitError> {
        let WaitId { run, seq, revision } = asked.id;
        let key = Key::wait(run, seq, revision, 0);
        if self.get(key.as_bytes())?.is_some() {
            return Err(CommitError::AskedBefore(asked.id));
        }
        self.put(&key, asked);
        Ok(())
    }

    fn answer(&mut self, id: WaitId, answer: &Answer) -> Result<(), CommitError> {
        let WaitId { run, seq, revision } = id;
        let asked: Asked =
            record::read(self, &Key::wait(run, seq, revision, 0))?.ok_or(CommitError::NoSuchWait(id))?;
        if !asked.options.contains(&answer.option) {
            let expected = asked.options;
            return Err(CommitError::NoSuchOption { id, option: answer.option.clone(), expected });
        }
        let key = Key::wait(run, seq, revision, 1);
        match record::read::<Answer>(self, &key)? {
            Some(first) if (&first.option, &first.text) == (&answer.option, &answer.text) => {}
            Some(first) => return Err(CommitError::AnsweredBefore { id, first: first.option }),
            None => self.put(&key, answer),
        }
        Ok(())
    }
}

/// The step at (run, seq), if it is planned.
pub(crate) fn load_step(view: &dyn Snapshot, run: RunId, seq: u64) -> Result<Option<Step>, ReadError> {
    let key = Key::step(run, seq);
    let events = record::read_all::<StepEvent>(view, &key)?;
    if events.is_empty() {
        return Ok(None);
    }
    Step::fold(seq, events.into_iter().map(|(_, event)| event)).map(Some).map_err(|reason| {
        ReadError::Damaged { record: format!("step {seq} of run {run}"), reason: reason.to_owned() }
    })
}

/// Checked writes, ready for the transaction.
pub(crate) struct Writes(BTreeMap<Vec<u8>, Option<Vec<u8>>>);

impl Writes {
    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn put_into(&self, transaction: &mut dyn Transaction) -> Result<(), StorageError> {
        for (key, value) in &self.0 {
            match value {
                Some(value) => transaction.put(key, value)?,
                None => transaction.delete(key)?,
            }
        }
        Ok(())
    }
}
