//! Commits: operations that become visible together, or not at all.

use crate::id::{RunId, SessionId, WaitId};
use crate::record::ReadError;
use crate::run::Run;
use crate::session::{Base, Head, MessageBody, RewriteKind, SnapshotConflict, Turn};
use crate::step::StepEvent;
use crate::storage::StorageError;
use crate::wait::{Answer, Asked};

/// One change. A commit holds any number of them.
#[derive(Debug, Clone)]
pub enum Op {
    /// Record a new run, with what it executes (as it was given) and its empty session. Its call key, if it has one, stands
    /// for it from now on.
    CreateRun {
        /// Its head record.
        run: Box<Run>,
        /// What it executes: read by whoever resumes it.
        source: serde_json::Value,
    },
    /// Replace a run's head record. Refused once the run has ended.
    UpdateRun(Box<Run>),
    /// Add an event to a step. Each event has one place, and is refused when the place is taken or it does not follow
    /// from the events before it.
    Step {
        /// The run.
        run: RunId,
        /// The step.
        seq: u64,
        /// What happened.
        event: StepEvent,
    },
    /// Begin a session that belongs to no run.
    CreateSession {
        /// Its id.
        session: SessionId,
        /// When, milliseconds since the epoch.
        created_ms: u64,
    },
    /// Extend a session's `main`. Changes nothing when `main` already is the base and these messages.
    Append {
        /// The session.
        session: SessionId,
        /// What this is based on.
        base: Base,
        /// The messages.
        messages: Vec<MessageBody>,
    },
    /// Replace the end of a session's `main`. What is cut off stays, and the session's log of rewrites leads to it.
    Rewrite {
        /// The session.
        session: SessionId,
        /// What this is based on. A stale base is a conflict, whatever the messages are.
        base: Base,
        /// Messages of `main` that stay, from its beginning.
        keep: u64,
        /// The messages that follow them.
        messages: Vec<MessageBody>,
        /// Why.
        kind: RewriteKind,
        /// When, milliseconds since the epoch.
        at_ms: u64,
    },
    /// Keep messages as a named head: a branch off any message of the session. Also for a writer who lost a conflict.
    KeepAsHead {
        /// The session.
        session: SessionId,
        /// The head's name, unused so far.
        name: String,
        /// Where the branch begins; none: at the beginning.
        from: Option<Head>,
        /// The messages on it.
        messages: Vec<MessageBody>,
    },
    /// Set a session's turn in flight; it replaces an earlier one.
    BeginTurn {
        /// The session.
        session: SessionId,
        /// The turn.
        turn: Turn,
    },
    /// Clear a session's turn in flight, if it is the named one; otherwise it changes nothing.
    ClearTurn {
        /// The session.
        session: SessionId,
        /// The turn's id.
        turn: String,
    },
    /// Remove an ended run with its steps and questions, and the session it began. Large values go with their last
    /// reference.
    DropRun(RunId),
    /// Ask the owner.
    Ask(Asked),
    /// Answer a question. The first answer wins; the same option and text again changes nothing.
    Answer {
        /// The question.
        id: WaitId,
        /// The answer.
        answer: Answer,
    },
}

/// Why a commit was refused. Nothing of it was written, unless the store itself failed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// A newer owner opened this journal: this handle may not write any more.
    #[error("this process (generation {mine}) no longer owns the journal: generation {stored} does")]
    Fenced {
        /// The generation of this handle.
        mine: u64,
        /// The generation in the store.
        stored: u64,
    },
    /// A run with this id, or for this caller's key, exists.
    #[error("run {0} exists already")]
    RunExists(RunId),
    /// There is no such run.
    #[error("there is no run {0}")]
    NoSuchRun(RunId),
    /// The run has ended.
    #[error("run {0} has ended; its record does not change any more")]
    RunEnded(RunId),
    /// The event does not follow from what is recorded.
    #[error("step {seq} of run {run} takes no {event}: {reason}", run = run.short())]
    StepConflict {
        /// The run.
        run: RunId,
        /// The step.
        seq: u64,
        /// The event.
        event: String,
        /// Why not.
        reason: &'static str,
    },
    /// The run has not ended.
    #[error("run {0} has not ended; it is not removed")]
    RunNotEnded(RunId),
    /// There is no such session.
    #[error("there is no session {0}")]
    NoSuchSession(SessionId),
    /// A session with this id exists.
    #[error("session {0} exists already")]
    SessionExists(SessionId),
    /// The name is taken.
    #[error("session {session} has a head `{name}` already; choose another name")]
    HeadExists {
        /// The session.
        session: SessionId,
        /// The name.
        name: String,
    },
    /// The session has no such message.
    #[error("session {session} has no message {message} with this hash")]
    NoSuchMessage {
        /// The session.
        session: SessionId,
        /// The message.
        message: u64,
    },
    /// More messages were to be kept than there are.
    #[error("session {session} has {count} messages; {keep} cannot be kept")]
    KeepsTooMany {
        /// The session.
        session: SessionId,
        /// Messages on `main`.
        count: u64,
        /// Messages to keep.
        keep: u64,
    },
    /// A value is larger than the journal takes.
    #[error("{what} is {bytes} bytes, and the journal takes at most {limit}")]
    TooLarge {
        /// What it is.
        what: String,
        /// Its size.
        bytes: usize,
        /// The largest it may be.
        limit: usize,
    },
    /// The session has changed.
    #[error(transparent)]
    Snapshot(#[from] SnapshotConflict),
    /// The question was asked before.
    #[error("question {0} was asked before")]
    AskedBefore(WaitId),
    /// There is no such question.
    #[error("there is no question {0}")]
    NoSuchWait(WaitId),
    /// The option is none of the question's.
    #[error("`{option}` is no answer to question {id}: expected one of `{}`", expected.join("`, `"))]
    NoSuchOption {
        /// The question.
        id: WaitId,
        /// What was answered.
        option: String,
        /// What can be answered.
        expected: Vec<String>,
    },
    /// The question has expired.
    #[error("question {0} has expired; it takes no answer any more")]
    Expired(WaitId),
    /// Another answer came first.
    #[error("question {id} was answered `{first}` before; an answer is not changed")]
    AnsweredBefore {
        /// The question.
        id: WaitId,
        /// The answer that counts.
        first: String,
    },
    /// A record that the commit depends on could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The store failed. Whether the commit happened is unknown: open the journal again and look.
    #[error("the commit may or may not have happened: {0}; open the journal again")]
    Unknown(String),
    /// An earlier commit failed, and this journal takes no more.
    #[error("the journal stopped after a failure: {0}; open it again")]
    Stopped(String),
}

impl From<StorageError> for CommitError {
    fn from(error: StorageError) -> Self {
        Self::Read(ReadError::Storage(error))
    }
}
