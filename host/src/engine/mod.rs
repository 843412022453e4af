//! Where components are compiled, described and called. Knows nothing of the journal, of runs or of sessions: a call is
//! given everything it may depend on, and its end is all that comes back.

pub(crate) mod bindings;
mod cache;
mod call;
mod descriptor;
mod end;
mod examine;
mod exports;
mod facts;
mod foreign;
mod functions;
mod interface;
pub mod limits;
mod load;
mod offered;
mod plugin;
mod processors;
pub(crate) mod request;
pub mod setting;
mod state;
mod stub;
pub(crate) mod types;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::SystemTime;

use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use wasmtime::component::Linker;
use wasmtime::{Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig};

use self::cache::Cache;
use self::limits::{
    CORE_PARTS, EPOCH_TICK, HOST_STACK_BYTES, PARALLEL_CALLS, TABLE_ELEMENTS_MOST, WASM_STACK_BYTES,
};
use self::processors::Processors;
use self::state::{CallState, Surroundings};
use crate::capability::{CommandEnvironment, Credential, GitEnvironment};

pub use self::descriptor::{Described, faults_together};
pub use self::examine::{Askable, Examined};
pub use self::foreign::{EVERY, Foreign, ForeignError, Stubs};
pub use self::functions::{UnfitFunction, Wit, WitError};
pub use self::interface::Interface;
pub use self::limits::Limits;
pub use self::plugin::{LoadError, Plugin};
pub use self::request::{
    Abort, AbortReason, CallContext, CallEnd, CallObserver, CallRequest, CancelToken, Grants, LogLevel,
    NoObserver,
};
pub use self::setting::{Limit, OutOfRange, Settings};
pub use self::types::{
    Content, Digest, EffectClass, EffectPlan, EffectState, FailureKind, Output, Refusal, ToolDescriptor,
    ToolFailure, ToolTraits, Verdict,
};

/// Bytes of a memory that stay with the pool after a call, of those that it wrote. A short call writes less than 1 MiB: some 10
/// pages in Rust, 170 in JavaScript, 220 in Python. Ten times that, for eight parallel calls, is 64 MiB.
const KEPT_MEMORY_BYTES: usize = 8 << 20;

/// The same of a table. The largest of an interpreter has some ten thousand entries of 8 bytes.
const KEPT_TABLE_BYTES: usize = 256 << 10;

/// How an engine is set up.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Where compiled components are kept; nowhere when none. Created for its owner alone. One that belongs to somebody
    /// else, that others may write to, or that lies in one of [`workspaces`](Self::workspaces), is not used;
    /// [`Engine::cache_warning`] says so.
    pub cache_dir: Option<PathBuf>,
    /// The directories whose files tools may change: no compiled code is taken from there.
    pub workspaces: Vec<PathBuf>,
    /// What commands find in their environment.
    pub commands: CommandEnvironment,
    /// What the `git` program finds when it carries a push.
    pub git: GitEnvironment,
    /// What the host adds to requests that name it.
    pub credentials: Vec<Credential>,
    /// Calls that have an instance at once; further ones wait, and the wait is not a part of their time. [`PARALLEL_CALLS`]
    /// by default.
    pub parallel_calls: u32,
    /// Bytes of a call's stack; [`WASM_STACK_BYTES`] by default. Host functions have [`HOST_STACK_BYTES`] besides.
    pub stack_bytes: usize,
    /// Who is told of what is compiled; nobody when none.
    pub on_compile: Option<Arc<dyn CompileObserver>>,
}

impl Default for EngineConfig {
    /// Nothing is kept, commands and git find the system's own directories, and no request finds a credential.
    fn default() -> Self {
        Self {
            cache_dir: None,
            workspaces: Vec::new(),
            commands: CommandEnvironment::default(),
            git: GitEnvironment::default(),
            credentials: Vec::new(),
            parallel_calls: PARALLEL_CALLS,
            stack_bytes: WASM_STACK_BYTES,
            on_compile: None,
        }
    }
}

/// Told of what is compiled, which may take a minute. By several threads at once, when several components are.
pub trait CompileObserver: std::fmt::Debug + Send + Sync {
    /// This plugin, of so many bytes, begins to be.
    fn began(&self, name: &str, bytes: usize);

    /// It is, or could not be.
    fn ended(&self, name: &str);
}

/// No engine could be made.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The WebAssembly engine cannot work on this machine.
    #[error("set up the WebAssembly engine: {0}")]
    Setup(String),
    /// The system gave no thread.
    #[error("start the engine's threads: {0}")]
    Threads(#[from] std::io::Error),
}

