//! `deed call`: one call, its key, and what a second call finds when the process of the first one died.
//!
//! Fault model: as in `kills.rs`. In the run of a call the policy is step 1 and the call itself step 2.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use deed_tests::{CallReply, Ending, Envelope, Kill, Outcome, Point, RunRow, Sandbox, Wait, shape};
use serde_json::{Value, json};

/// The step of a call in its run.
const CALL: u64 = 2;

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::bare().uncontained();
    fs::write(sandbox.workspace().join("a.txt"), "alpha\n").unwrap();
    sandbox
}

/// A command whose effect can be counted, and whose output tells the count.
fn tick() -> Value {
    json!({ "command": "echo tick >> counter.log; wc -l < counter.log" })
}

#[track_caller]
fn ticks(sandbox: &Sandbox) -> usize {
    let files = sandbox.files();
    if files.paths().contains(&"counter.log") { files.text("counter.log").lines().count() } else { 0 }
}

#[track_caller]
fn reply(outcome: &Outcome) -> CallReply {
    outcome.json()
}

fn runs(sandbox: &Sandbox) -> Vec<RunRow> {
    sandbox.deed(["runs"]).run().expect_code(0).json()
}

/// A call whose process dies at `point`.
#[track_caller]
fn killed(sandbox: &Sandbox, tool: &str, input: &Value, point: Point, key: Option<&str>) {
    let kill = Kill::new(CALL, point).to_string();
    let deed = sandbox.call(tool, input).args(["--kill-at", &kill]);
    let deed = match key {
        Some(key) => deed.args(["--key", key]),
        None => deed,
    };
    let outcome = deed.run();
    assert_eq!(outcome.ending, Ending::KILLED, "{outcome}");
    assert_eq!(outcome.stdout, "", "nothing was said before it died");
}

#[test]
fn a_result_is_text_for_people() {
    let sandbox = sandbox();
    let read = sandbox.call("read_file", &json!({ "path": "a.txt" })).args(["--format", "text"]);
    let read = read.run().expect_code(0);
    assert_eq!((read.stdout.as_str(), read.stderr.as_str()), ("alpha\n", ""));

    let missing = sandbox.call("read_file", &json!({ "path": "b.txt" })).args(["--format", "text"]);
    let missing = missing.run().expect_code(1);
    assert_eq!(missing.stdout, "");
    assert!(missing.stderr.starts_with("error: ") && missing.stderr.contains("`b.txt`"), "{missing}");
}

#[test]
fn a_result_is_one_value_for_programs() {
    let sandbox = sandbox();
    let ran = reply(&sandbox.call("shell", &tick()).run().expect_code(0));
    assert_eq!((ran.status.as_str(), ran.seq, ran.joined), ("completed", CALL, false));
    assert_eq!((&ran.error, &ran.waits[..]), (&None, &[][..]));
    assert_eq!(ran.text(), "exit code 0\n1\n");
    let output = ran.output.unwrap();
    assert_eq!(output.structured.unwrap()["exit_code"], 0);
    assert!(!output.landed_before);
    assert_eq!(shape(&sandbox.steps(&ran.run)), "1:policy/snapshot:completed\n2:tool_call/shell:completed\n");

    let failed = reply(&sandbox.call("read_file", &json!({ "path": "b.txt" })).run().expect_code(1));
    assert_eq!((failed.status.as_str(), failed.output), ("failed", None));
    let error = failed.error.unwrap();
    assert_eq!((error.kind.as_str(), error.effect.as_str()), ("not-found", "not-applied"));
}

#[test]
fn the_exit_code_of_a_command_is_an_output_and_no_failure() {
    let ran = reply(&sandbox().call("shell", &json!({ "command": "exit 3" })).run().expect_code(0));
    assert_eq!(ran.text(), "exit code 3\n");
}

