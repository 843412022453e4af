//! The keeper of a command: what the host has started in its place, outside the command's namespace of processes.
//!
//! ```text
//! host ── keeper ─┬─ init     the namespace's first process; when it dies, the kernel kills all others
//!                 └─ command  starts whatever it likes, in the namespace
//! ```
//!
//! When the command ends, the keeper has the init look whether anybody else is left, and end; when the host dies or says so, it
//! kills the init. Either way it waits until nothing is left in the namespace, and ends as the command has ended. That somebody
//! was left, it notes in the file of the call's lock. So a keeper that has ended leaves nobody. The keeper holds the call's lock
//! all that time: a process of the command that closes what it has inherited does not free it. If the keeper itself is
//! killed, the init dies with it.
//!
//! The command is not the init itself, since the kernel spares that one the signals that it does not handle. Both are the
//! keeper's children, so the command's status comes from the kernel, unchanged.
//!
//! No program is executed for keeper and init: both are what fork made of the host, waiting. They hold no descriptor but
//! the lock, and every signal is blocked, so that no handler of the host's runs. The init cannot be looked into: it has
//! a copy of the host's memory.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, kill_process, pidfd_open,
    set_dumpable_behavior, set_parent_process_death_signal, setpgid, wait, waitpid,
};

use crate::child::{exit, fork};

/// Ends the command, when it is sent to the keeper. Sent to the init, it ends that one, and tells whether others were left.
pub(super) const END: Signal = Signal::TERM;

/// How an init ends that was not alone.
const NOT_ALONE: i32 = 3;

/// Become keeper, init and command. Returns in the command alone, or with an error in whom there was before.
///
/// For the single-threaded child between fork and exec, in which a new namespace of processes awaits its children: plain
/// system calls, no allocation.
pub(super) fn split(hold: Option<&OwnedFd>) -> io::Result<()> {
    default_action(libc::SIGCHLD);
    let keeper = pidfd_open(getpid(), PidfdFlags::empty())?;
    let Some(init) = fork()? else { be_init(keeper.as_fd()) };
    match fork() {
        Ok(None) => {
            // A group without the keeper in it: the command may signal its own.
            setpgid(None, None)?;
            set_blocked(&none());
            Ok(())
        }
        Ok(Some(command)) => keep(init, command, hold),
        Err(error) => {
            let _ = kill_process(init, Signal::KILL);
            let _ = waitpid(Some(init), WaitOptions::empty());
            Err(error)
        }
    }
}

/// Let no signal interrupt this process, which has the host's handlers, until [`split`] has made a command of it.
pub(super) fn block_signals() {
    set_blocked(&all());
}

/// The first process of the namespace: it reaps what has lost its parents, and dies with the keeper.
fn be_init(keeper: BorrowedFd<'_>) -> ! {
    let prepared = set_parent_process_death_signal(Some(Signal::KILL))
        .and_then(|()| set_dumpable_behavior(DumpableBehavior::NotDumpable));
    // The keeper may have died before that. Whoever has ended is readable.
    let mut ended = [PollFd::from_borrowed_fd(keeper, PollFlags::IN)];
    let is_kept = poll(&mut ended, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(0);
    if prepared.is_err() || !is_kept || close_all_but(None).is_err() {
        exit(1);
    }
    // SAFETY: no handler is set. Children of whom this is ignored need no reaping.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    loop {
        let (signal, is_from_outside) = next_signal(&[END]);
        // Whoever is inside has no say in it.
        if signal == END.as_raw() && is_from_outside {
            // SAFETY: a plain system call. No signal is sent: it is asked whether there is anybody to get one.
            let somebody = unsafe { libc::kill(-1, 0) } == 0
                || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM);
            exit(if somebody { NOT_ALONE } else { 0 });
        }
    }
}

/// Wait for the command's end, or for the word to end it; see to it that nothing is left; and end as it has ended.
fn keep(init: Pid, command: Pid, hold: Option<&OwnedFd>) -> ! {
    // Its number is the init's until it was reaped.
    let mut init = Some(init);
    let end = |init: Option<Pid>| {
        if let Some(init) = init {
            let _ = kill_process(init, Signal::KILL);
        }
    };
    if close_all_but(hold).is_err() {
        end(init);
    }
    let mut status = None;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, ended))) if pid == command => {
                status = Some(ended);
                if let Some(init) = init {
                    let _ = kill_process(init, END);
                }
            }
            Ok(Some((pid, ended))) if Some(pid) == init => {
                init = None;
                if let Some(hold) = hold.filter(|_| ended.exit_status() == Some(NOT_ALONE)) {
                    let _ = rustix::io::write(hold, b"!");
                }
            }
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => {
                if next_signal(&[Signal::CHILD, END]).0 == END.as_raw() {
                    end(init);
                }
            }
            // No children any more. The init ends last: when nobody else is in the namespace.
            Err(_) => end_as(status),
        }
    }
}

/// Wait for one of these signals. Says which one, and whether it came from outside of this namespace, where senders have no
/// number.
fn next_signal(signals: &[Signal]) -> (i32, bool) {
    let mut awaited = none();
    // SAFETY: all zero is a valid value of it.
    let mut information: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set and the information are valid ones, and each number is a signal's. What sends these signals is a
    // process, so the information has its number.
    unsafe {
        for signal in signals {
            libc::sigaddset(&raw mut awaited, signal.as_raw());
        }
        let signal = libc::sigwaitinfo(&raw const awaited, &raw mut information);
        (signal, information.si_pid() == 0)
    }
}

/// End this process as another one has ended.
fn end_as(status: Option<WaitStatus>) -> ! {
    let Some(status) = status else { exit(1) };
    let Some(signal) = status.terminating_signal() else { exit(status.exit_status().unwrap_or(1)) };
    // Its memory is the host's, and nobody wants a dump of that.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    default_action(signal);
    let mut others = all();
    // SAFETY: the set is a valid one; the signal ended a process, so it is one.
    unsafe { libc::sigdelset(&raw mut others, signal) };
    set_blocked(&others);
    // SAFETY: a plain system call, by which this process ends.
    unsafe { libc::kill(getpid().as_raw_pid(), signal) };
    exit(1)
}

fn close_all_but(kept: Option<&OwnedFd>) -> io::Result<()> {
    let close = |first: libc::c_uint, last: libc::c_uint| {
        // SAFETY: whoever calls this never returns, so nobody uses what is closed here.
        let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    let Some(kept) = kept.map(|kept| kept.as_raw_fd().cast_unsigned()) else {
        return close(0, libc::c_uint::MAX);
    };
    if kept > 0 {
        close(0, kept - 1)?;
    }
    close(kept + 1, libc::c_uint::MAX)
}

fn default_action(signal: i32) {
    // SAFETY: no handler is set, and a number that is no signal's is refused.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

fn set_blocked(signals: &libc::sigset_t) {
    // SAFETY: the set is a valid one; the old one is not asked for.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, signals, ptr::null_mut()) };
}

fn none() -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: the call writes the whole set, and cannot fail.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

fn all() -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: the call writes the whole set, and cannot fail.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        set.assume_init()
    }
}

#[cfg(test)]
mod tests;
