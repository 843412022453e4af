//! Where components are compiled, described and called. Knows nothing of the journal, of runs or of sessions: a call is
//! given everything it may depend on, and its end is all that comes back.

pub(crate) mod bindings;
mod cache;
mod call;
mod descriptor;
mod end;
mod examine;
mod interface;
pub mod limits;
mod plugin;
pub(crate) mod request;
mod state;
pub(crate) mod types;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::SystemTime;

use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use wasmtime::component::{Component, Linker};
use wasmtime::{Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig};

use self::cache::Cache;
use self::call::Draw;
use self::limits::{
    ASYNC_STACK_BYTES, CORE_PARTS, EPOCH_TICK, PARALLEL_CALLS, TABLE_ELEMENTS, WASM_STACK_BYTES,
};
use self::state::{CallState, Surroundings};
use crate::capability::{CommandEnvironment, Credential, GitEnvironment};

pub use self::descriptor::{Described, faults_together};
pub use self::examine::{Askable, Examined};
pub use self::interface::Interface;
pub use self::limits::Limits;
pub use self::plugin::{LoadError, Plugin};
pub use self::request::{
    Abort, AbortReason, CallContext, CallEnd, CallObserver, CallRequest, CancelToken, Grants, LogLevel,
    NoObserver,
};
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
#[derive(Debug, Clone, Default)]
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
    surroundings: Surroundings,
    /// Compared with the times of files, and so read from the same clock.
    started: SystemTime,
    /// Drives timers, pipes and child processes; guests run elsewhere.
    runtime: Runtime,
    slots: Semaphore,
}

impl Engine {
    /// Set an engine up: some milliseconds, and two threads.
    pub fn new(config: EngineConfig) -> Result<Self, EngineError> {
        let setup = |error: wasmtime::Error| EngineError::Setup(format!("{error:#}"));
        // Without room for the pool's address space (a container's limit, say), instances are made one by one.
        let wasm =
            wasmtime::Engine::new(&pooled()).or_else(|_| wasmtime::Engine::new(&basic())).map_err(setup)?;
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
            surroundings: Surroundings {
                commands: Arc::new(config.commands),
                git: Arc::new(config.git),
                credentials: config.credentials.into(),
            },
            started: SystemTime::now(),
            runtime,
            slots: Semaphore::new(PARALLEL_CALLS as usize),
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

    /// Compile a component, or take it from the cache, and learn which tools it holds. Text form (`.wat`) is not taken.
    pub fn load(&self, name: &str, bytes: &[u8]) -> Result<Plugin, LoadError> {
        let digest = Digest::of(bytes);
        let cached = self.cache.as_ref().and_then(|cache| cache.load(&self.wasm, digest));
        if let Some((component, tools)) = cached {
            let bindings = self.bind(name, &component)?;
            return Ok(Plugin::new(name, digest, tools, bindings));
        }
        self.make(name, digest, &self.compile(name, bytes)?)
    }

    /// Make a plugin of a component, and keep it compiled.
    fn make(&self, name: &str, digest: Digest, component: &Component) -> Result<Plugin, LoadError> {
        let bindings = self.bind(name, component)?;
        let described = self
            .describe(&bindings, Draw(0))
            .map_err(|abort| LoadError::Describe { name: name.to_owned(), abort })?;
        let described: Vec<_> = described.into_iter().map(Described::from).collect();
        let tools = descriptor::check_all(name, &described)?;
        plugin::check_use(name, &self.wasm, component, &tools)?;
        if let Some(cache) = &self.cache
            && let Err(error) = cache.store(digest, component, &tools)
        {
            let warning = format!("the compiled plugin `{name}` could not be kept: {error}");
            *self.cache_warning.lock().unwrap_or_else(PoisonError::into_inner) = Some(warning);
        }
        Ok(Plugin::new(name, digest, tools, bindings))
    }

    fn compile(&self, name: &str, bytes: &[u8]) -> Result<Component, LoadError> {
        Component::from_binary(&self.wasm, bytes)
            .map_err(|error| LoadError::NotAComponent { name: name.to_owned(), reason: format!("{error:#}") })
    }

    fn bind(&self, name: &str, component: &Component) -> Result<plugin::Bindings, LoadError> {
        let missing = plugin::missing_imports(&self.wasm, component);
        if !missing.is_empty() {
            return Err(LoadError::MissingImports { name: name.to_owned(), missing });
        }
        let instance = self.linker.instantiate_pre(component);
        let instance = instance.map_err(|error| LoadError::UnusableImport {
            name: name.to_owned(),
            reason: format!("{error:#}"),
        })?;
        plugin::bind(name, component, instance)
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

/// What both ways to allocate have in common.
fn basic() -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .max_wasm_stack(WASM_STACK_BYTES)
        .async_stack_size(ASYNC_STACK_BYTES)
        // Nothing of the interface is concurrent within an instance; without it a call is about a third cheaper.
        .concurrency_support(false);
    config
}

/// Instances from a pool: a fresh one costs a few microseconds, and most memory is given back after each call.
fn pooled() -> Config {
    let mut pool = PoolingAllocationConfig::new();
    let parts = PARALLEL_CALLS * CORE_PARTS;
    pool.total_component_instances(PARALLEL_CALLS)
        .total_core_instances(parts)
        .total_memories(PARALLEL_CALLS)
        .total_tables(parts)
        .total_stacks(PARALLEL_CALLS)
        .max_core_instances_per_component(CORE_PARTS)
        .max_tables_per_component(CORE_PARTS)
        .table_elements(TABLE_ELEMENTS);
    // Where the kernel tells which pages a call wrote (Linux 6.7), these are put back as they were, and stay: the next call
    // faults on none of them. Elsewhere that much would be written anew for each call, touched or not, which is dearer.
    if PoolingAllocationConfig::is_pagemap_scan_available() {
        pool.pagemap_scan(Enabled::Yes)
            .linear_memory_keep_resident(KEPT_MEMORY_BYTES)
            .table_keep_resident(KEPT_TABLE_BYTES);
    }
    let mut config = basic();
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