/// Compiles and calls components. Shared by reference between threads; each call runs on its caller's thread.
///
/// Dropping it ends its own threads. Must not be used from within an asynchronous task: calls block.
pub struct Engine {
    wasm: wasmtime::Engine,
    linker: Linker<CallState>,
    cache: Option<Cache>,
    cache_warning: Mutex<Option<String>>,
    on_compile: Option<Arc<dyn CompileObserver>>,
    surroundings: Surroundings,
    /// Compared with the times of files, and so read from the same clock.
    started: SystemTime,
    /// Drives timers, pipes and child processes; guests run elsewhere.
    runtime: Runtime,
    /// Who has an instance.
    slots: Semaphore,
    /// How large a call's stack is.
    stack_bytes: usize,
    /// Who of them computes.
    processors: Processors,
}

impl Engine {
    /// Set an engine up: some milliseconds, and two threads.
    pub fn new(config: EngineConfig) -> Result<Self, EngineError> {
        let setup = |error: wasmtime::Error| EngineError::Setup(format!("{error:#}"));
        // Without room for the pool's address space (a container's limit, say), instances are made one by one.
        let wasm = wasmtime::Engine::new(&pooled(&config))
            .or_else(|_| wasmtime::Engine::new(&basic(&config)))
            .map_err(setup)?;
        let linker = state::linker(&wasm).map_err(setup)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("deed-io")
            .enable_all()
            .build()?;
        start_ticking(&wasm)?;

        let mut cache_warning = None;
        let cache = config.cache_dir.and_then(|path| match Cache::open(&path, &config.workspaces, &wasm) {
            Ok(cache) => Some(cache),
            Err(why) => {
                let path = path.display();
                cache_warning = Some(format!("compiled plugins are not kept in `{path}`: {why}"));
                None
            }
        });
        Ok(Self {
            wasm,
            linker,
            cache,
            cache_warning: Mutex::new(cache_warning),
            on_compile: config.on_compile,
            surroundings: Surroundings {
                commands: Arc::new(config.commands),
                git: Arc::new(config.git),
                credentials: config.credentials.into(),
            },
            started: SystemTime::now(),
            runtime,
            slots: Semaphore::new(config.parallel_calls.max(1) as usize),
            stack_bytes: config.stack_bytes,
            processors: Processors::new(),
        })
    }

    /// What commands find as the user's home.
    pub(crate) fn command_home(&self) -> Option<&Path> {
        self.surroundings.commands.home.as_deref()
    }

    /// When this engine was set up.
    pub fn started(&self) -> SystemTime {
        self.started
    }

    /// Why compiled components are not kept as configured, if so. They are compiled again at the next start then.
    pub fn cache_warning(&self) -> Option<String> {
        self.cache_warning.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

/// What both ways to allocate have in common.
fn basic(engine: &EngineConfig) -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .max_wasm_stack(engine.stack_bytes)
        .async_stack_size(engine.stack_bytes.saturating_add(HOST_STACK_BYTES))
        // Nothing of the interface is concurrent within an instance; without it a call is about a third cheaper.
        .concurrency_support(false);
    config
}

/// Instances from a pool: a fresh one costs a few microseconds, and most memory is given back after each call.
fn pooled(engine: &EngineConfig) -> Config {
    let mut pool = PoolingAllocationConfig::new();
    let calls = engine.parallel_calls.max(1);
    let parts = calls.saturating_mul(CORE_PARTS);
    pool.total_component_instances(calls)
        .total_core_instances(parts)
        .total_memories(calls)
        .total_tables(parts)
        .total_stacks(calls)
        .max_core_instances_per_component(CORE_PARTS)
        .max_tables_per_component(CORE_PARTS)
        .table_elements(TABLE_ELEMENTS_MOST);
    // Where the kernel tells which pages a call wrote (Linux 6.7), these are put back as they were, and stay: the next call
    // faults on none of them. Elsewhere that much would be written anew for each call, touched or not, which is dearer.
    if PoolingAllocationConfig::is_pagemap_scan_available() {
        pool.pagemap_scan(Enabled::Yes)
            .linear_memory_keep_resident(KEPT_MEMORY_BYTES)
            .table_keep_resident(KEPT_TABLE_BYTES);
    }
    let mut config = basic(engine);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}

/// Advance the epoch for as long as the engine lives: the one thread that makes running guests look up.
fn start_ticking(engine: &wasmtime::Engine) -> std::io::Result<()> {
    let engine = engine.weak();
    thread::Builder::new().name("deed-epoch".to_owned()).spawn(move || {
        while let Some(engine) = engine.upgrade() {
            engine.increment_epoch();
            drop(engine);
            thread::sleep(EPOCH_TICK);
        }
    })?;
    Ok(())
}
