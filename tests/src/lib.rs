//! The harness of the whole-system tests: it drives the real `deed` binary in directories of its own.
//!
//! A [`Sandbox`] holds a workspace, a mission and a journal. [`Sandbox::run_to_end`] runs the mission as a person would,
//! one process after the other, with the owner's answers in between and at most one kill; [`Snapshot`] is everything
//! that must come out the same whether or not a process was killed on the way.
//!
//! ```no_run
//! use deed_tests::{Kill, Point, Sandbox, Snapshot, says_yes};
//!
//! let undisturbed = Sandbox::of("fix-add");
//! let passage = undisturbed.run_to_end(None, &says_yes)?;
//! let reference = Snapshot::take(&undisturbed, &passage)?;
//!
//! let disturbed = Sandbox::of("fix-add");
//! let passage = disturbed.run_to_end(Some(Kill::new(11, Point::AfterExec)), &says_yes)?;
//! assert_eq!(passage.kills, 1);
//! Snapshot::take(&disturbed, &passage)?.compare(&reference)?;
//! # Ok::<(), String>(())
//! ```
//!
//! A "kill" is SIGKILL of a real process, which proves nothing about power loss: what the kernel was handed survives it.

#![expect(
    clippy::missing_panics_doc,
    reason = "a harness reports a broken machine by a panic, which fails the test"
)]

mod binary;
mod chromium;
mod drive;
pub mod git_server;
pub mod guests;
mod held;
mod kill;
pub mod made;
pub mod page;
mod process;
mod project;
pub mod receiver;
mod records;
mod repository;
mod sandbox;
mod snapshot;
mod sweep;
mod terminal;
mod tree;

pub use binary::{deed_binary, project_root, shared_cache_dir};
pub use chromium::{Chromium, find_chromium};
pub use drive::{Asked, Owner, Passage, never_asked, says_yes};
pub use held::{Held, Waiting};
pub use kill::{Kill, Point};
pub use process::{Deed, Ending, Outcome, Running};
pub use project::{Project, project_target};
pub use records::{
    CallError, CallOutput, CallReply, Criterion, Envelope, Message, MessageResult, RunRow, StepRow, ToolRow,
    Usage, Wait, shape,
};
pub use repository::{Commit, Repository};
pub use sandbox::Sandbox;
pub use snapshot::{Section, Snapshot};
pub use sweep::{Trial, reference, sweep, trial};
pub use terminal::Terminal;
pub use tree::{Tree, copy_tree, read_tree};
