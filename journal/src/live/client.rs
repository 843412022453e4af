//! The asking side: a snapshot that is in another process.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::LiveError;
use super::frame::{Channel, VERSION};
use super::message::{REPLY_BYTES, REQUEST_BYTES, Reply, Request};
use super::socket::Place;
use crate::commit::CommitError;
use crate::id::WaitId;
use crate::reader::Reader;
use crate::storage::{IoCounts, Snapshot, Storage, StorageError, Transaction};
use crate::wait::Answer;

/// How long an owner may take to say which version it speaks. It needs a thread to be woken; who takes longer is stopped.
const HELLO_PATIENCE: Duration = Duration::from_secs(3);

/// How long it may take to answer a request: a page of what it holds, or a commit on a slow and busy disk.
const REPLY_PATIENCE: Duration = Duration::from_secs(30);

/// A journal that another process owns, reached through that process.
///
/// It is read as of the instant of connecting, and as it is then durable. Answers are committed by the owner.
pub struct LiveJournal {
    reader: Reader,
    connection: Arc<Connection>,
}

impl LiveJournal {
    /// Reach the owner of the journal at `path`.
    ///
    /// # Errors
    /// [`LiveError::Absent`] when nobody listens: the owner does not share the journal, has just ended, or is only
    /// beginning. [`LiveError::Silent`] when the owner does not say anything within three seconds. The others say that
    /// who listens is not to be talked to.
    pub fn connect(path: &Path) -> Result<Self, LiveError> {
        let stream = Place::of(path)?.connect(HELLO_PATIENCE)?;
        let channel = Channel::new(stream);
        let greeted = channel.send_hello(HELLO_PATIENCE).and_then(|()| channel.receive_hello(HELLO_PATIENCE));
        let theirs = greeted.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => LiveError::Silent,
            io::ErrorKind::InvalidData => LiveError::Stranger,
            // It has ended meanwhile, or is about to.
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                LiveError::Absent
            }
            _ => LiveError::Io(error),
        })?;
        if theirs != VERSION {
            return Err(LiveError::OtherVersion { theirs, ours: VERSION });
        }
        let connection = Arc::new(Connection { channel: Mutex::new(Ok(channel)) });
        let storage = Remote(Arc::clone(&connection));
        Ok(Self { reader: Reader::over(Arc::new(storage)), connection })
    }

    /// Read it.
    pub fn read(&self) -> &Reader {
        &self.reader
    }

    /// Have the owner commit an answer; durable when this returns. Says whether it changed anything: the same answer
    /// again does not. What is read here stays as it was.
    ///
    /// # Errors
    /// As [`Op::Answer`](crate::Op::Answer) with the owner. When the owner went away in the middle, the answer may be
    /// there or not; to give it again does no harm.
    pub fn answer(&self, id: WaitId, answer: Answer) -> Result<bool, CommitError> {
        let request = Request::Answer { id, answer }.encode();
        if request.len() > REQUEST_BYTES {
            let (what, bytes) = ("answer".to_owned(), request.len());
            return Err(CommitError::TooLarge { what, bytes, limit: REQUEST_BYTES });
        }
        match self.connection.ask(&request)? {
            Reply::Answered(changed) => Ok(changed),
            Reply::Refused(refusal) => Err(refusal.into()),
            other => Err(unexpected(other).into()),
        }
    }
}

/// One connection, and thus one snapshot of the owner's.
struct Connection {
    /// Or why there is none any more.
    channel: Mutex<Result<Channel, String>>,
}

impl Connection {
    fn ask(&self, request: &[u8]) -> Result<Reply, StorageError> {
        // A panic of another thread leaves the channel as it was or in the middle of a reply, and the next one notices.
        let mut slot = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        let channel = slot.as_ref().map_err(|reason| StorageError::Lost(reason.clone()))?;
        match exchange(channel, request) {
            Ok(reply) => Ok(reply),
            Err(error) => {
                // What comes next on it would not belong to what is asked next.
                channel.close();
                *slot = Err(error.to_string());
                Err(StorageError::Lost(error.to_string()))
            }
        }
    }
}

fn exchange(channel: &Channel, request: &[u8]) -> io::Result<Reply> {
    channel.send(request, REPLY_PATIENCE)?;
    let reply = channel.receive(REPLY_BYTES, REPLY_PATIENCE)?;
    let reply = reply.ok_or_else(|| io::Error::other("it has closed the connection"))?;
    Reply::decode(reply).map_err(io::Error::other)
}

fn unexpected(reply: Reply) -> StorageError {
    match reply {
        Reply::Failed(trouble) => trouble.into(),
        _ => StorageError::Io(io::Error::other("the owner of the journal answered something else")),
    }
}

/// A store whose every view is the one snapshot of its connection.
struct Remote(Arc<Connection>);

impl Storage for Remote {
    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, StorageError> {
        Ok(Box::new(RemoteSnapshot(&self.0)))
    }

    fn begin(&self) -> Result<Box<dyn Transaction + '_>, StorageError> {
        let words = "another process owns the journal";
        Err(StorageError::Io(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, words)))
    }

    /// None: what the owner does is its own.
    fn io_counts(&self) -> IoCounts {
        IoCounts::default()
    }
}

struct RemoteSnapshot<'a>(&'a Connection);

impl RemoteSnapshot<'_> {
    fn pages(
        &self,
        prefix: &[u8],
        mut after: Option<Vec<u8>>,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StorageError> {
        loop {
            let request = Request::Page { prefix: prefix.to_vec(), after: after.take() };
            let (pairs, more) = match self.0.ask(&request.encode())? {
                Reply::Page { pairs, more } => (pairs, more),
                other => return Err(unexpected(other)),
            };
            for (key, value) in &pairs {
                if !each(key, value) {
                    return Ok(());
                }
            }
            match pairs.into_iter().next_back() {
                Some((key, _)) if more => after = Some(key),
                _ => return Ok(()),
            }
        }
    }
}

impl Snapshot for RemoteSnapshot<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        match self.0.ask(&Request::Get(key.to_vec()).encode())? {
            Reply::Nothing => Ok(None),
            Reply::Value(value) => Ok(Some(value)),
            other => Err(unexpected(other)),
        }
    }

    fn scan(&self, prefix: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StorageError> {
        self.pages(prefix, None, each)
    }

    fn scan_after(
        &self,
        prefix: &[u8],
        after: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StorageError> {
        self.pages(prefix, Some(after.to_vec()), each)
    }
}
