//! A process dies after a command ran and before its outcome was recorded: nobody can tell but the owner.
//!
//! Fault model: as in `kills.rs`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use deed_tests::{Ending, Envelope, Kill, Message, Point, Sandbox, Snapshot, StepRow, Wait};

/// The command's step.
const SHELL: u64 = 14;

/// A run that is killed right after its command, and the next process's question.
fn killed_after_the_command() -> (Sandbox, Wait) {
    let sandbox = Sandbox::of("fix-add").uncontained();
    let killed = sandbox.run(Some(Kill::new(SHELL, Point::AfterExec))).run();
    assert_eq!(killed.ending, Ending::KILLED, "{killed}");
    assert_eq!(killed.stdout, "", "nothing was said before it died");
    let envelope: Envelope = sandbox.resume(None).run().expect_code(4).json();
    assert_eq!(envelope.status, "waiting");
    let [wait] = envelope.waits.try_into().expect("it asks one thing");
    (sandbox, wait)
}

fn shell_step(sandbox: &Sandbox, run: &str) -> StepRow {
    sandbox.steps(run).into_iter().find(|step| step.seq == SHELL).expect("the run has got that far")
}

/// Answer, go on to the mission's own question, answer that as well, and look at what there is.
fn finished(sandbox: &Sandbox, wait: &Wait, option: &str) -> (Snapshot, Vec<Wait>) {
    sandbox.answer(&wait.wait, option).unwrap();
    let mut later = Vec::new();
    let agree = |wait: &Wait| match wait.kind.as_str() {
        "question" => Ok("yes"),
        _ => Err(format!("asked again: {wait:?}")),
    };
    // `run_to_end` would start the mission anew; from here on there is only resuming.
    let envelope: Envelope = sandbox.resume(None).run().expect_code(4).json();
    for wait in envelope.waits {
        sandbox.answer(&wait.wait, agree(&wait).unwrap()).unwrap();
        later.push(wait);
    }
    let last = sandbox.resume(None).run().expect_code(0);
    let envelope: Envelope = last.json();
    assert_eq!(envelope.status, "done");
    let passage = deed_tests::Passage { processes: vec![last], kills: 1, asked: Vec::new(), envelope };
    (Snapshot::take(sandbox, &passage).unwrap(), later)
}

fn shell_message(snapshot: &Snapshot) -> Message {
    let of_shell = |message: &Message| message.result.as_ref().is_some_and(|result| result.tool == "shell");
    let mut messages = snapshot.typed_messages().into_iter().filter(of_shell);
    let message = messages.next().expect("the model was told something");
    assert_eq!(messages.next(), None, "and only once");
    message
}

#[test]
fn the_next_process_asks_and_does_not_run_the_command_again() {
    let (sandbox, wait) = killed_after_the_command();
    assert_eq!((wait.kind.as_str(), wait.name.as_str(), wait.seq), ("reconcile", "shell", SHELL));
    assert_eq!(wait.options, ["happened", "did-not-happen", "abandon"]);
    let step = shell_step(&sandbox, &wait.run);
    assert_eq!((step.status.as_str(), step.effect.as_deref()), ("needs_reconcile", Some("non-idempotent")));
    assert_eq!(sandbox.files().text("counter.log"), "tick\n");
}

#[test]
fn a_question_that_is_not_answered_stays_the_same_one() {
    let (sandbox, wait) = killed_after_the_command();
    let asked = [wait];
    for _ in 0..3 {
        let envelope: Envelope = sandbox.resume(None).run().expect_code(4).json();
        assert_eq!(envelope.waits, asked);
        assert_eq!(sandbox.waits(), asked);
    }
    assert_eq!(sandbox.files().text("counter.log"), "tick\n");
}

#[test]
fn happened_records_the_call_and_does_not_run_it() {
    let (sandbox, wait) = killed_after_the_command();
    let (snapshot, later) = finished(&sandbox, &wait, "happened");
    assert_eq!(later.len(), 1, "only the mission's own question: {later:?}");
    assert_eq!(snapshot.files.text("counter.log"), "tick\n");
    let step = shell_step(&sandbox, &wait.run);
    assert_eq!((step.status.as_str(), step.settled_by.as_deref()), ("completed", Some("owner")));
    assert_eq!(step.attempt, 1);
    let result = shell_message(&snapshot).result.unwrap();
    assert!(result.ok, "{result:?}");
    assert!(result.text.contains("owner") && result.text.contains("before a crash"), "{result:?}");
    snapshot.requests_are_prefixes().unwrap();
}

#[test]
fn did_not_happen_runs_it_again() {
    let (sandbox, wait) = killed_after_the_command();
    let (snapshot, later) = finished(&sandbox, &wait, "did-not-happen");
    assert_eq!(later.len(), 1, "only the mission's own question: {later:?}");
    assert_eq!(
        snapshot.files.text("counter.log"),
        "tick\ntick\n",
        "in truth it had happened, and it was run once more"
    );
    let step = shell_step(&sandbox, &wait.run);
    assert_eq!((step.status.as_str(), step.attempt), ("completed", 2));
    let result = shell_message(&snapshot).result.unwrap();
    assert!(result.ok && result.text.contains('2'), "{result:?}");
    snapshot.requests_are_prefixes().unwrap();
}

#[test]
fn abandon_goes_on_and_tells_the_model() {
    let (sandbox, wait) = killed_after_the_command();
    let (snapshot, later) = finished(&sandbox, &wait, "abandon");
    assert_eq!(later.len(), 1, "only the mission's own question: {later:?}");
    assert_eq!(snapshot.files.text("counter.log"), "tick\n");
    let step = shell_step(&sandbox, &wait.run);
    assert_eq!((step.status.as_str(), step.settled_by.as_deref()), ("abandoned", Some("owner")));
    let result = shell_message(&snapshot).result.unwrap();
    assert!(!result.ok && result.text.contains("unknown"), "{result:?}");
    snapshot.requests_are_prefixes().unwrap();
}

#[test]
fn a_run_whose_step_is_unknown_holds_back_no_other() {
    let (sandbox, wait) = killed_after_the_command();
    let read = sandbox.call("read_file", &serde_json::json!({ "path": "a.txt" })).run().expect_code(0);
    let read: deed_tests::CallReply = read.json();
    assert_eq!(read.text().trim_end(), "alpha");
    assert_eq!(sandbox.waits(), [wait]);
}
