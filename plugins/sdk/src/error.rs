//! [`Error`]: why a call failed, and what is known of its effect.

use std::io;

pub use crate::bindings::deed::tool::types::{EffectState, Error, ErrorKind};
use crate::bindings::deed::{
    git::{remote, repository},
    process::exec,
    workspace::files,
};
use crate::http;

/// What a tool returns. The error defaults to [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Each constructor states that nothing changed ([`EffectState::NotApplied`]). A call that fails after it has changed
/// something must say so with [`applied`](Self::applied) or [`unknown`](Self::unknown).
impl Error {
    /// A failure of the given kind that changed nothing. `message` says what failed, the value, and the next step.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), effect: EffectState::NotApplied }
    }

    /// The arguments do not fit; `message` says which, and what was expected.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArguments, message)
    }

    /// The thing named does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// A capability was refused.
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Denied, message)
    }

    /// The world is not as the call expects it.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, message)
    }

    /// Something needed is not there at the moment.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    /// The call was cancelled, or ran out of time.
    pub fn cancelled(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Cancelled, message)
    }

    /// A fault of the tool itself.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// The effect is there all the same.
    #[must_use]
    pub fn applied(mut self) -> Self {
        self.effect = EffectState::Applied;
        self
    }

    /// It cannot be told whether the effect is there. The host reconciles.
    #[must_use]
    pub fn unknown(mut self) -> Self {
        self.effect = EffectState::Unknown;
        self
    }

    /// Puts `what` before the message, as in ``failed to read `a.txt`: no such file``.
    #[must_use]
    pub fn context(mut self, what: impl AsRef<str>) -> Self {
        self.message = format!("{}: {}", what.as_ref(), self.message);
        self
    }
}

/// A refused or impossible operation changed nothing; after any other failure the effect is
/// [`EffectState::Unknown`], because nobody told them apart.
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind as Io;
        let message = error.to_string();
        match error.kind() {
            Io::NotFound => Self::not_found(message),
            Io::PermissionDenied | Io::ReadOnlyFilesystem => Self::denied(message),
            Io::AlreadyExists | Io::IsADirectory | Io::NotADirectory | Io::DirectoryNotEmpty => {
                Self::conflict(message)
            }
            Io::InvalidInput | Io::InvalidFilename => Self::invalid(message),
            _ => Self::unavailable(message).unknown(),
        }
    }
}

/// Of a failure of the system it cannot be told whether it came before or after the file was replaced.
impl From<files::Error> for Error {
    fn from(error: files::Error) -> Self {
        match error {
            files::Error::NotFound(message) => Self::not_found(message),
            files::Error::Denied(message) => Self::denied(message),
            files::Error::Conflict(message) | files::Error::NotAFile(message) => Self::conflict(message),
            files::Error::Io(message) => Self::unavailable(message).unknown(),
        }
    }
}

/// What ran before a command was killed stays, so that is [`EffectState::Unknown`], as is a failure nobody classified.
impl From<exec::Error> for Error {
    fn from(error: exec::Error) -> Self {
        match error {
            exec::Error::Denied(message) => Self::denied(message),
            exec::Error::NotFound(message) => Self::not_found(message),
            exec::Error::Killed(message) => Self::cancelled(message).unknown(),
            exec::Error::Failed(message) => Self::unavailable(message).unknown(),
        }
    }
}

/// Of a failure in git's own words it cannot be told whether it came before or after the commit.
impl From<repository::Error> for Error {
    fn from(error: repository::Error) -> Self {
        match error {
            repository::Error::NoRepository(message) | repository::Error::NotFound(message) => {
                Self::not_found(message)
            }
            repository::Error::Denied(message) => Self::denied(message),
            repository::Error::Conflict(message) | repository::Error::NothingToCommit(message) => {
                Self::conflict(message)
            }
            repository::Error::Failed(message) => Self::unavailable(message).unknown(),
        }
    }
}

/// Only where the update may have been sent and no answer came is it [`EffectState::Unknown`].
impl From<remote::Error> for Error {
    fn from(error: remote::Error) -> Self {
        match error {
            remote::Error::NoRepository(message) | remote::Error::NotFound(message) => {
                Self::not_found(message)
            }
            remote::Error::Denied(message) => Self::denied(message),
            remote::Error::Rejected(message) => Self::conflict(message),
            remote::Error::Unavailable(message) => Self::unavailable(message),
            remote::Error::InDoubt(message) => Self::unavailable(message).unknown(),
        }
    }
}

/// A request that left and was not answered may have changed something; each other failure is known to have changed nothing.
impl From<http::Error> for Error {
    fn from(error: http::Error) -> Self {
        match error {
            http::Error::Invalid(message) => Self::invalid(message),
            http::Error::Denied(message) => Self::denied(message),
            http::Error::Failed(message) => Self::unavailable(message),
            http::Error::InDoubt(message) => Self::unavailable(message).unknown(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unclassified_io_error_leaves_the_effect_in_doubt() {
        let refused = Error::from(io::Error::from(io::ErrorKind::PermissionDenied));
        assert_eq!((refused.kind, refused.effect), (ErrorKind::Denied, EffectState::NotApplied));
        let broken = Error::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((broken.kind, broken.effect), (ErrorKind::Unavailable, EffectState::Unknown));
    }

    #[test]
    fn a_killed_command_may_have_done_something() {
        let killed = Error::from(exec::Error::Killed("out of time".into()));
        assert_eq!((killed.kind, killed.effect), (ErrorKind::Cancelled, EffectState::Unknown));
    }

    #[test]
    fn only_a_push_without_an_answer_is_in_doubt() {
        let refused = Error::from(remote::Error::Rejected("moved".into()));
        assert_eq!((refused.kind, refused.effect), (ErrorKind::Conflict, EffectState::NotApplied));
        let lost = Error::from(remote::Error::InDoubt("hung up".into()));
        assert_eq!((lost.kind, lost.effect), (ErrorKind::Unavailable, EffectState::Unknown));
    }

    #[test]
    fn context_goes_before_the_message() {
        assert_eq!(Error::conflict("gone").context("failed to edit `a`").message, "failed to edit `a`: gone");
    }
}
