//! `deed crash-test`: what it finds, whom it does not accuse, and what it leaves.
//!
//! Fault model: that of the command itself, SIGKILL of real processes at the points that a run crosses. Nothing is drawn at
//! random but where a seed is named. The controls of the command are its own; those of this file are the guests in
//! `tests/guests/claims`, of each of which it is known what has to be found.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "what a sweep came to is worth knowing")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use deed::boundary::Boundary;
use deed::crash_test::{Column, Silent};
use deed_tests::guests::CLAIMS;
use deed_tests::receiver::Receiver;
use deed_tests::{Deed, Repository, Sandbox, deed_binary};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// A sandbox with a batch, and the guests that are not what they claim.
fn claims(calls: &Value) -> Sandbox {
    let batch = json!({
        "objective": "Claims",
        "calls": calls,
        // What is contained happens once, whatever the tool does.
        "policy": [{ "tool": "*", "decision": "allow", "contain": "never" }],
    });
    let sandbox = Sandbox::with(&batch, &[("a.txt", "a\n")]);
    sandbox.install("claims", CLAIMS);
    sandbox
}

/// `deed crash-test` of a sandbox's mission.
fn crash_test(sandbox: &Sandbox, args: &[&str]) -> Deed {
    let deed = sandbox.deed(["crash-test", sandbox.mission().to_str().unwrap()]);
    deed.args(["--workspace", sandbox.workspace().to_str().unwrap()]).args(args)
}

/// The messages about a tool, of this kind.
fn findings<'a>(report: &'a Value, tool: &str, kind: &str) -> Vec<&'a str> {
    let all = report["findings"].as_array().unwrap().iter();
    let fitting = all.filter(|finding| finding["tool"] == tool && finding["kind"] == kind);
    fitting.map(|finding| finding["message"].as_str().unwrap()).collect()
}

/// The verdicts of a tool's cases, by point.
fn verdicts(report: &Value, tool: &str, boundary: &str) -> Vec<String> {
    let all = report["cases"].as_array().unwrap().iter();
    let fitting = all.filter(|case| case["tool"] == tool && case["boundary"] == boundary);
    fitting.map(|case| case["verdict"].as_str().unwrap().to_owned()).collect()
}

