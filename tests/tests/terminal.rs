//! Somebody sits at the terminal: questions are asked in place, and a line tells how far the run is.

use std::io::Write;

use deed_tests::{Ending, Kill, Point, RunRow, Sandbox, StepRow, Terminal, reference, says_yes, shape};
use serde_json::json;

/// What the reference mission asks.
const QUESTION: &str = "Is the fix what you wanted?";
/// Where the answer is typed.
const PROMPT: &str = "answer (";

/// The reference mission on a terminal, at its question.
fn at_its_question(sandbox: &Sandbox) -> Terminal {
    let mut terminal = sandbox.run(None).args(["--format", "text"]).start_on_terminal();
    terminal.expect(QUESTION);
    terminal.expect(PROMPT);
    terminal
}

fn only_run(sandbox: &Sandbox) -> (String, Vec<StepRow>) {
    let runs: Vec<RunRow> = sandbox.deed(["runs"]).run().expect_code(0).json();
    let [run] = &runs[..] else { panic!("one run: {runs:?}") };
    (run.status.clone(), sandbox.steps(&run.run))
}

/// What the owner answered, as the journal has it.
fn answer(sandbox: &Sandbox) -> serde_json::Value {
    let runs: Vec<RunRow> = sandbox.deed(["runs"]).run().expect_code(0).json();
    let step: serde_json::Value = sandbox.deed(["show", &runs[0].run, "20"]).run().expect_code(0).json();
    step["output"].clone()
}

#[test]
fn a_question_is_asked_in_place_and_one_process_is_enough() {
    let sandbox = Sandbox::of("fix-add");
    let mut terminal = at_its_question(&sandbox);
    terminal.type_line("yes");
    terminal.expect("done: add() adds again.");
    let shown = terminal.expect_end(0);
    assert!(shown.contains("  1  yes") && shown.contains("  2  no"), "the options are shown: {shown}");
    assert_eq!(shown.matches(QUESTION).count(), 1, "it asked once: {shown}");

    // Everything is as it is after two processes.
    let (_, reference) = reference("fix-add", &says_yes).unwrap();
    let (status, steps) = only_run(&sandbox);
    assert_eq!((status.as_str(), shape(&steps)), ("done", shape(&reference.steps)));
    assert_eq!(sandbox.files(), reference.files);
    assert_eq!(sandbox.waits(), []);
}

#[test]
fn a_line_that_is_no_answer_is_asked_for_again() {
    let sandbox = Sandbox::of("fix-add");
    let mut terminal = at_its_question(&sandbox);
    for wrong in ["perhaps", "3", "yesterday"] {
        terminal.type_line(wrong);
        terminal.expect(&format!("`{wrong}` is none of: yes, no"));
        terminal.expect(PROMPT);
    }
    terminal.type_line("2 it is not");
    terminal.expect_end(0);
    let answer = answer(&sandbox);
    assert_eq!((&answer["option"], &answer["text"]), (&json!("no"), &json!("it is not")));
}

#[test]
fn an_empty_line_or_the_end_of_input_leaves_the_question_open() {
    let end_of_input = "\u{4}";
    for keys in ["\n", end_of_input] {
        let sandbox = Sandbox::of("fix-add");
        let mut terminal = at_its_question(&sandbox);
        terminal.press(keys);
        let shown = terminal.expect_end(4);
        assert!(shown.contains("waiting") && shown.contains("deed resume"), "{shown}");
        assert_eq!(sandbox.waits().len(), 1);
        assert_eq!(only_run(&sandbox).0, "waiting");

        // The next process asks the same question.
        let mut terminal = sandbox.resume(None).args(["--format", "text"]).start_on_terminal();
        terminal.expect(QUESTION);
        terminal.expect(PROMPT);
        terminal.type_line("yes");
        terminal.expect_end(0);
        assert_eq!(answer(&sandbox)["option"], "yes");
    }
}

#[test]
fn an_approval_is_asked_in_place_and_the_call_is_made() {
    let batch = json!({
        "objective": "Tick once",
        "tools": ["shell"],
        "policy": [{ "tool": "shell", "decision": "ask" }],
        "calls": [{ "tool": "shell", "input": { "command": "echo tick >> counter.log" } }]
    });
    for (typed, code, expected) in [("approve", 0, &["counter.log", "README"][..]), ("deny", 3, &["README"])]
    {
        let sandbox = Sandbox::with(&batch, &[("README", "A workspace.\n")]);
        let mut terminal = sandbox.run(None).args(["--format", "text"]).start_on_terminal();
        terminal.expect("May `shell` (non-idempotent) run with");
        terminal.expect(PROMPT);
        assert_eq!(sandbox.files().paths(), ["README"], "it has not run");
        terminal.type_line(typed);
        terminal.expect_end(code);
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(sandbox.files().paths(), expected, "{typed}");
    }
}

#[test]
fn an_unknown_outcome_is_settled_in_place() {
    let sandbox = Sandbox::of("fix-add").uncontained();
    let killed = sandbox.run(Some(Kill::new(14, Point::AfterExec))).run();
    assert_eq!(killed.ending, Ending::KILLED, "{killed}");
    let mut terminal = sandbox.resume(None).args(["--format", "text"]).start_on_terminal();
    terminal.expect("Did `shell` (step 14, attempt 1) happen?");
    terminal.expect(PROMPT);
    terminal.type_line("happened it said 1");
    terminal.expect(QUESTION);
    terminal.expect(PROMPT);
    terminal.type_line("yes");
    terminal.expect_end(0);
    assert_eq!(sandbox.files().text("counter.log"), "tick\n");
    let (_, steps) = only_run(&sandbox);
    let shell = steps.iter().find(|step| step.seq == 14).unwrap();
    assert_eq!((shell.status.as_str(), shell.settled_by.as_deref()), ("completed", Some("owner")));
}

#[test]
fn a_line_tells_turn_and_step() {
    let sandbox = Sandbox::bare();
    let (go_path, mut go) = sandbox.fifo("go");
    let command = format!("read word < '{}'", go_path.display());
    sandbox.set_mission(&json!({
        "objective": "Take long enough to be looked at",
        "tools": ["shell"],
        "model": { "script": [
            { "calls": [{ "tool": "shell", "input": { "command": command } }] },
            { "calls": [{ "tool": "finish", "input": { "summary": "Looked at." } }] }
        ] }
    }));
    let mut terminal = sandbox.run(None).args(["--format", "text"]).start_on_terminal();
    terminal.expect("turn 1, step 4: tool_call shell");
    go.write_all(b"on\n").unwrap();
    terminal.expect("done: Looked at.");
    terminal.expect_end(0);
}
