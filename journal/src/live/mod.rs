//! A journal that is in use, read and answered from outside, through a local socket beside it.
//!
//! Whoever owns the journal for longer listens at `NAME.socket`. A client connects, both say which version they speak, and
//! from then on the client asks: the value at a key, a page of pairs, or that an answer be committed. One connection is
//! one snapshot, so all that a command prints is of one instant; and the snapshot is made durable before it is shown.
//! What the records mean is the reader's own affair: [`LiveJournal::read`] is a [`Reader`](crate::Reader) as any other.
//!
//! The socket is the user's alone, by its mode and by asking the system who is at the other end. Nothing here makes a
//! run fail or wait: a client that breaks the rules, falls silent or goes is dropped, and the snapshot with it.

mod client;
mod frame;
mod message;
mod server;
mod socket;

use std::io;

pub use client::LiveJournal;
pub(crate) use server::Server;

/// Why the owner of a journal could not be reached.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// Nobody listens.
    #[error("the process that owns the journal does not share it")]
    Absent,
    /// Somebody listens, and does not answer in time: it is stopped, or very busy.
    #[error("the process that owns the journal does not answer")]
    Silent,
    /// Who listens is of another user, or speaks something else.
    #[error("who listens beside the journal is not a process of yours that owns it")]
    Stranger,
    /// The owner is of another version.
    #[error(
        "the process that owns the journal speaks version {theirs} of the protocol beside it, and this deed speaks {ours}; use that process's version of deed"
    )]
    OtherVersion {
        /// What it speaks.
        theirs: u32,
        /// What this one does.
        ours: u32,
    },
    /// The system failed.
    #[error("failed to reach the process that owns the journal: {0}")]
    Io(#[from] io::Error),
}