/// No directory of a crash test is left where its processes put theirs.
#[track_caller]
fn assert_nothing_left(sandbox: &Sandbox) {
    let left: Vec<_> = fs::read_dir(sandbox.home())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("deed-crash-test-"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn c05_a_tool_that_appends_and_claims_to_be_idempotent_is_named_with_the_difference() {
    let sandbox = claims(&json!([{ "tool": "appends", "input": { "path": "counter.log" } }]));
    let outcome = crash_test(&sandbox, &["--format", "text"]).run().expect_code(1);
    let expected =
        "`appends`: declared `idempotent`, observed 2 effects: `counter.log` differs: has one more `tick`";
    assert!(outcome.stdout.contains(expected), "{outcome}");
    assert!(outcome.stdout.contains("again: deed crash-test "), "{outcome}");
    // The workspace itself is as it was.
    assert_eq!(sandbox.files().paths(), ["a.txt"]);
    assert!(!sandbox.journal().exists());
    assert_nothing_left(&sandbox);
}

#[test]
fn each_guest_that_is_not_what_it_claims_is_named_and_no_other_one() {
    let sandbox = claims(&json!([
        { "tool": "ignores_receipt", "input": { "path": "receipt.log" } },
        { "tool": "first_attempt_only", "input": { "path": "first.log" } },
        { "tool": "leaves_child", "input": {} },
        { "tool": "moody", "input": { "path": "first.log" } },
        { "tool": "lying_probe", "input": { "path": "lying.log" } },
        { "tool": "trapping_probe", "input": { "path": "trapping.log" } },
        { "tool": "honest_probe", "input": { "path": "honest.log" } },
        { "tool": "no_probe", "input": { "path": "blind.log" } },
    ]));
    let tools = [
        ("ignores_receipt", "ignores-receipt", "is handed the receipt of attempt 1 and begins anew"),
        ("first_attempt_only", "first-attempt-only", "attempt 2 fails where attempt 1 completes"),
        ("leaves_child", "leaves-process", "when `sh` ended, others that it had started still ran"),
        ("moody", "answers", "declared `pure`, answers differently when it is executed again"),
        ("lying_probe", "probe-lies", "says `not-landed` of attempt 1, which had completed"),
        ("trapping_probe", "probe-fails", "its probe of attempt 1 does not come to an answer"),
    ];
    let only: Vec<_> = tools.iter().map(|(tool, ..)| *tool).chain(["honest_probe", "no_probe"]).collect();
    let args: Vec<_> = only.iter().flat_map(|tool| ["--only", *tool]).collect();
    let report: Value = crash_test(&sandbox, &args).run().expect_code(1).json();
    for (tool, kind, words) in tools {
        let found = findings(&report, tool, kind);
        assert!(found.iter().any(|message| message.contains(words)), "{tool}: {found:?} in {report:#}");
    }
    // Each is accused of that alone, and the others of nothing.
    let failing = report["tools"].as_array().unwrap().iter().filter(|tool| tool["holds"] == false);
    let failing: Vec<_> = failing.map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(failing, tools.map(|(tool, ..)| tool), "{report:#}");
    let kinds = report["findings"].as_array().unwrap().iter();
    let harmless = ["note", "suggestion"];
    let kinds = kinds.filter(|finding| !harmless.contains(&finding["kind"].as_str().unwrap()));
    assert_eq!(kinds.count(), tools.len(), "{report:#}");
    assert_eq!(verdicts(&report, "no_probe", "after_exec"), ["asked"]);
    assert_eq!(verdicts(&report, "honest_probe", "after_exec"), ["once"]);
    let note = &findings(&report, "no_probe", "note")[0];
    assert_eq!(*note, "declared `non-idempotent`, no probe: 2 of 5 points end with a question");
    assert!(report["controls"].as_array().unwrap().iter().all(|it| it["found"] == it["expected"]));
    assert_nothing_left(&sandbox);
}

/// One call of each tool of the standard plugins that reaches nothing beyond a workspace with a remote.
fn standard() -> Sandbox {
    let sandbox = Sandbox::bare();
    fs::write(sandbox.workspace().join("a.txt"), "one\ntwo\n").unwrap();
    Repository::init(&sandbox.workspace());
    let remote = sandbox.root().join("remote.git");
    git2::Repository::init_bare(&remote).unwrap();
    let remote = remote.to_str().unwrap();
    git2::Repository::open(sandbox.workspace()).unwrap().remote("origin", remote).unwrap();
    sandbox.set_mission(&json!({
        "objective": "One of each",
        "grants": [{ "tool": "git_push", "remotes": [remote] }],
        "calls": [
            { "tool": "read_file", "input": { "path": "a.txt" } },
            { "tool": "list_dir", "input": { "path": "." } },
            { "tool": "search", "input": { "pattern": "two" } },
            { "tool": "write_file", "input": { "path": "b.txt", "content": "b\n" } },
            { "tool": "edit_file", "input": { "path": "a.txt", "old": "one", "new": "1" } },
            { "tool": "shell", "input": { "command": "echo tick >> counter.log" } },
            { "tool": "git_status", "input": {} },
            { "tool": "git_diff", "input": {} },
            { "tool": "git_commit", "input": { "message": "All of it" } },
            { "tool": "git_log", "input": {} },
            { "tool": "git_push", "input": { "to": "main" } },
        ]
    }));
    sandbox
}

fn no_standard_plugin_is_accused(seed: u64, power_cuts: usize) {
    let sandbox = standard();
    let report = sandbox.crash_test().seed(seed).power_cuts(power_cuts).run(&Silent, &AtomicBool::new(false));
    let report = report.unwrap();
    println!("seed {seed}: {}", report.summary());
    assert!(report.holds, "{}", report.to_text());
    // The remote that was granted is not the one that was pushed to.
    let remote = git2::Repository::open_bare(sandbox.root().join("remote.git")).unwrap();
    assert_eq!(remote.references().unwrap().count(), 0);
    assert_nothing_left(&sandbox);
}

#[test]
fn no_standard_plugin_is_accused_at_any_point() {
    no_standard_plugin_is_accused(1, 0);
}

#[test]
#[ignore = "minutes: `make fuzz`"]
fn no_standard_plugin_is_accused_over_twenty_seeds() {
    for seed in 1..=20 {
        no_standard_plugin_is_accused(seed, 20);
    }
}

#[test]
fn the_reference_mission_holds_at_every_point_of_its_calls() {
    let sandbox = Sandbox::of("fix-add");
    let tools = ["write_file", "edit_file", "shell", "git_commit", "git_status", "read_file", "list_dir"];
    let test = tools.iter().fold(sandbox.crash_test().without_controls(), |test, tool| test.only(*tool));
    let report = test.run(&Silent, &AtomicBool::new(false)).unwrap();
    assert!(report.holds, "{}", report.to_text());
    for tool in tools {
        assert!(report.cell(tool, Column::Point(Boundary::AfterExec)).is_some(), "{tool}");
    }
}

#[test]
fn a_request_to_a_server_is_asked_about_and_each_case_has_a_key_of_its_own() {
    let receiver = Receiver::appending();
    let url = receiver.url("/orders");
    let sandbox = Sandbox::with(
        &json!({
            "objective": "Order",
            "grants": [{ "tool": "*", "hosts": [receiver.origin()] }],
            "calls": [{ "tool": "http_send", "input": { "method": "POST", "url": url, "body": "one" } }],
        }),
        &[],
    );
    let report: Value = crash_test(&sandbox, &["--only", "http_send"]).run().expect_code(0).json();
    assert_eq!(verdicts(&report, "http_send", "after_exec"), ["asked"], "{report:#}");
    // Two undisturbed runs, and one for each case: nobody ordered twice.
    let keys: Vec<_> = receiver
        .received()
        .iter()
        .map(|request| request.header("idempotency-key").unwrap().to_owned())
        .collect();
    let mut distinct = keys.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), keys.len(), "{keys:?}");
    assert_eq!(keys.len(), report["cases"].as_array().unwrap().len() + 2, "{report:#}");
}

