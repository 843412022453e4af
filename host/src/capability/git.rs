//! `deed:git`: the repository whose work tree is the workspace, and the remotes it is pushed to.
//!
//! Everything local is by libgit2; hooks and filters of the repository are not run. A large repository is read on the
//! call's own thread: the call's time limit is looked at when the reading is done. What goes to a remote is carried by the
//! `git` program: see [`remote`] and [`transport`].

mod answer;
mod commit;
mod leftover;
mod open;
mod read;
mod remote;
mod transport;
mod url;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use git2::ErrorCode;
use wasmtime::component::{HasData, Linker};

use self::bindings::deed::git::repository::{self, CommitInfo, Committed, DiffSide, Error, Summary};
use super::process::Hold;
use super::{Action, Gate};
use crate::engine::request::{CallObserver, CancelToken, LogLevel, NoObserver};

pub(crate) use leftover::Earlier;
pub(crate) use open::{NotUsable, check_reference, open};
pub use transport::GitEnvironment;

mod bindings {
    wasmtime::component::bindgen!({
        path: "../wit/git",
        world: "deed:git/imports",
        imports: {
            "deed:git/remote.branches": async | trappable,
            "deed:git/remote.push": async | trappable,
            default: trappable,
        },
    });
}

/// The repository of one call.
pub(crate) struct GitCtx {
    workspace: Option<PathBuf>,
    idempotency_key: String,
    clock_ms: u64,
    /// None on the first attempt.
    earlier: Option<Earlier>,
    observer: Arc<dyn CallObserver>,
    environment: Arc<GitEnvironment>,
    cancel: CancelToken,
    hold: Hold,
    gate: Gate,
}

pub(crate) struct GitCtxBuilder(GitCtx);

impl GitCtx {
    /// A context without a repository until a workspace is given.
    pub(crate) fn builder(gate: Gate) -> GitCtxBuilder {
        GitCtxBuilder(Self {
            workspace: None,
            idempotency_key: String::new(),
            clock_ms: 0,
            earlier: None,
            observer: Arc::new(NoObserver),
            environment: Arc::default(),
            cancel: CancelToken::new(),
            hold: Hold::default(),
            gate,
        })
    }
}

impl GitCtxBuilder {
    pub(crate) fn workspace(mut self, workspace: Option<PathBuf>) -> Self {
        self.0.workspace = workspace;
        self
    }

    /// Goes into each commit as a trailer.
    pub(crate) fn idempotency_key(mut self, key: &str) -> Self {
        key.clone_into(&mut self.0.idempotency_key);
        self
    }

    /// The time of the step's intent and of each commit, so that a second attempt makes the identical one.
    pub(crate) fn clock_ms(mut self, clock_ms: u64) -> Self {
        self.0.clock_ms = clock_ms;
        self
    }

    /// Which attempt of the step this is, in an engine that was started then.
    pub(crate) fn attempt(mut self, attempt: u32, started: SystemTime) -> Self {
        let intent = SystemTime::UNIX_EPOCH + Duration::from_millis(self.0.clock_ms);
        self.0.earlier = (attempt > 1).then_some(Earlier { intent, started });
        self
    }

    /// Is told of what an earlier attempt left and this one removed.
    pub(crate) fn observer(mut self, observer: Arc<dyn CallObserver>) -> Self {
        self.0.observer = observer;
        self
    }

    /// What the `git` program finds.
    pub(crate) fn environment(mut self, environment: Arc<GitEnvironment>) -> Self {
        self.0.environment = environment;
        self
    }

    /// Ends the `git` program.
    pub(crate) fn cancel(mut self, cancel: CancelToken) -> Self {
        self.0.cancel = cancel;
        self
    }

    /// The lock that lasts as long as the `git` program and what it starts.
    pub(crate) fn hold(mut self, hold: Hold) -> Self {
        self.0.hold = hold;
        self
    }

    pub(crate) fn build(self) -> GitCtx {
        self.0
    }
}

