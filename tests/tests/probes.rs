//! Unknown outcomes: settled by the tool's probe, else by the owner.
//!
//! Fault model: as in `kills.rs`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use deed_tests::guests::{PROBES, other_probes};
use deed_tests::{
    Ending, Envelope, Kill, Message, MessageResult, Point, Sandbox, StepRow, Wait, never_asked,
};
use serde_json::{Value, json};

/// The first call of a batch in a git workspace: two setup steps and the policy come first.
const FIRST: u64 = 4;

/// A line that `append` leaves behind, without the key in front of it.
const LINE: &str = "one";

fn batch(calls: &[Value]) -> Sandbox {
    with(&json!({ "objective": "Settle it", "calls": calls }))
}

fn with(mission: &Value) -> Sandbox {
    let sandbox = Sandbox::with(mission, &[("a.txt", "alpha\n")]).uncontained();
    sandbox.install("probes", PROBES);
    sandbox
}

fn append(more: &Value) -> Value {
    let mut input = json!({ "path": "log", "line": LINE });
    input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "tool": "append", "input": input })
}

fn read() -> Value {
    json!({ "tool": "read_file", "input": { "path": "a.txt" } })
}

/// How often the line is there.
fn effects(sandbox: &Sandbox) -> usize {
    let log = fs::read_to_string(sandbox.workspace().join("log")).unwrap_or_default();
    log.lines().filter(|line| line.ends_with(LINE)).count()
}

fn step(sandbox: &Sandbox, run: &str) -> StepRow {
    sandbox.steps(run).into_iter().find(|step| step.seq == FIRST).unwrap()
}

fn result(sandbox: &Sandbox, run: &str) -> MessageResult {
    let transcript: Vec<Message> = sandbox.deed(["transcript", run]).run().expect_code(0).json();
    transcript.into_iter().find_map(|message| message.result).unwrap()
}

/// Everything that `deed show` knows of the first call.
fn shown(sandbox: &Sandbox, run: &str) -> Value {
    sandbox.deed(["show", run, &FIRST.to_string()]).run().expect_code(0).json()
}

fn verdicts(sandbox: &Sandbox, run: &str) -> Vec<Value> {
    let events = shown(sandbox, run)["events"].clone();
    let events = events.as_array().unwrap().iter();
    events.filter(|event| event["event"] == "probed").map(|event| event["verdict"].clone()).collect()
}

fn kill(sandbox: &Sandbox, point: Point) {
    let killed = sandbox.run(Some(Kill::new(FIRST, point))).run();
    assert_eq!((killed.ending, killed.stdout.as_str()), (Ending::KILLED, ""), "{killed}");
}

fn waiting(sandbox: &Sandbox) -> Wait {
    let envelope: Envelope = sandbox.resume(None).run().expect_code(4).json();
    let [wait] = envelope.waits.try_into().expect("it asks one thing");
    wait
}

/// `append` is non-idempotent, and its probe can tell: whatever the instant of the kill, one line and no question.
#[test]
fn a_call_with_an_honest_probe_happens_once_wherever_it_is_killed() {
    let text = {
        let sandbox = batch(&[append(&json!({})), read()]);
        let done: Envelope = sandbox.run(None).run().expect_code(0).json();
        result(&sandbox, &done.run).text
    };
    for point in
        [Point::BeforeIntent, Point::AfterIntent, Point::MidExec, Point::AfterExec, Point::AfterCommit]
    {
        let sandbox = batch(&[append(&json!({})), read()]);
        let passage = sandbox.run_to_end(Some(Kill::new(FIRST, point)), &never_asked).unwrap();
        assert_eq!((passage.kills, effects(&sandbox)), (1, 1), "killed at {point}");
        let run = &passage.envelope.run;
        let step = step(&sandbox, run);
        let landed = point == Point::AfterExec;
        let (attempt, verdict) = match point {
            Point::MidExec => (2, vec![json!("not-landed")]),
            Point::AfterExec => (1, vec![json!("landed")]),
            _ => (1, vec![]),
        };
        assert_eq!((step.status.as_str(), step.effect.as_deref()), ("completed", Some("non-idempotent")));
        assert_eq!((step.attempt, step.landed_before), (attempt, landed), "killed at {point}");
        assert_eq!(step.settled_by.as_deref() == Some("probe"), landed, "killed at {point}: {step:?}");
        assert_eq!(verdicts(&sandbox, run), verdict, "killed at {point}");
        let result = result(&sandbox, run);
        assert!(result.ok, "{result:?}");
        assert_eq!(result.text, text, "killed at {point}");
    }
}

