//! `deed:process/exec`: a command of the host's machine, run in the workspace to its end.
//!
//! The context decides what may run and with which surroundings; [`group`] starts it and sees to it that nothing of it
//! is left behind: the command is started in [`namespaces`] of its own, and a [`keeper`] ends all that is in them.

mod capture;
mod confine;
mod group;
mod hold;
mod keeper;
mod namespaces;

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::Duration;

use cap_std::fs::Dir;
use rustix::process::{Resource, Rlimit, setrlimit};
use tokio::process::Command;
use wasmtime::component::{HasData, Linker};

use self::bindings::deed::process::exec::{self, Capture, Ended, Error, Status};
use self::confine::Confinement;
use self::namespaces::Namespaces;
use super::filesystem::leads_out;
use super::{Action, Gate};
use crate::engine::request::{CallObserver, CancelToken, LogLevel};
use crate::stage::Mounted;

pub(crate) use self::capture::Captured;
pub(crate) use self::group::{End, Prepared, Status as Exit, run};
pub(crate) use self::hold::Hold;

mod bindings {
    wasmtime::component::bindgen!({
        path: "../wit/process",
        world: "deed:process/imports",
        imports: { default: async | trappable },
    });
}

/// Bytes kept of each output stream of a command. A result may hold 4 MiB, and a model reads the first screens of it.
const OUTPUT_LIMIT_BYTES: u64 = 1 << 20;

/// The most a tool may ask for, so that both streams and their copy in the guest fit in its memory several times over.
const OUTPUT_LIMIT_MAX_BYTES: u64 = 16 << 20;

/// What commands find in their environment. The library reads no environment of its own: a program that embeds it says
/// here what of its own commands may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandEnvironment {
    /// Where a program named without a slash is looked for, and the command's own `PATH`.
    pub search_path: OsString,
    /// The other variables, such as `HOME` and `LANG`.
    pub variables: Vec<(OsString, OsString)>,
    /// The user's home, an absolute path without links. Contained commands find it as it is, under `HOME`, and what they write
    /// there is thrown away. Default: none, and then they find everything outside of the workspace read-only.
    pub home: Option<PathBuf>,
}

impl Default for CommandEnvironment {
    /// The system's own directories, a UTF-8 locale without a language, and no home.
    fn default() -> Self {
        Self {
            search_path: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into(),
            variables: vec![("LANG".into(), "C.UTF-8".into())],
            home: None,
        }
    }
}

/// The commands of one call.
pub(crate) struct ProcessCtx {
    directory: Option<Arc<Dir>>,
    environment: Arc<CommandEnvironment>,
    cancel: CancelToken,
    network: bool,
    contained: Option<Arc<Mounted>>,
    memory_bytes: Option<u64>,
    hold: Hold,
    observer: Option<Arc<dyn CallObserver>>,
    gate: Gate,
}

pub(crate) struct ProcessCtxBuilder(ProcessCtx);

impl ProcessCtx {
    /// A context in which every command is refused until a directory is given.
    pub(crate) fn builder(gate: Gate) -> ProcessCtxBuilder {
        ProcessCtxBuilder(Self {
            directory: None,
            environment: Arc::default(),
            cancel: CancelToken::new(),
            network: false,
            contained: None,
            memory_bytes: None,
            hold: Hold::default(),
            observer: None,
            gate,
        })
    }
}

impl ProcessCtxBuilder {
    pub(crate) fn directory(mut self, directory: Option<Arc<Dir>>) -> Self {
        self.0.directory = directory;
        self
    }

    pub(crate) fn environment(mut self, environment: Arc<CommandEnvironment>) -> Self {
        self.0.environment = environment;
        self
    }

    pub(crate) fn cancel(mut self, cancel: CancelToken) -> Self {
        self.0.cancel = cancel;
        self
    }

    /// Whether commands reach the network; they do not by default.
    pub(crate) fn network(mut self, open: bool) -> Self {
        self.0.network = open;
        self
    }