#[test]
fn a_call_is_a_run_like_any_other() {
    let sandbox = sandbox();
    let ran = reply(&sandbox.call("shell", &tick()).run().expect_code(0));
    let ended: Envelope = sandbox.deed(["resume", &ran.run]).run().expect_code(0).json();
    assert_eq!((ended.status.as_str(), ended.usage.calls, ended.usage.turns), ("done", 1, 0));
    assert_eq!(ticks(&sandbox), 1);
}

#[test]
fn the_same_key_returns_the_recorded_output() {
    let sandbox = sandbox();
    let call = || reply(&sandbox.call("shell", &tick()).args(["--key", "one"]).run().expect_code(0));
    let first = call();
    assert!(!first.joined);
    let second = call();
    assert_eq!(second, CallReply { joined: true, ..first });
    assert_eq!(ticks(&sandbox), 1);

    // A failure is recorded as well, and not tried again.
    let read = |code| {
        let call = sandbox.call("read_file", &json!({ "path": "b.txt" })).args(["--key", "two"]);
        reply(&call.run().expect_code(code))
    };
    let first = read(1);
    fs::write(sandbox.workspace().join("b.txt"), "beta\n").unwrap();
    assert_eq!(read(1), CallReply { joined: true, ..first });
}

#[test]
fn without_a_key_each_call_is_one_of_its_own() {
    let sandbox = sandbox();
    for count in 1..=3 {
        let ran = reply(&sandbox.call("shell", &tick()).run().expect_code(0));
        assert!(!ran.joined && ran.text().contains(&count.to_string()), "{ran:?}");
    }
    assert_eq!(runs(&sandbox).len(), 3);
}

/// A key was once looked up by tool and arguments alone: a second workspace on the same journal got the output of the
/// first, and its own call was never made. Workspace and network are part of what a key stands for.
#[test]
fn a_key_that_stands_for_another_call_is_refused() {
    let sandbox = sandbox();
    let ran = reply(&sandbox.call("shell", &tick()).args(["--key", "one"]).run().expect_code(0));
    let elsewhere = sandbox.root().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let others = [
        sandbox.call("shell", &json!({ "command": "echo tick >> counter.log" })),
        sandbox.call("read_file", &json!({ "path": "a.txt" })),
        sandbox.call("shell", &tick()).args(["--workspace", elsewhere.to_str().unwrap()]),
        sandbox.call("shell", &tick()).args(["--network", "open"]),
    ];
    for other in others {
        let refused = other.args(["--key", "one"]).run().expect_code(2);
        assert_eq!(refused.stdout, "", "{refused}");
        for named in ["error: ", "key", &ran.run[..8]] {
            assert!(refused.stderr.contains(named), "`{named}` is not named: {refused}");
        }
    }
    assert_eq!((ticks(&sandbox), runs(&sandbox).len()), (1, 1), "nothing was made");
    assert_eq!(fs::read_dir(elsewhere).unwrap().count(), 0);
}

#[test]
fn without_a_key_a_call_like_one_in_doubt_is_refused() {
    let sandbox = sandbox();
    killed(&sandbox, "shell", &tick(), Point::AfterExec, None);
    let run = runs(&sandbox).remove(0).run;
    // Whether or not the question has been asked.
    for _ in 0..2 {
        let refused = sandbox.call("shell", &tick()).run().expect_code(1);
        for named in ["error: ", "`shell`", "step 2", &run[..8], "deed resume", "--key"] {
            assert!(refused.stderr.contains(named), "`{named}` is not named: {refused}");
        }
        let _ = sandbox.resume(None).run().expect_code(4);
    }
    assert_eq!((ticks(&sandbox), runs(&sandbox).len()), (1, 1), "nothing was made");

    // Another command is no such call, and a key says that one more is wanted.
    let other = json!({ "command": "echo tock >> counter.log" });
    let _ = sandbox.call("shell", &other).run().expect_code(0);
    let _ = sandbox.call("shell", &tick()).args(["--key", "again"]).run().expect_code(0);
    assert_eq!(ticks(&sandbox), 3);
}

