//! A command and what it starts, killed as a whole.
//!
//! In a namespace of processes nothing escapes: the process that is started here is the command's keeper, which ends when
//! nothing of it is left (see [`super::keeper`]). Without one, it is the command itself, in a process group: what made a group
//! of its own is found among the descendants while its parents live; one that was orphaned before (`setsid sleep 99 &` of a
//! command that then ends) is out of sight and goes on.
//!
//! Either way the host's own death takes it along (`PR_SET_PDEATHSIG`, which follows the thread that started it: the
//! call's own, which waits for it).
//!
//! Processes are named by number, and a number is free for others once its process was reaped. So the command is reaped
//! only after its group was killed.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};

use super::capture::{Capture, Captured};
use super::keeper;
use super::namespaces::Namespaces;
use crate::engine::request::CancelToken;

/// How long the streams may stay open after every known process of the command is dead. They close at once unless a
/// process hid itself; then what came so far is the result.
const DRAIN: Duration = Duration::from_secs(1);

/// A command that is ready to start.
pub(crate) struct Prepared {
    pub(crate) command: Command,
    pub(crate) directory: OwnedFd,
    /// What it does not share with the machine; none when it shares everything.
    pub(crate) namespaces: Option<Namespaces>,
    pub(crate) stdin: Vec<u8>,
    pub(crate) limit_bytes: usize,
    pub(crate) timeout: Option<Duration>,
    /// Inherited by every process of the command, and held by its keeper: see [`super::Hold`].
    pub(crate) hold: Option<OwnedFd>,
}

/// How a process ended.
pub(crate) struct Status {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
}

/// How a command ended.
pub(crate) enum End {
    Ended { status: Status, stdout: Captured, stderr: Captured },
    OutOfTime(Duration),
    Cancelled,
}

