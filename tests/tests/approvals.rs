//! Approvals and questions: what they allow, what they survive, and when they expire.
//!
//! Fault model: as in `kills.rs`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use deed_tests::{Ending, Envelope, Kill, Message, Point, Sandbox, StepRow, Wait};
use serde_json::{Value, json};

fn write(path: &str) -> Value {
    json!({ "tool": "write_file", "input": { "path": path, "content": format!("{path}\n") } })
}

fn tick() -> Value {
    json!({ "tool": "shell", "input": { "command": "echo tick >> ticks" } })
}

fn ask_for(tool: &str) -> Value {
    json!([{ "tool": tool, "decision": "ask" }])
}

/// A mission of three rounds, each of which needs an approval.
fn three_rounds() -> Sandbox {
    let turn = |call: Value| json!({ "calls": [call] });
    let finish = json!({ "tool": "finish", "input": { "summary": "Three ticks." } });
    let script = json!([turn(tick()), turn(tick()), turn(tick()), turn(finish)]);
    let mission = json!({
        "objective": "Tick three times",
        "network": "open",
        "policy": ask_for("shell"),
        "model": { "script": script },
    });
    Sandbox::with(&mission, &[])
}

fn ticks(sandbox: &Sandbox) -> usize {
    fs::read_to_string(sandbox.workspace().join("ticks")).unwrap_or_default().lines().count()
}

fn calls(sandbox: &Sandbox, run: &str, name: &str) -> Vec<StepRow> {
    let steps = sandbox.steps(run).into_iter();
    steps.filter(|step| step.kind == "tool_call" && step.name == name).collect()
}

#[track_caller]
fn only(envelope: &Envelope) -> Wait {
    let [wait] = &envelope.waits[..] else { panic!("it asks one thing: {envelope:?}") };
    wait.clone()
}

#[track_caller]
fn killed(sandbox: &Sandbox, kill: Kill) {
    let outcome = sandbox.resume(Some(kill)).run();
    assert_eq!((outcome.ending, outcome.stdout.as_str()), (Ending::KILLED, ""), "{outcome}");
}

/// Approve a round and kill the process over it, once before the call and once after it; nobody is asked twice for one
/// approval, and an approval is for one execution.
#[test]
fn c02_three_approval_rounds_killed_in_each_have_each_effect_once() {
    let sandbox = three_rounds();
    let mut envelope: Envelope = sandbox.run(None).run().expect_code(4).json();
    for (round, point) in (1..).zip([Point::BeforeIntent, Point::AfterIntent, Point::AfterExec]) {
        let wait = only(&envelope);
        assert_eq!((wait.kind.as_str(), wait.name.as_str()), ("approval", "shell"));
        assert_eq!(ticks(&sandbox), round - 1, "nothing runs before its approval");
        sandbox.answer(&wait.wait, "approve").unwrap();
        // The clock is read, and then comes the call.
        killed(&sandbox, Kill::new(wait.seq + 2, point));
        assert_eq!(sandbox.waits(), [], "an approval that was given is not asked for again");
        let happened = point == Point::AfterExec;
        assert_eq!(ticks(&sandbox), round - usize::from(!happened));
        let code = if round < 3 || happened { 4 } else { 0 };
        envelope = sandbox.resume(None).run().expect_code(code).json();
        if happened {
            // The approval does not say whether it ran; a run of the call again would be the owner's word alone.
            let unknown = only(&envelope);
            assert_eq!((unknown.kind.as_str(), unknown.seq), ("reconcile", wait.seq + 2));
            sandbox.answer(&unknown.wait, "happened").unwrap();
            envelope = sandbox.resume(None).run().expect_code(0).json();
        }
        assert_eq!(ticks(&sandbox), round);
    }
    assert_eq!(envelope.status, "done");
    let calls = calls(&sandbox, &envelope.run, "shell");
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|step| step.status == "completed" && step.attempt == 1), "{calls:?}");
}

