//! A sandbox with the guests of these tests, and what can be read of a run in it.

use std::fs;

use deed_tests::guests::{FORBIDDEN, MISBEHAVE};
use deed_tests::{Deed, Envelope, Message, MessageResult, Sandbox, StepRow};
use serde_json::{Value, json};

/// The first call of a batch: two setup steps and the policy come first.
pub const FIRST: u64 = 4;

/// A sandbox with a mission or a batch, one file, and the guests among the plugins.
pub fn sandbox(mission: &Value) -> Sandbox {
    let sandbox = Sandbox::with(mission, &[("a.txt", "alpha\n")]);
    let tools = sandbox.root().join("tools");
    fs::create_dir(&tools).unwrap();
    fs::write(tools.join("forbidden.wasm"), FORBIDDEN).unwrap();
    fs::write(tools.join("misbehave.wasm"), MISBEHAVE).unwrap();
    sandbox
}

/// A batch of calls.
pub fn batch(calls: &[Value], grants: &Value) -> Value {
    json!({ "objective": "Try it", "calls": calls, "grants": grants })
}

pub fn call(tool: &str, input: &Value) -> Value {
    json!({ "tool": tool, "input": input })
}

pub fn with_tools(sandbox: &Sandbox, deed: Deed) -> Deed {
    deed.args(["--tools".as_ref(), sandbox.root().join("tools").as_os_str()])
}

pub fn run(sandbox: &Sandbox) -> Deed {
    with_tools(sandbox, sandbox.run(None))
}

pub fn resume(sandbox: &Sandbox) -> Deed {
    with_tools(sandbox, sandbox.resume(None))
}

/// Run it to its end, and the steps of its calls.
#[track_caller]
pub fn calls_of(sandbox: &Sandbox, code: i32) -> (String, Vec<StepRow>) {
    let ended: Envelope = run(sandbox).run().expect_code(code).json();
    let steps = sandbox.steps(&ended.run).into_iter().filter(|step| step.seq >= FIRST).collect();
    (ended.run, steps)
}

/// The results, as the model reads them.
#[track_caller]
pub fn results(sandbox: &Sandbox, run: &str) -> Vec<MessageResult> {
    let transcript: Vec<Message> = sandbox.deed(["transcript", run]).run().expect_code(0).json();
    transcript.into_iter().filter_map(|message| message.result).collect()
}

/// Everything that is told of a step.
#[track_caller]
pub fn show(sandbox: &Sandbox, run: &str, seq: u64) -> Value {
    sandbox.deed(["show", run, &seq.to_string()]).run().expect_code(0).json()
}

/// The message of a step that was refused, its kind checked.
#[track_caller]
pub fn message(step: &StepRow, kind: &str) -> String {
    let error = step.error.as_ref().unwrap_or_else(|| panic!("it was not refused: {step:?}"));
    assert_eq!(
        (error["kind"].as_str(), error["effect"].as_str()),
        (Some(kind), Some("not-applied")),
        "{error}"
    );
    error["message"].as_str().unwrap().to_owned()
}