/// What a probe says of a call that was killed after it had landed, what is recorded of that, and what the question says.
fn unhelpful() -> [(&'static str, &'static str, &'static str); 6] {
    [
        ("partial", "partial", "half of a line is there"),
        ("undecidable", "undecidable", "the file says nothing"),
        ("fail", "failed", "the probe found no file to look at"),
        ("trap", "failed", "the probe was told to trap"),
        ("hang", "failed", "ran out of time after 500 ms"),
        // What it is not allowed fails it.
        ("write", "failed", "append"),
    ]
}

#[test]
fn b37_a_probe_that_cannot_tell_leaves_it_to_the_owner_with_its_evidence() {
    for (verdict, recorded, words) in unhelpful() {
        let sandbox = with(&json!({
            "objective": "Settle it",
            "calls": [append(&json!({ "verdict": verdict })), read()],
            "grants": [{ "tool": "append", "timeout_ms": 500 }],
        }));
        kill(&sandbox, Point::AfterExec);
        let wait = waiting(&sandbox);
        assert_eq!((wait.kind.as_str(), wait.name.as_str(), wait.seq), ("reconcile", "append", FIRST));
        assert_eq!(wait.options, ["happened", "did-not-happen", "abandon"]);
        assert!(wait.question.contains(words), "{verdict}: {}", wait.question);
        assert_eq!(step(&sandbox, &wait.run).status, "needs_reconcile");
        assert_eq!(verdicts(&sandbox, &wait.run), [recorded], "{verdict}");

        // The evidence stays, and is not asked for again.
        assert_eq!(waiting(&sandbox), wait);
        assert_eq!(verdicts(&sandbox, &wait.run), [recorded], "{verdict}");
        sandbox.answer(&wait.wait, "happened").unwrap();
        let done: Envelope = sandbox.resume(None).run().expect_code(0).json();
        assert_eq!((done.status.as_str(), effects(&sandbox)), ("done", 1), "{verdict}");
        assert_eq!(step(&sandbox, &done.run).settled_by.as_deref(), Some("owner"));
    }
}

#[test]
fn b37_a_probe_that_says_not_landed_lets_it_run_again() {
    let sandbox = batch(&[append(&json!({ "verdict": "not_landed" })), read()]);
    kill(&sandbox, Point::AfterExec);
    let done: Envelope = sandbox.resume(None).run().expect_code(0).json();
    let step = step(&sandbox, &done.run);
    assert_eq!((step.attempt, step.status.as_str()), (2, "completed"));
    assert_eq!(verdicts(&sandbox, &done.run), ["not-landed"]);
    assert_eq!(
        effects(&sandbox),
        2,
        "a probe that lies repeats its effect: `deed crash-test` finds that out"
    );
}

#[test]
fn b37_a_tool_without_a_probe_is_asked_about() {
    let call = json!({ "tool": "append_blind", "input": { "path": "log", "line": LINE } });
    for point in [Point::MidExec, Point::AfterExec] {
        let sandbox = batch(&[call.clone(), read()]);
        kill(&sandbox, point);
        let wait = waiting(&sandbox);
        let landed = effects(&sandbox) == 1;
        assert_eq!(landed, point == Point::AfterExec);
        assert_eq!(verdicts(&sandbox, &wait.run), [] as [&str; 0]);
        sandbox.answer(&wait.wait, if landed { "happened" } else { "did-not-happen" }).unwrap();
        let _: Envelope = sandbox.resume(None).run().expect_code(0).json();
        assert_eq!(effects(&sandbox), 1);
    }
}

#[test]
fn an_abnormal_end_while_the_host_lives_is_probed_and_then_asked_about() {
    // It landed before it trapped, and the probe sees that.
    let sandbox = batch(&[append(&json!({ "end": "trap" })), read()]);
    let done: Envelope = sandbox.run(None).run().expect_code(0).json();
    let settled = step(&sandbox, &done.run);
    assert_eq!((settled.settled_by.as_deref(), settled.landed_before), (Some("probe"), true));
    assert_eq!(effects(&sandbox), 1);

    // It says that it does not know; the probe does.
    let sandbox = batch(&[append(&json!({ "end": "unknown" })), read()]);
    let done: Envelope = sandbox.run(None).run().expect_code(0).json();
    assert_eq!((done.status.as_str(), effects(&sandbox)), ("done", 1));

    // Its probe cannot tell.
    let sandbox = batch(&[append(&json!({ "end": "trap", "verdict": "undecidable" })), read()]);
    let asking: Envelope = sandbox.run(None).run().expect_code(4).json();
    let [wait] = &asking.waits[..] else { panic!("it asks one thing: {asking:?}") };
    for words in ["told to end after it has appended", "the file says nothing"] {
        assert!(wait.question.contains(words), "{}", wait.question);
    }
    assert_eq!(effects(&sandbox), 1);

    // It ended before it did anything: no doubt, and no question.
    let sandbox = batch(&[append(&json!({ "end": "trap_before" })), read()]);
    let partial: Envelope = sandbox.run(None).run().expect_code(3).json();
    assert_eq!((step(&sandbox, &partial.run).status.as_str(), effects(&sandbox)), ("failed", 0));

    // A probe that says not-landed each time lets it try again only so often.
    let sandbox = batch(&[append(&json!({ "end": "trap", "verdict": "not_landed" })), read()]);
    let partial: Envelope = sandbox.run(None).run().expect_code(3).json();
    let failed = step(&sandbox, &partial.run);
    assert_eq!((failed.status.as_str(), failed.attempt), ("failed", 3));
    assert!(failed.error.unwrap()["message"].as_str().unwrap().contains("did not land, 3 times"));
}

/// A command with network is never contained, and has no probe.
fn networked() -> Sandbox {
    let shell = json!({ "tool": "shell", "input": { "command": "echo one >> log; cat log" } });
    with(&json!({ "objective": "Tick", "network": "open", "calls": [shell, read()] }))
}

#[test]
fn b32_a_command_killed_after_it_ran_is_asked_about_and_not_run_again() {
    let sandbox = networked();
    kill(&sandbox, Point::AfterExec);
    let wait = waiting(&sandbox);
    assert_eq!((wait.kind.as_str(), wait.name.as_str(), wait.seq), ("reconcile", "shell", FIRST));
    assert_eq!(wait.options, ["happened", "did-not-happen", "abandon"]);
    let step = step(&sandbox, &wait.run);
    assert_eq!((step.status.as_str(), step.effect.as_deref()), ("needs_reconcile", Some("non-idempotent")));
    assert_eq!(effects(&sandbox), 1);
}

#[test]
fn b33_the_owners_answers_settle_it() {
    for (answer, status, ok, words, ticks) in [
        (
            "happened",
            "completed",
            true,
            "the owner confirmed that this call had already run before a crash",
            1,
        ),
        ("did-not-happen", "completed", true, "one\none", 2),
        ("abandon", "abandoned", false, "the outcome of this call is unknown, and the owner gave it up", 1),
    ] {
        let sandbox = networked();
        kill(&sandbox, Point::AfterExec);
        let wait = waiting(&sandbox);
        sandbox.answer(&wait.wait, answer).unwrap();
        let code = if ok { 0 } else { 3 };
        let ended: Envelope = sandbox.resume(None).run().expect_code(code).json();
        assert_eq!(
            (step(&sandbox, &ended.run).status.as_str(), effects(&sandbox)),
            (status, ticks),
            "{answer}"
        );
        let result = result(&sandbox, &ended.run);
        assert!(result.ok == ok && result.text.contains(words), "{answer}: {result:?}");
    }
}

#[test]
fn b33_a_result_that_the_owner_knows_is_recorded() {
    let sandbox = networked();
    kill(&sandbox, Point::AfterExec);
    let wait = waiting(&sandbox);
    sandbox
        .deed(["answer", &wait.wait, "happened", "--text", "it said one"])
        .run()
        .expect_code(0)
        .json::<Value>();
    let done: Envelope = sandbox.resume(None).run().expect_code(0).json();
    assert!(result(&sandbox, &done.run).text.contains("it said one"));
}

#[test]
fn b36_no_answer_is_lost_and_none_asked_for_twice() {
    let sandbox = batch(&[append(&json!({ "verdict": "undecidable" })), read()]);
    kill(&sandbox, Point::AfterExec);
    // Killed while it reconciles: inside the probe, and after it, before anything is recorded of it.
    for point in [Point::MidExec, Point::AfterExec] {
        let killed = sandbox.resume(Some(Kill::new(FIRST, point))).run();
        assert_eq!(killed.ending, Ending::KILLED, "{killed}");
    }
    let wait = waiting(&sandbox);
    assert_eq!(verdicts(&sandbox, &wait.run), ["undecidable"]);
    assert_eq!(sandbox.waits(), std::slice::from_ref(&wait));

    // The answer is durable. Killed before it is acted upon: it is not asked for again.
    sandbox.answer(&wait.wait, "did-not-happen").unwrap();
    for point in [Point::BeforeIntent, Point::AfterIntent] {
        let killed = sandbox.resume(Some(Kill::new(FIRST, point))).run();
        assert_eq!(killed.ending, Ending::KILLED, "{killed}");
        assert_eq!(sandbox.waits(), []);
    }
    let done: Envelope = sandbox.resume(None).run().expect_code(0).json();
    assert_eq!((step(&sandbox, &done.run).attempt, effects(&sandbox)), (2, 2));

    // The second attempt is killed, too: a question of its own, since a verdict or an answer settles one attempt.
    let sandbox = batch(&[append(&json!({ "verdict": "undecidable" })), read()]);
    kill(&sandbox, Point::MidExec);
    let first = waiting(&sandbox);
    sandbox.answer(&first.wait, "did-not-happen").unwrap();
    let killed = sandbox.resume(Some(Kill::new(FIRST, Point::AfterExec))).run();
    assert_eq!(killed.ending, Ending::KILLED, "{killed}");
    let second = waiting(&sandbox);
    assert_eq!((first.revision, second.revision), (1, 2));
    sandbox.answer(&second.wait, "happened").unwrap();
    let killed = sandbox.resume(Some(Kill::new(FIRST, Point::AfterCommit))).run();
    assert_eq!(killed.ending, Ending::KILLED, "{killed}");
    let done: Envelope = sandbox.resume(None).run().expect_code(0).json();
    assert_eq!((done.status.as_str(), effects(&sandbox)), ("done", 1));
}

#[test]
fn unattended_runs_abandon_or_fail_as_they_were_told() {
    let unattended = |sandbox: &Sandbox, what: &str| sandbox.resume(None).args(["--on-unknown", what]).run();
    let sandbox = networked();
    kill(&sandbox, Point::AfterExec);
    let partial: Envelope = unattended(&sandbox, "abandon").expect_code(3).json();
    assert_eq!((step(&sandbox, &partial.run).status.as_str(), effects(&sandbox)), ("abandoned", 1));
    assert_eq!(sandbox.steps(&partial.run).last().unwrap().status, "completed", "the run went on");
    assert!(result(&sandbox, &partial.run).text.contains("`--on-unknown abandon`"));

    // A question that an earlier process asked is closed with it.
    let sandbox = networked();
    kill(&sandbox, Point::AfterExec);
    let wait = waiting(&sandbox);
    let failed: Envelope = unattended(&sandbox, "fail").expect_code(1).json();
    assert_eq!(failed.status, "failed");
    assert!(failed.result.unwrap().starts_with("step 4 `shell`: the outcome of this call is unknown"));
    assert_eq!(sandbox.steps(&failed.run).last().unwrap().status, "planned", "nothing after it ran");
    assert_eq!((sandbox.waits(), effects(&sandbox)), (vec![], 1));
    let late = sandbox.deed(["answer", &wait.wait, "happened"]).run().expect_code(1);
    assert!(late.stderr.contains("`abandon`"), "{late}");

    // It holds for what ends abnormally, too, and `ask` is the default.
    let calls = [append(&json!({ "end": "trap", "verdict": "undecidable" })), read()];
    let sandbox = batch(&calls);
    let partial: Envelope = sandbox.run(None).args(["--on-unknown", "abandon"]).run().expect_code(3).json();
    assert_eq!(verdicts(&sandbox, &partial.run), ["undecidable"]);
    let sandbox = batch(&calls);
    let _: Envelope = sandbox.run(None).args(["--on-unknown", "ask"]).run().expect_code(4).json();
}

#[test]
fn c09_a_step_is_settled_by_the_version_that_it_was_planned_with() {
    // Two appends: the first is killed after it landed, the plugin is replaced, and the second was planned with the old.
    let second = json!({ "tool": "append", "input": { "path": "log", "line": "two" } });
    let batch_of =
        || with(&json!({ "objective": "Settle it", "calls": [append(&json!({})), second.clone()] }));
    let texts = |sandbox: &Sandbox, run: &str| -> Vec<String> {
        let transcript: Vec<Message> = sandbox.deed(["transcript", run]).run().expect_code(0).json();
        transcript.into_iter().filter_map(|message| Some(message.result?.text)).collect()
    };
    for (version, probed) in [(Some(other_probes()), true), (None, true)] {
        let sandbox = batch_of();
        kill(&sandbox, Point::AfterExec);
        match version {
            Some(bytes) => sandbox.install("probes", &bytes),
            // Another plugin altogether, with another interface, under the same name.
            None => sandbox.install("probes", deed_tests::guests::GREET),
        }
        let outcome = sandbox.resume(None).run().expect_code(0);
        let done: Envelope = outcome.json();
        assert_eq!(texts(&sandbox, &done.run), ["appended one (version-one)", "appended two (version-one)"]);
        assert_eq!(step(&sandbox, &done.run).settled_by.as_deref() == Some("probe"), probed);
        assert!(outcome.stderr.contains("with which this step was planned"), "{outcome}");
        assert_eq!(effects(&sandbox), 1);
    }

    // New steps use the new one.
    let sandbox = batch_of();
    kill(&sandbox, Point::AfterExec);
    sandbox.install("probes", &other_probes());
    let _: Envelope = sandbox.resume(None).run().expect_code(0).json();
    let done: Envelope = sandbox.run(None).run().expect_code(0).json();
    assert_eq!(texts(&sandbox, &done.run), ["appended one (version-two)", "appended two (version-two)"]);
}

#[test]
fn c09_where_the_version_is_gone_the_owner_is_asked() {
    let sandbox = batch(&[append(&json!({})), append(&json!({ "line": "two" }))]);
    kill(&sandbox, Point::AfterExec);
    fs::remove_dir_all(sandbox.root().join("journal.redb.components")).unwrap();
    sandbox.install("probes", &other_probes());
    let wait = waiting(&sandbox);
    assert_eq!((wait.kind.as_str(), verdicts(&sandbox, &wait.run).len()), ("reconcile", 0));
    sandbox.answer(&wait.wait, "happened").unwrap();
    // The second one had not started: it cannot any more, and that is no question.
    let partial: Envelope = sandbox.resume(None).run().expect_code(3).json();
    let last = sandbox.steps(&partial.run).pop().unwrap();
    assert_eq!(last.status, "failed");
    let error = last.error.unwrap();
    assert_eq!(
        (error["kind"].as_str(), error["effect"].as_str()),
        (Some("component-gone"), Some("not-applied"))
    );
    assert_eq!(effects(&sandbox), 1);
}

#[test]
fn c09_what_no_step_needs_any_more_is_not_kept() {
    let sandbox = batch(&[append(&json!({}))]);
    let kept = || fs::read_dir(sandbox.root().join("journal.redb.components")).unwrap().count();
    kill(&sandbox, Point::AfterExec);
    assert_eq!(kept(), 1);
    sandbox.install("probes", &other_probes());
    let _: Envelope = sandbox.resume(None).run().expect_code(0).json();
    assert_eq!(kept(), 0, "the old version is not installed, and its step is settled");
}

/// After a reboot nothing tells whether an attempt with an intent had started: the marks of an earlier boot prove nothing,
/// and neither do marks that are not there.
#[test]
fn where_no_mark_can_prove_it_an_intent_counts_as_started() {
    let call = |tool: &str| match tool {
        "write_file" => json!({ "tool": tool, "input": { "path": "log", "content": "one\n" } }),
        _ => json!({ "tool": tool, "input": { "path": "log", "line": LINE } }),
    };
    for tool in ["write_file", "append", "append_blind"] {
        let sandbox = batch(&[call(tool), read()]);
        kill(&sandbox, Point::AfterIntent);
        fs::remove_file(sandbox.root().join("journal.redb.marks")).unwrap();
        if tool == "append_blind" {
            let wait = waiting(&sandbox);
            assert_eq!(effects(&sandbox), 0, "it is asked about, although it never ran");
            sandbox.answer(&wait.wait, "did-not-happen").unwrap();
        }
        let done: Envelope = sandbox.resume(None).run().expect_code(0).json();
        assert_eq!((step(&sandbox, &done.run).attempt, effects(&sandbox)), (2, 1), "{tool}");
        let expected: &[&str] = if tool == "append" { &["not-landed"] } else { &[] };
        assert_eq!(verdicts(&sandbox, &done.run), expected, "{tool}");
    }
}

/// A rule that denies a tool, from now on.
fn deny(sandbox: &Sandbox, tool: &str) {
    let rule = format!("[[policy]]\ntool = \"{tool}\"\ndecision = \"deny\"\n");
    fs::write(sandbox.workspace().join("deed.toml"), rule).unwrap();
}

/// A call was killed, and before it is taken on its tool is denied. What has not happened does not happen any more, however
/// that is known; what has begun is finished.
#[test]
fn what_has_not_happened_may_not_be_allowed_any_more() {
    let denied = |sandbox: &Sandbox| {
        let partial: Envelope = sandbox.resume(None).run().expect_code(3).json();
        let step = step(sandbox, &partial.run);
        let error = step.error.unwrap();
        assert_eq!((step.status.as_str(), error["kind"].as_str()), ("failed", Some("denied")));
        assert_eq!(effects(sandbox), 0);
        partial.run
    };
    // It never started.
    let sandbox = networked();
    kill(&sandbox, Point::AfterIntent);
    deny(&sandbox, "shell");
    denied(&sandbox);

    // Its probe says so.
    let sandbox = batch(&[append(&json!({})), read()]);
    kill(&sandbox, Point::MidExec);
    deny(&sandbox, "append");
    let run = denied(&sandbox);
    assert_eq!(verdicts(&sandbox, &run), ["not-landed"]);

    // Its owner says so.
    let blind = json!({ "tool": "append_blind", "input": { "path": "log", "line": LINE } });
    let sandbox = batch(&[blind, read()]);
    kill(&sandbox, Point::MidExec);
    let wait = waiting(&sandbox);
    deny(&sandbox, "append_blind");
    sandbox.answer(&wait.wait, "did-not-happen").unwrap();
    denied(&sandbox);

    // It has begun, and its class says that it can be finished.
    let write = json!({ "tool": "write_file", "input": { "path": "log", "content": "one\n" } });
    let sandbox = batch(&[write, read()]);
    kill(&sandbox, Point::MidExec);
    deny(&sandbox, "write_file");
    let done: Envelope = sandbox.resume(None).run().expect_code(0).json();
    assert_eq!((step(&sandbox, &done.run).attempt, effects(&sandbox)), (2, 1));
}
