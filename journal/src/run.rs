//! Runs: one execution of a mission, a batch or a single call.

use serde::{Deserialize, Serialize};

use crate::id::{Digest, RunId, SessionId};

/// What a run executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunKind {
    /// Turns of a model.
    Mission,
    /// A list of calls.
    Batch,
    /// One call.
    Call,
}

impl RunKind {
    /// The kind as it is written everywhere.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mission => "mission",
            Self::Batch => "batch",
            Self::Call => "call",
        }
    }
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// Recorded, not begun.
    Queued,
    /// Under way, or interrupted by a crash.
    Running,
    /// Held by a question.
    Waiting,
    /// Ended, everything met.
    Done,
    /// Ended with something missing.
    Partial,
    /// Ended by a failure.
    Failed,
    /// Ended by the owner.
    Cancelled,
}

impl RunStatus {
    /// Whether the run has ended; then its record never changes again.
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Done | Self::Partial | Self::Failed | Self::Cancelled)
    }

    /// The status as it is written everywhere.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Done => "done",
            Self::Partial => "partial",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Something that must be met before a run may finish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Criterion {
    /// In words.
    pub criterion: String,
    /// Whether it is met.
    pub met: bool,
}

/// What a run has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Answers of the model that count.
    pub turns: u64,
    /// Tool calls it asked for.
    pub calls: u64,
    /// Requests made again because a crash lost the answer.
    pub repeated_model_calls: u64,
}

/// The action that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "at")]
pub enum Position {
    /// The setup steps, from seq 1 on.
    Setup,
    /// The policy snapshot and the model call of the next turn, from this seq on.
    Turn {
        /// The policy step's number.
        seq: u64,
    },
    /// The steps of a batch.
    Batch {
        /// The first step.
        first: u64,
        /// The last step.
        last: u64,
        /// The first step whose result is not in the transcript yet.
        untold: u64,
    },
    /// Nothing: the run has ended.
    End,
}

/// A run's head record: small, since it is written again with every commit of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Its id.
    pub id: RunId,
    /// Its place among the runs of the store, from 0: older runs have lower numbers. Given by the journal.
    pub number: u64,
    /// Steps planned so far. Counted by the journal: a step that vanishes is noticed.
    pub steps: u64,
    /// Random; takes part in every idempotency key of the run.
    #[serde(with = "hex::serde")]
    pub nonce: [u8; 16],
    /// What it executes.
    pub kind: RunKind,
    /// Where it stands.
    pub status: RunStatus,
    /// Its transcript.
    pub session: SessionId,
    /// In words.
    pub objective: String,
    /// The directory its tools see, absolute; none when it has none.
    pub workspace: Option<String>,
    /// Whether the workspace is a git repository, which the run then owns until it ends.
    pub git: bool,
    /// When it was created, milliseconds since the epoch.
    pub created_ms: u64,
    /// When it ended, milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// What comes next.
    pub position: Position,
    /// What must be met.
    pub criteria: Vec<Criterion>,
    /// What was used.
    pub usage: Usage,
    /// The last words of an ended run.
    pub result: Option<String>,
    /// The caller's own key that stands for this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_key: Option<Digest>,
}

impl Run {
    /// A queued mission without workspace and criteria.
    pub fn new(
        id: RunId,
        session: SessionId,
        nonce: [u8; 16],
        objective: impl Into<String>,
        created_ms: u64,
    ) -> Self {
        Self {
            id,
            number: 0,
            steps: 0,
            nonce,
            kind: RunKind::Mission,
            status: RunStatus::Queued,
            session,
            objective: objective.into(),
            workspace: None,
            git: false,
            created_ms,
            ended_ms: None,
            position: Position::Setup,
            criteria: Vec::new(),
            usage: Usage::default(),
            result: None,
            call_key: None,
        }
    }
}
