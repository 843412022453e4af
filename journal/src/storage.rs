//! The narrow interface behind which the transactional ordered store stands.
//!
//! One ordered map from keys to values; snapshots; one write transaction at a time, committed durably or riding. A
//! *riding* commit is visible at once and becomes durable with the next durable one; a crash before that loses it whole.
//! Nothing outside the module that implements this names the store.

/// When a commit is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// With the next durable commit.
    Riding,
    /// When `commit` returns: one sync.
    Durable,
    /// When `commit` returns, and opening after a crash does not have to scan the file: two syncs.
    DurableForQuickOpen,
}

/// Why the store could not do something.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// Another process owns the file.
    #[error("the store is in use by another process")]
    InUse,
    /// The file needs a repair that a read-only handle cannot make.
    #[error("the store was not closed cleanly; a writer has to open it first")]
    NeedsRepair,
    /// The file is something else.
    #[error("the file is no journal")]
    NotAStore,
    /// The store found damage.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// The system failed. After this the store takes no more work until it is opened again, and a commit that returned
    /// it may or may not be there.
    #[error("the store failed: {0}")]
    Io(#[source] std::io::Error),
    /// The process that owns the store was asked, and ended or fell silent before it had answered. Asking again may help.
    #[error("the process that owns the journal went away: {0}")]
    Lost(String),
}

/// A consistent view.
pub trait Snapshot {
    /// The value at `key`.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError>;

    /// Call `each` with the pairs whose key begins with `prefix`, in key order, until it says `false`.
    fn scan(&self, prefix: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StorageError>;

    /// The same, from the first key behind `after` on. A store that can begin in the middle does better than this.
    fn scan_after(
        &self,
        prefix: &[u8],
        after: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StorageError> {
        self.scan(prefix, &mut |key, value| key <= after || each(key, value))
    }
}

/// The write transaction. Dropped without a commit it changes nothing.
pub trait Transaction: Snapshot {
    /// Set `key` to `value`.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StorageError>;

    /// Remove `key`, if it is there.
    fn delete(&mut self, key: &[u8]) -> Result<(), StorageError>;

    /// Make it all visible, at once. An error leaves it unknown whether it happened.
    fn commit(self: Box<Self>, durability: Durability) -> Result<(), StorageError>;
}

/// What the medium was asked to do since the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IoCounts {
    /// Calls that wait for the disk.
    pub syncs: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes in them.
    pub written_bytes: u64,
}

/// An open store.
pub trait Storage: Send + Sync {
    /// A view of what is committed now.
    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, StorageError>;

    /// Begin the write transaction; waits while another one is open. A read-only store refuses.
    fn begin(&self) -> Result<Box<dyn Transaction + '_>, StorageError>;

    /// The work done so far, counted exactly.
    fn io_counts(&self) -> IoCounts;
}
