//! How a record is stored: its key, and an envelope with a version and a checksum around its JSON.
//!
//! The store does not verify its pages on a plain read, so one flipped bit on disk must be found here: the checksum
//! covers key and value, and a record that fails it is reported, never served.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::id::{Digest, RunId, SessionId};
use crate::storage::{Snapshot, StorageError};

/// The version written in front of every record. A record with a higher one is refused untouched.
pub(crate) const SCHEMA_VERSION: u8 = 1;

/// Eight bytes of BLAKE3: a flipped bit goes unnoticed once in 2^64.
const CHECKSUM_BYTES: usize = 8;

/// Why a record could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The record's checksum or form is wrong: it changed on disk.
    #[error("record {record} is damaged: {reason}")]
    Damaged {
        /// Which record.
        record: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A newer version of deed wrote it.
    #[error(
        "record {record} has schema version {found}, and this version of deed reads up to {SCHEMA_VERSION}; use the newer deed"
    )]
    Newer {
        /// Which record.
        record: String,
        /// Its version.
        found: u8,
    },
}

/// The key of a record. Its first byte says what it holds; what commits together shares the bytes that follow.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(Vec<u8>);

/// What kind of record a key names. The byte is part of the format.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
enum Kind {
    Store = b'A',
    Run = b'R',
    RunSource = b'D',
    OpenRun = b'O',
    CallKey = b'K',
    Step = b'S',
    Wait = b'W',
    Session = b'H',
    Message = b'M',
}

impl Key {
    fn new(kind: Kind, parts: &[&[u8]]) -> Self {
        let mut bytes = vec![kind as u8];
        for part in parts {
            bytes.extend_from_slice(part);
        }
        Self(bytes)
    }

    /// The one record about the store itself.
    pub(crate) fn store() -> Self {
        Self::new(Kind::Store, &[])
    }

    /// A run's head record.
    pub(crate) fn run(run: RunId) -> Self {
        Self::new(Kind::Run, &[run.as_bytes()])
    }

    /// Every run.
    pub(crate) fn runs() -> Self {
        Self::new(Kind::Run, &[])
    }

    /// What a run executes, as it was given.
    pub(crate) fn run_source(run: RunId) -> Self {
        Self::new(Kind::RunSource, &[run.as_bytes()])
    }

    /// Marks a run that has not ended, oldest first.
    pub(crate) fn open_run(number: u64) -> Self {
        Self::new(Kind::OpenRun, &[&number.to_be_bytes()])
    }

    /// Every run that has not ended.
    pub(crate) fn open_runs() -> Self {
        Self::new(Kind::OpenRun, &[])
    }

    /// The run that a caller's own key stands for.
    pub(crate) fn call_key(key: &Digest) -> Self {
        Self::new(Kind::CallKey, &[key.as_bytes()])
    }

    /// Every event of a run's steps.
    pub(crate) fn steps(run: RunId) -> Self {
        Self::new(Kind::Step, &[run.as_bytes()])
    }

    /// Every event of one step.
    pub(crate) fn step(run: RunId, seq: u64) -> Self {
        Self::new(Kind::Step, &[run.as_bytes(), &seq.to_be_bytes()])
    }

    /// One event of a step. `order` sorts the events of an attempt.
    pub(crate) fn step_event(run: RunId, seq: u64, attempt: u32, order: u8, number: u32) -> Self {
        let parts: [&[u8]; 5] =
            [run.as_bytes(), &seq.to_be_bytes(), &attempt.to_be_bytes(), &[order], &number.to_be_bytes()];
        Self::new(Kind::Step, &parts)
    }

    /// The seq in a step event's key.
    pub(crate) fn seq_of_step_event(key: &[u8]) -> Option<u64> {
        Some(u64::from_be_bytes(key.get(17..25)?.try_into().ok()?))
    }

    /// Every question of a run.
    pub(crate) fn waits(run: RunId) -> Self {
        Self::new(Kind::Wait, &[run.as_bytes()])
    }

    /// One side of a question: 0 asked, 1 answered.
    pub(crate) fn wait(run: RunId, seq: u64, revision: u32, side: u8) -> Self {
        Self::new(Kind::Wait, &[run.as_bytes(), &seq.to_be_bytes(), &revision.to_be_bytes(), &[side]])
    }

    /// A session's head record.
    pub(crate) fn session(session: SessionId) -> Self {
        Self::new(Kind::Session, &[session.as_bytes()])
    }

    /// Every message of a session.
    pub(crate) fn messages(session: SessionId) -> Self {
        Self::new(Kind::Message, &[session.as_bytes()])
    }

