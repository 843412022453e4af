//! How a record is stored: its key, and an envelope with a version and a checksum around its JSON.
//!
//! The store does not verify its pages on a plain read, so one flipped bit on disk must be found here: the checksum
//! covers key and value, and a record that fails it is reported, never served. A large value lies in a blob of its own,
//! named by its digest and shared by all records that hold the same; the record then holds that name.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::id::{Digest, RunId, SessionId, WaitId};
use crate::storage::{Snapshot, StorageError};

/// The version written in front of every record. A record with a higher one is refused untouched. 2: a step may hold the
/// verdict of a probe, and a question may be answered by its expiry.
pub(crate) const SCHEMA_VERSION: u8 = 3;

/// JSON beyond this goes to a blob. Sixteen pages: a leaf still holds several records, and a step's arguments and result
/// seldom reach it.
pub(crate) const INLINE_BYTES: usize = 64 << 10;

/// JSON beyond this is refused. Four times the largest result a call may have, in base64.
pub(crate) const VALUE_BYTES: usize = 16 << 20;

/// The same for what a run executes, which a script of large arguments may be: it is written once, and read once by each
/// resume.
pub(crate) const SOURCE_BYTES: usize = 256 << 20;

/// What a record begins with whose JSON lies in a blob. JSON itself never begins with it.
const BLOB_MARK: u8 = b'@';

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
    Rewrite = b'L',
    Blob = b'B',
    BlobReferences = b'C',
}

impl Key {
    fn new(kind: Kind, parts: &[&[u8]]) -> Self {
        let mut bytes = vec![kind as u8];
        for part in parts {
            bytes.extend_from_slice(part);
        }
        Self(bytes)
    }

