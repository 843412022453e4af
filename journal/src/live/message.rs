//! What is asked and answered: one byte for the kind, then keys and values as they are, and JSON for the rest.

use serde::{Deserialize, Serialize};

use crate::commit::CommitError;
use crate::id::WaitId;
use crate::record::{Pair, ReadError, SOURCE_BYTES};
use crate::storage::StorageError;
use crate::wait::Answer;

/// A request: a key, or an answer with its text. A text beyond this is refused where it is typed.
pub(super) const REQUEST_BYTES: usize = 1 << 20;

/// Pairs are sent until they are so many bytes: a page is this and one value at most. Large enough that a scan is not
/// made of waiting, small enough that who wants one pair does not wait for many.
pub(super) const PAGE_BYTES: usize = 256 << 10;

/// The largest value that the journal takes, with its envelope and a page beside it.
pub(super) const REPLY_BYTES: usize = SOURCE_BYTES + PAGE_BYTES + (1 << 20);

/// What a client asks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// The value at a key.
    Get(Vec<u8>),
    /// The next pairs whose key begins with `prefix`, behind `after`, or from the first one on.
    Page { prefix: Vec<u8>, after: Option<Vec<u8>> },
    /// Commit an answer.
    Answer { id: WaitId, answer: Answer },
}

/// What the owner says to it.
#[derive(Debug)]
pub(super) enum Reply {
    /// Nothing is at the key.
    Nothing,
    /// This is.
    Value(Vec<u8>),
    /// Pairs in order, and whether there are more.
    Page { pairs: Vec<Pair>, more: bool },
    /// The answer is durable; says whether it changed anything.
    Answered(bool),
    /// The answer is refused.
    Refused(Refusal),
    /// The store failed.
    Failed(StoreTrouble),
    /// The request is none.
    Unknown,
}

/// Why bytes are no message.
#[derive(Debug, thiserror::Error)]
#[error("a message of another form")]
pub(super) struct Malformed;

impl From<serde_json::Error> for Malformed {
    fn from(_: serde_json::Error) -> Self {
        Self
    }
}

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Get(key) => [b"g", &key[..]].concat(),
            Self::Page { prefix, after } => {
                let mut bytes = vec![b'p', u8::from(after.is_some())];
                put(&mut bytes, prefix);
                bytes.extend_from_slice(after.as_deref().unwrap_or_default());
                bytes
            }
            Self::Answer { id, answer } => with_json(b'a', &(id, answer)),
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (kind, mut rest) = bytes.split_first().ok_or(Malformed)?;
        match kind {
            b'g' => Ok(Self::Get(rest.to_vec())),
            b'p' => {
                let behind = flag(take_byte(&mut rest)?)?;
                let prefix = take(&mut rest)?.to_vec();
                match (behind, rest) {
                    (true, after) => Ok(Self::Page { prefix, after: Some(after.to_vec()) }),
                    (false, []) => Ok(Self::Page { prefix, after: None }),
                    _ => Err(Malformed),
                }
            }
            b'a' => {
                let (id, answer) = serde_json::from_slice(rest)?;
                Ok(Self::Answer { id, answer })
            }
            _ => Err(Malformed),
        }
    }
}

