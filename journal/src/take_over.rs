//! Ending the process that holds a journal, and no other.
//!
//! The owner file names a process by its id, which says little: its writer may be gone, and the id belong to somebody else
//! by now. So a handle of the process is taken first (a pidfd, which never changes whom it means). Then the process is
//! looked at: it must have the owner file open with the lock on it. If it lives after that, it was it that was looked at,
//! and it is ended through the handle.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::journal::Journal;
use crate::open::OwnerLock;

/// Why the process that holds a journal could not be ended.
#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    /// The system refuses.
    #[error("failed to end process {pid}, which holds journal `{}`: {source}", path.display())]
    Refused {
        /// The journal.
        path: PathBuf,
        /// The holder.
        pid: u32,
        /// The system's words.
        source: io::Error,
    },
    /// It was told to end, and has not.
    #[error("process {pid}, which holds journal `{}`, was killed and has not ended yet; try again", path.display())]
    StillThere {
        /// The journal.
        path: PathBuf,
        /// The holder.
        pid: u32,
    },
}

impl Journal {
    /// End the process that holds the journal at `path`, by SIGKILL, and wait up to `patience` for its end. Returns its
    /// id; none when no other process was found to hold it, and then none was touched. What was durable is there for the
    /// next owner, as after any crash.
    ///
    /// # Errors
    /// See [`TakeOverError`].
    pub fn end_holder(path: &Path, patience: Duration) -> Result<Option<u32>, TakeOverError> {
        let Some(pid) = OwnerLock::holder(path).filter(|pid| *pid != std::process::id()) else {
            return Ok(None);
        };
        let refused = |source: io::Error| TakeOverError::Refused { path: path.to_owned(), pid, source };
        let Some(process) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
        let handle = match pidfd_open(process, PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(Errno::SRCH | Errno::INVAL) => return Ok(None),
            Err(error) => return Err(refused(error.into())),
        };
        let holds = holds(pid, &OwnerLock::path(path)).map_err(refused)?;
        // Only now is it certain that the id meant this process all the time.
        if !holds || has_ended(&handle, Duration::ZERO).map_err(refused)? {
            return Ok(None);
        }
        match pidfd_send_signal(&handle, Signal::KILL) {
            Ok(()) => {}
            Err(Errno::SRCH) => return Ok(None),
            Err(error) => return Err(refused(error.into())),
        }
        if has_ended(&handle, patience).map_err(refused)? {
            Ok(Some(pid))
        } else {
            Err(TakeOverError::StillThere { path: path.to_owned(), pid })
        }
    }
}

/// Whether process `pid` has `file` open with a lock on it.
fn holds(pid: u32, file: &Path) -> io::Result<bool> {
    let wanted = fs::metadata(file)?;
    let process = PathBuf::from(format!("/proc/{pid}"));
    let open = match fs::read_dir(process.join("fd")) {
        Ok(open) => open,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    for entry in open {
        let Ok(entry) = entry else { continue };
        // What is closed meanwhile is not held.
        let Ok(there) = fs::metadata(entry.path()) else { continue };
        if (there.dev(), there.ino()) != (wanted.dev(), wanted.ino()) {
            continue;
        }
        let about = fs::read_to_string(process.join("fdinfo").join(entry.file_name())).unwrap_or_default();
        let locked =
            |line: &str| line.starts_with("lock:") && line.contains("FLOCK") && line.contains("WRITE");
        if about.lines().any(locked) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the process has ended; waits for it up to `patience`.
fn has_ended(handle: &OwnedFd, patience: Duration) -> io::Result<bool> {
    let mut wanted = [PollFd::new(handle, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: patience.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: patience.subsec_nanos().into(),
    };
    loop {
        match poll(&mut wanted, Some(&timeout)) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