    /// The prefix of every key.
    pub(crate) fn everything() -> Self {
        Self(Vec::new())
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

    /// How many events a step has. Sorts after them.
    pub(crate) fn step_head(run: RunId, seq: u64) -> Self {
        Self::step_event(run, seq, u32::MAX, u8::MAX, 0)
    }

    /// The seq in a step event's key.
    pub(crate) fn seq_of_step_event(key: &[u8]) -> Option<u64> {
        Some(u64::from_be_bytes(key.get(17..25)?.try_into().ok()?))
    }

    /// Every question of a run.
    pub(crate) fn waits(run: RunId) -> Self {
        Self::new(Kind::Wait, &[run.as_bytes()])
    }

    /// One question.
    pub(crate) fn wait(id: WaitId) -> Self {
        let WaitId { run, seq, revision } = id;
        Self::new(Kind::Wait, &[run.as_bytes(), &seq.to_be_bytes(), &revision.to_be_bytes()])
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

    /// Every session.
    pub(crate) fn sessions() -> Self {
        Self::new(Kind::Session, &[])
    }

    /// Every rewrite of a session.
    pub(crate) fn rewrites(session: SessionId) -> Self {
        Self::new(Kind::Rewrite, &[session.as_bytes()])
    }

    /// The rewrite that led to this revision.
    pub(crate) fn rewrite(session: SessionId, revision: u64) -> Self {
        Self::new(Kind::Rewrite, &[session.as_bytes(), &revision.to_be_bytes()])
    }

    /// A large value.
    pub(crate) fn blob(digest: &Digest) -> Self {
        Self::new(Kind::Blob, &[digest.as_bytes()])
    }

    /// How many records name a large value. Apart from it, so that one more reference does not write it again.
    pub(crate) fn blob_references(digest: &Digest) -> Self {
        Self::new(Kind::BlobReferences, &[digest.as_bytes()])
    }

    /// How large the JSON of the record may be.
    pub(crate) fn limit_bytes(&self) -> usize {
        if self.0.first() == Some(&(Kind::RunSource as u8)) { SOURCE_BYTES } else { VALUE_BYTES }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A record's bytes, and the blob that holds its value if that is large.
pub(crate) struct Encoded {
    pub(crate) bytes: Vec<u8>,
    pub(crate) blob: Option<(Digest, Vec<u8>)>,
}

/// The bytes of `record` at `key`: version, checksum over key and payload, JSON or the name of a blob.
pub(crate) fn encode<T: Serialize>(key: &Key, record: &T) -> Encoded {
    let json = serde_json::to_vec(record).expect("records have text keys and finite numbers only");
    if json.len() <= INLINE_BYTES {
        return Encoded { bytes: envelope(key, &json), blob: None };
    }
    let digest = Digest::of(&json);
    let mut payload = vec![BLOB_MARK];
    payload.extend_from_slice(digest.as_bytes());
    Encoded { bytes: envelope(key, &payload), blob: Some((digest, json)) }
}

pub(crate) fn envelope(key: &Key, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + CHECKSUM_BYTES + payload.len());
    bytes.push(SCHEMA_VERSION);
    bytes.extend_from_slice(&checksum(key.as_bytes(), SCHEMA_VERSION, payload));
    bytes.extend_from_slice(payload);
    bytes
}

/// The payload in `bytes`, found at `key`: its checksum and version are right.
fn payload<'a>(key: &[u8], bytes: &'a [u8]) -> Result<&'a [u8], ReadError> {
    let (&version, rest) = bytes.split_first().ok_or_else(|| damaged(key, "it is empty"))?;
    let (stored, payload) =
        rest.split_at_checked(CHECKSUM_BYTES).ok_or_else(|| damaged(key, "it is too short"))?;
    if checksum(key, version, payload) != stored {
        return Err(damaged(key, "its checksum does not match"));
    }
    if version > SCHEMA_VERSION {
        return Err(ReadError::Newer { record: name(key), found: version });
    }
    Ok(payload)
}

/// Check the record in `bytes`, found at `key`, by itself. One of a newer version may be as it should.
pub(crate) fn is_damaged(key: &[u8], bytes: &[u8]) -> bool {
    matches!(payload(key, bytes), Err(ReadError::Damaged { .. }))
}

/// The blob that a record's value lies in, if it does. A damaged record names none.
pub(crate) fn blob_of(key: &[u8], bytes: &[u8]) -> Option<Digest> {
    let digest = payload(key, bytes).ok()?.strip_prefix(&[BLOB_MARK])?;
    Some(Digest::from_bytes(digest.try_into().ok()?))
}

/// The record in `bytes`, found at `key`.
pub(crate) fn decode<T: DeserializeOwned>(
    view: &dyn Snapshot,
    key: &[u8],
    bytes: &[u8],
) -> Result<T, ReadError> {
    let payload = payload(key, bytes)?;
    let json = match payload.strip_prefix(&[BLOB_MARK]) {
        None => std::borrow::Cow::Borrowed(payload),
        Some(digest) => {
            let digest = digest.try_into().map_err(|_| damaged(key, "the name of its blob is cut"))?;
            let content = read_blob(view, &Digest::from_bytes(digest))?;
            std::borrow::Cow::Owned(content.ok_or_else(|| damaged(key, "its blob is missing"))?)
        }
    };
    serde_json::from_slice(&json).map_err(|error| damaged(key, &error.to_string()))
}

/// The content of a blob, if it is there. It is checked against its name.
pub(crate) fn read_blob(view: &dyn Snapshot, digest: &Digest) -> Result<Option<Vec<u8>>, ReadError> {
    let key = Key::blob(digest);
    let Some(bytes) = view.get(key.as_bytes())? else { return Ok(None) };
    let content = payload(key.as_bytes(), &bytes)?;
    if Digest::of(content) != *digest {
        return Err(damaged(key.as_bytes(), "its content does not fit its name"));
    }
    Ok(Some(content.to_vec()))
}

pub(crate) fn damaged(key: &[u8], reason: &str) -> ReadError {
    ReadError::Damaged { record: name(key), reason: reason.to_owned() }
}

/// Read the record at `key`, if it is there.
pub(crate) fn read<T: DeserializeOwned>(view: &dyn Snapshot, key: &Key) -> Result<Option<T>, ReadError> {
    view.get(key.as_bytes())?.map(|bytes| decode(view, key.as_bytes(), &bytes)).transpose()
}

/// A key and its bytes, as they are stored.
pub(crate) type Pair = (Vec<u8>, Vec<u8>);

/// The raw pairs whose key begins with `prefix`.
pub(crate) fn pairs(view: &dyn Snapshot, prefix: &Key) -> Result<Vec<Pair>, StorageError> {
    let mut pairs = Vec::new();
    view.scan(prefix.as_bytes(), &mut |key, bytes| {
        pairs.push((key.to_vec(), bytes.to_vec()));
        true
    })?;
    Ok(pairs)
}

/// Read every record whose key begins with `prefix`. One damaged record fails it: what it holds belongs together.
pub(crate) fn read_all<T: DeserializeOwned>(view: &dyn Snapshot, prefix: &Key) -> Result<Vec<T>, ReadError> {
    pairs(view, prefix)?.into_iter().map(|(key, bytes)| decode(view, &key, &bytes)).collect()
}

/// Records of which each stands for itself: what can be read, and what cannot.
#[derive(Debug)]
pub struct Listing<T> {
    /// In order.
    pub items: Vec<T>,
    /// Why each of the others cannot be read.
    pub unreadable: Vec<ReadError>,
}

/// Read every record whose key begins with `prefix`, each for itself.
pub(crate) fn read_each<T: DeserializeOwned>(
    view: &dyn Snapshot,
    prefix: &Key,
) -> Result<Listing<T>, StorageError> {
    let mut listing = Listing { items: Vec::new(), unreadable: Vec::new() };
    for (key, bytes) in pairs(view, prefix)? {
        match decode(view, &key, &bytes) {
            Ok(item) => listing.items.push(item),
            // Not this record is at fault, and the next would not fare better.
            Err(ReadError::Storage(error @ StorageError::Lost(_))) => return Err(error),
            Err(error) => listing.unreadable.push(error),
        }
    }
    Ok(listing)
}

fn checksum(key: &[u8], version: u8, payload: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(key.len() as u64).to_be_bytes()).update(key).update(&[version]).update(payload);
    let mut checksum = [0; CHECKSUM_BYTES];
    hasher.finalize_xof().fill(&mut checksum);
    checksum
}

