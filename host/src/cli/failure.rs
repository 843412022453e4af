//! The one place where an error becomes a message, a hint and an exit code.

use deed::crash_test::CrashTestError;
use deed::mission::MissionError;
use deed::operator::OperatorError;
use deed::plugin::installed::InstallError;
use deed::plugin::project::{BuildError, NewError};
use deed::runner::{CreateError, RunError};
use deed_journal::{BackupError, CommitError, LiveError, OpenError, ReadError, StorageError, TakeOverError};

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
        eprintln!(
            "hint: wait until that process ends, take over with `deed resume --take-over`, or name another journal with `--journal`"
        );
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
    error.chain().find_map(exit_of_cause).unwrap_or(Exit::Failed)
}

fn exit_of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<Exit> {
    if cause.is::<MissionError>() || cause.is::<OperatorError>() {
        return Some(Exit::Usage);
    }
    if let Some(error) = cause.downcast_ref::<CrashTestError>() {
        return match error {
            CrashTestError::Mission(_)
            | CrashTestError::Workspace(_)
            | CrashTestError::Remote(_)
            | CrashTestError::Observer { .. }
            | CrashTestError::Nothing(_)
            | CrashTestError::NoSuchCase { .. } => Some(Exit::Usage),
            _ => None,
        };
    }
    if let Some(open) = cause.downcast_ref::<OpenError>() {
        return Some(match open {
            OpenError::InUse { .. } | OpenError::BeingRead(_) => Exit::InUse,
            OpenError::Missing(_) => Exit::Usage,
            OpenError::NotAJournal(_) | OpenError::Emptied { .. } | OpenError::Unreadable { .. } => {
                Exit::Damaged
            }
            OpenError::NeedsRepair(_) | OpenError::Io { .. } => Exit::Failed,
        });
    }
    if let Some(new) = cause.downcast_ref::<NewError>() {
        return (!matches!(new, NewError::Write { .. })).then_some(Exit::Usage);
    }
    if let Some(build) = cause.downcast_ref::<BuildError>() {
        return matches!(build, BuildError::NoProject(_) | BuildError::Missing { .. }).then_some(Exit::Usage);
    }
    if let Some(install) = cause.downcast_ref::<InstallError>() {
        return match install {
            InstallError::Name(_) | InstallError::Unknown { .. } | InstallError::Operator(_) => {
                Some(Exit::Usage)
            }
            InstallError::Edit { .. } | InstallError::Write { .. } => Some(Exit::Failed),
        };
    }
    // The journal is in use, and its owner cannot be talked to, or cannot be ended.
    if cause.is::<LiveError>() || cause.is::<TakeOverError>() {
        return Some(Exit::InUse);
    }
    if let Some(backup) = cause.downcast_ref::<BackupError>() {
        return match backup {
            BackupError::Exists(_) => Some(Exit::Usage),
            BackupError::Read(StorageError::Damaged(_)) => Some(Exit::Damaged),
            BackupError::Read(_) | BackupError::Write { .. } => Some(Exit::Failed),
        };
    }
    // An error that passes another one on has no cause of its own: look inside.
    if let Some(run) = cause.downcast_ref::<RunError>() {
        return match run {
            RunError::UnknownPlugin(_) | RunError::Operator(_) => Some(Exit::Usage),
            RunError::Read(read) => of_read(read),
            RunError::Commit(commit) => of_commit(commit),
            _ => None,
        };
    }
    if let Some(create) = cause.downcast_ref::<CreateError>() {
        return match create {
            CreateError::Read(read) => of_read(read),
            CreateError::Commit(commit) => of_commit(commit),
            CreateError::WorkspaceTaken { .. } | CreateError::InDoubt { .. } => Some(Exit::Failed),
            CreateError::Workspace { .. }
            | CreateError::Operator(_)
            | CreateError::UnknownPlugin(_)
            | CreateError::Call { .. }
            | CreateError::TooLarge { .. }
            | CreateError::Refused(_) => Some(Exit::Usage),
        };
    }
    if let Some(commit) = cause.downcast_ref::<CommitError>() {
        return of_commit(commit);
    }
    if let Some(read) = cause.downcast_ref::<ReadError>() {
        return of_read(read);
    }
    matches!(cause.downcast_ref::<StorageError>(), Some(StorageError::Damaged(_))).then_some(Exit::Damaged)
}

fn of_read(read: &ReadError) -> Option<Exit> {
    match read {
        ReadError::Damaged { .. }
        | ReadError::Newer { .. }
        | ReadError::Storage(StorageError::Damaged(_)) => Some(Exit::Damaged),
        ReadError::Storage(_) => None,
    }
}

fn of_commit(commit: &CommitError) -> Option<Exit> {
    match commit {
        CommitError::NoSuchOption { .. } | CommitError::NoSuchWait(_) => Some(Exit::Usage),
        CommitError::Read(read) => of_read(read),
        _ => None,
    }
}
