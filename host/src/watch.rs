//! What a run shows while it goes on. Nothing of it is part of a result.

use deed_journal::{Asked, StepKind};

use crate::engine::{CallEnd, LogLevel};

/// Sees a run's progress, on whichever thread it happens.
pub trait Watcher: Send + Sync {
    /// A step begins. `turn` counts the model's answers so far.
    fn step(&self, turn: u64, seq: u64, kind: StepKind, name: &str) {
        let _ = (turn, seq, kind, name);
    }

    /// How far a call is; `total` is none when unknown.
    fn progress(&self, seq: u64, done: u64, total: Option<u64>, message: &str) {
        let _ = (seq, done, total, message);
    }

    /// A line of a tool's.
    fn log(&self, seq: u64, level: LogLevel, message: &str) {
        let _ = (seq, level, message);
    }

    /// A command of a call left processes behind, which were ended with it.
    fn left_behind(&self, seq: u64, program: &str) {
        let _ = (seq, program);
    }

    /// An attempt has executed. Nothing is recorded of it yet.
    fn executed(&self, seq: u64, attempt: u32, end: &CallEnd) {
        let _ = (seq, attempt, end);
    }
}

/// Sees nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl Watcher for Unwatched {}

/// The owner's choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// One of the question's options.
    pub option: String,
    /// What the owner added.
    pub text: Option<String>,
}

/// Answers questions in place, or leaves them open.
pub trait Owner: Send + Sync {
    /// Ask. The question is durable. None: the run waits, until the question is answered elsewhere and it is resumed.
    fn ask(&self, question: &Asked) -> Option<Reply>;
}

/// Nobody is there: every question stays open.
#[derive(Debug, Clone, Copy, Default)]
pub struct Absent;

impl Owner for Absent {
    fn ask(&self, _: &Asked) -> Option<Reply> {
        None
    }
}
