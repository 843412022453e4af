//! What of the machine a command does not share: the namespaces it is started in.
//!
//! Its own network, in which nothing is up, unless the network is open. And its own processes: it sees and signals none but
//! those it has started, in a `/proc` that shows no others, and all of them end together (see [`super::keeper`]). System V
//! IPC, message queues and `/dev/shm` are its own as well, since what lies there outlives a process. Files are shared,
//! those in `/tmp` and at home too: they may be the workspace's, and a later call may be meant to find them.
//!
//! A contained command starts in the mounts of its stage, and is confined (see [`super::confine`]).
//!
//! Where the host may not make namespaces (no privilege, and user namespaces refused), a command that is to be cut off the
//! network does not start; others run among the processes of the machine.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::confine::Confinement;
use super::keeper;
use crate::stage::Mounted;

/// Where shared memory has its files.
const SHARED_MEMORY: &CStr = c"/dev/shm";

/// What the child needs, made before the fork: it may not allocate.
pub(crate) struct Namespaces {
    flags: UnshareFlags,
    /// Whether `/dev/shm` is to be an empty one.
    shared_memory: bool,
    uid_map: String,
    gid_map: String,
    contained: Option<(Arc<Mounted>, Confinement)>,
}

impl Namespaces {
    /// For a command that runs as this process's user. None when it shares everything.
    pub(super) fn new(processes: bool, network: bool) -> Option<Self> {
        let mut flags = UnshareFlags::empty();
        flags.set(UnshareFlags::NEWPID | UnshareFlags::NEWNS | UnshareFlags::NEWIPC, processes);
        flags.set(UnshareFlags::NEWNET, network);
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        (!flags.is_empty()).then(|| Self {
            flags,
            shared_memory: true,
            uid_map: format!("{uid} {uid} 1"),
            gid_map: format!("{gid} {gid} 1"),
            contained: None,
        })
    }

    /// For a contained command.
    pub(super) fn inside(mounted: Arc<Mounted>, confinement: Confinement) -> Option<Self> {
        let contained = Some((mounted, confinement));
        Self::new(true, true).map(|namespaces| Self { contained, shared_memory: false, ..namespaces })
    }

    /// For a command that starts in `directory`, which stays in sight when it lies in shared memory.
    pub(super) fn around(mut self, directory: &impl AsRawFd) -> Self {
        let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let lies_there = |path: &Path| {
            Path::new("/dev/shm").canonicalize().is_ok_and(|shared_memory| path.starts_with(shared_memory))
        };
        self.shared_memory = !std::fs::read_link(link).is_ok_and(|path| lies_there(&path));
        self
    }

    #[cfg(test)]
    pub(super) fn of_user(mut self, number: u32) -> Self {
        (self.uid_map, self.gid_map) = (format!("{number} {number} 1"), format!("{number} {number} 1"));
        self
    }

    /// Whether the command's processes are in a namespace of their own, with a keeper.
    pub(super) fn hold_processes(&self) -> bool {
        self.flags.contains(UnshareFlags::NEWPID)
    }

    /// Where the command's directory has a path, go there. For the same process, before anything else.
    pub(super) fn enter(&self) -> io::Result<()> {
        match &self.contained {
            Some((mounted, _)) => mounted.enter(),
            None => Ok(()),
        }
    }

    /// Leave the machine's own. A namespace of processes counts only for children: see [`Namespaces::divide`].
    ///
    /// For the single-threaded child between fork and exec: plain system calls, no allocation.
    pub(super) fn unshare(&self) -> io::Result<()> {
        if self.hold_processes() {
            keeper::block_signals();
        }
        // SAFETY: no file table is unshared, which is what makes the call unsafe.
        match unsafe { unshare_unsafe(self.flags) } {
            Err(Errno::PERM) => {}
            done => return Ok(done?),
        }
        // SAFETY: as above.
        unsafe { unshare_unsafe(self.flags | UnshareFlags::NEWUSER) }?;
        // The user keeps its own number inside, so that files belong to whom they belonged to.
        write(c"/proc/self/setgroups", b"deny")?;
        write(c"/proc/self/uid_map", self.uid_map.as_bytes())?;
        write(c"/proc/self/gid_map", self.gid_map.as_bytes())
    }