/// The story: a call was killed before it began, and typed again; the second one ran, and so did the first when it was
/// resumed later.
#[test]
fn a_call_that_was_killed_before_it_began_is_resumed_and_not_typed_again() {
    for (seq, point) in [(1, Point::BeforeIntent), (CALL, Point::BeforeIntent)] {
        let sandbox = sandbox();
        let call = sandbox.call("shell", &tick()).args(["--kill-at", &Kill::new(seq, point).to_string()]);
        assert_eq!(call.run().ending, Ending::KILLED);
        let refused = sandbox.call("shell", &tick()).run().expect_code(1);
        assert!(
            refused.stderr.contains("is not settled") && refused.stderr.contains("deed resume"),
            "{refused}"
        );
        let _ = sandbox.resume(None).run().expect_code(0);
        let _ = sandbox.call("shell", &tick()).run().expect_code(0);
        assert_eq!((ticks(&sandbox), runs(&sandbox).len()), (2, 2));
    }
}

/// A call with a key whose outcome is unknown, and the question that the second one gets.
fn in_doubt() -> (Sandbox, Wait) {
    let sandbox = sandbox();
    killed(&sandbox, "shell", &tick(), Point::AfterExec, Some("one"));
    let held = reply(&sandbox.call("shell", &tick()).args(["--key", "one"]).run().expect_code(4));
    assert!(held.joined && held.status == "needs_reconcile", "{held:?}");
    assert_eq!((&held.output, &held.error), (&None, &None));
    let [wait] = held.waits.try_into().expect("it asks one thing");
    assert_eq!((wait.kind.as_str(), wait.name.as_str(), wait.seq), ("reconcile", "shell", CALL));
    assert_eq!((wait.revision, wait.options.join(" ")), (1, "happened did-not-happen abandon".to_owned()));
    assert_eq!(sandbox.waits(), std::slice::from_ref(&wait));
    (sandbox, wait)
}

#[test]
fn a_call_that_waits_says_in_text_how_to_answer() {
    let (sandbox, wait) = in_doubt();
    let held = sandbox.call("shell", &tick()).args(["--key", "one", "--format", "text"]).run().expect_code(4);
    for named in ["waiting", &format!("deed answer {} happened", wait.wait), "deed resume"] {
        assert!(held.stdout.contains(named), "`{named}` is not named: {held}");
    }
}

#[test]
fn happened_with_a_result_is_the_outcome_of_the_key() {
    let (sandbox, wait) = in_doubt();
    let _ = sandbox.deed(["answer", &wait.wait, "happened", "--text", "it said 1"]).run().expect_code(0);
    for _ in 0..2 {
        let joined = reply(&sandbox.call("shell", &tick()).args(["--key", "one"]).run().expect_code(0));
        assert!(joined.joined && joined.status == "completed", "{joined:?}");
        assert!(joined.text().contains("it said 1"), "{joined:?}");
        assert!(joined.output.unwrap().landed_before);
    }
    assert_eq!(ticks(&sandbox), 1);
}

#[test]
fn did_not_happen_makes_the_call_of_the_key_once_more() {
    let (sandbox, wait) = in_doubt();
    sandbox.answer(&wait.wait, "did-not-happen").unwrap();
    for _ in 0..2 {
        let joined = reply(&sandbox.call("shell", &tick()).args(["--key", "one"]).run().expect_code(0));
        assert_eq!((joined.joined, joined.text()), (true, "exit code 0\n2\n".to_owned()));
    }
    assert_eq!(ticks(&sandbox), 2, "in truth it had happened, and it was run once more");
}

/// An abandoned call once failed without a word of why.
#[test]
fn abandon_fails_and_says_that_the_outcome_is_unknown() {
    let (sandbox, wait) = in_doubt();
    let _ = sandbox.deed(["answer", &wait.wait, "abandon", "--text", "never mind"]).run().expect_code(0);
    let given_up = reply(&sandbox.call("shell", &tick()).args(["--key", "one"]).run().expect_code(1));
    assert_eq!((given_up.status.as_str(), &given_up.output), ("abandoned", &None));
    let error = given_up.error.unwrap();
    assert_eq!((error.kind.as_str(), error.effect.as_str()), ("abandoned", "unknown"));
    assert!(error.message.contains("never mind"), "{error:?}");

    let text = sandbox.call("shell", &tick()).args(["--key", "one", "--format", "text"]).run().expect_code(1);
    assert!(text.stdout.is_empty() && text.stderr.contains("unknown"), "{text}");
    assert_eq!(ticks(&sandbox), 1);
}