impl Reply {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Nothing => vec![b'n'],
            Self::Value(value) => [b"v", &value[..]].concat(),
            Self::Page { pairs, more } => {
                let mut bytes = vec![b'p', u8::from(*more)];
                for (key, value) in pairs {
                    put(&mut bytes, key);
                    put(&mut bytes, value);
                }
                bytes
            }
            Self::Answered(changed) => vec![b'a', u8::from(*changed)],
            Self::Refused(refusal) => with_json(b'r', refusal),
            Self::Failed(trouble) => with_json(b'f', trouble),
            Self::Unknown => vec![b'?'],
        }
    }

    pub(super) fn decode(bytes: Vec<u8>) -> Result<Self, Malformed> {
        let (kind, rest) = bytes.split_first().ok_or(Malformed)?;
        match (kind, rest) {
            (b'n', []) => Ok(Self::Nothing),
            (b'v', _) => {
                let mut value = bytes;
                value.remove(0);
                Ok(Self::Value(value))
            }
            (b'p', _) => {
                let mut left = rest;
                let more = flag(take_byte(&mut left)?)?;
                let mut pairs = Vec::new();
                while !left.is_empty() {
                    let key = take(&mut left)?.to_vec();
                    pairs.push((key, take(&mut left)?.to_vec()));
                }
                // Without a pair there is nothing behind which to go on.
                if more && pairs.is_empty() { Err(Malformed) } else { Ok(Self::Page { pairs, more }) }
            }
            (b'a', [changed]) => Ok(Self::Answered(flag(*changed)?)),
            (b'r', json) => Ok(Self::Refused(serde_json::from_slice(json)?)),
            (b'f', json) => Ok(Self::Failed(serde_json::from_slice(json)?)),
            (b'?', []) => Ok(Self::Unknown),
            _ => Err(Malformed),
        }
    }
}

/// A length and as many bytes.
fn put(bytes: &mut Vec<u8>, part: &[u8]) {
    let length = u32::try_from(part.len()).expect("keys and values are far below 4 GiB");
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(part);
}

fn take_byte(bytes: &mut &[u8]) -> Result<u8, Malformed> {
    let (byte, rest) = bytes.split_first().ok_or(Malformed)?;
    *bytes = rest;
    Ok(*byte)
}

fn flag(byte: u8) -> Result<bool, Malformed> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed),
    }
}

fn take<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let (length, rest) = bytes.split_first_chunk().ok_or(Malformed)?;
    let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| Malformed)?;
    let (part, rest) = rest.split_at_checked(length).ok_or(Malformed)?;
    *bytes = rest;
    Ok(part)
}

fn with_json<T: Serialize>(kind: u8, value: &T) -> Vec<u8> {
    let mut bytes = vec![kind];
    serde_json::to_writer(&mut bytes, value).expect("plain data becomes JSON, and memory takes it");
    bytes
}

/// A [`CommitError`] that an answer can meet, on its way to who gave it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Refusal {
    Fenced { mine: u64, stored: u64 },
    NoSuchWait(WaitId),
    NoSuchOption { id: WaitId, option: String, expected: Vec<String> },
    Expired(WaitId),
    AnsweredBefore { id: WaitId, first: String },
    TooLarge { what: String, bytes: usize, limit: usize },
    Damaged { record: String, reason: String },
    Newer { record: String, found: u8 },
    Store(StoreTrouble),
    Unknown(String),
    Stopped(String),
}

/// A [`StorageError`] on its way.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum StoreTrouble {
    Damaged(String),
    Other(String),
}

impl From<StorageError> for StoreTrouble {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Damaged(what) => Self::Damaged(what),
            StorageError::Io(error) => Self::Other(error.to_string()),
            other => Self::Other(other.to_string()),
        }
    }
}

impl From<StoreTrouble> for StorageError {
    fn from(trouble: StoreTrouble) -> Self {
        match trouble {
            StoreTrouble::Damaged(what) => Self::Damaged(what),
            StoreTrouble::Other(words) => Self::Io(std::io::Error::other(words)),
        }
    }
}

impl From<CommitError> for Refusal {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Fenced { mine, stored } => Self::Fenced { mine, stored },
            CommitError::NoSuchWait(id) => Self::NoSuchWait(id),
            CommitError::NoSuchOption { id, option, expected } => Self::NoSuchOption { id, option, expected },
            CommitError::Expired(id) => Self::Expired(id),
            CommitError::AnsweredBefore { id, first } => Self::AnsweredBefore { id, first },
            CommitError::TooLarge { what, bytes, limit } => Self::TooLarge { what, bytes, limit },
            CommitError::Read(ReadError::Damaged { record, reason }) => Self::Damaged { record, reason },
            CommitError::Read(ReadError::Newer { record, found }) => Self::Newer { record, found },
            CommitError::Read(ReadError::Storage(error)) => Self::Store(error.into()),
            CommitError::Unknown(words) => Self::Unknown(words),
            CommitError::Stopped(words) => Self::Stopped(words),
            // No answer meets the others. Should one come, it is said in words.
            other => Self::Store(StoreTrouble::Other(other.to_string())),
        }
    }
}

