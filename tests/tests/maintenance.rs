//! Keeping a journal: recovery of turns, retention, compaction, and what crash loops and a full disk do to its size.
//!
//! Fault model: SIGKILL of a real process, at a named point or once it has made a number of writes; a file that may not
//! grow. What the kernel was handed survives both.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeSet, fs, path::Path};

use deed_journal::{Durability, Journal, Op, Run, StepKind, Turn};
use deed_tests::{
    Ending, Envelope, Kill, Message, Point, RunRow, Sandbox,
    made::{append, commit, create, end, made_run, open_journal, settled_step},
};
use serde_json::{Value, json};

/// What the fixed clock of the harness says: 2026-01-01.
const NOW_MS: u64 = 1_767_225_600_000;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

const STEPS: u64 = 6;

/// Record an ended run with steps and messages that name it.
fn record_run(journal: &Journal, byte: u8, ended_ms: u64) -> Run {
    let run = made_run(byte);
    let mut ops = vec![create(&run, json!({ "calls": [] }))];
    for seq in 1..=STEPS {
        let args = json!({ "of": byte, "filling": "x".repeat(2_000) });
        ops.extend(settled_step(run.id, seq, StepKind::ToolCall, "say", args));
    }
    commit(journal, ops);
    let said = format!("of {byte}");
    commit(journal, vec![append(journal, run.session, &[&said, "and more"]), end(&run, ended_ms)]);
    run
}

fn size(sandbox: &Sandbox) -> u64 {
    fs::metadata(sandbox.journal()).unwrap().len()
}

/// Every run that is there is there whole, and of the others nothing is left. Returns those that are there.
#[track_caller]
fn whole_or_gone(path: &Path, runs: &[u8]) -> BTreeSet<u8> {
    let journal = open_journal(path);
    let reader = journal.read();
    let damage = reader.verify().unwrap().damage;
    assert!(damage.is_empty(), "{damage:?}");
    let there = runs.iter().copied().filter(|byte| {
        let run = made_run(*byte);
        let steps = reader.steps(run.id).unwrap();
        let transcript = reader.transcript(run.session).unwrap();
        if reader.run(run.id).unwrap().is_none() {
            assert_eq!((steps.len(), transcript.len()), (0, 0), "run {byte} left something behind");
            return false;
        }
        assert_eq!(steps.len() as u64, STEPS, "run {byte} lost steps");
        assert!(steps.iter().all(|step| step.planned.args["of"] == *byte), "run {byte} has steps of another");
        assert_eq!(transcript[0].body.text, format!("of {byte}"));
        assert_eq!(transcript.len(), 2, "run {byte} lost messages");
        true
    });
    there.collect()
}

#[test]
fn a_recovery_does_what_its_plan_says() {
    for tail in ["keep", "warn", "strip"] {
        let sandbox = Sandbox::bare();
        let journal = open_journal(&sandbox.journal());
        // A session of nobody's, one of an ended run, one of a run that goes on.
        for (byte, partial) in [(1, 2), (2, 0), (3, 1)] {
            let run = made_run(byte);
            commit(&journal, vec![create(&run, json!({ "calls": [] }))]);
            commit(&journal, vec![append(&journal, run.session, &["before"])]);
            let base = journal.read().session(run.session).unwrap().unwrap().base();
            let turn = Turn { id: format!("turn-{byte}"), base, begun_ms: 5 };
            commit(&journal, vec![Op::BeginTurn { session: run.session, turn }]);
            for _ in 0..partial {
                commit(&journal, vec![append(&journal, run.session, &["partial"])]);
            }
            if byte < 3 {
                commit(&journal, vec![end(&run, 9)]);
            }
        }
        drop(journal);

        for format in ["text", "json"] {
            let before = fs::read(sandbox.journal()).unwrap();
            let recover = |args: &[&str]| {
                let deed = sandbox.deed(["recover", "--tail", tail, "--format", format]).args(args);
                deed.run().expect_code(0).stdout
            };
            let plan = recover(&["--plan"]);
            assert!(fs::read(sandbox.journal()).unwrap() == before, "a plan writes nothing");
            assert_eq!(recover(&[]), plan, "--tail {tail}");
            // What it says the second time, it says again: only the unfinished run is left.
            let again = recover(&[]);
            assert_eq!(recover(&["--plan"]), again);
            assert_eq!(again.matches("turn-").count(), 1, "{again}");
            fs::write(sandbox.journal(), before).unwrap();
        }

        let done: Value = sandbox.deed(["recover", "--tail", tail]).run().expect_code(0).json();
        let of = |byte: u8| {
            let session = json!(made_run(byte).session);
            let mut items = done.as_array().unwrap().iter();
            items.find(|item| item["session"] == session).unwrap().clone()
        };
        let stripped = tail == "strip";
        assert_eq!(of(1)["action"], if stripped { "strip" } else { "keep" });
        assert_eq!((&of(1)["messages"], &of(1)["warn"]), (&json!(2), &json!(tail == "warn")));
        assert_eq!((&of(2)["action"], &of(2)["messages"]), (&json!("keep"), &json!(0)));
        assert_eq!((&of(3)["action"], &of(3)["run"]), (&json!("leave"), &json!(made_run(3).id)));
        let count = |byte| {
            let shown = sandbox.deed(["session", "show", &made_run(byte).session.to_string()]).run();
            shown.expect_code(0).json::<Value>()["count"].as_u64().unwrap()
        };
        assert_eq!([count(1), count(2), count(3)], [if stripped { 1 } else { 3 }, 1, 2], "--tail {tail}");
    }
}

