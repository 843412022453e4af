//! Media and redb's backends, made into each other.

use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

use crate::medium::{IfHeld, LockMode, LockRange, Medium};
use crate::storage::IoCounts;

#[derive(Debug, Default)]
pub(super) struct Counters {
    syncs: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
}

impl Counters {
    pub(super) fn get(&self) -> IoCounts {
        IoCounts {
            syncs: self.syncs.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
        }
    }
}

/// A medium as redb wants it, counting what it is asked to do.
#[derive(Debug)]
pub(super) struct Counting {
    pub(super) medium: Box<dyn Medium>,
    pub(super) counters: Arc<Counters>,
}

impl StorageBackend for Counting {
    fn len(&self) -> Result<u64, io::Error> {
        self.medium.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.medium.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.medium.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        self.medium.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        self.counters.written_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        self.medium.write(offset, data)
    }

    fn close(&self) -> Result<(), io::Error> {
        self.medium.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        Ok(self.medium.lock((start, end), LockMode::Exclusive, IfHeld::GiveUp)?)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        Ok(self.medium.lock((start, end), LockMode::Shared, IfHeld::GiveUp)?)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.medium.lock((start, end), LockMode::Exclusive, IfHeld::Wait)?;
        Ok(())
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.medium.lock((start, end), LockMode::Shared, IfHeld::Wait)?;
        Ok(())
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        Ok(self.medium.unlock((start, end))?)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        Ok(self.medium.is_locked((start, end))?)
    }
}

/// A file. Its locks are those that every program on redb takes, so that any of them is kept out.
impl Medium for FileBackend {
    fn len(&self) -> io::Result<u64> {
        StorageBackend::len(self)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        StorageBackend::read(self, offset, out)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        StorageBackend::write(self, offset, data)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        StorageBackend::set_len(self, len)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn close(&self) -> io::Result<()> {
        StorageBackend::close(self)
    }

    fn lock(&self, (start, end): LockRange, mode: LockMode, if_held: IfHeld) -> io::Result<bool> {
        let taken = match (mode, if_held) {
            (LockMode::Exclusive, IfHeld::GiveUp) => self.try_lock_range(start, end),
            (LockMode::Shared, IfHeld::GiveUp) => self.try_lock_shared_range(start, end),
            (LockMode::Exclusive, IfHeld::Wait) => self.lock_range(start, end).map(|()| true),
            (LockMode::Shared, IfHeld::Wait) => self.lock_shared_range(start, end).map(|()| true),
        };
        Ok(taken?)
    }

    fn unlock(&self, (start, end): LockRange) -> io::Result<()> {
        Ok(self.unlock_range(start, end)?)
    }

    fn is_locked(&self, (start, end): LockRange) -> io::Result<bool> {
        Ok(self.query_lock_range(start, end)?)
    }
}
