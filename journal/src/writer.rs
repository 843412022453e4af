//! The writer: one thread that drains a bounded queue of commits into one transaction (group commit).

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::commit::{CommitError, Op};
use crate::open::StoreRecord;
use crate::record::{self, Key};
use crate::staged::{Staged, Writes};
use crate::storage::{Durability, Storage, StorageError, Transaction};

/// Commits that may wait. More than any batch has parallel calls, so that no caller waits for room alone.
const QUEUE: usize = 64;

/// A riding commit is synced after this long without another commit, so that a finished call is not lost to a slow
/// neighbour. Longer than a sync takes (0.2–2 ms on common disks), so that a busy writer never pays for it.
const IDLE_SYNC: Duration = Duration::from_millis(5);

/// After this long without work one more commit makes the next opening quick, whatever happens to the process. Long
/// enough that it costs a busy journal nothing.
const IDLE_QUICK_OPEN: Duration = Duration::from_millis(250);

/// Who decides that the writer is idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Idle {
    /// The time since the last commit: riding commits are synced after 5 ms, and after 250 ms the next opening is made
    /// quick.
    #[default]
    Timer,
    /// Nobody: riding commits become durable with the next durable one, or by [`Journal::sync`](crate::Journal::sync).
    /// For tests, which own time.
    Never,
}

struct Job {
    ops: Vec<Op>,
    durability: Durability,
    reply: SyncSender<Result<Vec<bool>, CommitError>>,
}

/// The handle of the writer thread. Dropping it finishes what is queued and closes the store quick to open.
pub(crate) struct Writer {
    queue: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Start the thread. It writes while the store's generation is `generation`.
    pub(crate) fn start(storage: Arc<dyn Storage>, generation: u64, idle: Idle) -> Self {
        let (queue, jobs) = sync_channel(QUEUE);
        let state = State { storage, generation, stopped: None, riding: false, quick: false };
        let thread = std::thread::Builder::new()
            .name("deed-journal".to_owned())
            .spawn(move || state.run(&jobs, idle))
            .expect("the system can start one more thread");
        Self { queue: Some(queue), thread: Some(thread) }
    }

    /// Commit `ops` together; returns when they are visible, and durable if that was asked. Says of each whether it changed
    /// anything.
    pub(crate) fn commit(&self, ops: Vec<Op>, durability: Durability) -> Result<Vec<bool>, CommitError> {
        let gone = || CommitError::Stopped("the writer thread has ended".to_owned());
        let (reply, answer) = sync_channel(1);
        let queue = self.queue.as_ref().expect("the queue is there until drop");
        queue.send(Job { ops, durability, reply }).map_err(|_| gone())?;
        answer.recv().unwrap_or_else(|_| Err(gone()))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported to every caller as `Stopped`.
            let _ = thread.join();
        }
    }
}

struct State {
    storage: Arc<dyn Storage>,
    generation: u64,
    /// Why no more work is taken.
    stopped: Option<String>,
    /// Commits that are visible and not durable.
    riding: bool,
    /// The last commit was one for a quick opening.
    quick: bool,
}

impl State {
    fn run(mut self, jobs: &Receiver<Job>, idle: Idle) {
        loop {
            let timeout = match idle {
                Idle::Timer if self.riding && self.stopped.is_none() => Some(IDLE_SYNC),
                Idle::Timer if !self.quick && self.stopped.is_none() => Some(IDLE_QUICK_OPEN),
                _ => None,
            };
            let job = match timeout {
                Some(timeout) => jobs.recv_timeout(timeout),
                None => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match job {
                Ok(job) => {
                    let mut group = vec![job];
                    group.extend(jobs.try_iter().take(QUEUE));
                    self.commit(group);
                }
                Err(RecvTimeoutError::Timeout) if self.riding => self.tick(Durability::Durable),
                Err(RecvTimeoutError::Timeout) => self.tick(Durability::DurableForQuickOpen),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if !self.quick && self.stopped.is_none() {
            self.tick(Durability::DurableForQuickOpen);
        }
    }

    /// An empty commit, for what its durability does.
    fn tick(&mut self, durability: Durability) {
        let result = self.storage.begin().and_then(|transaction| transaction.commit(durability));
        self.committed(durability, &result);
    }

    fn committed(&mut self, durability: Durability, result: &Result<(), StorageError>) {
        match result {
            Ok(()) => {
                self.riding = durability == Durability::Riding;
                self.quick = durability == Durability::DurableForQuickOpen;
            }
            Err(error) => self.stopped = Some(error.to_string()),
        }
    }

    fn commit(&mut self, group: Vec<Job>) {
        let storage = Arc::clone(&self.storage);
        let begun = match &self.stopped {
            Some(reason) => Err(reason.clone()),
            None => storage.begin().map_err(|error| error.to_string()),
        };
        let mut transaction = match begun {
            Ok(transaction) => transaction,
            Err(reason) => {
                for job in group {
                    job.answer(Err(CommitError::Stopped(reason.clone())));
                }
                self.stopped = Some(reason);
                return;
            }
        };
        let mut accepted = Vec::with_capacity(group.len());
        let mut wrote = false;
        for job in group {
            match stage(&*transaction, self.generation, &job.ops) {
                Ok((writes, changes)) => {
                    if let Err(error) = writes.put_into(&mut *transaction) {
                        self.stopped = Some(error.to_string());
                    }
                    wrote |= !writes.is_empty();
                    accepted.push((job, changes));
                }
                Err(error) => job.answer(Err(error)),
            }
        }
        let Some(durability) = accepted.iter().map(|(job, _)| job.durability).max() else { return };
        // What is there already is not written again; only riding commits may still have to reach the disk.
        let needed = wrote || (self.riding && durability > Durability::Riding);
        if self.stopped.is_none() && needed {
            let result = transaction.commit(durability);
            self.committed(durability, &result);
        }
        for (job, changes) in accepted {
            job.answer(match &self.stopped {
                Some(reason) => Err(CommitError::Unknown(reason.clone())),
                None => Ok(changes),
            });
        }
    }
}

/// Check `ops` against what `transaction` holds now, the commits accepted before included.
fn stage(
    transaction: &dyn Transaction,
    generation: u64,
    ops: &[Op],
) -> Result<(Writes, Vec<bool>), CommitError> {
    let mut staged = Staged::new(transaction);
    let store: StoreRecord = record::read(&staged, &Key::store())?.ok_or_else(StoreRecord::missing)?;
    if store.generation != generation {
        return Err(staged.fenced(generation, store.generation, ops));
    }
    let changes = ops.iter().map(|op| staged.apply(op)).collect::<Result<_, _>>()?;
    Ok((staged.finish(), changes))
}

impl Job {
    fn answer(self, result: Result<Vec<bool>, CommitError>) {
        // A caller that went away does not need the answer.
        let _ = self.reply.send(result);
    }
}
