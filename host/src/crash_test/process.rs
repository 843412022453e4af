//! Processes of `deed`, each in a group that is killed as a whole.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// How long one process may take. Calls may take two minutes each by default, so only a hang takes longer.
const PATIENCE: Duration = Duration::from_mins(10);

/// How often a wait looks whether it is to stop.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// How long what a killed process had started may take to die. The kernel takes milliseconds.
const DEATH: Duration = Duration::from_secs(10);

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// By itself, with this code.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// It did not end, and was killed.
    Hung,
    /// It was killed because all of this is to stop.
    Stopped,
}

impl Ending {
    /// What a kill point leads to.
    pub(super) const KILLED: Self = Self::Signal(Signal::KILL.as_raw());
}

/// A process that has ended.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    pub(super) ending: Ending,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Ended {
    /// In a line or a few, for people.
    pub(super) fn describe(&self) -> String {
        let how = match self.ending {
            Ending::Exit(code) => format!("ended with code {code}"),
            Ending::Signal(signal) => format!("was ended by signal {signal}"),
            Ending::Hung => format!("did not end within {} min", PATIENCE.as_secs() / 60),
            Ending::Stopped => "was stopped".to_owned(),
        };
        let said = self.stderr.trim();
        if said.is_empty() { how } else { format!("{how}: {said}") }
    }
}

/// Run a command to its end, with its output kept in files of `directory`: a pipe would be held open by whatever outlives
/// it. Whatever it leaves in its group is killed.
pub(super) fn run(mut command: Command, directory: &Path, stop: &AtomicBool) -> io::Result<Ended> {
    let (stdout, stderr) = (directory.join("stdout"), directory.join("stderr"));
    command
        .stdin(Stdio::null())
        .stdout(File::create(&stdout)?)
        .stderr(File::create(&stderr)?)
        .process_group(0);
    let tester = rustix::process::getpid();
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. The closure makes two plain system calls
    // on values it owns, and allocates nothing: an error is a bare error number.
    unsafe {
        command.pre_exec(move || {
            // Nothing outlives the tester. The thread that started the process waits for it, so this is not early.
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            if rustix::process::getppid() == Some(tester) {
                Ok(())
            } else {
                Err(rustix::io::Errno::SRCH.into())
            }
        });
    }
    let mut group = Group::of(command.spawn()?)?;
    let stopped = group.wait(stop)?;
    let status = group.end()?;
    let ending = stopped.unwrap_or_else(|| match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Exit(code),
        (None, signal) => Ending::Signal(signal.unwrap_or_default()),
    });
    let read = |path: &Path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(Ended { ending, stdout: read(&stdout)?, stderr: read(&stderr)? })
}

/// A child and its group. Killed when dropped.
struct Group {
    child: Child,
    pid: Pid,
    handle: OwnedFd,
    ended: bool,
}

impl Group {
    fn of(mut child: Child) -> io::Result<Self> {
        let pid = Pid::from_child(&child);
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => Ok(Self { child, pid, handle, ended: false }),
            Err(error) => {
                child.kill()?;
                child.wait()?;
                Err(error.into())
            }
        }
    }

    /// Wait until the child has ended, or should. It is not reaped, so its number, and the group's, stays its own.
    fn wait(&self, stop: &AtomicBool) -> io::Result<Option<Ending>> {
        let until = Instant::now() + PATIENCE;
        loop {
            if stop.load(Ordering::Relaxed) {
                return Ok(Some(Ending::Stopped));
            }
            match poll(&mut [PollFd::new(&self.handle, PollFlags::IN)], Some(&LOOK)) {
                Ok(0) if Instant::now() >= until => return Ok(Some(Ending::Hung)),
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Kill what is left of the group, and reap the child.
    fn end(&mut self) -> io::Result<std::process::ExitStatus> {
        // An error means that nobody is there.
        let _ = kill_process_group(self.pid, Signal::KILL);
        let status = self.child.wait()?;
        self.ended = true;
        Ok(status)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.end();
        }
    }
}

/// Wait until every process that the calls of a killed process had started is gone: each holds the lock of its call, in
/// this directory. Says whether all are.
pub(super) fn await_gone(locks: &Path) -> io::Result<bool> {
    let until = Instant::now() + DEATH;
    let entries = match fs::read_dir(locks) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        entries => entries?,
    };
    for entry in entries {
        let file = match File::open(entry?.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file?,
        };
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            if Instant::now() >= until {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(true)
}

/// How `deed` is started: which one, and what every process of it is told.
#[derive(Debug, Clone)]
pub(super) struct Launcher {
    pub(super) deed: PathBuf,
    pub(super) tools: Option<PathBuf>,
    pub(super) variables: Vec<(OsString, OsString)>,
}

impl Launcher {
    /// A process with these arguments, whose results are JSON. `state` takes the place of the user's own state, and
    /// `temporary` that of the system's temporary directory, so that nothing of a killed process is left elsewhere. The
    /// cache of compiled components is the user's.
    pub(super) fn command<I>(&self, args: I, state: &Path, temporary: &Path) -> Command
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        let mut command = Command::new(&self.deed);
        command.args(args).args(["--format", "json"]);
        if let Some(tools) = &self.tools {
            command.arg("--tools").arg(tools);
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.env_remove("DEED_JOURNAL").env("XDG_STATE_HOME", state).env("TMPDIR", temporary);
        command
    }
}
