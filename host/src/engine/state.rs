//! What one instance's store holds, and the linker through which the instance reaches it.

use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use cap_std::fs::Dir;
use wasmtime::component::{Linker, ResourceTable};
use wasmtime_wasi::filesystem::WasiFilesystemCtxView;
use wasmtime_wasi::sockets::WasiSocketsCtxView;
use wasmtime_wasi::{FsPerms, WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtxView, WasiHttpView};

use super::limits::Usage;
use super::request::CallRequest;
use super::setting::Limit;
use crate::capability::clock::{self, ClockCtx, ClockCtxView, ClockView};
use crate::capability::filesystem::{self, FilesystemCtxView, FilesystemView};
use crate::capability::git::{self, GitCtx, GitCtxView, GitEnvironment, GitView};
use crate::capability::http::{self, HttpCtx};
use crate::capability::network::{self, NetworkCtxView, NetworkView};
use crate::capability::process::{self, CommandEnvironment, Hold, ProcessCtx, ProcessCtxView, ProcessView};
use crate::capability::run::{self, RunCtx, RunCtxView, RunView};
use crate::capability::stdio::StdioCtx;
use crate::capability::workspace::{self, WorkspaceCtx, WorkspaceCtxView, WorkspaceView};
use crate::capability::{Credential, Gate, random};
use crate::grants::Files;
use crate::mission::Network;

/// The state of one call.
pub(super) struct CallState {
    wasi: WasiCtx,
    table: ResourceTable,
    pub(super) usage: Usage,
    gate: Gate,
    /// The workspace, when the call sees its files.
    root: Option<Arc<Dir>>,
    clock: ClockCtx,
    run: RunCtx,
    workspace: WorkspaceCtx,
    process: ProcessCtx,
    git: GitCtx,
    http: HttpCtx,
}

/// What an engine gives to every call: what the programs that it starts find in their environment, and what is added to
/// its requests.
pub(super) struct Surroundings {
    pub(super) commands: Arc<CommandEnvironment>,
    pub(super) git: Arc<GitEnvironment>,
    pub(super) credentials: Arc<[Credential]>,
}

/// What of a call's state outlives its instance, for the report.
#[derive(Clone)]
pub(super) struct Traces {
    pub(super) gate: Gate,
    pub(super) stdio: StdioCtx,
}

/// The workspace could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("open the workspace `{directory}`: {error}")]
pub(super) struct WorkspaceError {
    directory: String,
    error: String,
}

impl WorkspaceError {
    fn new(directory: &Path, error: &dyn ToString) -> Self {
        Self { directory: directory.display().to_string(), error: error.to_string() }
    }
}

