//! Input that is wrong: a clear error that names the thing and the next step, the documented exit code, nothing written.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{ffi::OsString, fs, path::Path};

use deed_tests::{Outcome, Sandbox, Tree};
use serde_json::{Value, json};

/// Usage.
const USAGE: i32 = 2;
/// Journal damaged, or no journal at all.
const DAMAGED: i32 = 6;

/// A sound batch, to be spoilt.
fn batch() -> Value {
    json!({
        "objective": "Write one file",
        "tools": ["fs"],
        "calls": [{ "tool": "write_file", "input": { "path": "b.txt", "content": "beta\n" } }]
    })
}

fn sandbox() -> Sandbox {
    Sandbox::with(&batch(), &[("a.txt", "alpha\n")])
}

/// The workspace's files and branches.
fn world(sandbox: &Sandbox) -> (Tree, Vec<(String, git2::Oid)>) {
    (sandbox.files(), sandbox.repository().references().unwrap())
}

/// The refusal: its code, `error: ` first, every one of `named` in it, nothing on stdout, nothing written.
#[track_caller]
fn refused(sandbox: &Sandbox, code: i32, named: &[&str], run: impl FnOnce() -> Outcome) {
    let before = world(sandbox);
    let outcome = run().expect_code(code);
    assert!(outcome.stderr.contains("error: "), "{outcome}");
    for name in named {
        assert!(outcome.stderr.contains(name), "`{name}` is not named: {outcome}");
    }
    assert_eq!(outcome.stdout, "", "{outcome}");
    assert!(!sandbox.journal().exists(), "a journal was made: {outcome}");
    assert_eq!(world(sandbox), before, "{outcome}");
}

#[track_caller]
fn refused_mission(mission: &Value, named: &[&str]) {
    let sandbox = sandbox();
    sandbox.set_mission(mission);
    refused(&sandbox, USAGE, named, || sandbox.run(None).run());
}

fn run_args(mission: &Path, workspace: &Path) -> [OsString; 4] {
    ["run".into(), mission.into(), "--workspace".into(), workspace.into()]
}

#[test]
fn a_mission_file_that_is_not_there() {
    let sandbox = sandbox();
    let missing = sandbox.root().join("no-such.json");
    let args = run_args(&missing, &sandbox.workspace());
    refused(&sandbox, USAGE, &[missing.to_str().unwrap()], || sandbox.deed(args).run());
}

#[test]
fn a_mission_that_is_not_json() {
    let sandbox = sandbox();
    fs::write(sandbox.mission(), "{ \"objective\": ").unwrap();
    refused(&sandbox, USAGE, &["mission.json", "line 1"], || sandbox.run(None).run());
}

#[test]
fn a_mission_with_an_unknown_field() {
    let mut mission = batch();
    mission["objectives"] = json!("Write one file");
    refused_mission(&mission, &["`objectives`"]);
}

#[test]
fn a_mission_without_its_objective() {
    let mut mission = batch();
    mission.as_object_mut().unwrap().remove("objective");
    refused_mission(&mission, &["`objective`"]);
}

#[test]
fn a_mission_with_both_a_model_and_calls() {
    let mut mission = batch();
    mission["model"] = json!({ "script": [] });
    refused_mission(&mission, &["`calls`", "`model`"]);
}

#[test]
fn a_mission_with_an_unknown_plugin() {
    let mut mission = batch();
    mission["tools"] = json!(["fs", "telepathy"]);
    refused_mission(&mission, &["`telepathy`", "shell"]);
}

#[test]
fn a_batch_with_an_unknown_tool() {
    let mut mission = batch();
    mission["calls"][0]["tool"] = json!("write_flie");
    refused_mission(&mission, &["`write_flie`", "write_file"]);
}

#[test]
fn a_batch_with_arguments_that_do_not_fit_the_schema() {
    let mut mission = batch();
    mission["calls"][0]["input"]["path"] = json!(7);
    refused_mission(&mission, &["`write_file`", "path"]);
}

#[test]
fn a_batch_with_an_unknown_argument() {
    let mut mission = batch();
    mission["calls"][0]["input"]["mode"] = json!("0644");
    refused_mission(&mission, &["`write_file`", "mode"]);
}

