//! A lock that lasts for as long as any process of a call.
//!
//! When the host is killed, a command dies with it, but what that command has started may live on for a moment. Whether
//! its effect is there can be told only once that is gone, too. So each process of a call inherits a descriptor on which a
//! lock is held: it is free again when the last of them has ended. A program may close what it does not know (`ssh` does);
//! a command's keeper holds the lock all the same until nothing is left (see [`super::keeper`]). Where there is none, such a
//! program is out of sight, and so is always what a remote machine still works on.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FlockOperation, OFlags, flock};

/// The lock of one call. Clones are the same one.
#[derive(Clone, Default)]
pub(crate) struct Hold(Arc<State>);

#[derive(Default)]
struct State {
    path: Option<PathBuf>,
    /// Open once it is taken: all descriptors are copies of this one, and the lock belongs to all of them together.
    taken: Mutex<Option<File>>,
}

/// The lock was not taken, so nothing may be started.
#[derive(Debug)]
pub(crate) struct NotHeld {
    path: PathBuf,
    error: io::Error,
}

impl fmt::Display for NotHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        if self.error.kind() == io::ErrorKind::WouldBlock {
            return write!(
                f,
                "a process that an earlier attempt of this call started still runs and holds `{path}`; try again when it has ended"
            );
        }
        write!(
            f,
            "the lock of its processes, `{path}`, cannot be taken: {}; make its directory writable",
            self.error
        )
    }
}

impl Hold {
    /// A lock on the file at `path`, made when it is first taken; without a path there is none to take.
    pub(crate) fn new(path: Option<&Path>) -> Self {
        Self(Arc::new(State { path: path.map(Path::to_owned), taken: Mutex::default() }))
    }

    /// A descriptor for one command to inherit. The first one takes the lock; it waits for nobody.
    pub(crate) fn take(&self) -> Result<Option<OwnedFd>, NotHeld> {
        let Some(path) = &self.0.path else { return Ok(None) };
        let mut taken = self.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let copied = match &*taken {
            Some(file) => file.try_clone(),
            None => lock(path).and_then(|file| {
                let copy = file.try_clone()?;
                *taken = Some(file);
                Ok(copy)
            }),
        };
        copied.map(|file| Some(file.into())).map_err(|error| NotHeld { path: path.clone(), error })
    }

    /// Whether a command's keeper has noted, since this was asked last, that processes were left when the command ended.
    pub(crate) fn take_note(&self) -> bool {
        let taken = self.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
        // A file that cannot be looked at has no note.
        let noted = |file: &File| Ok::<_, io::Error>(file.metadata()?.len() > 0 && file.set_len(0).is_ok());
        taken.as_ref().is_some_and(|file| noted(file).unwrap_or(false))
    }
}

fn lock(path: &Path) -> io::Result<File> {
    let no_link = OFlags::NOFOLLOW.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(no_link)
        .open(path)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

#[cfg(test)]
mod tests;