#[test]
fn an_observer_shows_what_is_in_no_file_and_stands_where_no_tool_reaches_it() {
    let sandbox = claims(&json!([{ "tool": "appends", "input": { "path": "counter.log" } }]));
    let observe = |command: &Value| {
        let mut batch: Value = serde_json::from_str(&fs::read_to_string(sandbox.mission()).unwrap()).unwrap();
        batch["observe"] = json!([{ "name": "lines", "command": command }]);
        sandbox.set_mission(&batch);
    };
    observe(&json!(["sh", "-c", "wc -l < \"$DEED_WORKSPACE/counter.log\""]));
    let report: Value = crash_test(&sandbox, &["--at", "after_exec"]).run().expect_code(1).json();
    let differences =
        report["cases"].as_array().unwrap().iter().flat_map(|case| case["differences"].as_array().unwrap());
    let observed: Vec<_> = differences.filter(|difference| difference["part"] == "observe lines").collect();
    assert_eq!(observed.len(), 1, "{report:#}");
    assert_eq!(observed[0]["verdict"], "repeated");
    // A mission with these sections still runs.
    let _ = sandbox.run(None).run().expect_code(0);

    fs::write(sandbox.workspace().join("observer.sh"), "#!/bin/sh\necho all is well\n").unwrap();
    observe(&json!(["./workspace/observer.sh"]));
    let refused = crash_test(&sandbox, &[]).run().expect_code(2);
    assert!(refused.stderr.contains("which lies in the workspace"), "{refused}");
}

