//! What a process that is tested tells its tester, beside its results: a line of JSON for each point and each execution.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::boundary::KillPoint;
use crate::engine::CallEnd;

/// A line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceLine {
    /// The run crosses a point.
    Crossed(String),
    /// An attempt has executed; nothing is recorded of it yet.
    Executed {
        /// The step.
        seq: u64,
        /// The attempt.
        attempt: u32,
        /// How it ended.
        end: ExecutedEnd,
    },
    /// A command of a step left processes behind, which were ended with it.
    LeftBehind {
        /// The step.
        seq: u64,
        /// The command's program.
        program: String,
    },
    /// So many operations the store made of its medium.
    Operations(usize),
}

/// How an execution ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutedEnd {
    /// With this result.
    Completed(Value),
    /// With this error.
    Failed(String),
}

impl ExecutedEnd {
    /// Of a call that ended.
    pub fn of(end: &CallEnd) -> Self {
        match end {
            CallEnd::Completed(output) => {
                Self::Completed(serde_json::to_value(output).unwrap_or(Value::Null))
            }
            CallEnd::Failed(failure) => Self::Failed(failure.message.clone()),
            CallEnd::Aborted(abort) => Self::Failed(abort.message.clone()),
        }
    }
}

/// Where the lines go.
#[derive(Debug, Clone)]
pub struct Trace(PathBuf);

impl Trace {
    /// A trace in this file.
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Append a line.
    pub fn write(&self, line: &TraceLine) -> io::Result<()> {
        let text = serde_json::to_string(line)?;
        let mut file = OpenOptions::new().append(true).create(true).open(&self.0)?;
        // One write, so that a kill leaves whole lines.
        file.write_all(format!("{text}\n").as_bytes())
    }

    /// The lines of a file; none when there is none.
    pub fn read(path: &Path) -> io::Result<Vec<TraceLine>> {
        match fs::read_to_string(path) {
            Ok(text) => text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

/// The points among the lines.
pub(super) fn crossed(lines: &[TraceLine]) -> Vec<KillPoint> {
    let points = lines.iter().filter_map(|line| match line {
        TraceLine::Crossed(point) => point.parse().ok(),
        _ => None,
    });
    points.collect()
}
