//! Calls that end abnormally while the host lives: a loop, a trap, a result too large. The step says why, the transcript
//! and the exit code say so too, and the run goes on, or asks. At the end, what a kill makes of tools that no standard
//! plugin has; fault model: as in `kills.rs`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use deed_tests::guests::MISBEHAVE;
use deed_tests::{
    CallReply, Deed, Ending, Envelope, Kill, Message, MessageResult, Point, Sandbox, StepRow, Wait,
};
use serde_json::{Value, json};

/// The first call of a batch in a git workspace: two setup steps and the policy come first.
const FIRST: u64 = 4;

/// Attempts of an idempotent call in a row before the owner is asked.
const ATTEMPTS: u32 = 3;

/// Bytes beyond what one result may hold.
const TOO_LARGE: usize = (4 << 20) + 1;

/// A call after the one that misbehaves.
fn read() -> Value {
    json!({ "tool": "read_file", "input": { "path": "a.txt" } })
}

/// A batch of `calls`, and the guest that misbehaves among the plugins.
fn batch(calls: &[Value]) -> Sandbox {
    with_guest(&json!({ "objective": "Go on all the same", "calls": calls }))
}

fn with_guest(mission: &Value) -> Sandbox {
    let sandbox = Sandbox::with(mission, &[("a.txt", "alpha\n")]).uncontained();
    let tools = sandbox.root().join("tools");
    fs::create_dir(&tools).unwrap();
    fs::write(tools.join("misbehave.wasm"), MISBEHAVE).unwrap();
    sandbox
}

fn with_tools(sandbox: &Sandbox, deed: Deed) -> Deed {
    deed.args(["--tools".as_ref(), sandbox.root().join("tools").as_os_str()])
}

fn run(sandbox: &Sandbox) -> Deed {
    with_tools(sandbox, sandbox.run(None))
}

fn resume(sandbox: &Sandbox) -> Deed {
    with_tools(sandbox, sandbox.resume(None))
}

fn results(sandbox: &Sandbox, run: &str) -> Vec<MessageResult> {
    let transcript: Vec<Message> = sandbox.deed(["transcript", run]).run().expect_code(0).json();
    transcript.into_iter().filter_map(|message| message.result).collect()
}

fn first_step(sandbox: &Sandbox, run: &str) -> StepRow {
    sandbox.steps(run).into_iter().find(|step| step.seq == FIRST).unwrap()
}

/// The step failed with this kind, and its message names all of `named`.
#[track_caller]
fn failed(step: &StepRow, kind: &str, named: &[&str]) {
    assert_eq!(step.status, "failed", "{step:?}");
    let error = step.error.as_ref().unwrap();
    assert_eq!((error["kind"].as_str(), error["effect"].as_str()), (Some(kind), Some("not-applied")));
    let message = error["message"].as_str().unwrap();
    for name in named {
        assert!(message.contains(name), "`{name}` is not named: {message}");
    }
}

