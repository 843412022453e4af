//! Where a process is to die.

use std::fmt;

/// An instant in the life of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// The step is planned and everything before it settled; its intent is not written.
    BeforeIntent,
    /// The intent is durable, nothing has been executed.
    AfterIntent,
    /// Inside the call, or its probe, at the first call of the host.
    MidExec,
    /// A receipt is durable, in the middle of the call.
    AfterReceipt,
    /// The call is over, its outcome is not recorded.
    AfterExec,
    /// The outcome is recorded, nothing has been made of it.
    AfterCommit,
    /// The first change of a contained call is in the workspace.
    MidPublish,
    /// All of its changes are, and nothing is recorded of that.
    AfterPublish,
}

impl Point {
    /// Every point, in the order in which a step passes them.
    pub const ALL: [Self; 8] = [
        Self::BeforeIntent,
        Self::AfterIntent,
        Self::MidExec,
        Self::AfterReceipt,
        Self::AfterExec,
        Self::AfterCommit,
        Self::MidPublish,
        Self::AfterPublish,
    ];

    /// The name that `--kill-at` takes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BeforeIntent => "before_intent",
            Self::AfterIntent => "after_intent",
            Self::MidExec => "mid_exec",
            Self::AfterReceipt => "after_receipt",
            Self::AfterExec => "after_exec",
            Self::AfterCommit => "after_commit",
            Self::MidPublish => "mid_publish",
            Self::AfterPublish => "after_publish",
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A point of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kill {
    /// The step's number.
    pub seq: u64,
    /// The instant.
    pub point: Point,
}

impl Kill {
    /// A kill of the process that reaches `point` of step `seq`.
    pub fn new(seq: u64, point: Point) -> Self {
        Self { seq, point }
    }
}

/// As `--kill-at` takes it: `SEQ:POINT`.
impl fmt::Display for Kill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seq, self.point)
    }
}
