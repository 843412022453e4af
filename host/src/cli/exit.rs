//! Exit codes: the whole list.

use std::process::ExitCode;

use deed_journal::RunStatus;

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// Failed: what was asked for was tried.
    Failed = 1,
    /// Cannot be used like this: nothing was tried, nothing was written.
    Usage = 2,
    /// A run ended with something missing.
    Partial = 3,
    /// A run waits for an answer.
    Waiting = 4,
    /// The journal is in use by another process.
    InUse = 5,
    /// The journal is damaged, no journal, or of a newer schema.
    Damaged = 6,
}

impl Exit {
    pub(crate) fn of(status: RunStatus) -> Self {
        match status {
            RunStatus::Done => Self::Done,
            RunStatus::Partial => Self::Partial,
            RunStatus::Waiting => Self::Waiting,
            RunStatus::Queued | RunStatus::Running | RunStatus::Failed | RunStatus::Cancelled => Self::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
