//! The durable boundaries of a step: where a crash test kills the process.

use std::fmt;
use std::str::FromStr;

/// An instant in the life of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Boundary {
    /// It is planned, everything before it is settled, and its intent is not written.
    BeforeIntent,
    /// Its intent is durable and it has not started. A pure step has no intent: it is about to start.
    AfterIntent,
    /// Inside its component, or its probe's, at the first call of the host.
    MidExec,
    /// A receipt is durable, and the tool does not know yet.
    AfterReceipt,
    /// It has executed, or its probe has, and nothing is recorded of it.
    AfterExec,
    /// Its outcome is durable.
    AfterCommit,
    /// The first of its changes, if it was contained and made any, is in the workspace.
    MidPublish,
    /// All of them are, and nothing is recorded of that.
    AfterPublish,
}

impl Boundary {
    /// Every boundary, in the order a step crosses them.
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

    /// The boundary as it is written everywhere.
    pub const fn as_str(self) -> &'static str {
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

/// A boundary of one step, written `14:after_exec`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KillPoint {
    /// The step's number.
    pub seq: u64,
    /// Where in its life.
    pub boundary: Boundary,
}

impl fmt::Display for KillPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seq, self.boundary.as_str())
    }
}

/// Text that is no kill point.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no kill point: expected SEQ:POINT, where POINT is one of {}", Boundary::ALL.map(Boundary::as_str).join(", "))]
pub struct ParseKillPointError {
    text: String,
}

impl FromStr for KillPoint {
    type Err = ParseKillPointError;

    fn from_str(text: &str) -> Result<Self, ParseKillPointError> {
        let parse = || {
            let (seq, name) = text.split_once(':')?;
            let boundary = Boundary::ALL.into_iter().find(|boundary| boundary.as_str() == name)?;
            Some(Self { seq: seq.parse().ok()?, boundary })
        };
        parse().ok_or_else(|| ParseKillPointError { text: text.to_owned() })
    }
}

/// Looks at the boundaries that a run crosses.
pub trait Boundaries: Send + Sync {
    /// The kill point that is armed, if one is. The runner settles everything before its step first.
    fn armed(&self) -> Option<KillPoint>;

    /// The run is at this point. Whoever armed it does not return.
    fn reached(&self, point: KillPoint);

    /// Whether [`crossed`](Self::crossed) is to be told of every point, and not of the armed one alone. Pure neighbours
    /// then run one after the other.
    fn watches(&self) -> bool {
        false
    }

    /// The run crosses a point at which nobody is killed.
    fn crossed(&self, point: KillPoint) {
        let _ = point;
    }
}

/// Nothing is armed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unarmed;

impl Boundaries for Unarmed {
    fn armed(&self) -> Option<KillPoint> {
        None
    }

    fn reached(&self, _: KillPoint) {}
}
