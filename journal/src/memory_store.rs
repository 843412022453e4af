//! A store in memory, which forgets in a crash what only rode.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::storage::{Durability, IoCounts, Snapshot, Storage, StorageError, Transaction};

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A [`Storage`] in memory.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    shared: Arc<Shared>,
    /// Of this opening.
    counts: Arc<Mutex<IoCounts>>,
    read_only: bool,
}

#[derive(Debug, Default)]
struct Shared {
    /// Held by the write transaction.
    writer: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What a snapshot sees.
    visible: Arc<Pairs>,
    /// What a crash leaves.
    durable: Arc<Pairs>,
}

/// What these locks guard is replaced at once, so a panic elsewhere cannot have left it half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same store, opened once more.
    #[must_use]
    pub fn reopen(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), ..Self::default() }
    }

    /// The same store, opened once more and refusing to write.
    #[must_use]
    pub fn reopen_read_only(&self) -> Self {
        Self { read_only: true, ..self.reopen() }
    }

    /// Lose everything that is not durable, as a power cut would.
    pub fn crash(&self) {
        let mut state = lock(&self.shared.state);
        state.visible = Arc::clone(&state.durable);
    }
}

impl Storage for MemoryStore {
    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, StorageError> {
        Ok(Box::new(View(Arc::clone(&lock(&self.shared.state).visible))))
    }

    fn begin(&self) -> Result<Box<dyn Transaction + '_>, StorageError> {
        if self.read_only {
            let refused = io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "opened for reading");
            return Err(StorageError::Io(refused));
        }
        let writer = lock(&self.shared.writer);
        let pairs = Pairs::clone(&lock(&self.shared.state).visible);
        Ok(Box::new(Write { store: self, _writer: writer, pairs, counts: IoCounts::default() }))
    }

    fn io_counts(&self) -> IoCounts {
        *lock(&self.counts)
    }
}

struct View(Arc<Pairs>);

impl Snapshot for View {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(self.0.get(key).cloned())
    }

    fn scan(&self, prefix: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StorageError> {
        scan(&self.0, prefix, each);
        Ok(())
    }
}

struct Write<'a> {
    store: &'a MemoryStore,
    _writer: MutexGuard<'a, ()>,
    pairs: Pairs,
    counts: IoCounts,
}

impl Snapshot for Write<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(self.pairs.get(key).cloned())
    }

    fn scan(&self, prefix: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StorageError> {
        scan(&self.pairs, prefix, each);
        Ok(())
    }
}

impl Transaction for Write<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StorageError> {
        self.counts.writes += 1;
        self.counts.written_bytes += (key.len() + value.len()) as u64;
        self.pairs.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), StorageError> {
        self.counts.writes += 1;
        self.counts.written_bytes += key.len() as u64;
        self.pairs.remove(key);
        Ok(())
    }

    fn commit(self: Box<Self>, durability: Durability) -> Result<(), StorageError> {
        let mut state = lock(&self.store.shared.state);
        state.visible = Arc::new(self.pairs);
        if durability > Durability::Riding {
            state.durable = Arc::clone(&state.visible);
        }
        let mut counts = lock(&self.store.counts);
        counts.writes += self.counts.writes;
        counts.written_bytes += self.counts.written_bytes;
        // As many as the store on a file needs.
        counts.syncs += match durability {
            Durability::Riding => 0,
            Durability::Durable => 1,
            Durability::DurableForQuickOpen => 2,
        };
        Ok(())
    }
}

fn scan(pairs: &Pairs, prefix: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
    for (key, value) in pairs.range(prefix.to_vec()..) {
        if !key.starts_with(prefix) || !each(key, value) {
            break;
        }
    }
}