#[test]
fn what_differs_without_any_kill_is_said_and_not_compared() {
    let sandbox = claims(&json!([{ "tool": "appends", "input": { "path": "counter.log" } }]));
    let count = sandbox.root().join("count");
    let mut batch: Value = serde_json::from_str(&fs::read_to_string(sandbox.mission()).unwrap()).unwrap();
    let script = format!("echo x >> '{0}'; wc -l < '{0}'", count.display());
    batch["observe"] = json!([{ "name": "clock", "command": ["sh", "-c", script] }]);
    sandbox.set_mission(&batch);
    let report: Value = crash_test(&sandbox, &["--at", "after_commit"]).run().expect_code(0).json();
    let notes = findings(&report, "deed's own steps", "note");
    assert!(notes.iter().any(|note| note.contains("`observe clock` differs")), "{report:#}");
}

#[test]
fn a_case_is_run_again_alone_by_the_command_that_the_report_names() {
    let sandbox = claims(&json!([{ "tool": "appends", "input": { "path": "counter.log" } }]));
    let report: Value = crash_test(&sandbox, &["--at", "after_exec"]).run().expect_code(1).json();
    let failing = report["cases"].as_array().unwrap().iter().find(|case| case["fails"] == true).unwrap();
    let (case, replay) = (failing["case"].as_str().unwrap(), failing["replay"].as_str().unwrap());
    assert!(replay.ends_with(&format!("--tools {}", sandbox.tools().display())), "{replay}");
    let again: Value = crash_test(&sandbox, &["--case", case]).run().expect_code(1).json();
    assert_eq!(again["cases"].as_array().unwrap().len(), 1);
    assert_eq!(again["cases"][0]["verdict"], "repeated");
    let kept = Path::new(again["cases"][0]["kept"].as_str().unwrap());
    assert_eq!(fs::read_to_string(kept.join("workspace/counter.log")).unwrap(), "tick\ntick\n");
}

#[test]
fn what_cannot_be_tested_is_refused_with_its_reason() {
    let calls = json!([{ "tool": "appends", "input": { "path": "counter.log" } }]);
    let sandbox = claims(&calls);
    let refused = |args: &[&str], words: &str| {
        let outcome = crash_test(&sandbox, args).run().expect_code(2);
        assert!(outcome.stderr.contains(words), "{outcome}");
    };
    refused(&["--only", "write_file"], "no call of `write_file` in this run");
    // It saves no receipt, so the point is not there, and nothing may pass for tested.
    refused(&["--case", "3:after_receipt"], "the undisturbed run does not cross this point");
    refused(&["--only", "appends", "--at", "after_receipt"], "the run crosses none of these points");
    refused(&["--case", "3:somewhere"], "is no case");
    refused(&["--at", "somewhere"], "expected one of before_intent");
    refused(&["--sample", "0"], "take at least 1");
    sandbox.set_mission(&json!({
        "objective": "Push",
        "grants": [{ "tool": "git_push", "remotes": ["https://git.example.org/team/project.git"] }],
        "calls": [],
    }));
    refused(&[], "remote `https://git.example.org/team/project.git` is not on this machine");
    assert_nothing_left(&sandbox);
}

#[test]
fn the_power_may_go_and_a_recovery_may_be_killed_too() {
    let sandbox = Sandbox::with(
        &json!({ "objective": "Write", "calls": [
            { "tool": "write_file", "input": { "path": "a.txt", "content": "a\n" } },
            { "tool": "shell", "input": { "command": "echo tick >> counter.log" } },
        ] }),
        &[],
    );
    let args = ["--double", "--storage", "20", "--sample", "40", "--seed", "3"];
    let report: Value = crash_test(&sandbox, &args).run().expect_code(0).json();
    let named = |part: &str| {
        let cases = report["cases"].as_array().unwrap().iter();
        cases.filter(|case| case["case"].as_str().unwrap().contains(part)).count()
    };
    assert!(named("power:") > 0 && named("+") > 0, "{report:#}");
}

