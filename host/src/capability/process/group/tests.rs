//! The order of killing and reaping, which no command can see.

use std::fs::{self, File};

use tokio::runtime::{Builder, Runtime};

use super::*;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn shell(command: &str) -> Group {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]);
    start(shell, File::open("/").unwrap().into(), None, None).unwrap()
}

/// The letter of the process's state; `Z` is one that has ended and was not reaped.
fn state(pid: Pid) -> char {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}

/// The command used to be reaped first. From then on its number could be given to anybody, whose group was killed instead.
#[test]
fn a_command_that_ended_keeps_its_number_until_its_group_is_killed() {
    runtime().block_on(async {
        let mut group = shell("exit 3");
        group.exited().await;
        assert_eq!(state(group.pid), 'Z');
        assert_eq!(group.end().await.unwrap().code(), Some(3));
        assert!(group.reaped);
    });
}

#[test]
fn a_group_whose_command_was_reaped_signals_nobody() {
    runtime().block_on(async {
        let mut group = shell("exit 0");
        group.end().await.unwrap();
        let mut other = shell("read line");
        // As if the number had been given away.
        group.pid = other.pid;
        drop(group);
        assert!(other.child.try_wait().unwrap().is_none());
        drop(other);
    });
}

/// The host's end takes the command along, and not what the command has started. A probe that looked at once would see a
/// world that still changes.
#[test]
fn what_a_killed_command_leaves_behind_holds_the_lock_until_it_ends() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    let (lock, ready, gate) = (place("lock"), place("ready"), place("gate"));
    rustix::fs::mknodat(rustix::fs::CWD, &gate, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    runtime().block_on(async {
        let hold = crate::capability::process::Hold::new(Some(&lock));
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "setsid sh -c 'echo > ready; read line < gate' & wait"]);
        let directory = File::open(directory.path()).unwrap().into();
        let mut group = start(shell, directory, None, hold.take().unwrap()).unwrap();
        while !ready.exists() {
            std::thread::yield_now();
        }
        drop(hold);
        // As the host's own death does it.
        kill_process(group.pid, Signal::KILL).unwrap();
        group.child.wait().await.unwrap();
        group.reaped = true;
    });
    let file = File::open(&lock).unwrap();
    let taken = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
    assert_eq!(taken, Err(rustix::io::Errno::WOULDBLOCK));
    fs::write(&gate, "go\n").unwrap();
    // Waits for its end.
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
}
