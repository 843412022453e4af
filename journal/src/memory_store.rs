//! A store in memory, which forgets in a crash what only rode.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::storage::{Durability, IoCounts, Snapshot, Storage, StorageError, Transaction};

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A [`Storage`] in memory. Clones are handles of one store, as two openings of one file would be.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    shared: Arc<Shared>,
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
    counts: IoCounts,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // The state is replaced in one assignment, so a panic elsewhere cannot have left it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// A handle of the same store that refuses to write.
    #[must_use]
    pub fn read_only(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), read_only: true }
    }

    /// Lose everything that is not durable, as a power cut would.
    pub fn crash(&self) {
        let mut state = self.shared.state();
        state.visible = Arc::clone(&state.durable);
    }
}

impl Storage for MemoryStore {
    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, StorageError> {
        Ok(Box::new(View(Arc::clone(&self.shared.state().visible))))
    }

    fn begin(&self) -> Result<Box<dyn Transaction + '_>, StorageError> {
        if self.read_only {
            let refused = io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "opened for reading");
            return Err(StorageError::Io(refused));
        }
        let writer = self.shared.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let pairs = Pairs::clone(&self.shared.state().visible);
        Ok(Box::new(Write { shared: &self.shared, _writer: writer, pairs, writes: 0, written_bytes: 0 }))
    }

    fn io_counts(&self) -> IoCounts {
        self.shared.state().counts
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
    shared: &'a Shared,
    _writer: MutexGuard<'a, ()>,
    pairs: Pairs,
    writes: u64,
    written_bytes: u64,
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
        self.writes += 1;
        self.written_bytes += (key.len() + value.len()) as u64;
        self.pairs.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), StorageError> {
        self.writes += 1;
        self.written_bytes += key.len() as u64;
        self.pairs.remove(key);
        Ok(())
    }

    fn commit(self: Box<Self>, durability: Durability) -> Result<(), StorageError> {
        let mut state = self.shared.state();
        state.visible = Arc::new(self.pairs);
        if durability > Durability::Riding {
            state.durable = Arc::clone(&state.visible);
        }
        state.counts.writes += self.writes;
        state.counts.written_bytes += self.written_bytes;
        state.counts.syncs += match durability {
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
