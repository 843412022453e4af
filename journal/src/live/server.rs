//! The answering side: threads of the process that owns the journal.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Scope};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};

use super::frame::{Channel, VERSION};
use super::message::{Malformed, PAGE_BYTES, REPLY_BYTES, REQUEST_BYTES, Reply, Request, StoreTrouble};
use super::socket::{self, Place};
use crate::commit::{CommitError, Op};
use crate::storage::{Durability, Snapshot, Storage, StorageError};
use crate::writer::Writer;

/// Clients served at once. Each holds a thread and a snapshot; more of them wait to be let in.
const CONNECTIONS: usize = 8;

/// How long a client may take for its next request: more than it takes a backup to write a page to a slow disk. A client
/// that is stopped holds its snapshot, and the room of what has changed since, no longer.
const REQUEST_PATIENCE: Duration = Duration::from_secs(30);

/// How long a client may take to receive a reply.
const REPLY_PATIENCE: Duration = Duration::from_secs(30);

/// How long a client may stay, however busy it is: a backup of hundreds of gigabytes.
const VISIT: Duration = Duration::from_hours(1);

/// After a failure to let a client in, such as too many open files, the next one waits so long.
const AFTER_FAILURE: Duration = Duration::from_millis(50);

/// The socket of a journal, served while this is kept.
pub(crate) struct Server {
    place: Place,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    listener: UnixListener,
    /// How long a client may take for its next request.
    patience: Duration,
    storage: Arc<dyn Storage>,
    writer: Arc<Writer>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    stopping: bool,
    /// A second handle of each client's connection, to end it by.
    clients: BTreeMap<u64, UnixStream>,
}

impl Server {
    /// Serve the journal at `path`, which this process owns.
    pub(crate) fn start(path: &Path, storage: Arc<dyn Storage>, writer: Arc<Writer>) -> io::Result<Self> {
        Self::start_patient(path, storage, writer, REQUEST_PATIENCE)
    }

    fn start_patient(
        path: &Path,
        storage: Arc<dyn Storage>,
        writer: Arc<Writer>,
        patience: Duration,
    ) -> io::Result<Self> {
        let place = Place::of(path)?;
        let listener = place.listen()?;
        let state = Mutex::new(State::default());
        let shared = Arc::new(Shared { listener, patience, storage, writer, state, changed: Condvar::new() });
        let served = Arc::clone(&shared);
        let thread = thread::Builder::new().name("deed-live".to_owned()).spawn(move || served.serve());
        match thread {
            Ok(thread) => Ok(Self { place, shared, thread: Some(thread) }),
            Err(error) => {
                let _ = place.clear();
                Err(error)
            }
        }
    }
}

impl Drop for Server {
    /// Ends every connection, and the threads with them: no one of them waits for a client after this.
    fn drop(&mut self) {
        // First of all, so that nobody new finds the way. One that stays is refused, and replaced by the next owner.
        let _ = self.place.clear();
        let mut state = self.shared.lock();
        state.stopping = true;
        for client in state.clients.values() {
            let _ = client.shutdown(std::net::Shutdown::Both);
        }
        drop(state);
        let _ = shutdown(&self.shared.listener, Shutdown::Both);
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic in it was told by the panic's own message, and nothing here depends on it.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // What it guards is changed by one insertion or removal at a time.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Let clients in until the end. Returns when all have gone.
    fn serve(&self) {
        thread::scope(|scope| {
            for number in 0.. {
                if !self.wait_for_room() {
                    break;
                }
                match self.listener.accept() {
                    Ok((stream, _)) if socket::may_ask(&stream) => self.let_in(scope, number, stream),
                    Ok(_) => {}
                    Err(_) => self.wait_after_failure(),
                }
            }
        });
    }

    /// Wait until one more client can be served; false at the end.
    fn wait_for_room(&self) -> bool {
        let full = |state: &mut State| !state.stopping && state.clients.len() >= CONNECTIONS;
        let state = self.changed.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner);
        !state.stopping
    }

    fn wait_after_failure(&self) {
        let going_on = |state: &mut State| !state.stopping;
        // Whether it was the time or the end is looked at next.
        drop(self.changed.wait_timeout_while(self.lock(), AFTER_FAILURE, going_on));
    }

