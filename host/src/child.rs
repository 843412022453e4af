//! A child of this process that goes on from where it is, and makes plain system calls.
//!
//! The host has threads, and a child has one alone: whatever another thread had locked at that instant (the allocator,
//! say) stays locked in the child for ever. So what runs in one allocates nothing, takes no lock and does not return.

use std::io;

use rustix::process::Pid;

/// A child in the same place; none is the answer that the child gets.
pub(crate) fn fork() -> io::Result<Option<Pid>> {
    // The system call, and not the library's function: that one takes locks and runs what others have registered for it,
    // which a child of a process with threads may not do.
    //
    // SAFETY: without `CLONE_VM` the child has a memory of its own, and goes on from here as after any fork. This process
    // may have threads, and the child has one. What the library remembers of it (its thread's number) is not used: it makes
    // system calls.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::c_long::from(libc::SIGCHLD), 0, 0, 0, 0) };
    match i32::try_from(pid) {
        Ok(-1) | Err(_) => Err(io::Error::last_os_error()),
        Ok(pid) => Ok(Pid::from_raw(pid)),
    }
}

/// At once: what the host has registered for its own end is not run.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: it does not return, and needs nothing of this process.
    unsafe { libc::_exit(code) }
}
