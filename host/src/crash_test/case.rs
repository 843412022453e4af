//! What is tried: where a run is killed, or where the power goes.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::boundary::{Boundary, KillPoint};

/// One case, written `5:after_exec`, `5:after_exec+mid_exec` or `power:17:3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Case {
    /// The process is killed there.
    Kill(KillPoint),
    /// The process is killed at the first point, and the one that recovers it at the second of the same step.
    Double(KillPoint, Boundary),
    /// The power goes at this operation of the store; the seed decides which unsynced writes are lost, torn or
    /// reordered.
    PowerCut {
        /// The operation, counted from 0.
        operation: usize,
        /// Decides what is left.
        seed: u64,
    },
}

impl Case {
    /// The step it is about; a power cut is about whichever is under way.
    pub fn seq(self) -> Option<u64> {
        match self {
            Self::Kill(point) | Self::Double(point, _) => Some(point.seq),
            Self::PowerCut { .. } => None,
        }
    }

    /// Where the first process is killed.
    pub fn first(self) -> Option<KillPoint> {
        match self {
            Self::Kill(point) | Self::Double(point, _) => Some(point),
            Self::PowerCut { .. } => None,
        }
    }

    /// Where the process that recovers is killed.
    pub fn second(self) -> Option<KillPoint> {
        match self {
            Self::Double(point, boundary) => Some(KillPoint { seq: point.seq, boundary }),
            Self::Kill(_) | Self::PowerCut { .. } => None,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill(point) => write!(f, "{point}"),
            Self::Double(point, second) => write!(f, "{point}+{}", second.as_str()),
            Self::PowerCut { operation, seed } => write!(f, "power:{operation}:{seed}"),
        }
    }
}

/// Text that is no case.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no case: expected SEQ:POINT, SEQ:POINT+POINT or power:OPERATION:SEED, where POINT is one of {}", Boundary::ALL.map(Boundary::as_str).join(", "))]
pub struct ParseCaseError {
    text: String,
}

impl FromStr for Case {
    type Err = ParseCaseError;

    fn from_str(text: &str) -> Result<Self, ParseCaseError> {
        let parse = || {
            if let Some(cut) = text.strip_prefix("power:") {
                let (operation, seed) = cut.split_once(':')?;
                return Some(Self::PowerCut { operation: operation.parse().ok()?, seed: seed.parse().ok()? });
            }
            let Some((first, second)) = text.split_once('+') else {
                return Some(Self::Kill(text.parse().ok()?));
            };
            let first: KillPoint = first.parse().ok()?;
            let second: KillPoint = format!("{}:{second}", first.seq).parse().ok()?;
            Some(Self::Double(first, second.boundary))
        };
        parse().ok_or_else(|| ParseCaseError { text: text.to_owned() })
    }
}

impl Serialize for Case {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_read_as_it_is_written() {
        for text in ["5:after_exec", "12:mid_exec+before_intent", "power:17:3"] {
            assert_eq!(text.parse::<Case>().unwrap().to_string(), text);
        }
        for text in ["", "5", "5:after", "5:after_exec+", "power:1", "power:x:1", "x:after_exec"] {
            assert!(text.parse::<Case>().is_err(), "{text}");
        }
    }
}
