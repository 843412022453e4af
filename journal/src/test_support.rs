//! What tests put under a journal, and a look at what it stores. Only with the feature `test-support`.
//!
//! A journal stands on a [`Storage`], the interface to a transactional ordered store; [`RedbStore`] and [`MemoryStore`]
//! implement it. A [`RedbStore`] keeps its bytes in a [`Medium`]: a file, or a [`FaultDisk`], which fails on purpose and
//! shows what a crash could have left at any moment.

pub use crate::fault::{
    Crash, Errno, Fault, FaultDisk, FaultTarget, History, Image, ImageKind, SECTOR_BYTES, Seeded, Times,
};
pub use crate::medium::{IfHeld, LockMode, LockRange, Medium};
pub use crate::memory_store::MemoryStore;
pub use crate::redb_store::RedbStore;
pub use crate::storage::{Snapshot, Storage, Transaction};