#[test]
fn c02_an_approval_is_bound_to_one_call() {
    let sandbox = three_rounds();
    let envelope: Envelope = sandbox.run(None).run().expect_code(4).json();
    let wait = only(&envelope);
    let shown = |seq: u64| -> Value {
        sandbox.deed(["show", &wait.run, &seq.to_string()]).run().expect_code(0).json()
    };
    let (question, call) = (shown(wait.seq), shown(wait.seq + 2));
    let bound = &question["args"]["bound"];
    assert_eq!(bound["args_digest"], call["args_digest"]);
    assert_eq!(bound["component"], call["component"]);
    assert_eq!(bound["effect"], "non-idempotent");
    // The next round, with the same arguments, asks anew.
    sandbox.answer(&wait.wait, "approve").unwrap();
    let envelope: Envelope = sandbox.resume(None).run().expect_code(4).json();
    assert_ne!(only(&envelope).wait, wait.wait);
    assert_eq!(ticks(&sandbox), 1);
}

#[test]
fn c18_the_same_question_answers_after_restarts() {
    let sandbox = three_rounds();
    let envelope: Envelope = sandbox.run(None).run().expect_code(4).json();
    let wait = only(&envelope);
    for _ in 0..3 {
        let again: Envelope = sandbox.resume(None).run().expect_code(4).json();
        assert_eq!(only(&again), wait);
    }
    sandbox.answer(&wait.wait, "approve").unwrap();
    killed(&sandbox, Kill::new(wait.seq, Point::AfterExec));
    let again: Envelope = sandbox.resume(None).run().expect_code(4).json();
    assert_ne!(only(&again).wait, wait.wait, "the first round is over");
    assert_eq!(ticks(&sandbox), 1);
}

/// The fixed clock of the tests stands long before today: what it lets wait for a day has expired by now.
const A_DAY_MS: u64 = 24 * 60 * 60 * 1000;

#[test]
fn c18_a_question_shows_its_expiry_and_expires_visibly() {
    let question =
        json!({ "tool": "ask_owner", "input": { "question": "Go on?", "options": ["yes", "no"] } });
    let mission = json!({
        "objective": "Wait for an answer",
        "policy": ask_for("write_file"),
        "answer_within_ms": A_DAY_MS,
        "calls": [write("a.txt"), question],
    });
    let sandbox = Sandbox::with(&mission, &[]);
    let envelope: Envelope = sandbox.run(None).run().expect_code(4).json();
    let wait = only(&envelope);
    let waits: Value = sandbox.deed(["waits"]).run().expect_code(0).json();
    let (opened, expires) =
        (waits[0]["opened_ms"].as_u64().unwrap(), waits[0]["expires_ms"].as_u64().unwrap());
    assert_eq!(expires, opened + A_DAY_MS);
    let text = sandbox.deed(["waits", "--format", "text"]).run().expect_code(0);
    assert!(text.stdout.contains("expires 20"), "{text}");

    // Today it takes no answer any more, and says so.
    let late = sandbox.deed_today(["answer", &wait.wait, "approve"]).run().expect_code(1);
    assert!(late.stderr.contains("has expired"), "{late}");
    // The approval expires; then the next question is asked, with an expiry of its own.
    let envelope: Envelope = sandbox.deed_today(["resume"]).run().expect_code(4).json();
    let next = only(&envelope);
    assert_eq!((next.kind.as_str(), sandbox.files().paths()), ("question", vec![]));
    sandbox.answer(&next.wait, "yes").unwrap();
    let partial: Envelope = sandbox.resume(None).run().expect_code(3).json();
    let [write, asked] =
        &sandbox.steps(&partial.run).into_iter().filter(|step| step.kind == "tool_call").collect::<Vec<_>>()
            [..]
    else {
        panic!()
    };
    assert_eq!((write.status.as_str(), asked.status.as_str()), ("failed", "completed"));
    let error = write.error.as_ref().unwrap();
    assert_eq!(error["kind"], "expired");
    assert!(error["message"].as_str().unwrap().contains("nobody approved it in time"), "{error}");
}

