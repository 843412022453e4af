//! The one place where an error becomes a message, a hint and an exit code.

use deed::mission::MissionError;
use deed::runner::{CreateError, RunError};
use deed_journal::{CommitError, OpenError, ReadError};

use super::exit::Exit;

/// Bad input, found by the command line itself.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

/// Print an error and say how the process ends.
pub(crate) fn report(error: &anyhow::Error) -> Exit {
    eprintln!("error: {}", in_one_line(error));
    let exit = exit_of(error);
    if exit == Exit::InUse {
        eprintln!("hint: wait until that process ends, or name another journal with `--journal`");
    }
    exit
}

/// An error with its causes, each said once: many a message ends with its cause already.
fn in_one_line(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

fn exit_of(error: &anyhow::Error) -> Exit {
    // A context is found from the top only, not along the chain.
    if error.downcast_ref::<Usage>().is_some() {
        return Exit::Usage;
    }
    for cause in error.chain() {
        if cause.is::<MissionError>() {
            return Exit::Usage;
        }
        if let Some(open) = cause.downcast_ref::<OpenError>() {
            return match open {
                OpenError::InUse { .. } | OpenError::BeingRead(_) => Exit::InUse,
                OpenError::Missing(_) => Exit::Usage,
                OpenError::NotAJournal(_) | OpenError::Emptied { .. } | OpenError::Unreadable { .. } => {
                    Exit::Damaged
                }
                OpenError::NeedsRepair(_) | OpenError::Io { .. } => Exit::Failed,
            };
        }
        if let Some(ReadError::Damaged { .. } | ReadError::Newer { .. }) = cause.downcast_ref::<ReadError>() {
            return Exit::Damaged;
        }
        if let Some(create) = cause.downcast_ref::<CreateError>() {
            match create {
                CreateError::Read(_) | CreateError::Commit(_) => {}
                CreateError::WorkspaceTaken { .. } | CreateError::InDoubt { .. } => return Exit::Failed,
                CreateError::Workspace { .. }
                | CreateError::UnknownPlugin(_)
                | CreateError::Call { .. }
                | CreateError::Refused(_) => return Exit::Usage,
            }
        }
        if let Some(commit) = cause.downcast_ref::<CommitError>() {
            match commit {
                CommitError::NoSuchOption { .. } | CommitError::NoSuchWait(_) => return Exit::Usage,
                CommitError::Read(ReadError::Damaged { .. } | ReadError::Newer { .. }) => {
                    return Exit::Damaged;
                }
                _ => {}
            }
        }
        if let Some(RunError::UnknownPlugin(_)) = cause.downcast_ref::<RunError>() {
            return Exit::Usage;
        }
    }
    Exit::Failed
}