    fn let_in<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, number: u64, stream: UnixStream) {
        let Ok(handle) = stream.try_clone() else { return };
        let mut state = self.lock();
        if state.stopping {
            return;
        }
        state.clients.insert(number, handle);
        drop(state);
        let leave = Leave { shared: self, number };
        let visit = move || {
            let _leave = leave;
            // An error is the client's: it has gone, or broke the rules.
            let _ = self.visit(&Channel::new(stream));
        };
        // Without a thread, the client is dropped with what it would have run.
        let _ = thread::Builder::new().name("deed-live-client".to_owned()).spawn_scoped(scope, visit);
    }

    fn visit(&self, client: &Channel) -> io::Result<()> {
        let theirs = client.receive_hello(self.patience)?;
        client.send_hello(REPLY_PATIENCE)?;
        if theirs != VERSION {
            return Ok(());
        }
        let begun = Instant::now();
        let view = self.durable_view();
        while begun.elapsed() < VISIT {
            let Some(request) = client.receive(REQUEST_BYTES, self.patience)? else { break };
            let Ok(request) = Request::decode(&request) else {
                return client.send(&Reply::Unknown.encode(), REPLY_PATIENCE);
            };
            let reply = match (request, &view) {
                (Request::Answer { id, answer }, _) => {
                    match self.writer.commit(vec![Op::Answer { id, answer }], Durability::Durable) {
                        Ok(changes) => Reply::Answered(changes.contains(&true)),
                        Err(error) => Reply::Refused(error.into()),
                    }
                }
                (request, Ok(view)) => {
                    read(&**view, request).unwrap_or_else(|error| Reply::Failed(error.into()))
                }
                (_, Err(words)) => Reply::Failed(StoreTrouble::Other(words.clone())),
            };
            let mut reply = reply.encode();
            if reply.len() > REPLY_BYTES {
                let words = "a value is larger than any may be".to_owned();
                reply = Reply::Failed(StoreTrouble::Damaged(words)).encode();
            }
            client.send(&reply, REPLY_PATIENCE)?;
        }
        Ok(())
    }

    /// A view of which everything is durable: nothing leaves the process before it is.
    fn durable_view(&self) -> Result<Box<dyn Snapshot + '_>, String> {
        let view = self.storage.snapshot().map_err(|error| error.to_string())?;
        // In this order: what rode when the view was taken is durable afterwards.
        self.writer
            .commit(Vec::new(), Durability::Durable)
            .map_err(|error: CommitError| error.to_string())?;
        Ok(view)
    }
}

/// Makes room for the next client, whatever the end of this one.
struct Leave<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.shared.lock().clients.remove(&self.number);
        self.shared.changed.notify_all();
    }
}

fn read(view: &dyn Snapshot, request: Request) -> Result<Reply, StorageError> {
    match request {
        Request::Get(key) => Ok(view.get(&key)?.map_or(Reply::Nothing, Reply::Value)),
        Request::Page { prefix, after } => {
            let (mut pairs, mut bytes, mut more) = (Vec::new(), 0, false);
            let mut each = |key: &[u8], value: &[u8]| {
                more = bytes >= PAGE_BYTES;
                if !more {
                    bytes += key.len() + value.len();
                    pairs.push((key.to_vec(), value.to_vec()));
                }
                !more
            };
            match after {
                Some(after) => view.scan_after(&prefix, &after, &mut each)?,
                None => view.scan(&prefix, &mut each)?,
            }
            Ok(Reply::Page { pairs, more })
        }
        Request::Answer { .. } => Err(StorageError::Io(io::Error::other(Malformed))),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::open::beside;
    use crate::redb_store::RedbStore;
    use crate::writer::Idle;

    /// A client may be stopped at any byte. Here the owner's patience is short, so that its end is seen and not waited for.
    #[test]
    fn a_client_that_stops_half_way_is_dropped_in_time_and_its_snapshot_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.redb");
        let storage: Arc<dyn Storage> = Arc::new(RedbStore::open(&path).unwrap());
        let writer = Arc::new(Writer::start(Arc::clone(&storage), 1, Idle::Never));
        let patience = Duration::from_millis(20);
        let server = Server::start_patient(&path, Arc::clone(&storage), writer, patience).unwrap();
        let talk = [b"\0\0\0\x0ddeed live\0\0\0\x01".as_slice(), b"\0\0\0\x02gA"].concat();
        // More than are served at once, so that the room of each is needed again.
        for stop in 0..talk.len() {
            let mut stream = UnixStream::connect(beside(&path, "socket")).unwrap();
            stream.write_all(&talk[..stop]).unwrap();
            // Ends when the owner hangs up.
            let mut said = Vec::new();
            let _ = stream.read_to_end(&mut said);
            assert!(said.is_empty() || said == talk[..17], "{said:?}");
        }
        drop(server);
        assert_eq!(Arc::strong_count(&storage), 1, "no thread has it any more");
    }
}
