//! Crash-testing: kill a batch of calls everywhere, and say what each tool really does.
//!
//! A [`CrashTest`] runs a mission or a batch undisturbed, on a copy of everything. Then, for every step and every
//! [boundary](crate::boundary) that it crosses, it runs the same again, on copies of its own, as real processes of `deed`: one
//! that is killed there by SIGKILL, and as many fresh ones as it takes to finish. Questions are answered as the file says, else by
//! a settled rule. What is left, record and world, is compared with the undisturbed run.
//!
//! Beyond that it says of each tool whether it keeps the class that it declares: killed after it has executed, an idempotent
//! call is executed twice with one key from one state, and a pure one has to answer the same and change nothing.
//!
//! # In a test
//!
//! ```no_run
//! use deed::crash_test::CrashTest;
//!
//! # fn keeps_its_class() {
//! // `deed` is the binary: a path, or a name that is looked for in `PATH`.
//! let test = CrashTest::new("deed", "tests/batch.json").tools("target/wasm32-wasip2/release");
//! test.assert_holds();
//! # }
//! ```
//!
//! # Fault model
//! SIGKILL of a real process, at a point between two actions of the host: what the kernel was handed survives. With
//! [`power_cuts`](CrashTest::power_cuts) the journal's store also loses, tears and reorders what it had not synced; the
//! workspace does not. Controls, of which it is known what has to be found, are tried first.

mod case;
mod certificate;
mod controls;
mod difference;
mod error;
mod html;
mod judge;
mod junit;
mod mask;
mod observer;
mod owner;
mod passage;
mod place;
mod plan;
mod process;
mod remotes;
mod report;
mod snapshot;
mod summary;
mod sweep;
mod table;
mod tester;
mod tools;
mod trace;
mod world;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::boundary::Boundary;

pub use self::case::{Case, ParseCaseError};
pub use self::certificate::{Certificate, CertifiedTool};
pub use self::difference::{Difference, Verdict};
pub use self::error::CrashTestError;
pub use self::judge::{Finding, FindingKind};
pub use self::mask::Mask;
pub use self::passage::Asked;
pub use self::report::{CaseReport, Cell, Column, Control, OWN_STEPS, Report, ToolReport};
pub use self::trace::{ExecutedEnd, Trace, TraceLine};

/// Who is told how far it is.
pub trait Progress: Send + Sync {
    /// What is done now, before there are cases.
    fn phase(&self, what: &str) {
        let _ = what;
    }

    /// So many cases will be tried.
    fn begin(&self, cases: usize) {
        let _ = cases;
    }

    /// A case was tried.
    fn done(&self, case: &CaseReport) {
        let _ = case;
    }
}

/// Tells nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {}

/// A crash test in the making.
#[derive(Debug, Clone)]
#[must_use]
pub struct CrashTest {
    deed: PathBuf,
    file: PathBuf,
    workspace: Option<PathBuf>,
    tools: Option<PathBuf>,
    seed: u64,
    jobs: usize,
    double: bool,
    power_cuts: usize,
    sample: Option<usize>,
    only: Vec<String>,
    at: Vec<Boundary>,
    case: Option<Case>,
    keep: Option<PathBuf>,
    certificates: Option<PathBuf>,
    config_dir: Option<PathBuf>,
    variables: Vec<(OsString, OsString)>,
    controls: bool,
}

impl CrashTest {
    /// Of the mission or batch in `file`, with this binary of `deed`. Two cases at a time, seed 1, every point once.
    pub fn new(deed: impl Into<PathBuf>, file: impl Into<PathBuf>) -> Self {
        Self {
            deed: deed.into(),
            file: file.into(),
            workspace: None,
            tools: None,
            seed: 1,
            jobs: 2,
            double: false,
            power_cuts: 0,
            sample: None,
            only: Vec::new(),
            at: Vec::new(),
            case: None,
            keep: None,
            certificates: None,
            config_dir: None,
            variables: Vec::new(),
            controls: true,
        }
    }

    /// Another workspace than the file says. It is copied, and not touched.
    pub fn workspace(mut self, workspace: impl Into<PathBuf>) -> Self {
        self.workspace = Some(workspace.into());
        self
    }

    /// A directory of further plugins: every `*.wasm` in it.
    pub fn tools(mut self, tools: impl Into<PathBuf>) -> Self {
        self.tools = Some(tools.into());
        self
    }

    /// Where ids, samples and power cuts come from.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Cases at a time; at least one.
    pub fn jobs(mut self, jobs: usize) -> Self {
        self.jobs = jobs;
        self
    }

    /// Kill again at every point of the recovery.
    pub fn double(mut self) -> Self {
        self.double = true;
        self
    }