impl CallState {
    /// The state for `request`, in which everything it does not grant is refused, in an engine that was started then.
    pub(super) fn new(
        request: &CallRequest<'_>,
        surroundings: &Surroundings,
        started: SystemTime,
    ) -> Result<(Self, Traces), WorkspaceError> {
        let grants = request.grants;
        let gate = match request.stage {
            Some(_) => Gate::contained(request.tool, grants),
            None => Gate::new(request.tool, grants),
        };
        let stdio = StdioCtx::new(request.limits.stdio_bytes);

        let mut wasi = WasiCtxBuilder::new();
        // Each call owns its thread, so a blocking file operation holds up nobody else.
        wasi.allow_blocking_current_thread(true);
        stdio.configure(&mut wasi);
        random::configure(&mut wasi, &request.seed);
        network::configure(&mut wasi, &gate);

        let mut directory = None;
        let files = grants.granted.files;
        if let Some(path) = grants.workspace.as_ref().filter(|_| files > Files::None) {
            let writes = grants.class.is_effectful() && files == Files::Write;
            let perms = if writes { FsPerms::ReadWrite } else { FsPerms::ReadOnly };
            let failed = |error: &dyn ToString| WorkspaceError::new(path, error);
            // WASI opens what it shows by its path, and an open directory has one.
            let staged = request
                .stage
                .map(|stage| PathBuf::from(format!("/proc/self/fd/{}", stage.root().as_raw_fd())));
            wasi.preopened_dir(staged.as_ref().unwrap_or(path), "/", perms)
                .map_err(|error| failed(&error))?;
            directory = Some(match request.stage {
                Some(stage) => Arc::clone(stage.root()),
                None => Arc::new(
                    Dir::open_ambient_dir(path, cap_std::ambient_authority())
                        .map_err(|error| failed(&error))?,
                ),
            });
        }

        let mut table = ResourceTable::new();
        table.set_max_capacity(request.limits.handles);

        let hold = Hold::new(request.lock);
        let traces = Traces { gate: gate.clone(), stdio };
        let state = Self {
            wasi: wasi.build(),
            table,
            usage: Usage::new(request.limits),
            root: directory.clone(),
            clock: ClockCtx::new(request.clock_ms),
            run: RunCtx::new(Arc::clone(request.observer), request.cancel.clone(), request.limits.log_lines),
            workspace: WorkspaceCtx::builder(gate.clone())
                .directory(directory.clone())
                .idempotency_key(request.context.idempotency_key)
                .build(),
            process: ProcessCtx::builder(gate.clone())
                .directory(directory)
                .environment(Arc::clone(&surroundings.commands))
                .cancel(request.cancel.clone())
                .network(grants.granted.network == Network::Open)
                .contained(request.stage.cloned())
                .memory(grants.granted.limits.get(Limit::CommandMemory))
                .hold(hold.clone())
                .observer(Arc::clone(request.observer))
                .build(),
            git: GitCtx::builder(gate.clone())
                // What git writes would go past the stage: no tool that could ask for it is contained.
                .workspace(grants.workspace.clone().filter(|_| request.stage.is_none()))
                .idempotency_key(request.context.idempotency_key)
                .clock_ms(request.clock_ms)
                .attempt(request.context.attempt, started)
                .observer(Arc::clone(request.observer))
                .environment(Arc::clone(&surroundings.git))
                .cancel(request.cancel.clone())
                .hold(hold)
                .build(),
            http: HttpCtx::builder(gate.clone(), Arc::clone(request.observer))
                .idempotency_key(request.context.idempotency_key)
                .credentials(&surroundings.credentials)
                .timeout(request.timeout)
                .build(),
            gate,
        };
        Ok((state, traces))
    }
}

/// Everything the host offers, in one linker.
pub(super) fn linker(engine: &wasmtime::Engine) -> wasmtime::Result<Linker<CallState>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    // Ours stand in front of WASI's.
    linker.allow_shadowing(true);
    clock::add_to_linker(&mut linker)?;
    filesystem::add_to_linker(&mut linker)?;
    network::add_to_linker(&mut linker)?;
    linker.allow_shadowing(false);
    run::add_to_linker(&mut linker)?;
    workspace::add_to_linker(&mut linker)?;
    process::add_to_linker(&mut linker)?;
    git::add_to_linker(&mut linker)?;
    http::add_to_linker(&mut linker)?;
    Ok(linker)
}

impl WasiView for CallState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl ClockView for CallState {
    fn clock(&mut self) -> ClockCtxView<'_> {
        ClockCtxView { ctx: &mut self.clock, table: &mut self.table }
    }
}

impl FilesystemView for CallState {
    fn gated_filesystem(&mut self) -> FilesystemCtxView<'_> {
        FilesystemCtxView {
            wasi: WasiFilesystemCtxView { ctx: self.wasi.filesystem(), table: &mut self.table },
            root: self.root.as_ref(),
            gate: &self.gate,
        }
    }
}

impl NetworkView for CallState {
    fn network(&mut self) -> NetworkCtxView<'_> {
        NetworkCtxView {
            wasi: WasiSocketsCtxView { ctx: self.wasi.sockets(), table: &mut self.table },
            gate: &self.gate,
        }
    }
}

impl RunView for CallState {
    fn run(&mut self) -> RunCtxView<'_> {
        RunCtxView(&mut self.run)
    }
}

impl WorkspaceView for CallState {
    fn workspace(&mut self) -> WorkspaceCtxView<'_> {
        WorkspaceCtxView(&mut self.workspace)
    }
}

impl ProcessView for CallState {
    fn process(&mut self) -> ProcessCtxView<'_> {
        ProcessCtxView(&mut self.process)
    }
}

impl GitView for CallState {
    fn git(&mut self) -> GitCtxView<'_> {
        GitCtxView(&mut self.git)
    }
}

impl WasiHttpView for CallState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        self.http.view(&mut self.table)
    }
}