#[test]
fn a_policy_with_an_unknown_decision() {
    let mut mission = batch();
    mission["policy"] = json!([{ "tool": "write_file", "decision": "perhaps" }]);
    refused_mission(&mission, &["`perhaps`", "`ask`"]);
}

#[test]
fn a_call_of_an_unknown_tool() {
    let sandbox = sandbox();
    let call = sandbox.call("raed_file", &json!({ "path": "a.txt" }));
    refused(&sandbox, USAGE, &["`raed_file`", "read_file"], || call.run());
}

#[test]
fn a_call_whose_arguments_are_not_json() {
    let sandbox = sandbox();
    let call = sandbox.deed(["call", "read_file", "{path}"]);
    refused(&sandbox, USAGE, &["read_file", "JSON"], || call.run());
}

#[test]
fn a_call_whose_arguments_do_not_fit_the_schema() {
    let sandbox = sandbox();
    for (input, named) in [
        (json!({}), "path"),
        (json!({ "path": ["a.txt"] }), "path"),
        (json!({ "path": "a.txt", "encoding": "latin1" }), "encoding"),
        (json!("a.txt"), "object"),
    ] {
        let call = sandbox.call("read_file", &input);
        refused(&sandbox, USAGE, &["`read_file`", named], || call.run());
    }
}

#[test]
fn a_workspace_that_is_no_directory() {
    let sandbox = sandbox();
    for workspace in [sandbox.workspace().join("a.txt"), sandbox.root().join("nowhere")] {
        let args = run_args(&sandbox.mission(), &workspace);
        refused(&sandbox, USAGE, &[workspace.to_str().unwrap(), "directory"], || sandbox.deed(args).run());
    }
}

#[test]
fn a_journal_that_is_a_text_file() {
    let sandbox = sandbox();
    let journal = sandbox.root().join("notes.txt");
    fs::write(&journal, "Not a journal.\n").unwrap();
    let args = run_args(&sandbox.mission(), &sandbox.workspace());
    for deed in [sandbox.deed_on(&journal, args), sandbox.deed_on(&journal, ["runs"])] {
        refused(&sandbox, DAMAGED, &[journal.to_str().unwrap()], || deed.run());
    }
    assert_eq!(fs::read_to_string(&journal).unwrap(), "Not a journal.\n");
}

#[test]
fn a_journal_inside_the_workspace() {
    let sandbox = sandbox();
    for journal in [sandbox.workspace().join("journal.redb"), sandbox.workspace().join(".git/journal.redb")] {
        let args = run_args(&sandbox.mission(), &sandbox.workspace());
        let deed = sandbox.deed_on(&journal, args);
        refused(&sandbox, USAGE, &[journal.to_str().unwrap(), "workspace", "--journal"], || deed.run());
        assert!(!journal.exists());
    }
}

#[test]
fn a_backup_inside_a_workspace() {
    let sandbox = sandbox();
    let _ = sandbox.run(None).run().expect_code(0);
    let backup = sandbox.workspace().join("backup.redb");
    let outcome = sandbox.deed(["backup".as_ref(), backup.as_os_str()]).run().expect_code(USAGE);
    for named in [backup.to_str().unwrap(), "would be inside the workspace"] {
        assert!(outcome.stderr.contains(named), "{outcome}");
    }
    assert!(!backup.exists());
}

#[test]
fn a_run_and_a_step_that_are_not_there() {
    let sandbox = sandbox();
    let done: deed_tests::Envelope = sandbox.run(None).run().expect_code(0).json();
    for (args, named) in [
        (vec!["steps", "ffffffff"], "`ffffffff`"),
        (vec!["show", &done.run, "99"], "99"),
        (vec!["transcript", "ffffffff"], "`ffffffff`"),
    ] {
        let outcome = sandbox.deed(args).run().expect_code(USAGE);
        assert!(outcome.stderr.starts_with("error: ") && outcome.stderr.contains(named), "{outcome}");
    }
}

#[test]
fn flags_and_commands_that_are_not_there() {
    let sandbox = sandbox();
    for args in [vec!["rnu"], vec!["runs", "--al"], vec!["--format", "yaml", "runs"]] {
        let wrong = args.iter().find(|arg| ["rnu", "--al", "yaml"].contains(arg)).copied().unwrap();
        refused(&sandbox, USAGE, &[wrong], || sandbox.deed(args).run());
    }
}