/// Run a command to its end, or until it is out of time or cancelled. Whichever it is, and also when this future is
/// dropped, its group is killed, and every descendant that can be found.
pub(crate) async fn run(prepared: Prepared, cancel: &CancelToken) -> io::Result<End> {
    let Prepared { command, directory, namespaces, stdin, limit_bytes, timeout, hold } = prepared;
    let mut group = start(command, directory, namespaces, hold)?;

    let (stdout, stderr) = (Capture::default(), Capture::default());
    let streams = {
        let (stdout, stderr) = (stdout.clone(), stderr.clone());
        let (input, output, errors) =
            (group.child.stdin.take(), group.child.stdout.take(), group.child.stderr.take());
        async move {
            let output = async {
                if let Some(output) = output {
                    stdout.read(output, limit_bytes).await;
                }
            };
            let errors = async {
                if let Some(errors) = errors {
                    stderr.read(errors, limit_bytes).await;
                }
            };
            tokio::join!(feed(input, &stdin), output, errors);
        }
    };
    tokio::pin!(streams);

    let mut streams_open = true;
    let out_of_time = async {
        match timeout {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(out_of_time);
    let exited = group.exited();
    tokio::pin!(exited);
    loop {
        tokio::select! {
            () = &mut exited => break,
            () = &mut streams, if streams_open => streams_open = false,
            () = &mut out_of_time => {
                group.end().await?;
                return Ok(End::OutOfTime(timeout.unwrap_or_default()));
            }
            () = cancel.cancelled() => {
                group.end().await?;
                return Ok(End::Cancelled);
            }
        }
    }
    // What it left in the background would hold the streams open.
    let status = group.end().await?;
    if streams_open {
        let _ = tokio::time::timeout(DRAIN, streams).await;
    }
    Ok(End::Ended {
        status: Status { code: status.code(), signal: status.signal() },
        stdout: stdout.take(),
        stderr: stderr.take(),
    })
}

async fn feed(input: Option<ChildStdin>, bytes: &[u8]) {
    if let Some(mut input) = input {
        // A command that does not read its input closes the pipe; that is its own affair.
        let _ = input.write_all(bytes).await;
    }
}

pub(super) fn start(
    mut command: Command,
    directory: OwnedFd,
    namespaces: Option<Namespaces>,
    hold: Option<OwnedFd>,
) -> io::Result<Group> {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let host = rustix::process::getpid();
    let is_kept = namespaces.as_ref().is_some_and(Namespaces::hold_processes);
    // SAFETY: between fork and exec only async-signal-safe calls are allowed, since another thread may hold any lock
    // (the allocator's, say). The closure makes plain system calls through rustix on values it owns, and allocates
    // nothing: an error is a bare error number.
    unsafe {
        command.pre_exec(move || {
            // A directory has a path in the mounts that it was opened in, and those that are made of them.
            if let Some(namespaces) = &namespaces {
                namespaces.enter()?;
            }
            rustix::process::fchdir(directory.as_fd())?;
            if let Some(namespaces) = &namespaces {
                namespaces.unshare()?;
            }
            // After them: the kernel forgets it when a process's rights change.
            let death_signal = if is_kept { keeper::END } else { Signal::KILL };
            rustix::process::set_parent_process_death_signal(Some(death_signal))?;
            // The host may have died before the line above.
            if rustix::process::getppid() != Some(host) {
                return Err(rustix::io::Errno::SRCH.into());
            }
            if let Some(namespaces) = &namespaces {
                namespaces.divide(hold.as_ref())?;
            }
            close_inherited()?;
            match &hold {
                Some(hold) => Ok(rustix::io::fcntl_setfd(hold, rustix::io::FdFlags::empty())?),
                None => Ok(()),
            }
        });
    }
    Group::of(command.spawn()?, is_kept)
}

/// Mark every descriptor beyond the three streams to close at exec. Everything Rust opens is so marked already; this is
/// for what the host itself was started with.
fn close_inherited() -> io::Result<()> {
    use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
    for number in 3..INHERITED_FDS {
        // SAFETY: the descriptor is only borrowed for two calls that answer EBADF when it is not open; this process is
        // the single-threaded child, so nobody opens or closes it in between.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
        if let Ok(flags) = fcntl_getfd(fd)
            && !flags.contains(FdFlags::CLOEXEC)
        {
            fcntl_setfd(fd, flags | FdFlags::CLOEXEC)?;
        }
    }
    Ok(())
}

/// Descriptors looked at in [`close_inherited`]: what a shell or a supervisor hands down has low numbers, and 256 looks
/// cost 30 µs.
const INHERITED_FDS: i32 = 256;

/// A command and what it has started; killed when dropped.
pub(super) struct Group {
    child: Child,
    pub(super) pid: Pid,
    /// Whether the child is a keeper, or the command itself.
    is_kept: bool,
    /// The number may be somebody else's by now.
    reaped: bool,
}

impl Group {
    fn of(child: Child, is_kept: bool) -> io::Result<Self> {
        let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let pid = id.ok_or_else(|| io::Error::other("the command has no process id"))?;
        Ok(Self { child, pid, is_kept, reaped: false })
    }

    /// Wait until the command itself has ended, and leave it to be reaped.
    pub(super) fn exited(&self) -> impl Future<Output = ()> + use<> {
        let pid = self.pid;
        // A thread of its own waits: the runtime knows only how to wait and reap in one.
        let waiting = tokio::task::spawn_blocking(move || wait_unreaped(pid));
        async move {
            let _ = waiting.await;
        }
    }

    /// Kill what is left of the group, and reap the command.
    pub(super) async fn end(&mut self) -> io::Result<ExitStatus> {
        self.kill();
        let status = self.child.wait().await?;
        self.reaped = true;
        Ok(status)
    }

    /// Kill the group, and every descendant that left it and can be found. A keeper does so itself, and then ends.
    fn kill(&self) {
        if self.reaped {
            return;
        }
        if self.is_kept {
            let _ = kill_process(self.pid, keeper::END);
            // In case that somebody has stopped it.
            let _ = kill_process(self.pid, Signal::CONT);
            return;
        }
        // Stopped first, so that the tree stands still while it is walked. Errors mean that nobody is there.
        let _ = kill_process_group(self.pid, Signal::STOP);
        let descendants = descendants(self.pid);
        let _ = kill_process_group(self.pid, Signal::KILL);
        for pid in descendants {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

impl Drop for Group {
    /// Kill, and wait until the command itself is dead: whoever gave the call up may rely on that. A killed process
    /// dies within microseconds; it stays for `Child` to reap.
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
            wait_unreaped(self.pid);
        }
    }
}

/// Wait until this child has ended. It keeps its number until it is reaped. An error means that it was.
fn wait_unreaped(pid: Pid) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let _ = rustix::io::retry_on_intr(|| waitid(WaitId::Pid(pid), options));
}

/// Every process below `root`, stopped on sight. Without `/proc` there are none.
fn descendants(root: Pid) -> Vec<Pid> {
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        let parent = parent.as_raw_nonzero();
        let children = format!("/proc/{parent}/task/{parent}/children");
        let Ok(children) = std::fs::read_to_string(children) else {
            continue;
        };
        for child in children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
            let _ = kill_process(child, Signal::STOP);
            if !found.contains(&child) {
                found.push(child);
                open.push(child);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests;
