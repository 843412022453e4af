//! What a contained call sees in place of the machine: its workspace with a stage above it, mounted for it alone.
//!
//! The mounts are made by a child, in a mount namespace of their own that belongs to a user namespace of deed's: so no
//! privilege is needed, and nobody else sees them. The child hands back two descriptors and ends. One is the namespace, which
//! the call's commands enter; the other is the workspace's root as it is in there, which serves for WASI. When both are
//! closed and no command is left, everything is unmounted.
//!
//! ```text
//! /                     as it is, read-only
//! /tmp /var/tmp /run    empty, writable, thrown away
//! /dev                  null, zero, full, random, urandom, pts, shm
//! home                  as it is; what is written there goes to the stage's `home`, and is thrown away
//! workspace             as it is; what is written there goes to the stage's `upper`
//! ```
//!
//! A call that starts no commands needs the last line only.
//!
//! The stage is an overlay (`overlayfs`) with `userxattr`, which an ordinary user may mount (Linux 5.11), and `volatile`:
//! what the call syncs costs nothing, since what is to last is synced by the host in the end.

use std::ffi::{CStr, CString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use cap_std::fs::Dir;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount, mount_bind,
    mount_change, move_mount,
};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::{Signal, WaitOptions, set_parent_process_death_signal, waitpid};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::child::{exit, fork};

/// What a stage's directory holds: what is written in the workspace, and in the home.
pub(super) const UPPER: &str = "upper";
/// See [`UPPER`].
const HOME: &str = "home";
/// What the overlay of each needs beside it, on the same file system.
pub(super) const WORK: [(&str, &str); 2] = [(UPPER, "upper.work"), (HOME, "home.work")];

/// Bytes that may lie in each of `/tmp`, `/var/tmp`, `/run` and `/dev/shm`, which are memory: as much as all guests at their
/// limit may use together.
const PRIVATE_BYTES: &CStr = c"mode=1777,size=2g";

/// Directories that are empty for each call.
const EMPTY: [&CStr; 3] = [c"/tmp", c"/var/tmp", c"/run"];

/// Devices that can do no harm.
const DEVICES: [&CStr; 5] = [c"/dev/null", c"/dev/zero", c"/dev/full", c"/dev/random", c"/dev/urandom"];

/// Names in `/dev` that lead elsewhere.
const LINKS: [(&CStr, &CStr); 5] = [
    (c"/proc/self/fd", c"/dev/fd"),
    (c"/proc/self/fd/0", c"/dev/stdin"),
    (c"/proc/self/fd/1", c"/dev/stdout"),
    (c"/proc/self/fd/2", c"/dev/stderr"),
    (c"pts/ptmx", c"/dev/ptmx"),
];

/// A place that a contained call runs in.
#[derive(Debug)]
pub struct Mounted {
    user: BorrowedFd<'static>,
    space: OwnedFd,
    root: Arc<Dir>,
}

impl Mounted {
    /// The workspace, in here.
    pub(crate) fn root(&self) -> &Arc<Dir> {
        &self.root
    }

    /// Go there. For a single-threaded child between fork and exec: plain system calls, no allocation.
    pub(crate) fn enter(&self) -> io::Result<()> {
        move_into_link_name_space(self.user, Some(LinkNameSpaceType::User))?;
        move_into_link_name_space(self.space.as_fd(), Some(LinkNameSpaceType::Mount))?;
        Ok(())
    }
}

/// What could not be done, and why.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {source}")]
pub struct MountError {
    doing: &'static str,
    source: io::Error,
}

/// What the child needs, made before the fork: it may not allocate.
pub(super) struct View {
    workspace: CString,
    stage: CString,
    /// The home, unless the workspace holds it.
    home: Option<CString>,
    /// Directories that may be hidden by what is mounted over them.
    missing: Vec<CString>,
    /// Whether commands will run there.
    commands: bool,
}

impl View {
    /// Of `workspace`, with a stage in the directory `stage`: absolute paths without links.
    pub(super) fn new(
        workspace: &Path,
        stage: &Path,
        home: Option<&Path>,
        commands: bool,
    ) -> io::Result<Self> {
        let text = |path: &Path| Ok::<_, io::Error>(CString::new(path.as_os_str().as_bytes())?);
        let home = home.filter(|home| commands && home.parent().is_some() && !home.starts_with(workspace));
        let mut missing = Vec::new();
        for place in home.into_iter().chain([workspace]) {
            let ancestors: Vec<_> =
                place.ancestors().filter(|ancestor| ancestor.parent().is_some()).collect();
            for ancestor in ancestors.iter().rev() {
                missing.push(text(ancestor)?);
            }
        }
        Ok(Self {
            workspace: text(workspace)?,
            stage: text(stage)?,
            home: home.map(text).transpose()?,
            missing,
            commands,
        })
    }

