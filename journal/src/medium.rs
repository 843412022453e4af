//! The bytes under a store: what a file is to it, and nothing more.
//!
//! A store that keeps its bytes in a [`Medium`] can be put on a file, or on a medium that a test makes fail.

use std::fmt::Debug;
use std::io;
use std::ops::Bound;

/// Bytes of a medium that a lock covers. Locks are named by ranges and are independent of what is stored there.
pub type LockRange = (Bound<u64>, Bound<u64>);

/// Who may hold a lock together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    /// Any number of holders, all of them sharing.
    Shared,
    /// One holder.
    Exclusive,
}

/// What a caller does about a lock that another one holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfHeld {
    /// Returns without the lock.
    GiveUp,
    /// Waits until it is free.
    Wait,
}

/// An array of bytes that survives the process, and after a `sync` the machine as well.
///
/// The lock methods have defaults for a medium that only one process can reach: [`io::ErrorKind::Unsupported`].
#[cfg_attr(
    feature = "test-support",
    expect(clippy::len_without_is_empty, reason = "an error is no answer to it")
)]
pub trait Medium: Debug + Send + Sync {
    /// Its length, in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Fill `out` with the bytes from `offset` on. Past the end it is an error.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Write `data` at `offset`. Durable with the next sync; an error leaves it open how much was written.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Make it `len` bytes long; what is new is zero. Durable with the next sync.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Returns when everything so far is durable. An error leaves it open what is.
    fn sync(&self) -> io::Result<()>;

    /// Let go of everything, locks included. Called once, at the end.
    fn close(&self) -> io::Result<()> {
        Ok(())
    }

    /// Take the lock of a range; says whether it was taken.
    fn lock(&self, _range: LockRange, _mode: LockMode, _if_held: IfHeld) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Give a lock back, named by the range it was taken with.
    fn unlock(&self, _range: LockRange) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Whether somebody else holds a lock that would keep an exclusive one on this range away.
    fn is_locked(&self, _range: LockRange) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