#[test]
fn a_settled_call_stands_in_nobodys_way() {
    for (option, expected) in [("happened", 2), ("did-not-happen", 3), ("abandon", 2)] {
        let sandbox = sandbox();
        killed(&sandbox, "shell", &tick(), Point::AfterExec, None);
        let envelope: Envelope = sandbox.resume(None).run().expect_code(4).json();
        sandbox.answer(&envelope.waits[0].wait, option).unwrap();
        let _ = sandbox.resume(None).run().expect_code(i32::from(option == "abandon"));
        let _ = sandbox.call("shell", &tick()).run().expect_code(0);
        assert_eq!(ticks(&sandbox), expected, "{option}");
    }
}

#[test]
fn a_key_whose_call_was_killed_anywhere_has_one_effect_or_asks() {
    let points = [Point::BeforeIntent, Point::AfterIntent, Point::AfterExec, Point::AfterCommit];
    for seq in [1, CALL] {
        for point in points {
            let sandbox = sandbox();
            let kill = Kill::new(seq, point).to_string();
            let outcome = sandbox.call("shell", &tick()).args(["--key", "one", "--kill-at", &kill]).run();
            assert_eq!(outcome.ending, Ending::KILLED, "killed at {kill}: {outcome}");
            let again = || sandbox.call("shell", &tick()).args(["--key", "one"]).run();
            let mut joined = again();
            if (seq, point) == (CALL, Point::AfterExec) {
                let wait = reply(&joined.expect_code(4)).waits.remove(0);
                sandbox.answer(&wait.wait, "happened").unwrap();
                joined = again();
            }
            let joined = reply(&joined.expect_code(0));
            assert!(joined.joined && joined.status == "completed", "killed at {kill}: {joined:?}");
            assert_eq!(ticks(&sandbox), 1, "killed at {kill}");
            assert_eq!(reply(&again().expect_code(0)), joined, "killed at {kill}: and so it stays");
            assert_eq!(runs(&sandbox).len(), 1, "killed at {kill}");
        }
    }
}

#[test]
fn an_idempotent_call_that_was_killed_is_finished_by_its_key() {
    let input = json!({ "path": "a.txt", "old": "alpha", "new": "alphabet" });
    let points =
        [Point::BeforeIntent, Point::AfterIntent, Point::AfterReceipt, Point::AfterExec, Point::AfterCommit];
    for point in points {
        let sandbox = sandbox();
        killed(&sandbox, "edit_file", &input, point, Some("one"));
        let joined = reply(&sandbox.call("edit_file", &input).args(["--key", "one"]).run().expect_code(0));
        assert_eq!(sandbox.files().text("a.txt"), "alphabet\n", "killed at {point}");
        assert_eq!(joined.output.unwrap().landed_before, point == Point::AfterExec, "killed at {point}");
    }
}

#[test]
fn a_pure_call_that_was_killed_is_made_again_with_and_without_a_key() {
    let input = json!({ "path": "a.txt" });
    for key in [Some("one"), None] {
        for point in [Point::BeforeIntent, Point::AfterIntent, Point::AfterExec, Point::AfterCommit] {
            let sandbox = sandbox();
            killed(&sandbox, "read_file", &input, point, key);
            let deed = sandbox.call("read_file", &input);
            let deed = key.into_iter().fold(deed, |deed, key| deed.args(["--key", key]));
            let read = reply(&deed.run().expect_code(0));
            assert_eq!(
                (read.text(), read.joined),
                ("alpha\n".to_owned(), key.is_some()),
                "killed at {point}"
            );
            assert_eq!(sandbox.waits(), [], "killed at {point}");
        }
    }
}
