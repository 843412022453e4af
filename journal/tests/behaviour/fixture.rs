//! A store that the first released format wrote opens for ever.
//!
//! `DEED_WRITE_FIXTURE=PATH cargo test -p deed-journal write_the_fixture` writes the store anew, for a new version to be kept beside the old one. A fixture that was
//! released is never written again.

use std::path::Path;

use crate::support::options;
use deed_journal::{
    Answer, Asked, Change, Changes, Criterion, Digest, Durability, EXPIRED, EffectClass, EffectState, Intent,
    Journal, MessageBody, Op, Outcome, PathBytes, Planned, Position, ProbeVerdict, Probed, Published, Reader,
    Receipt, Recovery, RewriteKind, Role, Run, RunId, RunKind, RunStatus, SessionId, SettledBy, Started,
    StepError, StepEvent, StepKind, StepResult, StepStatus, ToolCall, ToolResult, Turn, Unsettled, Usage,
    Version, WaitId, WaitKind,
};
use serde_json::json;

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/format-1.redb");
const FIXTURE_2: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/format-2.redb");
const FIXTURE_3: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/format-3.redb");

fn open(path: &Path) -> Journal {
    Journal::open(path, options()).unwrap()
}

fn id(byte: u8) -> RunId {
    RunId::from_bytes([byte; 16])
}

/// An ended run and one that waits; every kind of record and every event.
fn write(journal: &Journal) {
    let done = Run {
        kind: RunKind::Call,
        call_key: Some(Digest::of(b"key")),
        ..Run::new(id(1), SessionId::from_bytes([11; 16]), [21; 16], "a call", 1000)
    };
    let mut waiting = Run {
        workspace: Some("/workspace".into()),
        git: true,
        criteria: vec![Criterion { criterion: "it works".into(), met: true }],
        usage: Usage { turns: 1, calls: 2, repeated_model_calls: 1 },
        ..Run::new(id(2), SessionId::from_bytes([12; 16]), [22; 16], "a mission", 2000)
    };
    let create =
        |run: &Run| Op::CreateRun { run: Box::new(run.clone()), source: json!({ "made": "of this" }) };
    let step = |run: &Run, seq, event| Op::Step { run: run.id, seq, event };
    let plan = |name: &str, effect, args: serde_json::Value| {
        StepEvent::Planned(Planned {
            kind: StepKind::ToolCall,
            name: name.into(),
            effect,
            contained: false,
            component: Some(Digest::of(b"component")),
            args_digest: Digest::of_json(&args),
            args,
            call: Some("00000000-1".into()),
            refused: None,
            planned_ms: 1001,
        })
    };
    let marks = serde_json::from_value(json!({ "epoch": "07".repeat(16), "bytes": 45 })).unwrap();
    let intent = |attempt| StepEvent::Intent(Intent { attempt, clock_ms: 1002, marks: Some(marks) });
    let outcome = |attempt, result, settled_by| {
        let landed_before = attempt > 1;
        StepEvent::Outcome(Outcome { attempt, result, settled_by, landed_before, settled_ms: 1003 })
    };
    let error = StepError {
        kind: "not-found".into(),
        message: "no such file".into(),
        effect: EffectState::NotApplied,
    };
    let ops = vec![
        create(&done),
        step(
            &done,
            1,
            plan("write_file", EffectClass::Idempotent, json!({ "content": "x".repeat(100_000) })),
        ),
        step(&done, 1, intent(1)),
        step(&done, 1, StepEvent::Receipt(Receipt { attempt: 1, number: 0, bytes: vec![0, 255] })),
        step(&done, 1, intent(2)),
        step(&done, 1, outcome(2, StepResult::Completed { value: json!("done") }, SettledBy::Execution)),
        step(&done, 2, plan("read_file", EffectClass::Pure, json!({ "path": "a" }))),
        step(&done, 2, outcome(1, StepResult::Failed { error }, SettledBy::Refusal)),
    ];
    journal.commit(ops, Durability::Durable).unwrap();
    let ended = Run { status: RunStatus::Done, position: Position::End, ended_ms: Some(1004), ..done };
    journal.commit(vec![Op::UpdateRun(Box::new(ended))], Durability::Durable).unwrap();

    let wait = WaitId { run: waiting.id, seq: 1, revision: 1 };
    let asked = Asked {
        id: wait,
        kind: WaitKind::Reconcile,
        name: "shell".into(),
        question: "Did it?".into(),
        options: vec!["happened".into(), "abandon".into()],
        opened_ms: 2003,
        expires_ms: Some(9000),
    };
    let answer = Answer { option: "abandon".into(), text: Some("why not".into()), answered_ms: 2004 };
    let call = ToolCall { id: "c1".into(), tool: "shell".into(), input: json!({ "command": "true" }) };
    let result = ToolResult { call: "c1".into(), tool: "shell".into(), ok: false, text: "unknown".into() };
    let session = waiting.session;
    let ops = vec![
        create(&waiting),
        step(&waiting, 1, plan("shell", EffectClass::NonIdempotent, json!({ "command": "true" }))),
        step(&waiting, 1, intent(1)),
        step(&waiting, 1, StepEvent::Unsettled(Unsettled { attempt: 1, reason: "lost".into() })),
        Op::Ask(asked),
        Op::Answer { id: wait, answer },
        step(&waiting, 1, outcome(1, StepResult::Abandoned { reason: "so".into() }, SettledBy::Owner)),
    ];
    journal.commit(ops, Durability::Durable).unwrap();
    let base = || journal.read().session(session).unwrap().unwrap().base();
    let messages = vec![
        MessageBody::text(Role::System, "be good"),
        MessageBody { calls: vec![call], ..MessageBody::text(Role::Assistant, "trying") },
        MessageBody::tool_result(result),
    ];
    journal.commit(vec![Op::Append { session, base: base(), messages }], Durability::Durable).unwrap();
    let whole = base();
    let rewind = Op::Rewrite {
        session,
        base: whole,
        keep: 1,
        messages: vec![MessageBody::text(Role::User, "again")],
        kind: RewriteKind::Rewind,
        at_ms: 2005,
    };
    let keep = Op::KeepAsHead {
        session,
        name: "other".into(),
        from: whole.main,
        messages: vec![MessageBody::text(Role::User, "else")],
    };
    journal.commit(vec![rewind, keep], Durability::Durable).unwrap();
    let turn = Turn { id: "t".into(), base: base(), begun_ms: 2006 };
    waiting.status = RunStatus::Waiting;
    waiting.position = Position::Batch { first: 1, last: 1, untold: 1 };
    let ops = vec![Op::BeginTurn { session, turn }, Op::UpdateRun(Box::new(waiting))];
    journal.commit(ops, Durability::Durable).unwrap();
}

