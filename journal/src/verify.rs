//! Verifying: every record, and everything that records add up to.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::IgnoredAny;

use crate::id::{Digest, RunId, SessionId};
use crate::open::StoreRecord;
use crate::reader::Reader;
use crate::record::{self, Key, ReadError};
use crate::run::Run;
use crate::session::{Message, Rewrite, Session};
use crate::step::StepEvent;
use crate::storage::{Snapshot, StorageError};
use crate::stored;
use crate::wait::Wait;

/// What a journal holds, and what of it is damaged. Everything that is not named can be read.
#[derive(Debug, Default)]
pub struct VerifyReport {
    /// Records looked at.
    pub records: u64,
    /// Runs that read whole.
    pub runs: u64,
    /// Sessions that read whole.
    pub sessions: u64,
    /// Each damaged record, and each thing that misses one.
    pub damage: Vec<ReadError>,
}

impl Reader {
    /// Check every record against its checksum and form, and everything that records add up to: the events of each step,
    /// the steps of each run, the messages of each session, the references to each blob, the number of runs.
    ///
    /// # Errors
    /// The store itself fails. Damage is no error, it is the report.
    pub fn verify(&self) -> Result<VerifyReport, StorageError> {
        let view = self.view()?;
        let mut check = Check { view: &*view, report: VerifyReport::default() };
        let keys = check.records()?;
        check.store(&keys)?;
        for run in &keys.runs {
            let whole = check.run(*run);
            check.report.runs += u64::from(check.note(whole));
        }
        for session in &keys.sessions {
            let whole = check.session(*session);
            check.report.sessions += u64::from(check.note(whole));
        }
        check.blobs(&keys)?;
        Ok(check.report)
    }
}

/// What the keys of a store speak of.
#[derive(Default)]
struct Keys {
    runs: BTreeSet<RunId>,
    run_records: u64,
    sessions: BTreeSet<SessionId>,
    references: BTreeMap<Digest, u64>,
    blobs: BTreeSet<Digest>,
}

struct Check<'a> {
    view: &'a dyn Snapshot,
    report: VerifyReport,
}

