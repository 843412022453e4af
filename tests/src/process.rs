//! One process of `deed`, from its arguments to how it ended.

use std::{
    ffi::OsStr,
    fmt,
    fs::{self, File},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use serde::de::DeserializeOwned;
use wait_timeout::ChildExt;

use crate::{Terminal, binary::shared_cache_dir, deed_binary};

/// How long a process may take before the test gives up on it. Only a hang reaches it: the slowest process of all compiles
/// three guests in about 7 s, and a machine busy with other things may take ten times as long.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// The signal that cannot be caught.
const SIGKILL: i32 = 9;

/// A command line in the making.
pub struct Deed {
    command: Command,
    /// Where the two streams are kept. Files, because a pipe would be held open by whatever outlives the process.
    output_dir: PathBuf,
}

impl Deed {
    /// A process that finds its settings and its state under `home`, and nothing of the user's own.
    pub(crate) fn new(home: &Path) -> Self {
        Self::of(Command::new(deed_binary()), home)
    }

    /// A line that a person types in `directory`, both streams as one. `deed` is the binary under test, and given `args`.
    pub(crate) fn typed(home: &Path, directory: &Path, line: &str, args: &[&str]) -> Self {
        let mut sh = Command::new("sh");
        let line = match line.strip_prefix("deed ") {
            // In the shell's place, so that what ends the process is seen here.
            Some(rest) => format!(r#"exec "$DEED" {} {rest}"#, args.join(" ")),
            None => line.to_owned(),
        };
        sh.args(["-c", &format!("exec 2>&1\n{line}")]);
        let mut typed = Self::of(sh, home).env("DEED", &deed_binary().to_string_lossy());
        typed.command.current_dir(directory);
        typed
    }

    fn of(mut command: Command, home: &Path) -> Self {
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()))
            .env("HOME", home)
            .env("TMPDIR", home)
            .env("XDG_STATE_HOME", home.join("state"))
            .env("XDG_CONFIG_HOME", home.join("config"))
            .env("XDG_CACHE_HOME", shared_cache_dir())
            .env("RUST_BACKTRACE", "1")
            .current_dir(home)
            .stdin(Stdio::null());
        Self { command, output_dir: home.to_path_buf() }
    }

    /// Add arguments.
    #[must_use]
    pub fn args<I, S>(mut self, args: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.command.args(args);
        self
    }

    /// Set a variable of its environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Let no file grow beyond `kib` KiB: what is written further on is refused, as by a full disk.
    #[must_use]
    pub fn file_limit_kib(self, kib: u64) -> Self {
        // The shell's `ulimit` counts blocks of 512 bytes. Unless it is ignored, a signal ends the process first.
        let script = r#"trap '' XFSZ && ulimit -f "$0" && exec "$@""#;
        let mut sh = Command::new("sh");
        sh.args(["-c", script, &(kib * 2).to_string()]);
        self.through(sh)
    }

    /// Where no namespace of processes may be made: below a user namespace whose limit is none. Needs `unshare`.
    #[must_use]
    pub fn without_process_namespaces(self) -> Self {
        let script = r#"echo 0 > /proc/sys/user/max_pid_namespaces && exec "$0" "$@""#;
        let mut unshare = Command::new("unshare");
        unshare.args(["--user", "--map-root-user", "sh", "-c", script]);
        self.through(unshare)
    }

    /// Started by another program, whose last arguments it becomes.
    fn through(mut self, mut limited: Command) -> Self {
        limited
            .arg(self.command.get_program())
            .args(self.command.get_args())
            .env_clear()
            .envs(self.command.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .stdin(Stdio::null());
        if let Some(directory) = self.command.get_current_dir() {
            limited.current_dir(directory);
        }
        self.command = limited;
        self
    }

    /// Start it and go on.
    pub fn start(mut self) -> Running {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let stdout = self.output_dir.join(format!("stdout-{number}"));
        let stderr = self.output_dir.join(format!("stderr-{number}"));
        let create = |path: &Path| {
            File::create(path)
                .unwrap_or_else(|error| panic!("failed to create `{}`: {error}", path.display()))
        };
        self.command.stdout(create(&stdout)).stderr(create(&stderr));
        let line = self.line();
        let child = self.command.spawn().unwrap_or_else(|error| panic!("failed to start `{line}`: {error}"));
        Running { child, line, stdout, stderr }
    }

    /// Start it on a terminal of its own, with somebody there to read and to type.
    pub fn start_on_terminal(mut self) -> Terminal {
        let line = self.line();
        Terminal::start(&mut self.command, line)
    }

    fn line(&self) -> String {
        std::iter::once(OsStr::new("deed"))
            .chain(self.command.get_args())
            .map(|part| part.to_string_lossy().into_owned())
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Run it to its end.
    pub fn run(self) -> Outcome {
        self.start().wait()
    }
}

/// A process that has started. Dropped, it is killed.
pub struct Running {
    child: Child,
    line: String,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has said so far, besides its results.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Wait until it has said `words`. Panics when it ends without, or hangs.
    #[track_caller]
    pub fn until_said(&mut self, words: &str) {
        let begun = std::time::Instant::now();
        while !self.said().contains(words) {
            assert!(
                self.is_running() && begun.elapsed() < PATIENCE,
                "it did not say `{words}`: {}",
                self.said()
            );
            std::thread::yield_now();
        }
    }

    /// Send it SIGKILL once it has made so many writes, unless it has ended before, and wait for its end.
    pub fn kill_after_writes(mut self, writes: u64) -> Outcome {
        let counts = format!("/proc/{}/io", self.pid());
        // Bounded by the life of the process.
        while self.child.try_wait().expect("one's own child can be asked for").is_none() {
            let counted = fs::read_to_string(&counts).unwrap_or_default();
            let written = counted.lines().find_map(|line| line.strip_prefix("syscw: ")?.parse::<u64>().ok());
            if written.is_some_and(|written| written >= writes) {
                self.child.kill().expect("one's own child can be killed");
                break;
            }
            std::thread::yield_now();
        }
        self.wait()
    }

    /// Send it SIGKILL, and wait for its end.
    pub fn kill(mut self) -> Outcome {
        self.child.kill().expect("one's own child can be killed");
        self.wait()
    }

    /// Whether it is still there.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("one's own child can be asked for").is_none()
    }

    /// Wait for its end. Panics when it hangs.
    pub fn wait(self) -> Outcome {
        self.wait_within(PATIENCE)
    }

    /// The same, of one that may take longer than any other: a compiler, say.
    pub fn wait_within(mut self, patience: Duration) -> Outcome {
        let status = self.child.wait_timeout(patience).expect("one's own child can be waited for");
        let read = |path: &Path| {
            let bytes = fs::read(path).unwrap_or_default();
            fs::remove_file(path).ok();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let (stdout, stderr) = (read(&self.stdout), read(&self.stderr));
        let line = std::mem::take(&mut self.line);
        let Some(status) = status else {
            panic!("`{line}` has not ended after {patience:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}");
        };
        Outcome { line, ending: status.into(), stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail when it has ended, which is as well.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this code.
    Exit(i32),
    /// By this signal.
    Signal(i32),
}

impl Ending {
    /// SIGKILL.
    pub const KILLED: Self = Self::Signal(SIGKILL);
}

impl From<ExitStatus> for Ending {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Exit(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => unreachable!("a process that ended has a code or a signal"),
        }
    }
}

/// A process that has ended, and what it said.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The command line, for people.
    pub line: String,
    /// How it ended.
    pub ending: Ending,
    /// Its results.
    pub stdout: String,
    /// Everything else it said.
    pub stderr: String,
}

impl Outcome {
    /// Panics, with all it said, unless it ended with `code`.
    #[must_use]
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.ending, Ending::Exit(code), "{self}");
        self
    }

    /// Its results, read as JSON.
    ///
    /// # Errors
    /// Says what it printed when that is not the JSON expected.
    pub fn try_json<T: DeserializeOwned>(&self) -> Result<T, String> {
        serde_json::from_str(&self.stdout)
            .map_err(|error| format!("its output is not as documented: {error}\n{self}"))
    }

    /// As [`Outcome::try_json`], for tests.
    #[track_caller]
    pub fn json<T: DeserializeOwned>(&self) -> T {
        self.try_json().unwrap_or_else(|error| panic!("{error}"))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, ending, stdout, stderr } = self;
        write!(f, "`{line}` ended by {ending:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}")
    }
}