#[test]
fn write_the_fixture_when_asked() {
    if let Some(path) = std::env::var_os("DEED_WRITE_FIXTURE") {
        let path = Path::new(&path);
        assert!(!path.exists(), "`{}` is there; a released fixture is never written again", path.display());
        let journal = open(path);
        write(&journal);
        write_2(&journal);
        write_3(&journal);
    }
}

/// What the second format has in addition: a run that waits, with every verdict but one, and an answer by expiry.
fn write_2(journal: &Journal) {
    let run = Run::new(id(4), SessionId::from_bytes([14; 16]), [24; 16], "probed", 4000);
    let step = |event| Op::Step { run: run.id, seq: 1, event };
    let intent = |attempt| step(StepEvent::Intent(Intent { attempt, clock_ms: 4002, marks: None }));
    let probed = |attempt, verdict| step(StepEvent::Probed(Probed { attempt, verdict, probed_ms: 4003 }));
    let planned = Planned::new(
        StepKind::ToolCall,
        "git_push",
        EffectClass::NonIdempotent,
        json!({ "branch": "b" }),
        4001,
    );
    let wait = WaitId { run: run.id, seq: 1, revision: 0 };
    let asked = Asked {
        id: wait,
        kind: WaitKind::Approval,
        name: "git_push".into(),
        question: "May it?".into(),
        options: vec!["approve".into(), "deny".into()],
        opened_ms: 4001,
        expires_ms: Some(4002),
    };
    let expired = Answer { option: EXPIRED.into(), text: None, answered_ms: 4002 };
    let mut ops = vec![
        Op::CreateRun { run: Box::new(run.clone()), source: json!({ "made": "of that" }) },
        step(StepEvent::Planned(planned)),
        Op::Ask(asked),
        Op::Answer { id: wait, answer: expired },
    ];
    for (attempt, verdict) in (1..).zip(verdicts()) {
        ops.extend([intent(attempt), probed(attempt, verdict)]);
    }
    journal.commit(ops, Durability::Durable).unwrap();
}

