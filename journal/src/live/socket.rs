//! The socket's file: made so that nobody else can connect at any instant, found whatever the length of its path.
//!
//! A socket's address holds 108 bytes, and a journal's path may be longer. So the directory is opened, and addresses lead
//! through `/proc/self/fd`. The name may be longer still: the socket is bound under a short name, and renamed when it
//! listens. That also replaces the file of an owner that was killed, in one step.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fchmod, fstat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use rustix::process::geteuid;

use super::LiveError;
use crate::id::Digest;
use crate::open::beside;

/// Clients that may wait to be let in: more than anybody starts at once.
const BACKLOG: i32 = 64;

/// Where the socket of a journal is.
#[derive(Debug)]
pub(super) struct Place {
    directory: OwnedFd,
    name: OsString,
}

impl Place {
    pub(super) fn of(journal: &Path) -> io::Result<Self> {
        let path = beside(journal, "socket");
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, directory.unwrap_or(Path::new(".")), flags, Mode::empty())?;
        Ok(Self { directory, name })
    }

    /// Make the socket, in place of one that was left. Only who owns the journal may.
    pub(super) fn listen(&self) -> io::Result<UnixListener> {
        match statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) if FileType::from_raw_mode(there.st_mode) != FileType::Socket => {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something else has its name"));
            }
            Err(error) if error != Errno::NOENT => return Err(error.into()),
            _ => {}
        }
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // The file gets the mode that its socket has, so it is the owner's alone from the first instant on.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        // Of two journals in one directory each has a name of its own.
        let digest = Digest::of(self.name.as_encoded_bytes()).to_string();
        let short = format!(".{}", &digest[..16]);
        self.remove(short.as_ref())?;
        bind(&socket, &address(&self.directory, short.as_ref())?)?;
        let listening = self.check_mode(&short).and_then(|()| {
            listen(&socket, BACKLOG)?;
            Ok(renameat(&self.directory, &short, &self.directory, &self.name)?)
        });
        if let Err(error) = listening {
            let _ = self.remove(short.as_ref());
            return Err(error);
        }
        Ok(UnixListener::from(socket))
    }

    fn check_mode(&self, name: &str) -> io::Result<()> {
        let mode = Mode::from_raw_mode(statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode);
        if mode.intersects(Mode::RWXG | Mode::RWXO) {
            let words = "this file system does not keep others out";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, words));
        }
        Ok(())
    }

    /// Remove the socket's file.
    pub(super) fn clear(&self) -> io::Result<()> {
        self.remove(self.name.as_ref())
    }

    fn remove(&self, name: &Path) -> io::Result<()> {
        match unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Connect to whoever listens.
    pub(super) fn connect(&self, within: Duration) -> Result<UnixStream, LiveError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match openat(&self.directory, &self.name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Err(LiveError::Absent),
            Err(error) => return Err(LiveError::Io(error.into())),
        };
        let there = fstat(&file).map_err(io::Error::from)?;
        if FileType::from_raw_mode(there.st_mode) != FileType::Socket || !may_serve(there.st_uid) {
            return Err(LiveError::Stranger);
        }
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let socket = socket.map_err(io::Error::from)?;
        // A full queue holds a client back as long as it may send.
        set_socket_timeout(&socket, Timeout::Send, Some(within)).map_err(io::Error::from)?;
        let address = SocketAddrUnix::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
        match connect(&socket, &address.map_err(io::Error::from)?) {
            Ok(()) => {}
            // Its owner was killed, or is about to replace it.
            Err(Errno::CONNREFUSED | Errno::NOENT) => return Err(LiveError::Absent),
            Err(Errno::AGAIN) => return Err(LiveError::Silent),
            Err(error) => return Err(LiveError::Io(error.into())),
        }
        let peer = socket_peercred(&socket).map_err(io::Error::from)?;
        if !may_serve(peer.uid.as_raw()) {
            return Err(LiveError::Stranger);
        }
        Ok(UnixStream::from(socket))
    }
}

fn address(directory: &OwnedFd, name: &Path) -> rustix::io::Result<SocketAddrUnix> {
    SocketAddrUnix::new(Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name))
}

/// Whether a process of this user is believed: one of one's own; the superuser reads whose journal it likes.
fn may_serve(uid: u32) -> bool {
    geteuid().is_root() || uid == geteuid().as_raw()
}

/// Whether the process at the other end may read and answer: one of the same user, or the superuser, who can anyway.
pub(super) fn may_ask(stream: &UnixStream) -> bool {
    socket_peercred(stream).is_ok_and(|peer| peer.uid.is_root() || peer.uid == geteuid())
}