#[test]
fn c18_a_question_about_an_unknown_outcome_never_expires() {
    let mission = json!({
        "objective": "Tick", "network": "open", "answer_within_ms": A_DAY_MS, "calls": [tick()],
    });
    let sandbox = Sandbox::with(&mission, &[]);
    let outcome = sandbox.run(Some(Kill::new(4, Point::AfterExec))).run();
    assert_eq!(outcome.ending, Ending::KILLED, "{outcome}");
    let envelope: Envelope = sandbox.resume(None).run().expect_code(4).json();
    let waits: Value = sandbox.deed(["waits"]).run().expect_code(0).json();
    assert_eq!(waits[0]["expires_ms"], Value::Null);
    let envelope: Envelope = sandbox
        .deed_today(["answer", &only(&envelope).wait, "happened"])
        .run()
        .expect_code(0)
        .try_json::<Value>()
        .and_then(|_| sandbox.deed_today(["resume"]).run().expect_code(0).try_json())
        .unwrap();
    assert_eq!((envelope.status.as_str(), ticks(&sandbox)), ("done", 1));
}

/// A batch killed before its second write, which then finds a stricter policy in the workspace's `deed.toml`.
fn stricter(rule: &str) -> Sandbox {
    let mission = json!({ "objective": "Write twice", "calls": [write("a.txt"), write("b.txt")] });
    let sandbox = Sandbox::with(&mission, &[]);
    let outcome = sandbox.run(Some(Kill::new(5, Point::BeforeIntent))).run();
    assert_eq!(outcome.ending, Ending::KILLED, "{outcome}");
    fs::write(sandbox.workspace().join("deed.toml"), rule).unwrap();
    sandbox
}

#[test]
fn a_policy_that_became_stricter_counts_for_what_has_not_started() {
    let sandbox =
        stricter("[[policy]]\ntool = \"write_file\"\nglob = { path = \"b.*\" }\ndecision = \"deny\"\n");
    let partial: Envelope = sandbox.resume(None).run().expect_code(3).json();
    let [first, second] = &calls(&sandbox, &partial.run, "write_file")[..] else { panic!("two calls") };
    assert_eq!((first.status.as_str(), second.status.as_str()), ("completed", "failed"));
    let message = second.error.as_ref().unwrap()["message"].as_str().unwrap().to_owned();
    for words in ["`write_file`", "idempotent", r#""decision":"deny""#, "deed.toml"] {
        assert!(message.contains(words), "{message}");
    }
    assert_eq!(sandbox.files().paths(), ["a.txt", "deed.toml"]);
}

#[test]
fn a_policy_that_came_to_ask_holds_what_has_not_started() {
    for (answer, code, paths) in
        [("approve", 0, &["a.txt", "b.txt", "deed.toml"][..]), ("deny", 3, &["a.txt", "deed.toml"][..])]
    {
        let sandbox = stricter("[[policy]]\ntool = \"write_file\"\ndecision = \"ask\"\n");
        let envelope: Envelope = sandbox.resume(None).run().expect_code(4).json();
        let wait = only(&envelope);
        assert_eq!((wait.kind.as_str(), wait.seq, wait.revision), ("approval", 5, 0));
        let again: Envelope = sandbox.resume(None).run().expect_code(4).json();
        assert_eq!(only(&again), wait);
        sandbox.answer(&wait.wait, answer).unwrap();
        if answer == "approve" {
            killed(&sandbox, Kill::new(5, Point::AfterExec));
        }
        let ended: Envelope = sandbox.resume(None).run().expect_code(code).json();
        assert_eq!(sandbox.files().paths(), paths);
        let transcript: Vec<Message> = sandbox.deed(["transcript", &ended.run]).run().expect_code(0).json();
        let results: Vec<_> = transcript.into_iter().filter_map(|message| message.result).collect();
        assert_eq!((results.len(), results[1].ok), (2, answer == "approve"));
    }
}