fn verdicts() -> [ProbeVerdict; 4] {
    [
        ProbeVerdict::NotLanded,
        ProbeVerdict::Partial { what: "half".into() },
        ProbeVerdict::Failed { why: "it trapped".into() },
        ProbeVerdict::Undecidable { why: "who knows".into() },
    ]
}

#[test]
fn the_second_format_opens() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.redb");
    std::fs::copy(FIXTURE_2, &path).unwrap();
    let reader = Reader::open(&path).unwrap();
    check(&reader);
    let step = reader.step(id(4), 1).unwrap().unwrap();
    let found = step.attempts.iter().map(|attempt| attempt.probed.clone().unwrap().verdict);
    assert_eq!(found.collect::<Vec<_>>(), verdicts());
    assert_eq!((step.status(), step.attempt()), (StepStatus::Intent, 4));
    let wait = reader.wait(WaitId { run: id(4), seq: 1, revision: 0 }).unwrap().unwrap();
    assert_eq!((wait.asked.expires_ms, wait.answer.unwrap().option.as_str()), (Some(4002), EXPIRED));
}

/// What the third format has in addition: a contained step that is published, one that is not, and a question about that.
fn write_3(journal: &Journal) {
    let run = Run::new(id(5), SessionId::from_bytes([15; 16]), [25; 16], "contained", 5000);
    let step = |seq, event| Op::Step { run: run.id, seq, event };
    let args = json!({ "command": "echo tick >> log" });
    let planned = Planned {
        contained: true,
        ..Planned::new(StepKind::ToolCall, "shell", EffectClass::NonIdempotent, args, 5001)
    };
    let mut ops = vec![Op::CreateRun { run: Box::new(run.clone()), source: json!({ "made": "of more" }) }];
    for seq in [1, 2] {
        ops.push(step(seq, StepEvent::Planned(planned.clone())));
        ops.push(step(seq, StepEvent::Intent(Intent { attempt: 1, clock_ms: 5002, marks: None })));
        for (number, changes) in (0..).zip(changes().chunks(3)) {
            let diff = if number == 0 { "+tick\n".to_owned() } else { String::new() };
            let changes = Changes { attempt: 1, number, changes: changes.to_vec(), diff };
            ops.push(step(seq, StepEvent::Changes(changes)));
        }
        let outcome = Outcome {
            attempt: 1,
            result: StepResult::Completed { value: json!("done") },
            settled_by: SettledBy::Execution,
            landed_before: false,
            settled_ms: 5003,
        };
        ops.push(step(seq, StepEvent::Outcome(outcome)));
    }
    let kept = vec![PathBytes::new(*b"b\xff")];
    ops.push(step(1, StepEvent::Published(Published { attempt: 1, published_ms: 5004, kept, asks: false })));
    let kept = vec![PathBytes::new("log")];
    ops.push(step(2, StepEvent::Published(Published { attempt: 1, published_ms: 5005, kept, asks: true })));
    ops.push(Op::Ask(Asked {
        id: WaitId { run: run.id, seq: 2, revision: 1 },
        kind: WaitKind::Conflict,
        name: "shell".into(),
        question: "Which is to stay?".into(),
        options: vec!["keep".into(), "replace".into()],
        opened_ms: 5005,
        expires_ms: None,
    }));
    journal.commit(ops, Durability::Durable).unwrap();
}

fn changes() -> Vec<Change> {
    let file = |content: &[u8]| Version::File {
        digest: Digest::of(content),
        size_bytes: content.len() as u64,
        mode: 0o644,
    };
    let change = |path: &[u8], base, staged| Change { path: PathBytes::new(path), base, staged };
    vec![
        change(b"log", file(b""), file(b"tick\n")),
        change(b"d", Version::Absent, Version::Directory { mode: 0o755 }),
        change(b"d/l", Version::Special, Version::Link { target: PathBytes::new(*b"../log") }),
        change(b"b\xff", file(b"gone"), Version::Absent),
    ]
}

