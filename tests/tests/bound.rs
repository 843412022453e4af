//! An approval is for the call that was approved, whatever the journal plans after it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use deed_journal::{
    Answer, EffectClass, Op, Outcome, Planned, Position, Run, RunKind, RunStatus, SettledBy, Step, StepEvent,
    StepKind, StepResult, WaitKind,
};
use deed_tests::Sandbox;
use deed_tests::made::{commit, create, made_run, open_journal};
use serde_json::{Value, json};

/// What was approved, in place of what is planned.
type Change = fn(Planned) -> Planned;

fn settled(value: &Value) -> StepEvent {
    StepEvent::Outcome(Outcome {
        attempt: 1,
        result: StepResult::Completed { value: value.clone() },
        settled_by: SettledBy::Owner,
        landed_before: false,
        settled_ms: 1,
    })
}

/// A journal in which the owner approved a call of these arguments, and the next step is one of `planned`.
fn approved(sandbox: &Sandbox, planned: &Value, approved: &Planned) {
    let calls = json!([{ "tool": "write_file", "input": planned }]);
    let spec = json!({ "batch": { "objective": "", "policy": [], "calls": calls } });
    let workspace = sandbox.workspace().canonicalize().unwrap();
    let run = Run {
        kind: RunKind::Batch,
        workspace: workspace.to_str().map(str::to_owned),
        status: RunStatus::Running,
        position: Position::Batch { first: 2, last: 4, untold: 2 },
        ..made_run(1)
    };
    let own = |kind, name: &str, args| Planned::new(kind, name, EffectClass::Pure, args, 0);
    let bound = json!({
        "args_digest": approved.args_digest, "component": approved.component, "effect": approved.effect,
    });
    let question = json!({
        "kind": WaitKind::Approval, "text": "May it?", "options": ["approve", "deny"], "bound": bound,
    });
    let answer = Answer { option: "approve".into(), text: None, answered_ms: 1 };
    let policy = json!({ "rules": [], "network": "closed" });
    let call = Planned {
        component: approved.component,
        ..Planned::new(StepKind::ToolCall, "write_file", EffectClass::Idempotent, planned.clone(), 0)
    };
    let steps = [
        (own(StepKind::Policy, "snapshot", json!({})), Some(policy)),
        (own(StepKind::Wait, "write_file", question), Some(serde_json::to_value(answer).unwrap())),
        (own(StepKind::Now, "answered_at", json!({})), Some(json!({ "now_ms": 1 }))),
        (call, None),
    ];
    let mut ops = vec![create(&run, spec)];
    for (seq, (planned, value)) in (1..).zip(steps) {
        let mut push = |event| ops.push(Op::Step { run: run.id, seq, event });
        push(StepEvent::Planned(planned));
        if let Some(value) = value {
            push(settled(&value));
        }
    }
    ops.push(Op::UpdateRun(Box::new(run)));
    let journal = open_journal(&sandbox.journal());
    commit(&journal, ops);
}

/// The component of `write_file`, as `deed` plans it.
fn plan_of(sandbox: &Sandbox, input: &Value) -> Planned {
    let other = sandbox.root().join("other.redb");
    let call = sandbox.deed_on(&other, ["call", "write_file", &input.to_string()]);
    let reply: Value =
        call.args(["--workspace".as_ref(), sandbox.workspace().as_os_str()]).run().expect_code(0).json();
    let shown: Value =
        sandbox.deed_on(&other, ["show", reply["run"].as_str().unwrap(), "2"]).run().expect_code(0).json();
    let planned = Planned::new(StepKind::ToolCall, "write_file", EffectClass::Idempotent, input.clone(), 0);
    let step = Step::new(2, planned);
    Planned { component: serde_json::from_value(shown["component"].clone()).unwrap(), ..step.planned }
}

#[test]
fn c02_another_call_than_the_approved_one_is_not_made() {
    let input = |path: &str| json!({ "path": path, "content": "a\n" });
    let sandbox = Sandbox::bare();
    let plan = plan_of(&sandbox, &input("approved.txt"));
    approved(&sandbox, &input("approved.txt"), &plan);
    let _ = sandbox.deed(["resume"]).run().expect_code(0);

    let others: [(&str, Change); 2] = [
        ("elsewhere.txt", |plan| plan),
        ("again.txt", |plan| Planned { effect: EffectClass::NonIdempotent, ..plan }),
    ];
    for (path, change) in others {
        let sandbox = Sandbox::bare();
        let plan = plan_of(&sandbox, &input("approved.txt"));
        let same = Planned::new(StepKind::ToolCall, "write_file", EffectClass::Idempotent, input(path), 0);
        let args_digest = if path == "again.txt" { same.args_digest } else { plan.args_digest };
        approved(&sandbox, &input(path), &change(Planned { args_digest, ..plan }));
        let diverged = sandbox.deed(["resume"]).run().expect_code(1);
        assert!(diverged.stderr.contains("diverges at step 4"), "{diverged}");
        assert!(!sandbox.workspace().join(path).exists(), "{path}");
    }
}