#[test]
fn a_passed_test_leaves_a_certificate_that_is_bound_to_the_component() {
    let sandbox = Sandbox::with(
        &json!({ "objective": "Write", "calls": [
            { "tool": "write_file", "input": { "path": "a.txt", "content": "a\n" } } ] }),
        &[],
    );
    let tool = |name: &str| -> Value {
        let tools: Vec<Value> = sandbox.deed(["tools"]).run().expect_code(0).json();
        tools.into_iter().find(|tool| tool["name"] == name).unwrap()
    };
    // A part of a test certifies nothing.
    let _ = crash_test(&sandbox, &["--at", "after_exec"]).run().expect_code(0);
    assert_eq!(tool("write_file")["crash_tested"], Value::Null);
    let _ = crash_test(&sandbox, &["--seed", "9"]).run().expect_code(0);
    let certificate = &tool("write_file")["crash_tested"];
    assert_eq!(certificate["component"], tool("write_file")["digest"]);
    assert_eq!((&certificate["seed"], &certificate["tools"][0]["name"]), (&json!(9), &json!("write_file")));
    assert_eq!(certificate["tools"][0]["cases"]["after_exec"], 1);
    assert_eq!(tool("shell")["crash_tested"], Value::Null);
}

#[test]
fn reports_are_written_as_junit_and_as_a_page() {
    let sandbox = claims(&json!([{ "tool": "appends", "input": { "path": "<b>.log" } }]));
    let (page, junit) = (sandbox.root().join("report.html"), sandbox.root().join("junit.xml"));
    let args = ["--report", page.to_str().unwrap(), "--junit", junit.to_str().unwrap(), "--at", "after_exec"];
    let _ = crash_test(&sandbox, &args).run().expect_code(1);
    let junit = fs::read_to_string(junit).unwrap();
    assert!(
        junit.contains(r#"<testsuite name="appends" tests="1" skipped="0" errors="0" failures="1">"#),
        "{junit}"
    );
    assert!(junit.contains("&lt;b&gt;.log"), "{junit}");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("&lt;b&gt;.log") && !page.contains("<b>.log"), "what a tool chose is text");
    for word in ["<script", "http:", "https:", "src=", "url("] {
        assert!(!page.contains(word), "the page asks for nothing: {word}");
    }
}

#[test]
fn it_can_be_used_in_a_test() {
    let sandbox = claims(&json!([{ "tool": "honest_probe", "input": { "path": "honest.log" } }]));
    sandbox.crash_test().only("honest_probe").assert_holds();
}

#[test]
#[should_panic(expected = "observed 2 effects")]
fn a_test_that_uses_it_fails_with_the_table() {
    let sandbox = claims(&json!([{ "tool": "appends", "input": { "path": "counter.log" } }]));
    sandbox.crash_test().only("appends").without_controls().assert_holds();
}

/// Every process that has a word of its command line or its directory below `root`.
fn processes_below(root: &Path) -> Vec<String> {
    let root = root.to_str().unwrap();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_str().unwrap().parse::<u32>() else { continue };
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let directory = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
        if line.contains(root) || directory.starts_with(root) {
            found.push(format!("{pid}: {line}"));
        }
    }
    found
}

#[test]
fn a_signal_at_any_time_leaves_no_process_and_no_directory_and_shows_what_was_tried() {
    // How many lines of its standard error it has written when the signal comes: none, the number of cases, a failed case.
    for lines in [0, 1, 2] {
        let sandbox = claims(&json!([
            { "tool": "appends", "input": { "path": "counter.log" } },
            { "tool": "shell", "input": { "command": "sleep 0.2; echo tick >> tick.log" } },
        ]));
        let mut command = Command::new(deed_binary());
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", sandbox.home())
            .env("TMPDIR", sandbox.home())
            .arg("crash-test")
            .arg(sandbox.mission())
            .arg("--workspace")
            .arg(sandbox.workspace())
            .arg("--tools")
            .arg(sandbox.tools())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        for _ in 0..lines {
            said.read_line(&mut String::new()).unwrap();
        }
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        if lines > 0 {
            assert_eq!(output.status.code(), Some(1));
            assert!(stdout.contains(" cases, seed 1, ") && stdout.contains(": stopped; "), "{stdout}");
            assert!(stdout.contains("before_intent"), "the table is there: {stdout}");
        }
        assert_nothing_left(&sandbox);
        let left = processes_below(sandbox.root());
        assert!(left.is_empty(), "{left:?}");
    }
}