    /// Where contained commands run.
    pub(crate) fn contained(mut self, mounted: Option<Arc<Mounted>>) -> Self {
        self.0.contained = mounted;
        self
    }

    /// Bytes of data that each process may hold.
    pub(crate) fn memory(mut self, bytes: Option<u64>) -> Self {
        self.0.memory_bytes = bytes;
        self
    }

    /// The lock that lasts as long as the commands.
    pub(crate) fn hold(mut self, hold: Hold) -> Self {
        self.0.hold = hold;
        self
    }

    /// Who is told what the machine does not let the host do.
    pub(crate) fn observer(mut self, observer: Arc<dyn CallObserver>) -> Self {
        self.0.observer = Some(observer);
        self
    }

    pub(crate) fn build(self) -> ProcessCtx {
        self.0
    }
}

/// How a store's data reaches its commands.
pub(crate) trait ProcessView: Send {
    fn process(&mut self) -> ProcessCtxView<'_>;
}

pub(crate) struct ProcessCtxView<'a>(pub(crate) &'a mut ProcessCtx);

struct HasProcess;

impl HasData for HasProcess {
    type Data<'a> = ProcessCtxView<'a>;
}

/// Offer `deed:process/exec`.
pub(crate) fn add_to_linker<T: ProcessView + 'static>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    exec::add_to_linker::<T, HasProcess>(linker, T::process)
}

impl exec::Host for ProcessCtxView<'_> {
    async fn run(&mut self, command: exec::Command) -> wasmtime::Result<Result<Ended, Error>> {
        Ok(self.run_to_end(command).await)
    }
}