/// How a store's data reaches its repository.
pub(crate) trait GitView: Send {
    fn git(&mut self) -> GitCtxView<'_>;
}

pub(crate) struct GitCtxView<'a>(pub(crate) &'a mut GitCtx);

struct HasGit;

impl HasData for HasGit {
    type Data<'a> = GitCtxView<'a>;
}

/// Offer `deed:git/repository` and `deed:git/remote`.
pub(crate) fn add_to_linker<T: GitView + 'static>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    repository::add_to_linker::<T, HasGit>(linker, T::git)?;
    bindings::deed::git::remote::add_to_linker::<T, HasGit>(linker, T::git)
}

impl repository::Host for GitCtxView<'_> {
    fn status(&mut self) -> wasmtime::Result<Result<Summary, Error>> {
        Ok(self.open_to_read().and_then(|repository| read::status(&repository)))
    }

    fn diff(&mut self, side: DiffSide, paths: Vec<String>) -> wasmtime::Result<Result<String, Error>> {
        Ok(self.open_to_read().and_then(|repository| read::diff(&repository, side, &paths)))
    }

    fn log(&mut self, limit: u32) -> wasmtime::Result<Result<Vec<CommitInfo>, Error>> {
        Ok(self.open_to_read().and_then(|repository| read::log(&repository, limit)))
    }

    fn commit(&mut self, message: String, paths: Vec<String>) -> wasmtime::Result<Result<Committed, Error>> {
        if let Err(denied) = self.0.gate.admit(Action::Commit) {
            return Ok(Err(Error::Denied(denied)));
        }
        let stamp = commit::Stamp {
            key: &self.0.idempotency_key,
            clock_ms: self.0.clock_ms,
            earlier: self.0.earlier,
        };
        Ok(self.open().and_then(|repository| {
            let removed = |lock: &Path| {
                let lock = lock.display();
                let line = format!("removed `{lock}`, which an earlier attempt left when it was killed");
                self.0.observer.log(LogLevel::Warn, &line);
            };
            let committed = commit::commit(&repository, &message, &paths, stamp, removed);
            if committed.is_err() && self.0.earlier.is_some() && commit::is_locked(&repository) {
                // Perhaps the earlier attempt's own lock. A failure would end the step, and the commit be forgotten.
                self.0.gate.doubt();
            }
            committed
        }))
    }
}

impl GitCtxView<'_> {
    /// A difference shows what is in files, and so does history.
    fn open_to_read(&self) -> Result<git2::Repository, Error> {
        self.0.gate.admit(Action::Read(".git")).map_err(Error::Denied)?;
        self.open()
    }

    fn open(&self) -> Result<git2::Repository, Error> {
        match &self.0.workspace {
            Some(workspace) => Ok(open(workspace)?),
            None => Err(Error::NoRepository("this call is granted no workspace".to_owned())),
        }
    }
}

impl From<git2::Error> for Error {
    fn from(error: git2::Error) -> Self {
        let message = error.message().to_owned();
        match error.code() {
            ErrorCode::NotFound => Self::NotFound(message),
            ErrorCode::Modified => Self::Conflict(format!("somebody else moved the branch: {message}")),
            ErrorCode::Locked => Self::Conflict(format!(
                "{message}; another git program is at work, or left its lock when it was killed: remove the lock if none runs"
            )),
            ErrorCode::Unmerged | ErrorCode::Conflict => {
                Self::Conflict(format!("the index holds unresolved conflicts: {message}"))
            }
            _ => Self::Failed(message),
        }
    }
}

/// The paths of a request, relative to the work tree; empty when they name all of it.
fn relative_paths(paths: &[String]) -> Result<Vec<String>, Error> {
    let mut relative = Vec::with_capacity(paths.len());
    for path in paths {
        let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        if parts.contains(&"..") {
            return Err(Error::NotFound(format!(
                "`{path}`: a path with `..` names nothing in the repository"
            )));
        }
        if parts.is_empty() {
            return Ok(Vec::new());
        }
        relative.push(parts.join("/"));
    }
    Ok(relative)
}
