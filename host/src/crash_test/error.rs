//! Why a crash test could not be made.

use std::io;
use std::path::{Path, PathBuf};

use crate::mission::MissionError;

/// Why a crash test could not be made. What it finds is no error: see [`Report`](super::Report).
#[derive(Debug, thiserror::Error)]
pub enum CrashTestError {
    /// The mission or batch cannot be read.
    #[error(transparent)]
    Mission(#[from] MissionError),
    /// The workspace is not there.
    #[error("workspace `{}` is no directory", .0.display())]
    Workspace(PathBuf),
    /// A remote that cannot be copied would be pushed to once for every case.
    #[error(
        "remote `{0}` is not on this machine, and a crash test pushes to it once for every case; put a bare repository in its place, such as `git clone --bare` makes one"
    )]
    Remote(String),
    /// An observer that the tools could change would see what they want.
    #[error("observer `{name}` is `{}`, which lies in the workspace, where the tools could change it; move it out", program.display())]
    Observer {
        /// The observer.
        name: String,
        /// Its program.
        program: PathBuf,
    },
    /// An observer does not work.
    #[error("observer `{name}` cannot be run: {reason}")]
    ObserverFailed {
        /// The observer.
        name: String,
        /// Why.
        reason: String,
    },
    /// The undisturbed run does not come to an end by itself, so there is nothing to compare with.
    #[error("the undisturbed run fails, so there is nothing to compare with: {0}")]
    Reference(String),
    /// Nothing fits what was asked for.
    #[error("there is nothing to test: {0}")]
    Nothing(String),
    /// A case that was named is none of this run.
    #[error("case `{case}` is none of this run: {reason}")]
    NoSuchCase {
        /// The case.
        case: String,
        /// Why.
        reason: String,
    },
    /// It was stopped before it could find anything.
    #[error("stopped before the first case")]
    Stopped,
    /// The system failed.
    #[error("failed to {what} `{}`: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// What a run left cannot be read.
    #[error("failed to read what a run left: {0}")]
    Read(String),
}

impl CrashTestError {
    pub(super) fn io(what: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path: path.clone(), source }
    }
}