/// What pure tools do, the kind of failure that makes, and words of its message.
fn pure_faults() -> [(Value, &'static str, &'static [&'static str]); 4] {
    [
        (json!({ "tool": "spin", "input": {} }), "timeout", &["`spin`", "100 ms"]),
        (json!({ "tool": "panic", "input": { "message": "the sky fell" } }), "trap", &["the sky fell"]),
        (json!({ "tool": "recurse", "input": {} }), "stack", &["`recurse`"]),
        (
            json!({ "tool": "big_result", "input": { "size_bytes": TOO_LARGE } }),
            "output-limit",
            &["`big_result`", "4194305", "4194304"],
        ),
    ]
}

#[test]
fn a_pure_call_that_ends_abnormally_fails_and_the_calls_beside_it_do_not() {
    let faults = pure_faults();
    let mut calls: Vec<_> = faults.iter().map(|(call, ..)| call.clone()).collect();
    // One neighbour runs beside them; the last call comes after an effect.
    calls.extend([
        read(),
        json!({ "tool": "write_file", "input": { "path": "b.txt", "content": "beta\n" } }),
        read(),
    ]);
    let sandbox = batch(&calls);
    let partial: Envelope = run(&sandbox).run().expect_code(3).json();
    assert_eq!((partial.status.as_str(), &partial.waits[..]), ("partial", &[][..]));

    let steps = sandbox.steps(&partial.run);
    let (results, calls) = (results(&sandbox, &partial.run), &steps[3..]);
    assert_eq!((calls.len(), results.len()), (7, 7), "one result each");
    for ((step, result), (_, kind, named)) in calls.iter().zip(&results).zip(faults) {
        failed(step, kind, named);
        assert!(!result.ok && result.text.contains(named[0]), "{result:?}");
    }
    for (step, result) in calls[4..].iter().zip(&results[4..]) {
        assert!(step.status == "completed" && result.ok, "{step:?} {result:?}");
    }
    assert_eq!(sandbox.files().text("b.txt"), "beta\n");
}

#[test]
fn a_model_reads_why_and_finishes_by_another_way() {
    let turns: Vec<_> = pure_faults().into_iter().map(|(call, ..)| json!({ "calls": [call] })).collect();
    let finish = json!({ "calls": [{ "tool": "finish", "input": { "summary": "By another way." } }] });
    let script: Vec<_> = turns.into_iter().chain([finish]).collect();
    let mission = json!({ "objective": "Get there", "model": { "script": script } });
    let sandbox = with_guest(&mission);
    let done: Envelope = run(&sandbox).run().expect_code(0).json();
    assert_eq!((done.status.as_str(), done.result.as_deref()), ("done", Some("By another way.")));
    let results = results(&sandbox, &done.run);
    for (result, (_, _, named)) in results.iter().zip(pure_faults()) {
        assert!(!result.ok && named.iter().all(|name| result.text.contains(name)), "{result:?}");
    }
    assert_eq!(results.len(), 4);
}

#[test]
fn a_single_call_that_ends_abnormally_says_why_and_exits_1() {
    let sandbox = batch(&[]);
    for (call, kind, named) in pure_faults() {
        let call = || with_tools(&sandbox, sandbox.call(call["tool"].as_str().unwrap(), &call["input"]));
        let outcome = call().run().expect_code(1);
        let reply: CallReply = outcome.json();
        let error = reply.error.unwrap();
        assert_eq!((error.kind.as_str(), error.effect.as_str()), (kind, "not-applied"), "{outcome}");
        let text = call().args(["--format", "text"]).run().expect_code(1);
        assert_eq!(text.stdout, "", "{text}");
        for name in named {
            assert!(text.stderr.contains(name), "`{name}` is not named: {text}");
        }
    }
}

#[test]
fn what_a_pure_tool_may_not_do_is_told_to_the_operator() {
    let sandbox = batch(&[json!({ "tool": "write_pure", "input": { "path": "b.txt" } })]);
    let outcome = run(&sandbox).run().expect_code(0);
    let done: Envelope = outcome.json();
    assert_eq!(sandbox.files().paths(), ["a.txt"]);
    assert_ne!(results(&sandbox, &done.run)[0].text, "wrote");
    for named in ["warning: ", "`write_pure`", "`pure`"] {
        assert!(outcome.stderr.contains(named), "`{named}` is not named: {outcome}");
    }
}

/// An idempotent call that traps after each write.
fn trapping(sound_attempt: Option<u32>) -> Value {
    let input = json!({ "path": "b.txt", "content": "beta\n", "sound_attempt": sound_attempt });
    json!({ "tool": "trap_after_write", "input": input })
}

/// The idempotent call, after all its attempts, and the question.
fn out_of_attempts() -> (Sandbox, Wait) {
    let sandbox = batch(&[trapping(None), read()]);
    let held: Envelope = run(&sandbox).run().expect_code(4).json();
    let [wait] = held.waits.try_into().expect("it asks one thing");
    asked_about(&sandbox, &wait, "trap_after_write", ATTEMPTS);
    (sandbox, wait)
}

#[track_caller]
fn asked_about(sandbox: &Sandbox, wait: &Wait, tool: &str, attempt: u32) {
    assert_eq!((wait.kind.as_str(), wait.name.as_str(), wait.seq), ("reconcile", tool, FIRST));
    assert_eq!(wait.revision, u64::from(attempt));
    assert_eq!(wait.options, ["happened", "did-not-happen", "abandon"]);
    let step = first_step(sandbox, &wait.run);
    assert_eq!((step.status.as_str(), step.attempt), ("needs_reconcile", attempt), "{step:?}");
}

#[test]
fn an_idempotent_call_is_run_again_until_it_ends_well() {
    let sandbox = batch(&[trapping(Some(ATTEMPTS)), read()]);
    let done: Envelope = run(&sandbox).run().expect_code(0).json();
    let step = first_step(&sandbox, &done.run);
    assert_eq!((step.status.as_str(), step.attempt), ("completed", ATTEMPTS));
    let results = results(&sandbox, &done.run);
    assert_eq!((results.len(), results[0].text.as_str()), (2, "wrote"), "the model sees one result");
}

#[test]
fn an_idempotent_call_that_never_ends_well_is_asked_about_after_some_attempts() {
    let (sandbox, wait) = out_of_attempts();
    assert!(
        wait.question.contains("`trap_after_write`") && wait.question.contains("unreachable"),
        "{wait:?}"
    );
    assert_eq!(sandbox.files().text("b.txt"), "beta\n");
    assert_eq!(results(&sandbox, &wait.run), [], "nothing comes before its result");
    // Asked again it is still the same question, and nothing has run.
    let again: Envelope = resume(&sandbox).run().expect_code(4).json();
    assert_eq!(again.waits, [wait]);
}

#[test]
fn happened_settles_it_and_the_batch_goes_on() {
    let (sandbox, wait) = out_of_attempts();
    sandbox.answer(&wait.wait, "happened").unwrap();
    let done: Envelope = resume(&sandbox).run().expect_code(0).json();
    assert_eq!(done.status, "done");
    let step = first_step(&sandbox, &wait.run);
    assert_eq!((step.status.as_str(), step.attempt, step.landed_before), ("completed", ATTEMPTS, true));
    let results = results(&sandbox, &wait.run);
    assert!(results.len() == 2 && results.iter().all(|result| result.ok), "{results:?}");
}

#[test]
fn did_not_happen_runs_it_again_as_often_and_abandon_ends_that() {
    let (sandbox, wait) = out_of_attempts();
    sandbox.answer(&wait.wait, "did-not-happen").unwrap();
    let held: Envelope = resume(&sandbox).run().expect_code(4).json();
    let [second] = held.waits.try_into().expect("it asks one thing");
    asked_about(&sandbox, &second, "trap_after_write", 2 * ATTEMPTS);
    assert_ne!(second.wait, wait.wait, "another attempt is another question");

    sandbox.answer(&second.wait, "abandon").unwrap();
    let partial: Envelope = resume(&sandbox).run().expect_code(3).json();
    assert_eq!(partial.status, "partial");
    assert_eq!(first_step(&sandbox, &wait.run).status, "abandoned");
    let results = results(&sandbox, &wait.run);
    assert!(!results[0].ok && results[0].text.contains("unknown"), "{results:?}");
    assert!(results[1].ok, "the next call was made: {results:?}");
}

#[test]
fn a_non_idempotent_call_that_traps_after_an_effect_is_not_run_again() {
    for (option, code, ok, ticks) in
        [("happened", 0, true, 1), ("abandon", 3, false, 1), ("did-not-happen", 4, false, 2)]
    {
        let call = json!({ "tool": "append_then_trap", "input": { "path": "b.txt", "lines": 1 } });
        let sandbox = batch(&[call, read()]);
        let held: Envelope = run(&sandbox).run().expect_code(4).json();
        let [wait] = held.waits.try_into().expect("it asks one thing");
        asked_about(&sandbox, &wait, "append_then_trap", 1);
        let _ = resume(&sandbox).run().expect_code(4);
        assert_eq!(sandbox.files().text("b.txt"), "tick\n", "once, whoever looks");

        sandbox.answer(&wait.wait, option).unwrap();
        let after: Envelope = resume(&sandbox).run().expect_code(code).json();
        assert_eq!(sandbox.files().text("b.txt"), "tick\n".repeat(ticks), "{option}");
        match &after.waits[..] {
            [] => assert_eq!(results(&sandbox, &after.run)[0].ok, ok, "{option}"),
            // The owner wanted it once more, and it ended as before.
            [again] => asked_about(&sandbox, again, "append_then_trap", 2),
            waits => panic!("{waits:?}"),
        }
    }
}

#[test]
fn a_non_idempotent_call_that_traps_before_any_effect_fails() {
    let call = json!({ "tool": "append_then_trap", "input": { "path": "b.txt", "lines": 0 } });
    let sandbox = batch(&[call, read()]);
    let partial: Envelope = run(&sandbox).run().expect_code(3).json();
    let step = first_step(&sandbox, &partial.run);
    failed(&step, "trap", &["`append_then_trap`"]);
    assert_eq!(step.attempt, 1);
    assert!(results(&sandbox, &partial.run)[1].ok);
}

#[test]
fn a_command_that_is_killed_in_the_middle_is_asked_about() {
    let command = json!({ "command": "echo tick >> b.txt; tail -f /dev/null", "timeout_ms": 1000 });
    let sandbox = batch(&[json!({ "tool": "shell", "input": command }), read()]);
    let held: Envelope = run(&sandbox).run().expect_code(4).json();
    let [wait] = held.waits.try_into().expect("it asks one thing");
    asked_about(&sandbox, &wait, "shell", 1);
    sandbox.answer(&wait.wait, "happened").unwrap();
    let done: Envelope = resume(&sandbox).run().expect_code(0).json();
    assert_eq!((done.status.as_str(), sandbox.files().text("b.txt")), ("done", "tick\n"));
}

#[test]
fn a_single_call_out_of_attempts_waits_under_its_key() {
    let sandbox = batch(&[]);
    let call = || {
        let call = trapping(None);
        let deed = sandbox.call("trap_after_write", &call["input"]).args(["--key", "one"]);
        with_tools(&sandbox, deed)
    };
    let held: CallReply = call().run().expect_code(4).json();
    assert_eq!((held.status.as_str(), held.joined), ("needs_reconcile", false));
    sandbox.answer(&held.waits[0].wait, "happened").unwrap();
    let joined: CallReply = call().run().expect_code(0).json();
    assert_eq!((joined.status.as_str(), joined.joined), ("completed", true));
}

/// A class is a promise that the host takes at its word. This is what a broken one costs.
#[test]
fn control_a_tool_that_lies_about_being_idempotent_has_its_effect_twice() {
    let sandbox = batch(&[json!({ "tool": "counter_append", "input": { "path": "b.txt" } }), read()]);
    let killed = with_tools(&sandbox, sandbox.run(Some(Kill::new(FIRST, Point::AfterExec)))).run();
    assert_eq!(killed.ending, Ending::KILLED, "{killed}");
    let done: Envelope = resume(&sandbox).run().expect_code(0).json();
    assert_eq!(first_step(&sandbox, &done.run).attempt, 2);
    assert_eq!(sandbox.files().text("b.txt"), "tick\ntick\n");
}

#[test]
fn a_receipt_comes_back_after_a_kill() {
    let sandbox = batch(&[json!({ "tool": "checkpointed", "input": {} })]);
    let killed = with_tools(&sandbox, sandbox.run(Some(Kill::new(FIRST, Point::AfterReceipt)))).run();
    assert_eq!(killed.ending, Ending::KILLED, "{killed}");
    let done: Envelope = resume(&sandbox).run().expect_code(0).json();
    assert_eq!(results(&sandbox, &done.run)[0].text, "attempt 2 found step-1");
}

#[test]
fn a_non_idempotent_call_killed_at_its_receipt_is_asked_about_and_not_repeated() {
    for (point, ticks) in [(Point::AfterReceipt, 0), (Point::AfterExec, 1)] {
        let sandbox = batch(&[json!({ "tool": "append_after_receipt", "input": { "path": "b.txt" } })]);
        let killed = with_tools(&sandbox, sandbox.run(Some(Kill::new(FIRST, point)))).run();
        assert_eq!(killed.ending, Ending::KILLED, "{killed}");
        let held: Envelope = resume(&sandbox).run().expect_code(4).json();
        let [wait] = held.waits.try_into().expect("it asks one thing");
        asked_about(&sandbox, &wait, "append_after_receipt", 1);
        let found = || fs::read_to_string(sandbox.workspace().join("b.txt")).unwrap_or_default();
        assert_eq!(found(), "tick\n".repeat(ticks), "killed at {point}");
        // Each owner tells the truth, and so there is one effect in the end.
        sandbox.answer(&wait.wait, ["did-not-happen", "happened"][ticks]).unwrap();
        let _ = resume(&sandbox).run().expect_code(0);
        assert_eq!(found(), "tick\n", "killed at {point}");
    }
}