    /// Mount it.
    pub(super) fn mount(&self) -> Result<Mounted, MountError> {
        let user = user_namespace().map_err(|source| MountError { doing: Doing::Enter.name(), source })?;
        let mut doing = Doing::Enter;
        let [space, root] = in_child(|| self.arrange(user, &mut doing).map_err(|error| (doing, error)))?;
        Ok(Mounted { user, space, root: Arc::new(Dir::from_std_file(root.into())) })
    }

    /// In the child: everything from the first system call to the two descriptors.
    fn arrange(&self, user: BorrowedFd<'_>, doing: &mut Doing) -> io::Result<[OwnedFd; 2]> {
        let mut now = |what| *doing = what;
        now(Doing::Enter);
        move_into_link_name_space(user, Some(LinkNameSpaceType::User))?;
        now(Doing::Divide);
        // SAFETY: no file table is unshared, which is what makes the call unsafe.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
        mount_change(c"/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
        now(Doing::Overlay);
        let stage = open(&self.stage)?;
        let [upper, home] = WORK_PATHS;
        let workspace = overlay(&open(&self.workspace)?, &stage, upper)?;
        if self.commands {
            now(Doing::Home);
            // Whoever has none does not miss it.
            let beneath = self.home.as_ref().map(|path| open(path));
            let home = match beneath {
                Some(Ok(beneath)) => Some(overlay(&beneath, &stage, home)?),
                _ => None,
            };
            now(Doing::ReadOnly);
            read_only()?;
            now(Doing::Private);
            private()?;
            self.make_missing();
            now(Doing::Home);
            if let (Some(home), Some(path)) = (home, &self.home) {
                attach(&home, path)?;
            }
            self.make_missing();
        }
        now(Doing::Attach);
        attach(&workspace, &self.workspace)?;
        let root = rustix::fs::open(
            &*self.workspace,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let space = rustix::fs::open(c"/proc/self/ns/mnt", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok([space, root])
    }

    /// Where they are hidden, the places to mount at are made anew. One that cannot be made is missed when it is used.
    fn make_missing(&self) {
        for directory in &self.missing {
            let _ = rustix::fs::mkdir(&**directory, Mode::from_raw_mode(0o755));
        }
    }
}

/// The directories of an overlay below a stage's own.
const WORK_PATHS: [[&[u8]; 2]; 2] = [[b"/upper", b"/upper.work"], [b"/home", b"/home.work"]];

/// An overlay over `lower`, attached nowhere yet: what is read-only later does not concern it.
fn overlay(lower: &OwnedFd, stage: &OwnedFd, [upper, work]: [&[u8]; 2]) -> rustix::io::Result<OwnedFd> {
    let system = fsopen(c"overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&system, c"lowerdir", FdPath::new(lower, b"").as_c_str())?;
    fsconfig_set_string(&system, c"upperdir", FdPath::new(stage, upper).as_c_str())?;
    fsconfig_set_string(&system, c"workdir", FdPath::new(stage, work).as_c_str())?;
    fsconfig_set_flag(&system, c"userxattr")?;
    fsconfig_set_flag(&system, c"volatile")?;
    fsconfig_create(&system)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(&system, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

fn attach(mounted: &OwnedFd, place: &CStr) -> rustix::io::Result<()> {
    move_mount(mounted, c"", CWD, place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// Let nothing be written anywhere, but for what is mounted from now on.
fn read_only() -> io::Result<()> {
    let attributes =
        libc::mount_attr { attr_set: libc::MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_RECURSIVE;
    // SAFETY: the path ends with a zero, the attributes outlive the call, and the size is theirs.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            c"/".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Empty directories for what is thrown away, and only such devices as do no harm.
fn private() -> io::Result<()> {
    let inert = MountFlags::NOSUID | MountFlags::NODEV;
    for place in EMPTY {
        match mount(c"tmpfs", place, c"tmpfs", inert, PRIVATE_BYTES) {
            // A machine without it.
            Err(Errno::NOENT) => {}
            done => done?,
        }
    }
    let devices = DEVICES.map(|device| open(device).ok());
    mount(c"tmpfs", c"/dev", c"tmpfs", MountFlags::NOSUID, c"mode=755,size=1m")?;
    let create = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    for (device, name) in devices.iter().zip(DEVICES) {
        let Some(device) = device else { continue };
        drop(rustix::fs::open(name, create, Mode::from_raw_mode(0o666))?);
        mount_bind(FdPath::new(device, b"").as_c_str(), name)?;
    }
    for (target, name) in LINKS {
        rustix::fs::symlink(target, name)?;
    }
    for directory in [c"/dev/shm", c"/dev/pts"] {
        rustix::fs::mkdir(directory, Mode::from_raw_mode(0o755))?;
    }
    mount(c"tmpfs", c"/dev/shm", c"tmpfs", inert, PRIVATE_BYTES)?;
    // Terminals are a convenience.
    let _ =
        mount(c"devpts", c"/dev/pts", c"devpts", MountFlags::NOSUID, c"newinstance,ptmxmode=0666,mode=0620");
    Ok(())
}

fn open(path: &CStr) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// The path of an open file, and what is below it, made without allocating.
struct FdPath([u8; Self::BYTES]);

impl FdPath {
    /// `/proc/self/fd/`, ten digits, the longest suffix, the zero at the end.
    const BYTES: usize = 14 + 10 + 11 + 1;

    fn new(file: &impl AsRawFd, suffix: &[u8]) -> Self {
        let mut digits = [0; 10];
        let mut first = digits.len();
        let mut number = file.as_raw_fd().unsigned_abs();
        loop {
            first -= 1;
            digits[first] = b"0123456789"[number as usize % 10];
            number /= 10;
            if number == 0 {
                break;
            }
        }
        let mut path = [0; Self::BYTES];
        let text = b"/proc/self/fd/".iter().chain(&digits[first..]).chain(suffix);
        for (byte, text) in path.iter_mut().take(Self::BYTES - 1).zip(text) {
            *byte = *text;
        }
        Self(path)
    }

    fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"")
    }
}

/// What a child does, for the error.
#[derive(Debug, Clone, Copy)]
enum Doing {
    Enter,
    Divide,
    Overlay,
    ReadOnly,
    Private,
    Home,
    Attach,
    End,
}

impl Doing {
    const ALL: [Self; 8] = [
        Self::Enter,
        Self::Divide,
        Self::Overlay,
        Self::ReadOnly,
        Self::Private,
        Self::Home,
        Self::Attach,
        Self::End,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Enter => "enter a user namespace",
            Self::Divide => "make a mount namespace",
            Self::Overlay => "mount an overlay",
            Self::ReadOnly => "make the rest of the machine read-only",
            Self::Private => "mount private directories",
            Self::Home => "mount an overlay over the home",
            Self::Attach => "mount the overlay in the workspace's place",
            Self::End => "wait for the child that mounts",
        }
    }
}

/// Let a child make descriptors, and take them over.
fn in_child<const N: usize>(
    make: impl FnOnce() -> Result<[OwnedFd; N], (Doing, io::Error)>,
) -> Result<[OwnedFd; N], MountError> {
    let failed = |doing: Doing, source: io::Error| MountError { doing: doing.name(), source };
    let here = |source: Errno| failed(Doing::End, source.into());
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).map_err(here)?;
    let Some(child) = fork().map_err(|error| failed(Doing::End, error))? else {
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
        let sent = match make() {
            Ok(made) => send(&theirs, &[0; 5], &made),
            Err((doing, error)) => {
                let mut words = [doing as u8; 5];
                words[1..].copy_from_slice(&error.raw_os_error().unwrap_or(0).to_ne_bytes());
                send::<0>(&theirs, &words, &[])
            }
        };
        exit(i32::from(sent.is_err()))
    };
    drop(theirs);
    let received = receive(&ours);
    // It has ended, or is about to.
    let _ = rustix::io::retry_on_intr(|| waitpid(Some(child), WaitOptions::empty()));
    let (words, made) = received.map_err(here)?;
    <[OwnedFd; N]>::try_from(made).map_err(|_| {
        let doing = Doing::ALL.into_iter().find(|doing| *doing as u8 == words[0]).unwrap_or(Doing::End);
        let number = i32::from_ne_bytes([words[1], words[2], words[3], words[4]]);
        failed(doing, io::Error::from_raw_os_error(number))
    })
}

fn send<const N: usize>(socket: &OwnedFd, words: &[u8; 5], files: &[OwnedFd; N]) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let files = files.each_ref().map(AsFd::as_fd);
    if N > 0 {
        ancillary.push(SendAncillaryMessage::ScmRights(&files));
    }
    sendmsg(socket, &[IoSlice::new(words)], &mut ancillary, SendFlags::NOSIGNAL).map(drop)
}

fn receive(socket: &OwnedFd) -> rustix::io::Result<([u8; 5], Vec<OwnedFd>)> {
    let mut words = [0; 5];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    rustix::io::retry_on_intr(|| {
        recvmsg(socket, &mut [IoSliceMut::new(&mut words)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    let files = ancillary.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => files.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    Ok((words, files.collect()))
}

/// The user namespace that all contained calls of this process share, in which everybody keeps his number. Made once.
fn user_namespace() -> io::Result<BorrowedFd<'static>> {
    static MADE: OnceLock<Result<OwnedFd, (io::ErrorKind, String)>> = OnceLock::new();
    match MADE.get_or_init(|| make_user_namespace().map_err(|error| (error.kind(), error.to_string()))) {
        Ok(made) => Ok(made.as_fd()),
        Err((kind, why)) => Err(io::Error::new(*kind, why.clone())),
    }
}

fn make_user_namespace() -> io::Result<OwnedFd> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let Some(child) = fork()? else {
        // SAFETY: no file table is unshared, which is what makes the call unsafe.
        let made = set_parent_process_death_signal(Some(Signal::KILL))
            .and_then(|()| unsafe { unshare_unsafe(UnshareFlags::NEWUSER) })
            .and_then(|()| {
                rustix::fs::open(c"/proc/self/ns/user", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            });
        let sent = match made {
            Ok(made) => send(&theirs, &[0; 5], &[made]),
            Err(error) => {
                let mut words = [0; 5];
                words[1..].copy_from_slice(&error.raw_os_error().to_ne_bytes());
                send::<0>(&theirs, &words, &[])
            }
        };
        // Until the numbers are mapped, which only somebody outside may do for more than one.
        let _ = rustix::io::read(&theirs, &mut [0; 1]);
        exit(i32::from(sent.is_err()))
    };
    drop(theirs);
    let received = receive(&ours);
    let mapped = match &received {
        Ok((_, made)) if !made.is_empty() => map_numbers(child.as_raw_pid()),
        _ => Ok(()),
    };
    let _ = rustix::io::write(&ours, &[0]);
    let _ = rustix::io::retry_on_intr(|| waitpid(Some(child), WaitOptions::empty()));
    let (words, made) = received?;
    mapped?;
    made.into_iter().next().ok_or_else(|| {
        io::Error::from_raw_os_error(i32::from_ne_bytes([words[1], words[2], words[3], words[4]]))
    })
}

/// Everybody keeps his number: all users where this process may map them, else its own alone.
fn map_numbers(child: i32) -> io::Result<()> {
    let write = |name: &str, text: &str| std::fs::write(format!("/proc/{child}/{name}"), text);
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let all = |name: &str| {
        let known = std::fs::read_to_string(format!("/proc/self/{name}"))?;
        let lines = known.lines().filter_map(|line| {
            let mut numbers = line.split_whitespace();
            let (first, _, count) = (numbers.next()?, numbers.next()?, numbers.next()?);
            Some(format!("{first} {first} {count}\n"))
        });
        write(name, &lines.collect::<String>())
    };
    if user == 0 && all("gid_map").is_ok() && all("uid_map").is_ok() {
        return Ok(());
    }
    // Errors of these show in what is written next.
    let _ = write("setgroups", "deny");
    let _ = write("gid_map", &format!("{group} {group} 1"));
    write("uid_map", &format!("{user} {user} 1"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use super::super::Stage;
    use super::*;

    #[test]
    fn the_path_of_a_descriptor_is_made_without_allocating() {
        let file = fs::File::open("/").unwrap();
        let number = file.as_raw_fd();
        let expected = format!("/proc/self/fd/{number}/upper.work");
        assert_eq!(FdPath::new(&file, b"/upper.work").as_c_str().to_str().unwrap(), expected);
    }

    /// As root and as an ordinary user; whoever may not has no stage, and the host says so.
    #[test]
    fn what_is_written_in_a_stage_stays_there() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let workspace = root.join("workspace");
        fs::create_dir(&workspace).unwrap();
        fs::write(workspace.join("old"), "old").unwrap();
        for commands in [false, true] {
            let stage = Stage::new(root.join("stage"), workspace.clone());
            let (mounted, began) = match stage.mount(None, commands) {
                Ok(made) => made,
                Err(error) => return eprintln!("not run, since this machine failed to {error}"),
            };
            mounted.root().write("new", "new").unwrap();
            mounted
                .root()
                .open_with("old", cap_std::fs::OpenOptions::new().append(true))
                .unwrap()
                .write_all(b"er")
                .unwrap();
            assert_eq!(mounted.root().read_to_string("old").unwrap(), "older");
            assert_eq!(fs::read_to_string(workspace.join("old")).unwrap(), "old");
            assert!(!workspace.join("new").exists());
            let written = |name| fs::read_to_string(stage.written().join(name)).unwrap();
            assert_eq!((written("old"), written("new")), ("older".into(), "new".into()));
            let changed = fs::metadata(stage.written().join("new")).unwrap();
            assert!(super::super::Timestamp::changed(&changed) >= began);
            drop(mounted);
            stage.remove().unwrap();
            assert!(!stage.written().exists());
        }
    }
}