    /// Let the power go, in so many further cases, at an operation of the store that the seed chooses.
    pub fn power_cuts(mut self, cuts: usize) -> Self {
        self.power_cuts = cuts;
        self
    }

    /// Try only so many cases, which the seed chooses.
    pub fn sample(mut self, cases: usize) -> Self {
        self.sample = Some(cases);
        self
    }

    /// Kill only over the calls of this tool, and of others that are named in the same way.
    pub fn only(mut self, tool: impl Into<String>) -> Self {
        self.only.push(tool.into());
        self
    }

    /// Kill only at this point, and at others that are named in the same way.
    pub fn at(mut self, boundary: Boundary) -> Self {
        self.at.push(boundary);
        self
    }

    /// Try this case alone.
    pub fn case(mut self, case: Case) -> Self {
        self.case = Some(case);
        self
    }

    /// Keep the directories of cases that fail, below this one, each in place of an earlier one of its name.
    pub fn keep(mut self, directory: impl Into<PathBuf>) -> Self {
        self.keep = Some(directory.into());
        self
    }

    /// Leave a certificate for each component whose tools keep all they claim, in this directory. Only of a complete
    /// test.
    pub fn certificates(mut self, directory: impl Into<PathBuf>) -> Self {
        self.certificates = Some(directory.into());
        self
    }

    /// Where the user's own `deed.toml` is: whether the tools reach a server depends on it.
    pub fn config_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.config_dir = Some(directory.into());
        self
    }

    /// Set a variable of the environment of every process, beside those that this one has.
    pub fn variable(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Try no controls first. Then the report does not say whether the tester can be believed.
    pub fn without_controls(mut self) -> Self {
        self.controls = false;
        self
    }

    /// Make the test. Once `stop` is set, no process is left and no directory but those of failed cases, and the report
    /// is of what was tried by then.
    pub fn run(&self, progress: &dyn Progress, stop: &AtomicBool) -> Result<Report, CrashTestError> {
        let begun = Instant::now();
        let controls = if self.controls {
            progress.phase("controls");
            controls::judge(self, stop)?
        } else {
            Vec::new()
        };
        progress.phase("the undisturbed run");
        let tester = tester::Tester::new(self, stop)?;
        let tools = tools::read(tester.tools()?)?;
        let reference = tester.reference()?;
        let operations = if self.power_cuts > 0 && self.case.is_none() { tester.operations()? } else { 0 };
        let plan = plan::Plan::of(self, &reference, operations)?;
        progress.begin(plan.cases.len());
        let keep = (self.keep.as_deref(), progress);
        let tried = sweep::sweep(&tester, &reference, &tools, &plan.cases, self.jobs, keep)?;
        let (tools, findings) = summary::summarise(&reference, &tools, &tried);
        let interrupted = tried.len() < plan.cases.len();
        let fails = findings.iter().any(|finding| finding.kind.is_failure())
            || tried.iter().any(|tried| tried.report.fails)
            || controls.iter().any(|control| !control.holds());
        let mut report = Report {
            version: env!("CARGO_PKG_VERSION"),
            file: self.file.clone(),
            seed: self.seed,
            holds: !fails && !interrupted && !stop.load(Ordering::Relaxed),
            interrupted,
            planned: plan.cases.len(),
            complete: plan.complete && !interrupted,
            controls,
            tools,
            findings,
            cases: tried.into_iter().map(|tried| tried.report).collect(),
            masks: mask::MASKS.to_vec(),
            elapsed_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            certificates: Vec::new(),
        };
        for case in &mut report.cases {
            case.replay = self.replay(case.case);
        }
        if let Some(directory) = &self.certificates {
            report.certificates = certificate::issue(&report, directory)?;
        }
        Ok(report)
    }

    /// Make the test, and panic with the table when a claim does not hold, or it could not be made.
    ///
    /// # Panics
    /// Then.
    pub fn assert_holds(&self) {
        match self.run(&Silent, &AtomicBool::new(false)) {
            Ok(report) if report.holds => {}
            Ok(report) => panic!("{}", report.to_text()),
            Err(error) => panic!("`{}` could not be crash-tested: {error}", self.file.display()),
        }
    }

    /// The command that runs one case alone.
    fn replay(&self, case: Case) -> String {
        let mut command =
            format!("deed crash-test {} --case {case} --seed {}", quoted(&self.file), self.seed);
        for (flag, path) in [("--workspace", &self.workspace), ("--tools", &self.tools)] {
            if let Some(path) = path {
                let _ = write!(command, " {flag} {}", quoted(path));
            }
        }
        command
    }
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._/-+=:,@".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}
