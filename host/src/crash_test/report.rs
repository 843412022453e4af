//! What a crash test found.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use deed_journal::{Digest, EffectClass};
use serde::Serialize;

use super::case::Case;
use super::difference::{Difference, Verdict};
use super::judge::Finding;
use super::mask::Mask;
use super::passage::Asked;
use crate::boundary::Boundary;

/// What a crash test found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The version of deed.
    pub version: &'static str,
    /// The mission or batch.
    pub file: PathBuf,
    /// Where everything random came from.
    pub seed: u64,
    /// Whether every claim holds, every point was reached, and the tester itself can be believed.
    pub holds: bool,
    /// It was stopped: not every case was tried.
    pub interrupted: bool,
    /// Cases in all, those not tried included.
    pub planned: usize,
    /// Every point of every step, each once, and nothing left out by choice.
    pub complete: bool,
    /// What the tester made of tools that are known.
    pub controls: Vec<Control>,
    /// What was swept of each tool.
    pub tools: Vec<ToolReport>,
    /// What was found.
    pub findings: Vec<Finding>,
    /// Every case that was tried.
    pub cases: Vec<CaseReport>,
    /// What was not compared as it stands.
    pub masks: Vec<Mask>,
    /// How long it took, in milliseconds.
    pub elapsed_ms: u64,
    /// Certificates that were left.
    pub certificates: Vec<PathBuf>,
}

/// A tool that is known, and whether the tester told what it is.
#[derive(Debug, Clone, Serialize)]
pub struct Control {
    /// What it is: `duplicator`, `loser`, `correct`.
    pub name: &'static str,
    /// What the tester has to see.
    pub expected: Verdict,
    /// What it saw.
    pub found: Option<Verdict>,
}

impl Control {
    /// Whether it told what it is.
    pub fn holds(&self) -> bool {
        self.found == Some(self.expected)
    }
}

/// What was swept of one tool.
#[derive(Debug, Clone, Serialize)]
pub struct ToolReport {
    /// Its name.
    pub name: String,
    /// Its plugin.
    pub plugin: String,
    /// Its component.
    pub digest: Option<Digest>,
    /// The class it declares.
    pub declared: EffectClass,
    /// The classes its calls had.
    pub called: Vec<EffectClass>,
    /// Whether some of its calls were contained.
    pub contained: bool,
    /// Whether it has a probe.
    pub probes: bool,
    /// Calls in the run.
    pub calls: usize,
    /// Whether all its claims hold, as far as they were tried.
    pub holds: bool,
}

/// One case.
#[derive(Debug, Clone, Serialize)]
pub struct CaseReport {
    /// The case.
    pub case: Case,
    /// The step that it is about.
    pub seq: Option<u64>,
    /// The tool that it is about; none when it is a step of the host's own.
    pub tool: Option<String>,
    /// The step, `kind/name`.
    pub step: Option<String>,
    /// Where the first process was killed.
    #[serde(serialize_with = "boundary")]
    pub boundary: Option<Boundary>,
    /// What it came to.
    pub verdict: Verdict,
    /// Whether a claim does not hold.
    pub fails: bool,
    /// Processes that worked on the run.
    pub processes: usize,
    /// How many of them were killed.
    pub kills: usize,
    /// What the owner was asked.
    pub asked: Vec<Asked>,
    /// What was found.
    pub messages: Vec<String>,
    /// What is not as in the undisturbed run.
    pub differences: Vec<Difference>,
    /// Where everything of it is kept.
    pub kept: Option<PathBuf>,
    /// The command that runs it alone.
    pub replay: String,
}

#[expect(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "serde hands it over like this")]
fn boundary<S: serde::Serializer>(boundary: &Option<Boundary>, serializer: S) -> Result<S::Ok, S::Error> {
    boundary.map(Boundary::as_str).serialize(serializer)
}

/// The row of steps that are no calls of a plugin's tool.
pub const OWN_STEPS: &str = "deed's own steps";

/// A cell of the table: what the cases of one tool at one point came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// The worst of them.
    pub worst: Verdict,
    /// How many came to that.
    pub count: usize,
    /// How many there are.
    pub of: usize,
}

impl Cell {
    /// As the table shows it.
    pub fn text(self) -> String {
        let word = self.worst.as_str();
        match (self.count, self.of) {
            (_, 1) => word.to_owned(),
            (count, of) if count == of => format!("{word} {of}x"),
            (count, of) => format!("{word} {count}/{of}"),
        }
    }
}

impl Report {
    /// The rows of the table: every tool, the host's own steps, and power cuts, as far as there are cases of them.
    pub fn rows(&self) -> Vec<String> {
        let mut rows: Vec<String> = self.tools.iter().map(|tool| tool.name.clone()).collect();
        rows.push(OWN_STEPS.to_owned());
        rows.retain(|row| self.cases.iter().any(|case| case.row() == row));
        rows
    }

    /// The columns: every point, and power cuts when there are any.
    pub fn columns(&self) -> Vec<Column> {
        let mut columns: Vec<_> = Boundary::ALL.into_iter().map(Column::Point).collect();
        if self.cases.iter().any(|case| case.boundary.is_none()) {
            columns.push(Column::Power);
        }
        columns
    }

    /// A cell; none where no case is.
    pub fn cell(&self, row: &str, column: Column) -> Option<Cell> {
        let verdicts: Vec<_> = self.of_cell(row, column).map(|case| case.verdict).collect();
        let worst = verdicts.iter().copied().max()?;
        let count = verdicts.iter().filter(|verdict| **verdict == worst).count();
        Some(Cell { worst, count, of: verdicts.len() })
    }

    /// The cases of a cell.
    pub fn of_cell(&self, row: &str, column: Column) -> impl Iterator<Item = &CaseReport> {
        let point = match column {
            Column::Point(boundary) => Some(boundary),
            Column::Power => None,
        };
        self.cases.iter().filter(move |case| case.row() == row && case.boundary == point)
    }

    /// The findings that fail, then notes and suggestions.
    pub fn failures(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.kind.is_failure())
    }
}

/// A column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// A kill point.
    Point(Boundary),
    /// The power goes.
    Power,
}

impl Column {
    /// Its heading.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Point(boundary) => boundary.as_str(),
            Self::Power => "power cut",
        }
    }
}

impl CaseReport {
    /// The row that it belongs to.
    pub fn row(&self) -> &str {
        self.tool.as_deref().unwrap_or(OWN_STEPS)
    }
}

/// Findings of several cases that say the same of a tool are one.
pub(super) fn merge(found: Vec<Finding>) -> Vec<Finding> {
    let mut merged: BTreeMap<(String, super::FindingKind), Finding> = BTreeMap::new();
    for finding in found {
        let key = (finding.tool.clone(), finding.kind);
        match merged.get_mut(&key) {
            Some(known) => known.cases.extend(finding.cases),
            None => {
                merged.insert(key, finding);
            }
        }
    }
    let mut all: Vec<_> = merged.into_values().collect();
    all.sort_by_key(|finding| !finding.kind.is_failure());
    all
}

/// The tools of whom something fails.
pub(super) fn accused(findings: &[Finding]) -> BTreeSet<&str> {
    let failing = findings.iter().filter(|finding| finding.kind.is_failure());
    failing.map(|finding| finding.tool.as_str()).collect()
}