impl Check<'_> {
    /// Keep what is damaged; says whether all is well. The same damage is kept once.
    fn note(&mut self, result: Result<(), ReadError>) -> bool {
        let Err(error) = result else { return true };
        if !self.report.damage.iter().any(|known| known.to_string() == error.to_string()) {
            self.report.damage.push(error);
        }
        false
    }

    /// Look at every record by itself.
    fn records(&mut self) -> Result<Keys, StorageError> {
        let mut keys = Keys::default();
        for (key, bytes) in record::pairs(self.view, &Key::everything())? {
            self.report.records += 1;
            let id = || key.get(1..17)?.try_into().ok();
            let view = self.view;
            let read = match key.first() {
                Some(b'A') => record::decode::<StoreRecord>(view, &key, &bytes).map(drop),
                Some(b'R') => {
                    keys.run_records += 1;
                    record::decode::<Run>(view, &key, &bytes).map(drop)
                }
                Some(b'O' | b'K') => record::decode::<RunId>(view, &key, &bytes).map(drop),
                Some(b'D') => record::decode::<IgnoredAny>(view, &key, &bytes).map(drop),
                Some(b'S') if key.ends_with(&STEP_HEAD) => {
                    record::decode::<u64>(view, &key, &bytes).map(drop)
                }
                Some(b'S') => record::decode::<StepEvent>(view, &key, &bytes).map(drop),
                Some(b'W') => record::decode::<Wait>(view, &key, &bytes).map(drop),
                Some(b'H') => record::decode::<Session>(view, &key, &bytes).map(drop),
                Some(b'M') => record::decode::<Message>(view, &key, &bytes).map(drop),
                Some(b'L') => record::decode::<Rewrite>(view, &key, &bytes).map(drop),
                Some(b'B') => match key[1..].try_into().map(Digest::from_bytes) {
                    Ok(digest) => {
                        keys.blobs.insert(digest);
                        record::read_blob(view, &digest).map(drop)
                    }
                    Err(_) => Err(record::damaged(&key, "its key is cut")),
                },
                Some(b'C') => record::decode::<u64>(view, &key, &bytes).map(drop),
                _ => Err(record::damaged(&key, "its kind is unknown")),
            };
            self.note(read);
            match key.first() {
                Some(b'R' | b'D' | b'S' | b'W') => keys.runs.extend(id().map(RunId::from_bytes)),
                Some(b'H' | b'M' | b'L') => keys.sessions.extend(id().map(SessionId::from_bytes)),
                _ => {}
            }
            if let Some(digest) = record::blob_of(&key, &bytes) {
                *keys.references.entry(digest).or_default() += 1;
            }
        }
        Ok(keys)
    }

    fn store(&mut self, keys: &Keys) -> Result<(), StorageError> {
        let store = match record::read::<StoreRecord>(self.view, &Key::store()) {
            Ok(Some(store)) => store,
            Ok(None) if self.report.records == 0 => return Ok(()),
            Ok(None) => {
                self.note(Err(StoreRecord::missing()));
                return Ok(());
            }
            Err(ReadError::Storage(error)) => return Err(error),
            Err(error) => {
                self.note(Err(error));
                return Ok(());
            }
        };
        if store.runs != keys.run_records {
            let reason = format!("it counts {} runs, and {} are there", store.runs, keys.run_records);
            self.note(Err(record::damaged(Key::store().as_bytes(), &reason)));
        }
        Ok(())
    }

    fn run(&self, id: RunId) -> Result<(), ReadError> {
        let missing = |key: &Key| record::damaged(key.as_bytes(), "it is missing");
        let run: Run = record::read(self.view, &Key::run(id))?.ok_or_else(|| missing(&Key::run(id)))?;
        let steps = stored::steps(self.view, id)?;
        if steps.len() as u64 != run.steps {
            return Err(stored::damaged_step(id, steps.len() as u64 + 1, "it is missing"));
        }
        record::read::<IgnoredAny>(self.view, &Key::run_source(id))?
            .ok_or_else(|| missing(&Key::run_source(id)))?;
        let index = Key::open_run(run.number);
        let open: Option<RunId> = record::read(self.view, &index)?;
        if open != (!run.status.has_ended()).then_some(id) {
            return Err(record::damaged(index.as_bytes(), "it does not fit the status of the run"));
        }
        record::read_all::<Wait>(self.view, &Key::waits(id))?;
        Ok(())
    }

    fn session(&self, id: SessionId) -> Result<(), ReadError> {
        let key = Key::session(id);
        let session: Session =
            record::read(self.view, &key)?.ok_or_else(|| record::damaged(key.as_bytes(), "it is missing"))?;
        let messages: Vec<Message> = record::read_all(self.view, &Key::messages(id))?;
        if messages.len() as u64 + 1 != session.next_message {
            return Err(record::damaged(key.as_bytes(), "a message of it is missing"));
        }
        let rewrites: Vec<Rewrite> = record::read_all(self.view, &Key::rewrites(id))?;
        if rewrites.len() as u64 != session.rewrites {
            return Err(record::damaged(key.as_bytes(), "a rewrite of it is missing"));
        }
        stored::branch(self.view, &session, session.main)?;
        let heads = session.heads.values().copied();
        for head in heads.chain(rewrites.iter().filter_map(|rewrite| rewrite.before)) {
            stored::branch(self.view, &session, Some(head))?;
        }
        Ok(())
    }

    fn blobs(&mut self, keys: &Keys) -> Result<(), StorageError> {
        let named = keys.blobs.iter().chain(keys.references.keys()).collect::<BTreeSet<_>>();
        for digest in named {
            let there = keys.references.get(digest).copied().unwrap_or(0);
            let (blob, count) = (Key::blob(digest), Key::blob_references(digest));
            if !keys.blobs.contains(digest) {
                self.note(Err(record::damaged(blob.as_bytes(), "it is missing")));
            }
            match record::read::<u64>(self.view, &count) {
                Ok(counted) if counted.unwrap_or(0) == there => {}
                Ok(counted) => {
                    let reason = format!("{} are counted, and {there} are there", counted.unwrap_or(0));
                    self.note(Err(record::damaged(count.as_bytes(), &reason)));
                }
                Err(ReadError::Storage(error)) => return Err(error),
                Err(error) => {
                    self.note(Err(error));
                }
            }
        }
        Ok(())
    }
}

/// How the key of a step's count ends: see [`Key::step_head`].
const STEP_HEAD: [u8; 9] = [u8::MAX, u8::MAX, u8::MAX, u8::MAX, u8::MAX, 0, 0, 0, 0];