#[test]
fn runs_are_pruned_by_count_and_by_age() {
    let sandbox = Sandbox::bare();
    let journal = open_journal(&sandbox.journal());
    for byte in 1..=6 {
        record_run(&journal, byte, NOW_MS - u64::from(7 - byte) * DAY_MS);
    }
    let unfinished = made_run(7);
    commit(&journal, vec![create(&unfinished, json!({ "calls": [] }))]);
    drop(journal);

    let prune = |args: &[&str]| -> Vec<String> {
        let report: Value = sandbox.deed(["prune"]).args(args).run().expect_code(0).json();
        assert_eq!(report["dry_run"], args.contains(&"--dry-run"));
        let removed = report["removed"].as_array().unwrap().iter();
        removed.map(|run| run["objective"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(prune(&["--older-than", "5", "--dry-run"]), ["run 1", "run 2"]);
    assert_eq!(prune(&["--older-than", "5"]), ["run 1", "run 2"]);
    assert_eq!(prune(&["--older-than", "5"]), [""; 0]);
    assert_eq!(prune(&["--keep", "2", "--dry-run"]), ["run 3", "run 4"]);
    let said = sandbox.deed(["prune", "--keep", "2", "--format", "text"]).run().expect_code(0);
    assert!(said.stdout.starts_with("03030303  done, 2025-12-28"), "{said}");
    assert!(said.stderr.contains("`deed compact`"), "{said}");
    assert_eq!(prune(&["--keep", "0", "--older-than", "1"]), ["run 5", "run 6"]);
    let left: Vec<RunRow> = sandbox.deed(["runs"]).run().expect_code(0).json();
    assert_eq!(left.len(), 1, "what has not ended stays: {left:?}");

    let refused = sandbox.deed(["prune"]).run().expect_code(2);
    assert!(refused.stderr.contains("`--keep N`, `--older-than DAYS`"), "{refused}");
}

#[test]
fn a_journal_is_compacted_when_nobody_has_it_open() {
    let sandbox = Sandbox::bare();
    let journal = open_journal(&sandbox.journal());
    for byte in 1..=40 {
        record_run(&journal, byte, 1);
    }
    let held = sandbox.deed(["compact"]).run().expect_code(5);
    assert!(held.stderr.contains(&format!("in use by process {}", std::process::id())), "{held}");
    drop(journal);
    let _ = sandbox.deed(["prune", "--keep", "2"]).run().expect_code(0);
    let before = size(&sandbox);
    let report: Value = sandbox.deed(["compact"]).run().expect_code(0).json();
    assert_eq!((&report["before_bytes"], &report["after_bytes"]), (&json!(before), &json!(size(&sandbox))));
    assert!(size(&sandbox) * 4 < before, "{report}");
    assert_eq!(whole_or_gone(&sandbox.journal(), &[38, 39, 40]), BTreeSet::from([39, 40]));
    let said = sandbox.deed(["compact", "--format", "text"]).run().expect_code(0).stdout;
    assert!(said.contains("KiB before, ") && said.trim_end().ends_with("KiB after"), "{said}");
    let missing = sandbox.deed_on(Path::new("absent.redb"), ["compact"]).run().expect_code(2);
    assert!(missing.stderr.contains("there is no journal at `absent.redb`"), "{missing}");
}

/// The instants are numbers of writes, from a fixed list: some fall into opening, some into removing, some into the sync.
#[test]
fn c08_killed_within_pruning_and_compacting_each_run_is_whole_or_gone_and_an_id_starts_afresh() {
    let sandbox = Sandbox::bare();
    let all: Vec<u8> = (1..=60).collect();
    let journal = open_journal(&sandbox.journal());
    for byte in &all {
        record_run(&journal, *byte, 1);
    }
    drop(journal);

    let mut there: BTreeSet<u8> = all.iter().copied().collect();
    let mut kills = 0;
    let instants = [1, 2, 3, 5, 8, 12, 16, 20, 25, 30, 40, 50];
    for (round, writes) in (1..).zip(instants) {
        // Two runs more may go in each round.
        let keep = 60 - 2 * round;
        for command in
            [vec!["prune".to_owned(), "--keep".to_owned(), keep.to_string()], vec!["compact".to_owned()]]
        {
            let outcome = sandbox.deed(&command).start().kill_after_writes(writes);
            match outcome.ending {
                Ending::KILLED => kills += 1,
                _ => drop(outcome.expect_code(0)),
            }
            let left = whole_or_gone(&sandbox.journal(), &all);
            assert!(left.is_subset(&there), "round {round}: a run came back");
            assert!(left.len() >= keep && left.contains(&60), "round {round}: {left:?}");
            there = left;
        }
    }
    assert!(kills > 0, "no process died, so nothing was shown");
    println!("{kills} processes died");

    let _ = sandbox.deed(["prune", "--keep", "36"]).run().expect_code(0);
    let _ = sandbox.deed(["compact"]).run().expect_code(0);
    assert_eq!(whole_or_gone(&sandbox.journal(), &all), (25..=60).collect());
    let transcript: Vec<Message> =
        sandbox.deed(["transcript", &made_run(60).id.to_string()]).run().expect_code(0).json();
    assert_eq!(transcript[0].text, "of 60", "the full history of what stays loads");

    // The id of a run that went is used again.
    let run = made_run(1);
    let journal = open_journal(&sandbox.journal());
    commit(&journal, vec![create(&run, json!({ "calls": [] }))]);
    assert_eq!(journal.read().steps(run.id).unwrap(), []);
    commit(&journal, settled_step(run.id, 1, StepKind::ToolCall, "new", json!({ "of": "new" })).into());
    drop(journal);
    let steps = sandbox.steps(&run.id.to_string());
    assert_eq!(steps.iter().map(|step| step.name.as_str()).collect::<Vec<_>>(), ["new"]);
    let transcript: Vec<Message> =
        sandbox.deed(["transcript", &run.id.to_string()]).run().expect_code(0).json();
    assert_eq!(transcript, [], "nothing of the old one shows");
    let _ = sandbox.deed(["verify"]).run().expect_code(0);
}

/// A batch that writes a file and reads it.
fn write_and_read() -> Sandbox {
    let batch = json!({
        "objective": "Write and read",
        "tools": ["fs"],
        "calls": [
            { "tool": "write_file", "input": { "path": "a.txt", "content": "x".repeat(2_000) } },
            { "tool": "read_file", "input": { "path": "a.txt" } },
        ]
    });
    let sandbox = Sandbox::bare();
    sandbox.set_mission(&batch);
    sandbox
}

/// The files beside the journal, with the workspace's.
fn file_names(sandbox: &Sandbox) -> BTreeSet<String> {
    let names = [sandbox.root(), &sandbox.workspace()]
        .map(|dir| fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()));
    names.into_iter().flatten().collect()
}

/// The step that writes: after the prefix and the policy.
const WRITES: u64 = 3;

/// Loops before sizes count: by then as many runs have ended as retention keeps.
const WARM_UP: usize = 10;

#[test]
fn c12_a_hundred_runs_that_each_crash_leave_the_disk_as_full_as_ten() {
    let sandbox = write_and_read();
    let mut sizes = Vec::new();
    let mut compacted = Vec::new();
    let mut names = BTreeSet::new();
    let points = [Point::BeforeIntent, Point::AfterIntent, Point::AfterExec, Point::AfterCommit];
    for (number, point) in (1..=100).zip(points.into_iter().cycle()) {
        let killed = sandbox.run(Some(Kill::new(WRITES, point))).run();
        assert_eq!(killed.ending, Ending::KILLED, "loop {number} at {point}: {killed}");
        let envelope: Envelope = sandbox.resume(None).run().expect_code(0).json();
        assert_eq!(envelope.status, "done", "loop {number}");
        let _ = sandbox.deed(["prune", "--keep", "5"]).run().expect_code(0);
        sizes.push(size(&sandbox));
        if number == WARM_UP {
            names = file_names(&sandbox);
        }
        if number == WARM_UP || number == 100 {
            let report: Value = sandbox.deed(["compact"]).run().expect_code(0).json();
            compacted.push(report["after_bytes"].as_u64().unwrap());
        }
    }
    // When the store runs out of room it doubles its file, and gives the end back as soon as that is free: so the file is
    // at most twice what it needs, and what it needs at most twice what it was in the warm-up.
    let warm = sizes[..WARM_UP].iter().max().unwrap();
    let most = sizes.iter().max().unwrap();
    println!("file: {warm} bytes at most in the warm-up, {most} at all; compacted {compacted:?}");
    assert!(*most <= 4 * warm, "{sizes:?}");
    // What it needs: the same number of runs takes the same room, but for a page here and there.
    let [ten, hundred] = compacted[..] else { panic!("it was compacted twice") };
    assert!(hundred.abs_diff(ten) * 4 <= ten, "{ten} bytes after ten loops, {hundred} after a hundred");
    assert_eq!(file_names(&sandbox), names, "no file is left over");
    let _ = sandbox.deed(["verify"]).run().expect_code(0);
}

#[test]
fn c12_one_run_that_crashes_a_hundred_times_at_one_place_does_not_fill_the_disk() {
    let sandbox = write_and_read();
    let first = sandbox.run(Some(Kill::new(WRITES, Point::AfterExec))).run();
    assert_eq!(first.ending, Ending::KILLED, "{first}");
    let begun = size(&sandbox);
    for number in 1..=100 {
        let killed = sandbox.resume(Some(Kill::new(WRITES, Point::AfterExec))).run();
        assert_eq!(killed.ending, Ending::KILLED, "loop {number}: {killed}");
    }
    let envelope: Envelope = sandbox.resume(None).run().expect_code(0).json();
    // Each attempt is an intent of some 200 bytes, and a doubling of the file on top.
    let most = 2 * (begun + 100 * 512);
    println!("file: {begun} bytes after the first crash, {} after a hundred more", size(&sandbox));
    assert!(size(&sandbox) <= most, "{} bytes, {begun} at the beginning", size(&sandbox));
    assert_eq!(sandbox.steps(&envelope.run)[2].attempt, 102, "every attempt is on record");
    assert_eq!(sandbox.files().text("a.txt").len(), 2_000);
}

/// The disk is full at a limit on the journal's file, which the kernel enforces: a write beyond it fails.
#[test]
fn c12_a_full_disk_is_said_and_with_room_it_works_again() {
    let batch = |name: &str| {
        let call = |number: usize| {
            let content = format!("{name} {number}\n").repeat(300);
            json!({ "tool": "write_file", "input": { "path": format!("{number}.txt"), "content": content } })
        };
        let calls: Vec<Value> = (1..=20).map(call).collect();
        json!({ "objective": "Fill the disk", "tools": ["fs"], "calls": calls })
    };
    let sandbox = Sandbox::bare();
    sandbox.set_mission(&batch("first"));
    // Unlimited first: how large it grows, and a journal to begin with.
    let done: Envelope = sandbox.run(None).run().expect_code(0).json();
    let (needs, begun) = (size(&sandbox), fs::read(sandbox.journal()).unwrap());
    sandbox.set_mission(&batch("second"));
    let (mut in_creation, mut in_the_middle) = (0, 0);
    for limit_kib in (2..=32).map(|quarters| needs * quarters / 4 / 1024) {
        fs::write(sandbox.journal(), &begun).unwrap();
        let outcome = sandbox.run(None).file_limit_kib(limit_kib).run();
        let runs: Vec<RunRow> = sandbox.deed(["runs"]).run().expect_code(0).json();
        if outcome.ending == Ending::Exit(0) {
            assert_eq!(runs[1].status, "done");
            continue;
        }
        let outcome = outcome.expect_code(1);
        assert!(outcome.stderr.starts_with("error: "), "{outcome}");
        assert!(outcome.stderr.contains("File too large (os error 27)"), "{limit_kib} KiB: {outcome}");
        assert_eq!(outcome.stdout, "", "nothing was claimed");
        // There is room again.
        if runs.len() == 1 {
            in_creation += 1;
            continue;
        }
        in_the_middle += 1;
        let resumed: Envelope = sandbox.resume(None).run().expect_code(0).json();
        assert_eq!((resumed.status.as_str(), &resumed.run), ("done", &runs[1].run), "{limit_kib} KiB");
        assert_eq!(sandbox.files().text("20.txt"), "second 20\n".repeat(300), "{limit_kib} KiB");
        assert_eq!(sandbox.steps(&done.run).len(), 22, "the run before it is whole");
        let _ = sandbox.deed(["verify"]).run().expect_code(0);
    }
    println!("full before the run began: {in_creation}, in its middle: {in_the_middle}");
    assert!(in_creation > 0 && in_the_middle > 0, "both were seen");
}

const TURNS: u64 = 50;
const CALLS_OF_A_TURN: u64 = 1_000;

/// A mission with 50 turns of 1,000 calls each behind it and one to come, as it is when its process dies idle.
fn long_session(sandbox: &Sandbox) -> (Run, u64) {
    use deed_journal::{MessageBody, Position, Role, RunStatus, ToolCall, ToolResult};

    let elsewhere = sandbox.root().join("built.redb");
    let journal = open_journal(&elsewhere);
    let mut script = vec![json!({}); usize::try_from(TURNS).unwrap()];
    script.push(
        json!({ "say": "Done.", "calls": [{ "tool": "finish", "input": { "summary": "All 50,000." } }] }),
    );
    let mission =
        json!({ "mission": { "objective": "long", "tools": ["fs"], "model": { "script": script } } });
    let mut run = made_run(1);
    run.workspace = Some(sandbox.workspace().to_str().unwrap().to_owned());
    commit(&journal, vec![create(&run, mission)]);
    let step = |seq, kind, name: &str, args| settled_step(run.id, seq, kind, name, args);
    commit(&journal, step(1, StepKind::Setup, "prefix", json!({})).into());
    let mut base = deed_journal::Base { revision: 0, main: None };
    let mut seq = 1;
    for _ in 0..TURNS {
        let mut ops = Vec::new();
        for (kind, name) in [(StepKind::Policy, "snapshot"), (StepKind::ModelCall, "scripted")] {
            seq += 1;
            ops.extend(step(seq, kind, name, json!({})));
        }
        let mut calls = Vec::new();
        let mut results = Vec::new();
        for _ in 0..CALLS_OF_A_TURN {
            seq += 1;
            let (id, tool) = (format!("call-{seq}"), "read_file".to_owned());
            let input = json!({ "path": format!("{seq}.txt") });
            ops.extend(step(seq, StepKind::ToolCall, &tool, input.clone()));
            calls.push(ToolCall { id: id.clone(), tool: tool.clone(), input });
            let text = format!("content of {seq}");
            results.push(MessageBody::tool_result(ToolResult { call: id, tool, ok: true, text }));
        }
        let asked = MessageBody { calls, ..MessageBody::text(Role::Assistant, "Reading.") };
        let messages: Vec<_> = std::iter::once(asked).chain(results).collect();
        ops.push(Op::Append { session: run.session, base, messages });
        journal.commit(ops, Durability::Riding).unwrap();
        base = journal.read().session(run.session).unwrap().unwrap().base();
    }
    run.status = RunStatus::Running;
    run.position = Position::Turn { seq: seq + 1 };
    let update = vec![Op::UpdateRun(Box::new(run.clone()))];
    journal.commit(update, Durability::DurableForQuickOpen).unwrap();
    // The journal is open: this is what a kill leaves of it.
    fs::copy(&elsewhere, sandbox.journal()).unwrap();
    drop(journal);
    (run, seq)
}

#[test]
fn c13_a_session_of_fifty_thousand_calls_is_resumed_and_read() {
    let sandbox = Sandbox::bare();
    let (run, seq) = long_session(&sandbox);
    let resumed: Envelope = sandbox.resume(None).run().expect_code(0).json();
    assert_eq!((resumed.status.as_str(), resumed.run), ("done", run.id.to_string()));
    assert_eq!(resumed.result.as_deref(), Some("All 50,000."));
    assert_eq!(resumed.usage.turns, 1, "nothing of what was recorded was done again");

    let steps = sandbox.steps(&run.id.to_string());
    assert_eq!(steps.len() as u64, seq + 3, "the policy, the model's answer and the last call were added");
    assert!(steps.iter().zip(1..).all(|(step, seq)| step.seq == seq && step.status == "completed"));
    let calls = steps.iter().filter(|step| step.name == "read_file").count() as u64;
    assert_eq!(calls, TURNS * CALLS_OF_A_TURN);
    let transcript: Vec<Message> =
        sandbox.deed(["transcript", &run.id.to_string()]).run().expect_code(0).json();
    assert_eq!(transcript.len() as u64, TURNS * (CALLS_OF_A_TURN + 1) + 1, "the call of `finish` was added");
    let report: Value = sandbox.deed(["verify"]).run().expect_code(0).json();
    assert_eq!((&report["runs"], &report["sessions"]), (&json!(1), &json!(1)));
}
