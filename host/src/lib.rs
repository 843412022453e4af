//! The host of tools that are WebAssembly components, as a library: what the binary `deed` is made of.
//!
//! A [`Host`](runner::Host) is everything a run needs: a journal, the tools at hand, a clock, randomness, and somebody to
//! ask. From it, runs are [created](runner::Host::create_run) and [taken on](runner::Runner::drive) until they end or
//! wait for an answer. A run whose process died is taken on in the same way: load it, drive it.
//!
//! The library prints nothing, reads no environment and never exits. Calls block: use it from threads, not from
//! asynchronous tasks.
//!
//! | module | holds |
//! |---|---|
//! | [`runner`] | runs: from their last record to their end |
//! | [`mission`], [`policy`], [`model`] | what a run executes, what its calls need, who decides what is next |
//! | [`toolbox`], [`standard`], [`host_tools`] | the tools at hand: plugins, those that come with deed, and its own |
//! | [`engine`], [`capability`] | calling a component, and what a call may reach |
//! | [`plugin`] | plugins as files: what they are and need, whether they work, which are installed |
//! | [`plugin`] | plugins as files: what they are and need, whether they work, which are installed |
//! | [`sources`], [`watch`], [`boundary`] | time and randomness; who watches and answers; where crash tests kill |
//! | [`crash_test`] | killing all of this everywhere, and comparing |
//! | [`journal`] | the records: a crate of its own, which knows nothing of all this |
//!
//! # Example
//!
//! Write a file by a journaled call, and again with the same key: the second call runs nothing.
//!
//! ```
//! use std::sync::Arc;
//!
//! use deed::beside::Beside;
//! use deed::boundary::Unarmed;
//! use deed::engine::{CancelToken, Engine, EngineConfig, Limits};
//! use deed::journal::{BootId, Idle, Journal, Options, RunStatus};
//! use deed::mission::{Call, Network};
//! use deed::runner::{CallOptions, Host, OnUnknown, Runner};
//! use deed::sources::{SystemClock, SystemEntropy};
//! use deed::standard::standard_plugins;
//! use deed::toolbox::{PluginSource, Toolbox};
//! use deed::watch::{Absent, Unwatched};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let workspace = dir.path().join("workspace");
//! std::fs::create_dir(&workspace)?;
//!
//! // One of the standard plugins. With a cache directory, it would be compiled only once.
//! let engine = Arc::new(Engine::new(EngineConfig::default())?);
//! let fs = standard_plugins().into_iter().find(|(name, _)| *name == "fs").expect("it comes with deed");
//! let fs = PluginSource::new(fs.0, fs.1);
//!
//! // The journal lies outside every workspace, where no tool reaches it.
//! let options = Options { entropy: Arc::new(SystemEntropy), boot: BootId::current(), idle: Idle::Timer };
//! let journal = Journal::open(&dir.path().join("journal.redb"), options)?;
//!
//! let host = Host {
//!     journal: Arc::new(journal),
//!     toolbox: Toolbox::load(engine, &[fs]),
//!     clock: Arc::new(SystemClock),
//!     entropy: Arc::new(SystemEntropy),
//!     boundaries: Arc::new(Unarmed),
//!     watcher: Arc::new(Unwatched),
//!     config_dir: None,
//!     beside: Some(Beside::new(&dir.path().join("journal.redb"))),
//!     locks_dir: Some(dir.path().join("workspaces")),
//!     on_unknown: OnUnknown::Ask,
//!     owner: Arc::new(Absent),
//!     limits: Limits::default(),
//!     cancel: CancelToken::new(),
//!     stop: Arc::default(),
//! };
//!
//! let options = CallOptions {
//!     call: Call {
//!         tool: "write_file".into(),
//!         input: serde_json::json!({ "path": "hello.txt", "content": "hello\n" }),
//!     },
//!     workspace: workspace.clone(),
//!     key: Some("greeting".into()),
//!     network: Network::Closed,
//! };
//! let created = host.create_call(&options)?;
//! let envelope = Runner::load(&host, created.run)?.drive()?;
//! assert_eq!(envelope.status, RunStatus::Done);
//! assert_eq!(std::fs::read_to_string(workspace.join("hello.txt"))?, "hello\n");
//!
//! let again = host.create_call(&options)?;
//! assert!(again.joined && again.run == created.run);
//! # Ok(())
//! # }
//! ```

pub mod arguments;
pub mod beside;
pub mod boundary;
pub mod capability;
mod child;
pub mod crash_test;
pub mod engine;
pub mod grants;
pub mod host_tools;
pub mod mission;
pub mod model;
pub mod operator;
pub mod origin;
pub mod plugin;
pub mod policy;
pub mod runner;
pub mod sources;
pub mod stage;
pub mod standard;
#[cfg(test)]
mod tests;
pub mod toolbox;
pub mod turns;
pub mod watch;
mod workspace;

pub use deed_journal as journal;
