//! Journals made by the library, without a process of `deed`: large ones, and ones that take long to come by.

use std::{
    fs::{File, TryLockError},
    ops::Deref,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Instant,
};

use deed::sources::SeededEntropy;
use deed_journal::{
    Base, Durability, EffectClass, Idle, Journal, MessageBody, Op, Options, Outcome, Planned, Role, Run,
    RunId, RunStatus, SessionId, SettledBy, StepEvent, StepKind, StepResult,
};
use serde_json::{Value, json};

use crate::process::PATIENCE;

/// Own the journal at `path`. It syncs when it is told to and when it is closed, not when time has passed.
pub fn open_journal(path: &Path) -> OpenJournal {
    let options = Options { entropy: Arc::new(SeededEntropy::new(1, 0)), boot: None, idle: Idle::Never };
    let journal =
        Journal::open(path, options).unwrap_or_else(|error| panic!("failed to open a journal: {error}"));
    OpenJournal { journal: Some(journal), path: path.to_owned() }
}

/// A journal that this process has. When it is dropped, nobody has it any more: a process that another test is just
/// starting holds all that this one held until it is exec'd, and that is waited for.
pub struct OpenJournal {
    journal: Option<Journal>,
    path: PathBuf,
}

impl Deref for OpenJournal {
    type Target = Journal;

    fn deref(&self) -> &Journal {
        self.journal.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for OpenJournal {
    fn drop(&mut self) {
        drop(self.journal.take());
        let mut owner = self.path.clone().into_os_string();
        owner.push(".owner");
        let begun = Instant::now();
        for path in [Path::new(&owner), &self.path] {
            let is_held = || {
                let file = File::open(path).ok();
                file.is_some_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
            };
            while is_held() && begun.elapsed() < PATIENCE {
                thread::yield_now();
            }
        }
    }
}

/// Commit `ops` together. They are durable.
#[track_caller]
pub fn commit(journal: &Journal, ops: Vec<Op>) {
    journal.commit(ops, Durability::Durable).unwrap_or_else(|error| panic!("failed to commit: {error}"));
}

/// A run of a batch, named by `byte`: its ids, its key's nonce and its objective come from it.
pub fn made_run(byte: u8) -> Run {
    let (run, session) = (RunId::from_bytes([byte; 16]), SessionId::from_bytes([byte ^ 0x80; 16]));
    Run::new(run, session, [byte; 16], format!("run {byte}"), u64::from(byte) * 1_000)
}

/// Record `run`, with what it executes.
pub fn create(run: &Run, source: Value) -> Op {
    Op::CreateRun { run: Box::new(run.clone()), source }
}

/// End `run`.
pub fn end(run: &Run, ended_ms: u64) -> Op {
    Op::UpdateRun(Box::new(Run { status: RunStatus::Done, ended_ms: Some(ended_ms), ..run.clone() }))
}

/// Append messages of the owner to what `session` is now.
pub fn append(journal: &Journal, session: SessionId, texts: &[&str]) -> Op {
    let stored = journal.read().session(session).expect("the journal can be read");
    let base = stored.map_or(Base { revision: 0, main: None }, |session| session.base());
    let messages = texts.iter().map(|text| MessageBody::text(Role::User, *text)).collect();
    Op::Append { session, base, messages }
}

/// A pure step, planned and settled.
pub fn settled_step(run: RunId, seq: u64, kind: StepKind, name: &str, args: Value) -> [Op; 2] {
    let planned = Planned::new(kind, name, EffectClass::Pure, args, 0);
    let outcome = Outcome {
        attempt: 1,
        result: StepResult::Completed { value: json!({ "content": [{ "type": "text", "text": "done" }] }) },
        settled_by: SettledBy::Execution,
        landed_before: false,
        settled_ms: 0,
    };
    [StepEvent::Planned(planned), StepEvent::Outcome(outcome)].map(|event| Op::Step { run, seq, event })
}