    /// Where there is a namespace of processes, go on as the command's keeper, and return in a child of it, with no signal
    /// blocked. For the same process, after it has left the machine's namespaces.
    pub(super) fn divide(&self, hold: Option<&OwnedFd>) -> io::Result<()> {
        if !self.hold_processes() {
            return Ok(());
        }
        keeper::split(hold)?;
        self.mount()?;
        match &self.contained {
            Some((_, confinement)) => confinement.bind(),
            None => Ok(()),
        }
    }

    /// Put over the files what belongs to the new namespaces.
    fn mount(&self) -> io::Result<()> {
        // What is mounted here stays here; what others mount or unmount is seen here.
        mount(None, c"/", None, libc::MS_SLAVE | libc::MS_REC, None)?;
        let inert = libc::MS_NOSUID | libc::MS_NODEV;
        // Root may set what the kernel offers there, in whichever namespaces it is.
        let read_only = if self.contained.is_some() { libc::MS_RDONLY } else { 0 };
        mount(Some(c"proc"), c"/proc", Some(c"proc"), inert | libc::MS_NOEXEC | read_only, None)?;
        if !self.shared_memory {
            return Ok(());
        }
        match mount(Some(c"tmpfs"), SHARED_MEMORY, Some(c"tmpfs"), inert, Some(c"mode=1777")) {
            // A machine without any.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }
}

fn write(path: &CStr, content: &[u8]) -> io::Result<()> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, content)?;
    Ok(())
}

fn mount(
    source: Option<&CStr>,
    target: &CStr,
    kind: Option<&CStr>,
    flags: libc::c_ulong,
    data: Option<&CStr>,
) -> io::Result<()> {
    let pointer = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: each pointer is null, where the call allows that, or of a string that ends with a zero and outlives the call.
    let done =
        unsafe { libc::mount(pointer(source), target.as_ptr(), pointer(kind), flags, pointer(data).cast()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether a command can be cut off the network here. Tried once.
pub(super) fn network_is_possible() -> bool {
    static POSSIBLE: OnceLock<bool> = OnceLock::new();
    *POSSIBLE
        .get_or_init(|| Namespaces::new(false, true).is_some_and(|namespaces| attempt(namespaces).is_ok()))
}

/// Whether a command's processes can be held together here, or the reason why not. Tried once.
pub(super) fn processes_are_possible() -> Result<(), &'static str> {
    static POSSIBLE: OnceLock<Result<(), String>> = OnceLock::new();
    let possible = POSSIBLE.get_or_init(|| match Namespaces::new(true, false) {
        Some(namespaces) => attempt(namespaces).map_err(|error| reason(&error)),
        None => Ok(()),
    });
    match possible {
        Ok(()) => Ok(()),
        Err(why) => Err(why),
    }
}

/// The kernel's word for a limit that is reached is one for disks.
fn reason(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::StorageFull {
        return "its limit of namespaces is reached, see `/proc/sys/user`".to_owned();
    }
    error.to_string()
}

/// Enter them in a child that does nothing else.
fn attempt(namespaces: Namespaces) -> io::Result<()> {
    use std::os::unix::process::CommandExt;
    let mut probe = std::process::Command::new("/proc/self/exe");
    // SAFETY: the closure makes plain system calls on values it owns, and allocates nothing; it never returns to exec.
    unsafe {
        probe.pre_exec(move || {
            namespaces.unshare()?;
            namespaces.divide(None)?;
            Err(Errno::CANCELED.into())
        });
    }
    match probe.spawn() {
        Err(error) if error.raw_os_error() == Some(Errno::CANCELED.raw_os_error()) => Ok(()),
        Err(error) => Err(error),
        Ok(mut child) => {
            // The keeper could not do its part.
            child.wait()?;
            Err(Errno::NOSYS.into())
        }
    }
}