#[test]
fn the_third_format_opens() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.redb");
    std::fs::copy(FIXTURE_3, &path).unwrap();
    let reader = Reader::open(&path).unwrap();
    check(&reader);
    let steps = reader.steps(id(5)).unwrap();
    assert_eq!(steps.iter().map(deed_journal::Step::is_pending).collect::<Vec<_>>(), [false, true]);
    assert_eq!((&steps[1].changes, steps[1].diff.as_str()), (&changes(), "+tick\n"));
    assert_eq!(Recovery::of(&steps[1], Started::Unknown), Recovery::Publish { attempt: 1 });
    assert!(steps[1].published.as_ref().unwrap().asks);
    assert_eq!(steps[0].published.as_ref().unwrap().kept, [PathBytes::new(*b"b\xff")]);
    let wait = reader.wait(WaitId { run: id(5), seq: 2, revision: 1 }).unwrap().unwrap();
    assert_eq!(wait.asked.kind, WaitKind::Conflict);
}

#[test]
fn the_first_released_format_opens() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.redb");
    std::fs::copy(FIXTURE, &path).unwrap();
    let reader = Reader::open(&path).unwrap();
    check(&reader);
    drop(reader);

    // And it can be taken on by an owner, who reads the same.
    let journal = open(&path);
    assert_eq!(journal.generation(), 2);
    check(journal.read());
    let next = Run::new(id(3), SessionId::from_bytes([13; 16]), [23; 16], "next", 3000);
    journal
        .commit(vec![Op::CreateRun { run: Box::new(next), source: json!({}) }], Durability::Durable)
        .unwrap();
    assert_eq!(journal.read().run(id(3)).unwrap().unwrap().number, 2);
}

fn check(reader: &Reader) {
    let report = reader.verify().unwrap();
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    let runs = reader.runs().unwrap().items;
    let numbers: Vec<_> = runs.iter().map(|run| (run.id, run.number, run.steps)).collect();
    assert_eq!(numbers[..2], [(id(1), 0, 2), (id(2), 1, 1)]);
    assert_eq!(reader.run_of_call_key(&Digest::of(b"key")).unwrap(), Some(id(1)));
    assert_eq!(reader.run_source(id(1)).unwrap(), Some(json!({ "made": "of this" })));
    assert_eq!(reader.open_runs().unwrap().items[0].id, id(2));

    let steps = reader.steps(id(1)).unwrap();
    assert_eq!(steps[0].planned.args, json!({ "content": "x".repeat(100_000) }));
    assert_eq!(steps[0].receipt, Some(vec![0, 255]));
    assert_eq!((steps[0].status(), steps[0].attempt()), (StepStatus::Completed, 2));
    assert_eq!(steps[1].status(), StepStatus::Failed);
    let abandoned = reader.step(id(2), 1).unwrap().unwrap();
    assert_eq!(abandoned.status(), StepStatus::Abandoned);
    assert_eq!(abandoned.attempts[0].unsettled.as_ref().unwrap().reason, "lost");
    let wait = reader.wait(WaitId { run: id(2), seq: 1, revision: 1 }).unwrap().unwrap();
    assert_eq!((wait.asked.expires_ms, wait.answer.unwrap().text), (Some(9000), Some("why not".into())));

    let session = reader.session(SessionId::from_bytes([12; 16])).unwrap().unwrap();
    let texts = |messages: Vec<deed_journal::Message>| -> Vec<String> {
        messages.into_iter().map(|message| message.body.text).collect()
    };
    assert_eq!(texts(reader.transcript(session.id).unwrap()), ["be good", "again"]);
    let other = reader.branch(&session, session.heads["other"]).unwrap();
    assert_eq!(other[1].body.calls[0].input, json!({ "command": "true" }));
    assert_eq!(other[2].body.result.as_ref().unwrap().text, "unknown");
    assert_eq!(texts(other), ["be good", "trying", "", "else"]);
    assert_eq!(reader.rewrites(session.id).unwrap()[0].kind, RewriteKind::Rewind);
    assert_eq!(session.turn.unwrap().id, "t");
    let key = reader.key(&runs[0], 1).unwrap();
    assert_eq!(key.to_string(), KEY);
}

/// The idempotency key of step 1 of the first run: how it is minted is part of the format.
const KEY: &str = "1ef9ce9cb847f75799f3f302c97693ae";