    /// One message.
    pub(crate) fn message(session: SessionId, id: u64) -> Self {
        Self::new(Kind::Message, &[session.as_bytes(), &id.to_be_bytes()])
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The bytes of `record` at `key`: version, checksum over key and payload, JSON.
pub(crate) fn encode<T: Serialize>(key: &Key, record: &T) -> Vec<u8> {
    let mut bytes = vec![0; 1 + CHECKSUM_BYTES];
    serde_json::to_writer(&mut bytes, record).expect("records have text keys and finite numbers only");
    bytes[0] = SCHEMA_VERSION;
    let checksum = checksum(key.as_bytes(), SCHEMA_VERSION, &bytes[1 + CHECKSUM_BYTES..]);
    bytes[1..=CHECKSUM_BYTES].copy_from_slice(&checksum);
    bytes
}

/// The record in `bytes`, found at `key`.
pub(crate) fn decode<T: DeserializeOwned>(key: &[u8], bytes: &[u8]) -> Result<T, ReadError> {
    let damaged = |reason: &str| ReadError::Damaged { record: name(key), reason: reason.to_owned() };
    let (&version, rest) = bytes.split_first().ok_or_else(|| damaged("it is empty"))?;
    let (stored, payload) =
        rest.split_at_checked(CHECKSUM_BYTES).ok_or_else(|| damaged("it is too short"))?;
    if checksum(key, version, payload) != stored {
        return Err(damaged("its checksum does not match"));
    }
    if version > SCHEMA_VERSION {
        return Err(ReadError::Newer { record: name(key), found: version });
    }
    serde_json::from_slice(payload).map_err(|error| damaged(&error.to_string()))
}

/// Read the record at `key`, if it is there.
pub(crate) fn read<T: DeserializeOwned>(view: &dyn Snapshot, key: &Key) -> Result<Option<T>, ReadError> {
    view.get(key.as_bytes())?.map(|bytes| decode(key.as_bytes(), &bytes)).transpose()
}

/// Read every record whose key begins with `prefix`, each with its key.
pub(crate) fn read_all<T: DeserializeOwned>(
    view: &dyn Snapshot,
    prefix: &Key,
) -> Result<Vec<(Vec<u8>, T)>, ReadError> {
    let mut records = Vec::new();
    let mut failure = None;
    view.scan(prefix.as_bytes(), &mut |key, bytes| match decode(key, bytes) {
        Ok(record) => {
            records.push((key.to_vec(), record));
            true
        }
        Err(error) => {
            failure = Some(error);
            false
        }
    })?;
    failure.map_or(Ok(records), Err)
}

fn checksum(key: &[u8], version: u8, payload: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(key.len() as u64).to_be_bytes()).update(key).update(&[version]).update(payload);
    let mut checksum = [0; CHECKSUM_BYTES];
    hasher.finalize_xof().fill(&mut checksum);
    checksum
}

/// A key in words, for people.
fn name(key: &[u8]) -> String {
    let kind = match key.first() {
        Some(b'A') => "store",
        Some(b'R') => "run",
        Some(b'D') => "source of run",
        Some(b'O') => "open run",
        Some(b'K') => "call key",
        Some(b'S') => "step of run",
        Some(b'W') => "wait of run",
        Some(b'H') => "session",
        Some(b'M') => "message of session",
        _ => "of an unknown kind",
    };
    let rest = key.get(1..).unwrap_or_default();
    match rest.split_at_checked(16) {
        Some((id, number)) if number.len() >= 8 => {
            let seq = number[..8].iter().fold(0u64, |seq, byte| seq << 8 | u64::from(*byte));
            format!("{kind} {}, number {seq}", hex::encode(id))
        }
        _ => format!("{kind} {}", hex::encode(rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_key_or_value_is_noticed_and_named() {
        let key = Key::step_event(RunId::from_bytes([7; 16]), 5, 1, 2, 0);
        let bytes = encode(&key, &"payload");
        assert_eq!(decode::<String>(key.as_bytes(), &bytes).unwrap(), "payload");
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let error = decode::<String>(key.as_bytes(), &flipped).unwrap_err();
            assert!(error.to_string().contains("step of run 0707"), "{error}");
        }
        for bit in 0..key.as_bytes().len() * 8 {
            let mut flipped = key.as_bytes().to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode::<String>(&flipped, &bytes).is_err(), "bit {bit} of the key");
        }
    }

    #[test]
    fn a_newer_record_is_refused_by_name_and_not_called_damaged() {
        let key = Key::run(RunId::from_bytes([7; 16]));
        let mut bytes = encode(&key, &1);
        bytes[0] = SCHEMA_VERSION + 1;
        let sum = checksum(key.as_bytes(), bytes[0], &bytes[1 + CHECKSUM_BYTES..]);
        bytes[1..=CHECKSUM_BYTES].copy_from_slice(&sum);
        assert!(matches!(decode::<u32>(key.as_bytes(), &bytes), Err(ReadError::Newer { found: 2, .. })));
    }
}
