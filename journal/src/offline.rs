//! What is done to a journal that nobody has open: it is made smaller, or copied.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::journal::Journal;
use crate::open::{OpenError, OwnerLock};
use crate::redb_store::{self, RedbStore};

/// What compacting a journal did to its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compacted {
    /// The file's size before.
    pub before_bytes: u64,
    /// And after.
    pub after_bytes: u64,
}

impl Journal {
    /// Give the space of what was removed back to the system. What the journal holds stays as it is, whatever happens
    /// meanwhile.
    ///
    /// # Errors
    /// [`OpenError::Missing`]; [`OpenError::InUse`] and [`OpenError::BeingRead`] while anybody has it open; damage.
    pub fn compact(path: &Path) -> Result<Compacted, OpenError> {
        let size_bytes = || Ok(fs::metadata(path).map_err(OpenError::io(path))?.len());
        let _owner = alone(path)?;
        let before_bytes = size_bytes()?;
        let mut store = RedbStore::open(path).map_err(OpenError::storage(path))?;
        store.compact().map_err(OpenError::storage(path))?;
        drop(store);
        Ok(Compacted { before_bytes, after_bytes: size_bytes()? })
    }

    /// Copy the file at `path` as it is, damage included, to a new one at `to` that its owner alone can read. Nobody
    /// changes it meanwhile; the file itself is only read.
    ///
    /// # Errors
    /// [`OpenError::Missing`]; [`OpenError::InUse`] while a process owns it; `to` exists, or cannot be written.
    pub fn copy(path: &Path, to: &Path) -> Result<(), OpenError> {
        let _owner = alone(path)?;
        let mut source = File::open(path).map_err(OpenError::io(path))?;
        let mut copy = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(to)
            .map_err(OpenError::io(to))?;
        io::copy(&mut source, &mut copy).map(drop).map_err(OpenError::io(to))
    }
}

/// Keep owners away from the journal at `path`, which has to be there.
fn alone(path: &Path) -> Result<OwnerLock, OpenError> {
    if !path.exists() {
        return Err(OpenError::Missing(path.to_owned()));
    }
    let nothing = redb_store::check(path).map_err(OpenError::storage(path))?;
    let owner = OwnerLock::acquire(path)?;
    match owner.known.filter(|_| nothing) {
        Some(store) => Err(OpenError::Emptied { path: path.to_owned(), store }),
        None => Ok(owner),
    }
}
