//! The owner's answers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use deed_tests::{Envelope, Message, Sandbox, Wait};
use serde_json::{Value, json};

/// The reference mission, stopped at its question.
fn at_its_question() -> (Sandbox, Wait) {
    let sandbox = Sandbox::of("fix-add");
    let envelope: Envelope = sandbox.run(None).run().expect_code(4).json();
    let [wait] = envelope.waits.try_into().expect("it asks one thing");
    (sandbox, wait)
}

#[test]
fn the_first_answer_wins() {
    let (sandbox, wait) = at_its_question();
    let first: Value = sandbox.deed(["answer", &wait.wait, "yes"]).run().expect_code(0).json();
    assert_eq!(
        first,
        json!({ "wait": wait.wait, "run": wait.run, "option": "yes", "text": null, "already": false })
    );

    let again: Value = sandbox.deed(["answer", &wait.wait, "yes"]).run().expect_code(0).json();
    assert_eq!(again["already"], true);

    let other = sandbox.deed(["answer", &wait.wait, "no"]).run().expect_code(1);
    assert!(other.stderr.starts_with("error: ") && other.stderr.contains("`yes`"), "{other}");

    let done: Envelope = sandbox.resume(None).run().expect_code(0).json();
    let transcript: Vec<Message> = sandbox.deed(["transcript", &done.run]).run().expect_code(0).json();
    let results = transcript.into_iter().filter_map(|message| message.result);
    let answer = results.into_iter().find(|result| result.tool == "ask_owner").unwrap();
    assert!(answer.text.contains("yes"), "{answer:?}");

    // An answer stays what it was after the run has ended.
    sandbox.deed(["answer", &wait.wait, "yes"]).run().expect_code(0).json::<Value>();
    let _ = sandbox.deed(["answer", &wait.wait, "no"]).run().expect_code(1);
}

#[test]
fn a_reason_is_kept_with_the_answer() {
    let (sandbox, wait) = at_its_question();
    let reply = sandbox.deed(["answer", &wait.wait, "yes", "--text", "looks right"]).run().expect_code(0);
    assert_eq!(reply.json::<Value>()["text"], "looks right");
    let done: Envelope = sandbox.resume(None).run().expect_code(0).json();
    let step = sandbox.deed(["show", &done.run, &wait.seq.to_string()]).run().expect_code(0);
    assert!(step.stdout.contains("looks right"), "{step}");
}

#[test]
fn unknown_waits_and_options_are_refused() {
    let (sandbox, wait) = at_its_question();
    let nobody = sandbox.deed(["answer", "00000000-9", "yes"]).run().expect_code(2);
    assert!(nobody.stderr.contains("`00000000-9`") && nobody.stderr.contains("deed waits"), "{nobody}");
    let perhaps = sandbox.deed(["answer", &wait.wait, "perhaps"]).run().expect_code(2);
    assert!(
        perhaps.stderr.contains("`perhaps`")
            && perhaps.stderr.contains("`yes`")
            && perhaps.stderr.contains("`no`"),
        "{perhaps}"
    );
    assert_eq!(sandbox.waits(), [wait], "neither changed anything");
}

/// A mission that writes a file and commits it; commits need the owner's approval.
fn commit_with_approval() -> Sandbox {
    let mission = json!({
        "objective": "Write hello.txt and commit it",
        "criteria": [],
        "tools": ["fs", "git"],
        "policy": [{ "tool": "git_commit", "decision": "ask" }],
        "model": { "script": [
            { "say": "Writing and committing.", "calls": [
                { "tool": "write_file", "input": { "path": "hello.txt", "content": "hello\n" } },
                { "tool": "git_commit", "input": { "message": "Say hello" } } ] },
            { "say": "Done.", "calls": [{ "tool": "finish", "input": { "summary": "Asked first." } }] }
        ] }
    });
    Sandbox::with(&mission, &[("README", "A workspace.\n")])
}

fn at_its_approval(sandbox: &Sandbox) -> Wait {
    let envelope: Envelope = sandbox.run(None).run().expect_code(4).json();
    let [wait] = envelope.waits.try_into().expect("it asks one thing");
    assert_eq!((wait.kind.as_str(), wait.name.as_str()), ("approval", "git_commit"));
    assert_eq!(wait.options, ["approve", "deny"]);
    assert_eq!(sandbox.files().text("hello.txt"), "hello\n", "the call before it was made");
    assert_eq!(sandbox.repository().history().unwrap().len(), 1, "the call itself was not");
    wait
}

#[test]
fn an_approved_call_is_made() {
    let sandbox = commit_with_approval();
    let wait = at_its_approval(&sandbox);
    sandbox.answer(&wait.wait, "approve").unwrap();
    let done: Envelope = sandbox.resume(None).run().expect_code(0).json();
    assert_eq!(done.status, "done");
    assert_eq!(sandbox.repository().history().unwrap()[0].subject(), "Say hello");

    // The question, the reading of the clock and the call have neighbouring numbers.
    let steps = sandbox.steps(&done.run);
    let at = steps.iter().position(|step| step.title() == "wait/git_commit").unwrap();
    let titles: Vec<_> = steps[at..at + 3].iter().map(|step| (step.seq - wait.seq, step.title())).collect();
    let expected = [(0, "wait/git_commit"), (1, "now/answered_at"), (2, "tool_call/git_commit")];
    assert_eq!(titles, expected.map(|(offset, title)| (offset, title.to_owned())));
}

#[test]
fn a_denied_call_is_not_made_and_the_model_is_told() {
    let sandbox = commit_with_approval();
    let wait = at_its_approval(&sandbox);
    sandbox.answer(&wait.wait, "deny").unwrap();
    let done: Envelope = sandbox.resume(None).run().expect_code(0).json();
    assert_eq!(sandbox.repository().history().unwrap().len(), 1);
    let transcript: Vec<Message> = sandbox.deed(["transcript", &done.run]).run().expect_code(0).json();
    let results = transcript.into_iter().filter_map(|message| message.result);
    let refused = results.into_iter().find(|result| result.tool == "git_commit").unwrap();
    assert!(!refused.ok && refused.text.contains("denied"), "{refused:?}");
}

#[test]
fn a_rule_for_every_tool_holds_for_the_hosts_own() {
    let mission = |decision: &str| {
        json!({
            "objective": "Stop at once",
            "tools": [],
            "policy": [{ "tool": "*", "decision": decision }],
            "model": { "script": [
                { "calls": [{ "tool": "finish", "input": { "summary": "Stopped." } }] },
                { "say": "I may not." } ] }
        })
    };
    let asked = Sandbox::with(&mission("ask"), &[]);
    let waiting: Envelope = asked.run(None).run().expect_code(4).json();
    let [wait] = waiting.waits.try_into().expect("it asks one thing");
    assert_eq!((wait.kind.as_str(), wait.name.as_str()), ("approval", "finish"));
    asked.answer(&wait.wait, "deny").unwrap();
    let partial: Envelope = asked.resume(None).run().expect_code(3).json();
    assert_eq!(partial.result.as_deref(), Some("I may not."), "the denied `finish` did not end it");

    let denied = Sandbox::with(&mission("deny"), &[]);
    let partial: Envelope = denied.run(None).run().expect_code(3).json();
    assert_eq!(partial.result.as_deref(), Some("I may not."));
}
