//! Cutting a command off the network: a network namespace of its own, in which nothing is up.
//!
//! Where the host may not make one (no privilege, and user namespaces refused), the command does not start. Unix sockets
//! that are reached by path are no network in this sense.

use std::io;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// What the child needs, made before the fork: it may not allocate.
pub(crate) struct Offline {
    uid_map: String,
    gid_map: String,
}

impl Offline {
    /// For a command that runs as this process's user.
    pub(super) fn new() -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Self { uid_map: format!("{uid} {uid} 1"), gid_map: format!("{gid} {gid} 1") }
    }

    /// Cut this process off. For the single-threaded child between fork and exec: plain system calls, no allocation.
    pub(super) fn enter(&self) -> io::Result<()> {
        // SAFETY: no file table is unshared, which is what makes the call unsafe.
        match unsafe { unshare_unsafe(UnshareFlags::NEWNET) } {
            Err(Errno::PERM) => {}
            done => return Ok(done?),
        }
        // SAFETY: as above.
        unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNET) }?;
        // The user keeps its own number inside, so that files belong to whom they belonged to.
        write(c"/proc/self/setgroups", b"deny")?;
        write(c"/proc/self/uid_map", self.uid_map.as_bytes())?;
        write(c"/proc/self/gid_map", self.gid_map.as_bytes())
    }
}

fn write(path: &std::ffi::CStr, content: &[u8]) -> io::Result<()> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, content)?;
    Ok(())
}

/// Whether a command can be cut off here, tried once in a child that does nothing else.
pub(super) fn is_possible() -> bool {
    use std::os::unix::process::CommandExt;
    static POSSIBLE: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *POSSIBLE.get_or_init(|| {
        let offline = Offline::new();
        let mut probe = std::process::Command::new("/proc/self/exe");
        // SAFETY: the closure makes plain system calls on values it owns, and allocates nothing; it never returns to exec.
        unsafe {
            probe.pre_exec(move || {
                offline.enter()?;
                Err(Errno::CANCELED.into())
            });
        }
        probe.spawn().is_err_and(|error| error.raw_os_error() == Some(Errno::CANCELED.raw_os_error()))
    })
}