impl From<Refusal> for CommitError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Fenced { mine, stored } => Self::Fenced { mine, stored },
            Refusal::NoSuchWait(id) => Self::NoSuchWait(id),
            Refusal::NoSuchOption { id, option, expected } => Self::NoSuchOption { id, option, expected },
            Refusal::Expired(id) => Self::Expired(id),
            Refusal::AnsweredBefore { id, first } => Self::AnsweredBefore { id, first },
            Refusal::TooLarge { what, bytes, limit } => Self::TooLarge { what, bytes, limit },
            Refusal::Damaged { record, reason } => ReadError::Damaged { record, reason }.into(),
            Refusal::Newer { record, found } => ReadError::Newer { record, found }.into(),
            Refusal::Store(trouble) => StorageError::from(trouble).into(),
            Refusal::Unknown(words) => Self::Unknown(words),
            Refusal::Stopped(words) => Self::Stopped(words),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;

    fn requests() -> Vec<Request> {
        let id = WaitId { run: RunId::from_bytes([7; 16]), seq: 3, revision: 1 };
        let answer = Answer { option: "yes".into(), text: Some("I \"saw\" it".into()), answered_ms: 5 };
        vec![
            Request::Get(vec![]),
            Request::Get(b"A".to_vec()),
            Request::Page { prefix: vec![], after: None },
            Request::Page { prefix: vec![], after: Some(vec![]) },
            Request::Page { prefix: b"R".to_vec(), after: Some(vec![0, 255, 7]) },
            Request::Answer { id, answer },
        ]
    }

    fn replies() -> Vec<Reply> {
        vec![
            Reply::Nothing,
            Reply::Value(vec![]),
            Reply::Value(vec![0, 1, 255]),
            Reply::Page { pairs: vec![], more: false },
            Reply::Page { pairs: vec![(b"A".to_vec(), vec![1]), (b"B".to_vec(), vec![])], more: true },
            Reply::Answered(true),
            Reply::Refused(Refusal::Stopped("the disk is gone".into())),
            Reply::Failed(StoreTrouble::Damaged("a page".into())),
            Reply::Unknown,
        ]
    }

    #[test]
    fn messages_arrive_as_they_were_sent() {
        for request in requests() {
            assert_eq!(Request::decode(&request.encode()).unwrap(), request);
        }
        for reply in replies() {
            let again = Reply::decode(reply.encode()).unwrap();
            assert_eq!(format!("{again:?}"), format!("{reply:?}"));
        }
    }

    /// Whatever arrives is a message or is refused; nothing panics, and no length is believed.
    #[test]
    fn cut_and_changed_messages_are_refused_or_read() {
        let requests = requests().iter().map(Request::encode).collect::<Vec<_>>();
        let replies = replies().iter().map(Reply::encode).collect::<Vec<_>>();
        let mut refused = 0;
        for whole in requests.iter().chain(&replies) {
            for cut in 0..whole.len() {
                refused += usize::from(Request::decode(&whole[..cut]).is_err());
                refused += usize::from(Reply::decode(whole[..cut].to_vec()).is_err());
            }
            for (at, byte) in (0..whole.len()).flat_map(|at| [0, 1, 127, 255].map(|byte| (at, byte))) {
                let mut changed = whole.clone();
                changed[at] = byte;
                refused += usize::from(Request::decode(&changed).is_err());
                refused += usize::from(Reply::decode(changed).is_err());
            }
        }
        assert!(refused > 100, "{refused}");
        assert!(Reply::decode(vec![b'p', 1]).is_err(), "a page without pairs is the last one");
        let huge = [b"p\0".as_slice(), &u32::MAX.to_be_bytes(), b"A"].concat();
        assert!(Reply::decode(huge).is_err());
    }
}