impl ProcessCtxView<'_> {
    async fn run_to_end(&self, command: exec::Command) -> Result<Ended, Error> {
        let name = command.program.clone();
        self.0.gate.admit(Action::Execute(&name)).map_err(Error::Denied)?;
        let directory = self.open_directory(command.directory.as_deref())?;
        let program = find_named(&name, &self.0.environment.search_path).map_err(Error::NotFound)?;
        if !self.0.network && self.0.contained.is_none() && !namespaces::network_is_possible() {
            return Err(Error::Denied(format!(
                "`{name}` was not started: this machine lets deed cut no command off the network, which is closed for this call; open it with `network: open` in the mission, or `--network open` for a single call"
            )));
        }

        let hold = self.0.hold.take();
        let hold = hold.map_err(|why| Error::Denied(format!("`{name}` was not started: {why}")))?;
        let mut prepared = Command::new(&program);
        prepared
            .args(&command.args)
            .env_clear()
            .env("PATH", &self.0.environment.search_path)
            .envs(self.0.environment.variables.iter().map(|(name, value)| (name, value)))
            .envs(self.0.contained.as_ref().and(self.0.environment.home.as_ref()).map(|home| ("HOME", home)))
            .envs(command.env);
        if let Some(bytes) = self.0.memory_bytes {
            let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
            // SAFETY: between fork and exec, a plain system call on a value that the closure owns.
            unsafe { prepared.pre_exec(move || Ok(setrlimit(Resource::Data, limit)?)) };
        }
        let namespaces = match &self.0.contained {
            Some(mounted) => {
                let refused = |why| Error::Denied(format!("`{name}` was not started: {why}"));
                Namespaces::inside(Arc::clone(mounted), Confinement::new().map_err(refused)?)
            }
            None => Namespaces::new(self.are_held(), !self.0.network)
                .map(|namespaces| namespaces.around(&directory)),
        };
        let limit = command.output_limit_bytes.unwrap_or(OUTPUT_LIMIT_BYTES).min(OUTPUT_LIMIT_MAX_BYTES);
        let prepared = Prepared {
            command: prepared,
            directory,
            namespaces,
            stdin: command.stdin,
            limit_bytes: usize::try_from(limit).expect("the maximum fits"),
            timeout: command.timeout_ms.map(Duration::from_millis),
            hold,
        };
        let end = run(prepared, &self.0.cancel).await;
        if let Some(observer) = self.0.observer.as_ref().filter(|_| self.0.hold.take_note()) {
            observer.left_behind(&name);
        }
        match end {
            Ok(End::Ended { status, stdout, stderr }) => Ok(Ended {
                status: match (status.code, status.signal) {
                    (Some(code), _) => Status::Exited(code),
                    (None, signal) => Status::Signalled(signal.unwrap_or_default()),
                },
                stdout: stdout.into(),
                stderr: stderr.into(),
            }),
            Ok(End::OutOfTime(limit)) => {
                let limit_ms = limit.as_millis();
                Err(Error::Killed(format!(
                    "`{name}` ran out of time after {limit_ms} ms; all its processes were killed"
                )))
            }
            Ok(End::Cancelled) => {
                Err(Error::Killed(format!("`{name}` was cancelled; all its processes were killed")))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(Error::NotFound(format!("`{name}`: {error}")))
            }
            Err(error) => Err(Error::Failed(format!("`{name}`: {error}"))),
        }
    }

    /// Whether the command's processes can be held together; says so once where they cannot.
    fn are_held(&self) -> bool {
        static SAID: Once = Once::new();
        let possible = namespaces::processes_are_possible();
        if let (Err(why), Some(observer)) = (possible, &self.0.observer) {
            SAID.call_once(|| {
                let message = format!(
                    "commands run among the processes of the machine, since it lets deed make no namespaces for them ({why}): what a command leaves running in the background may outlive it"
                );
                observer.log(LogLevel::Warn, &message);
            });
        }
        possible.is_ok()
    }

    /// The directory a command starts in, resolved beneath the workspace.
    fn open_directory(&self, path: Option<&str>) -> Result<OwnedFd, Error> {
        let message = || Error::Denied("this call is granted no workspace".to_owned());
        let root = self.0.directory.as_ref().ok_or_else(message)?;
        let path: PathBuf = Path::new(path.unwrap_or("."))
            .components()
            .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
            .collect();
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { &path };
        let opened = root.open_dir(path).map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied if leads_out(&error) => {
                let shown = path.to_string_lossy();
                Error::Denied(self.0.gate.admit(Action::Leave(&shown)).expect_err("nothing allows that"))
            }
            ErrorKind::NotFound | ErrorKind::NotADirectory => {
                Error::NotFound(format!("directory `{}`: {error}", path.display()))
            }
            ErrorKind::PermissionDenied => {
                Error::Denied(format!("directory `{}` is protected: {error}", path.display()))
            }
            _ => Error::Failed(format!("directory `{}`: {error}", path.display())),
        })?;
        Ok(opened.into())
    }
}

/// Whether contained commands can be had here, or the reason why not.
pub(crate) fn containment_is_possible() -> Result<(), &'static str> {
    Confinement::new()?;
    namespaces::processes_are_possible()
}

/// A program's name is looked up here, and not by the system, so that what is not there is known to have run nothing.
fn find_named(name: &str, search_path: &OsStr) -> Result<PathBuf, String> {
    let path = Path::new(name);
    if path.is_absolute() {
        return Ok(path.to_owned());
    }
    if name.contains('/') || name.is_empty() {
        return Err(format!("`{name}` is neither a program's name nor an absolute path"));
    }
    find_program(name, search_path)
        .ok_or_else(|| format!("no program `{name}` in `{}`", search_path.to_string_lossy()))
}

/// The first program called `name` in the directories of `search_path`.
pub(crate) fn find_program(name: &str, search_path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(search_path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|candidate| {
            candidate.is_file() && rustix::fs::access(candidate, rustix::fs::Access::EXEC_OK).is_ok()
        })
}

impl From<Captured> for Capture {
    fn from(captured: Captured) -> Self {
        Self { data: captured.data, cut_bytes: captured.cut_bytes }
    }
}
