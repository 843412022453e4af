//! What a keeper makes of a command's end, and of its own.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;

use tokio::process::Command;
use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::capability::process::Hold;
use crate::capability::process::group::{Group, start};
use crate::capability::process::namespaces::{Namespaces, processes_are_possible};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn say(text: &str) {
    writeln!(io::stderr(), "{text}").unwrap();
}

/// Whether there are keepers here; says so when there are none.
fn is_possible() -> bool {
    let possible = processes_are_possible();
    if let Err(why) = possible {
        say(&format!("skipped: no namespaces of processes here: {why}"));
    }
    possible.is_ok()
}

fn shell(command: &str, directory: &Path, hold: Option<OwnedFd>) -> Group {
    let mut shell = Command::new("/bin/bash");
    shell.args(["-c", command]);
    start(shell, File::open(directory).unwrap().into(), Namespaces::new(true, true), hold).unwrap()
}

/// Starts a daemon that ignores what it can and closes what it has inherited, but for one end of the pipe `alive`. It ends
/// with the directory, where nothing else ends it.
const DAEMON: &str = r#"
    setsid bash -c '
        (
            trap "" HUP INT TERM QUIT
            exec 9> alive
            for fd in /proc/$BASHPID/fd/*; do
                fd=${fd##*/}
                [ "$fd" = 9 ] || eval "exec $fd>&-"
            done
            echo > ready
            while [ -e ready ]; do :; done
        ) &
    '
    until [ -e ready ]; do :; done
"#;

/// The reading end of a new pipe called `alive`.
fn alive(directory: &Path) -> File {
    let path = directory.join("alive");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o666.into(), 0).unwrap();
    let no_wait = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    File::options().read(true).custom_flags(no_wait).open(path).unwrap()
}

/// Whether somebody has the other end.
fn is_held(alive: &mut File) -> bool {
    match alive.read(&mut [0]) {
        Ok(read) => read > 0,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

#[test]
fn a_keeper_ends_as_the_command_has_ended() {
    if !is_possible() {
        return;
    }
    runtime().block_on(async {
        for code in [0, 1, 127, 255] {
            let mut group = shell(&format!("exit {code}"), Path::new("/"), None);
            group.exited().await;
            assert_eq!(group.end().await.unwrap().code(), Some(code));
        }
        for signal in [1, 2, 6, 9, 11, 13, 15, 34] {
            let mut group = shell(&format!("kill -{signal} $$"), Path::new("/"), None);
            group.exited().await;
            let status = group.end().await.unwrap();
            assert_eq!((status.signal(), status.core_dumped()), (Some(signal), false));
        }
    });
}

/// The story: a process that had closed the lock's descriptor could live on for a moment when the lock was free already, and
/// write into the next attempt.
#[test]
fn when_the_lock_is_free_nothing_is_left_whatever_it_has_closed() {
    if !is_possible() {
        return;
    }
    for ends_by_itself in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let lock = directory.path().join("lock");
        let mut alive = alive(directory.path());
        runtime().block_on(async {
            let hold = Hold::new(Some(&lock));
            let rest = if ends_by_itself { "" } else { "echo > waits; sleep 600" };
            let group = shell(&format!("{DAEMON}{rest}"), directory.path(), hold.take().unwrap());
            drop(hold);
            if !ends_by_itself {
                while !directory.path().join("waits").exists() {
                    std::thread::yield_now();
                }
                assert!(is_held(&mut alive));
                // What the kernel sends when the host dies.
                kill_process(group.pid, END).unwrap();
            }
            // Waits for it.
            rustix::fs::flock(File::open(&lock).unwrap(), rustix::fs::FlockOperation::LockExclusive).unwrap();
            assert!(!is_held(&mut alive));
            drop(group);
        });
    }
}

#[test]
fn a_keeper_that_is_killed_takes_everything_along() {
    if !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut alive = alive(directory.path());
    runtime().block_on(async {
        let mut group = shell(&format!("{DAEMON} echo > waits; sleep 600"), directory.path(), None);
        while !directory.path().join("waits").exists() {
            std::thread::yield_now();
        }
        kill_process(group.pid, Signal::KILL).unwrap();
        assert_eq!(group.end().await.unwrap().signal(), Some(9));
        while is_held(&mut alive) {
            std::thread::yield_now();
        }
    });
}

#[test]
fn a_program_that_cannot_run_is_an_error_and_no_end() {
    if !is_possible() {
        return;
    }
    runtime().block_on(async {
        let start = |program: &str, argument: String| {
            let mut command = Command::new(program);
            command.arg(argument);
            let root = File::open("/").unwrap().into();
            start(command, root, Namespaces::new(true, true), None).err().unwrap().raw_os_error()
        };
        assert_eq!(start("/nowhere", String::new()), Some(Errno::NOENT.raw_os_error()));
        assert_eq!(start("/etc/passwd", String::new()), Some(Errno::ACCESS.raw_os_error()));
        assert_eq!(start("/bin/sh", "x".repeat(1 << 20)), Some(Errno::TOOBIG.raw_os_error()));
    });
}

/// As root there is no need for a namespace of users. Without root there is, and then each number is still its own.
#[test]
fn an_ordinary_user_has_keepers_too() {
    const NOBODY: u32 = 65_534;
    if !rustix::process::geteuid().is_root() || !is_possible() {
        say("skipped: every other test here runs as an ordinary user, or there are no namespaces");
        return;
    }
    runtime().block_on(async {
        let mut command = Command::new("/bin/bash");
        // The first process is not to be looked into: it has the host's memory.
        let script =
            "test $(id -u) = 65534 && test $$ = 2 && ! cat /proc/1/environ || exit 7; kill -9 1; kill -9 $$";
        command.args(["-c", script]).uid(NOBODY).gid(NOBODY);
        // SAFETY: a plain system call. A process that was started as that user may write its own maps; one that became
        // it may not, but for this.
        unsafe { command.pre_exec(|| Ok(set_dumpable_behavior(DumpableBehavior::Dumpable)?)) };
        let namespaces = Namespaces::new(true, true).map(|namespaces| namespaces.of_user(NOBODY));
        match start(command, File::open("/").unwrap().into(), namespaces, None) {
            // Some machines keep user namespaces from ordinary users.
            Err(error) => say(&format!("skipped: no namespaces for an ordinary user here: {error}")),
            Ok(mut group) => {
                group.exited().await;
                assert_eq!(group.end().await.unwrap().signal(), Some(9));
            }
        }
    });
}

/// What it costs, beside a command that shares everything; run by hand: `--ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn cost_of_a_keeper() {
    runtime().block_on(async {
        for round in 0..3 {
            for (name, processes, network) in [
                ("shared", false, false),
                ("no network", false, true),
                ("kept", true, false),
                ("both", true, true),
            ] {
                let mut times = Vec::new();
                for _ in 0..200 {
                    let begun = std::time::Instant::now();
                    let command = Command::new("/bin/true");
                    let root = File::open("/").unwrap().into();
                    let mut group = start(command, root, Namespaces::new(processes, network), None).unwrap();
                    group.exited().await;
                    group.end().await.unwrap();
                    times.push(begun.elapsed());
                }
                times.sort_unstable();
                say(&format!("{round} {name:10} median {:?}, 90 % {:?}", times[100], times[180]));
            }
        }
    });
}
