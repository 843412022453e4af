//! The tester is tested first, on tools of which it is known what they do: one that repeats its effect, one that loses it,
//! and one that does neither.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde_json::json;

use super::difference::Verdict;
use super::report::{Column, Control, Report};
use super::{CrashTest, CrashTestError, Silent};
use crate::boundary::Boundary;

/// The component that holds them.
const COMPONENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/controls.wasm"));

/// A tool, what it is, where that shows, and as what.
const CONTROLS: [(&str, &str, Boundary, Verdict); 3] = [
    ("control_twice", "duplicator", Boundary::AfterExec, Verdict::Repeated),
    ("control_never", "loser", Boundary::MidExec, Verdict::Lost),
    ("control_once", "correct", Boundary::AfterExec, Verdict::Once),
];

/// Try the controls.
pub(super) fn judge(whole: &CrashTest, stop: &AtomicBool) -> Result<Vec<Control>, CrashTestError> {
    let root = tempfile::Builder::new().prefix("deed-crash-test-").tempdir();
    let root = root.map_err(CrashTestError::io("create a directory for", Path::new("the controls")))?;
    let (tools, workspace, file) =
        (root.path().join("tools"), root.path().join("workspace"), root.path().join("controls.json"));
    let write = |path: &Path, bytes: &[u8]| fs::write(path, bytes).map_err(CrashTestError::io("write", path));
    for directory in [&tools, &workspace] {
        fs::create_dir(directory).map_err(CrashTestError::io("create", directory))?;
    }
    write(&tools.join("controls.wasm"), COMPONENT)?;
    let calls: Vec<_> = CONTROLS
        .iter()
        .map(|(tool, ..)| json!({ "tool": tool, "input": { "path": format!("{tool}.log") } }))
        .collect();
    let batch = json!({ "objective": "Controls", "workspace": "workspace", "calls": calls });
    write(&file, batch.to_string().as_bytes())?;
    let mut test = CrashTest::new(&whole.deed, &file).tools(&tools).seed(whole.seed).jobs(whole.jobs);
    test = whole.variables.iter().fold(test, |test, (name, value)| test.variable(name, value));
    for (tool, _, boundary, _) in CONTROLS {
        test = test.only(tool).at(boundary);
    }
    let report = test.without_controls().run(&Silent, stop)?;
    if report.interrupted {
        return Err(CrashTestError::Stopped);
    }
    Ok(CONTROLS.iter().map(|control| read(&report, *control)).collect())
}

fn read(report: &Report, control: (&str, &'static str, Boundary, Verdict)) -> Control {
    let (tool, name, boundary, expected) = control;
    let found = report.cell(tool, Column::Point(boundary)).map(|cell| cell.worst);
    Control { name, expected, found }
}
