//! A crash-safe journal of what a tool host does: the steps of its runs, the transcripts of its sessions and the
//! questions to its owner, in one transactional store.
//!
//! **One transaction per commit holds everything that must agree**: a step's outcome, the messages it puts into the
//! transcript, the run's position and usage. So there is no second file to disagree with the first. A step is a list of
//! events, each with one place in the store, so that a second intent for one attempt or a second outcome for one step
//! cannot be recorded. When a process dies, [`Recovery::of`] decides from the last durable event and the effect class
//! what becomes of the step: it is returned, run again, or reconciled.
//!
//! The crate knows no WebAssembly and no terminal. Time and randomness are handed in.
//!
//! ```
//! use std::sync::Arc;
//! use deed_journal::{Durability, Entropy, Idle, Journal, Op, Options, Run, RunId, SessionId};
//!
//! struct Fixed;
//! impl Entropy for Fixed {
//!     fn fill(&self, bytes: &mut [u8]) { bytes.fill(7) }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let path = dir.path().join("journal.redb");
//! let options = || Options { entropy: Arc::new(Fixed), boot: None, idle: Idle::Never };
//!
//! let journal = Journal::open(&path, options())?;
//! let run = Run::new(RunId::from_bytes([1; 16]), SessionId::from_bytes([2; 16]), [3; 16], "say hello", 0);
//! let create = Op::CreateRun { run: Box::new(run.clone()), source: serde_json::json!({}) };
//! journal.commit(vec![create], Durability::Durable)?;
//! drop(journal); // or die: what was durable is there
//!
//! let journal = Journal::open(&path, options())?;
//! assert_eq!(journal.read().open_runs()?.items, [run]);
//! # Ok(())
//! # }
//! ```

mod apply;
mod backup;
mod base64_bytes;
mod change;
mod commit;
mod effect;
#[cfg(feature = "test-support")]
mod fault;
mod id;
mod journal;
mod live;
mod marks;
mod medium;
#[cfg(feature = "test-support")]
mod memory_store;
mod offline;
mod open;
mod prune;
mod reader;
mod record;
mod recover;
mod recovery;
mod redb_store;
mod run;
mod session;
mod source;
mod staged;
mod step;
mod storage;
mod stored;
mod take_over;
#[cfg(feature = "test-support")]
pub mod test_support;
mod transfer;
mod verify;
mod wait;
mod writer;

pub use backup::{BackedUp, BackupError};
pub use change::{Change, Changes, PathBytes, Published, Version};
pub use commit::{CommitError, Op};
pub use effect::EffectClass;
pub use id::{Digest, IdempotencyKey, ParseIdError, RunId, SessionId, StoreId, WaitId};
pub use journal::{Journal, Options};
pub use live::{LiveError, LiveJournal};
pub use marks::{BootId, Epoch, MarkPlace, Started};
pub use offline::Compacted;
pub use open::OpenError;
pub use prune::{CALL_KEY_MS, PrunePolicy};
pub use reader::Reader;
pub use record::{Listing, ReadError};
pub use recover::{RecoveryAction, RecoveryItem, TailPolicy};
pub use recovery::Recovery;
pub use run::{Criterion, Position, Run, RunKind, RunStatus, Usage};
pub use session::{
    Base, ConflictKind, Head, Message, MessageBody, Rewrite, RewriteKind, Role, Session, SnapshotConflict,
    ToolCall, ToolResult, Turn,
};
pub use source::{Clock, Entropy};
pub use step::{
    Attempt, EffectState, Intent, Outcome, Planned, ProbeVerdict, Probed, RECEIPTS, Receipt, SettledBy, Step,
    StepError, StepEvent, StepKind, StepResult, StepStatus, Unsettled,
};
pub use storage::{Durability, IoCounts, StorageError};
pub use take_over::TakeOverError;
pub use transfer::{Dropped, Import, ImportError, export};
pub use verify::VerifyReport;
pub use wait::{Answer, Asked, EXPIRED, Wait, WaitKind};
pub use writer::Idle;