/// A key in words, for people.
pub(crate) fn name(key: &[u8]) -> String {
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
        Some(b'L') => "rewrite of session",
        Some(b'B') => "blob",
        Some(b'C') => "references of blob",
        _ => "of an unknown kind",
    };
    let rest = key.get(1..).unwrap_or_default();
    match rest.split_at_checked(16) {
        Some((id, number)) if number.len() >= 8 && !matches!(key.first(), Some(b'B' | b'C' | b'K')) => {
            let seq = number[..8].iter().fold(0u64, |seq, byte| seq << 8 | u64::from(*byte));
            format!("{kind} {}, number {seq}", hex::encode(id))
        }
        _ => format!("{kind} {}", hex::encode(rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store with nothing in it but blobs.
    #[derive(Default)]
    struct Blobs(std::collections::BTreeMap<Vec<u8>, Vec<u8>>);

    impl Snapshot for Blobs {
        fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
            Ok(self.0.get(key).cloned())
        }

        fn scan(&self, _: &[u8], _: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StorageError> {
            Ok(())
        }
    }

    #[test]
    fn every_flipped_bit_of_key_or_value_is_noticed_and_named() {
        let key = Key::step_event(RunId::from_bytes([7; 16]), 5, 1, 2, 0);
        let bytes = encode(&key, &"payload").bytes;
        let none = Blobs::default();
        assert_eq!(decode::<String>(&none, key.as_bytes(), &bytes).unwrap(), "payload");
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let error = decode::<String>(&none, key.as_bytes(), &flipped).unwrap_err();
            assert!(error.to_string().contains("step of run 0707"), "{error}");
        }
        for bit in 0..key.as_bytes().len() * 8 {
            let mut flipped = key.as_bytes().to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode::<String>(&none, &flipped, &bytes).is_err(), "bit {bit} of the key");
        }
    }

    #[test]
    fn a_large_value_lies_in_a_blob_and_a_changed_or_missing_one_is_damage() {
        let key = Key::run_source(RunId::from_bytes([7; 16]));
        let large = "x".repeat(INLINE_BYTES);
        let encoded = encode(&key, &large);
        let (digest, content) = encoded.blob.expect("it is too large to lie in the record");
        assert!(encoded.bytes.len() < 64);
        assert_eq!(blob_of(key.as_bytes(), &encoded.bytes), Some(digest));

        let mut store = Blobs::default();
        let missing = decode::<String>(&store, key.as_bytes(), &encoded.bytes).unwrap_err();
        assert!(missing.to_string().contains("its blob is missing"), "{missing}");
        let blob_key = Key::blob(&digest);
        let stored = envelope(&blob_key, &content);
        store.0.insert(blob_key.as_bytes().to_vec(), stored);
        assert_eq!(decode::<String>(&store, key.as_bytes(), &encoded.bytes).unwrap(), large);
        store.0.get_mut(blob_key.as_bytes()).unwrap()[1000] ^= 1;
        let error = decode::<String>(&store, key.as_bytes(), &encoded.bytes).unwrap_err();
        assert!(error.to_string().contains("record blob"), "{error}");
    }

    #[test]
    fn a_newer_record_is_refused_by_name_and_not_called_damaged() {
        let key = Key::run(RunId::from_bytes([7; 16]));
        let mut bytes = encode(&key, &1).bytes;
        bytes[0] = SCHEMA_VERSION + 1;
        let sum = checksum(key.as_bytes(), bytes[0], &bytes[1 + CHECKSUM_BYTES..]);
        bytes[1..=CHECKSUM_BYTES].copy_from_slice(&sum);
        let read = decode::<u32>(&Blobs::default(), key.as_bytes(), &bytes);
        assert!(matches!(read, Err(ReadError::Newer { found: 4, .. })));
    }
}
