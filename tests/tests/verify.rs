//! `deed verify`, and what goes on beside damage.
//!
//! Fault model: bytes of a journal's file that changed while nobody had it open: one flipped bit, a page of zeros, a cut
//! end.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, path::Path};

use deed_journal::StepKind;
use deed_tests::{
    Ending, Kill, Outcome, Point, RunRow, Sandbox,
    made::{append, commit, create, end, made_run, open_journal, settled_step},
};
use serde_json::{Value, json};

/// How many runs there are. Each fills some pages of the file.
const RUNS: u8 = 6;

/// A journal of six runs with sessions of their own. What a step of the third says is nowhere else in the file.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::bare();
    let journal = open_journal(&sandbox.journal());
    for byte in 1..=RUNS {
        let run = made_run(byte);
        let mut ops = vec![create(&run, json!({ "calls": [] }))];
        for seq in 1..=8 {
            let args = json!({ "said": format!("word {byte}.{seq}"), "filling": "x".repeat(700) });
            ops.extend(settled_step(run.id, seq, StepKind::ToolCall, "say", args));
        }
        commit(&journal, ops);
        commit(&journal, vec![append(&journal, run.session, &["hello", "there"]), end(&run, 1)]);
    }
    sandbox
}

fn id(byte: u8) -> String {
    made_run(byte).id.to_string()
}

fn verify(sandbox: &Sandbox) -> Outcome {
    sandbox.deed(["verify"]).run()
}

/// What verify finds, as (record, reason), after it left the file alone.
#[track_caller]
fn damage(sandbox: &Sandbox) -> (Value, Vec<(String, String)>) {
    let before = fs::read(sandbox.journal()).unwrap();
    let report: Value = verify(sandbox).expect_code(6).json();
    assert!(fs::read(sandbox.journal()).unwrap() == before, "the journal itself is only read");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let found = report["damage"].as_array().unwrap().iter();
    let found = found.map(|damage| (text(&damage["record"]), text(&damage["reason"]))).collect();
    (report, found)
}

/// Flip one bit of `needle`, wherever the file holds it: also in pages that nothing refers to any more.
fn flip(journal: &Path, needle: &[u8]) {
    let mut bytes = fs::read(journal).unwrap();
    let found = bytes.windows(needle.len()).enumerate().filter(|(_, window)| *window == needle);
    let places: Vec<usize> = found.map(|(at, _)| at).collect();
    assert_ne!(places, [0; 0], "it is in the file");
    for at in places {
        bytes[at] ^= 1;
    }
    fs::write(journal, bytes).unwrap();
}

#[test]
fn a_clean_journal_verifies_and_is_not_touched() {
    let sandbox = sandbox();
    let before = fs::read(sandbox.journal()).unwrap();
    let report: Value = verify(&sandbox).expect_code(0).json();
    // A run's step is a plan, an outcome and their count; beside it are its record, its source, its session and messages.
    let records = 1 + u64::from(RUNS) * (8 * 3 + 3 + 2);
    let expected = json!({
        "journal": sandbox.journal(), "records": records, "runs": RUNS, "sessions": RUNS, "damage": [],
    });
    assert_eq!(report, expected);
    let said = sandbox.deed(["verify"]).args(["--format", "text"]).run().expect_code(0).stdout;
    let counts = format!("{records} records, 0 damaged; {RUNS} runs and {RUNS} sessions read whole");
    assert!(said.ends_with(&format!("{counts}\n")), "{said}");
    assert!(fs::read(sandbox.journal()).unwrap() == before);
}

#[test]
fn a_journal_that_was_killed_verifies_without_being_repaired() {
    let sandbox = Sandbox::of("same-line");
    let killed = sandbox.run(Some(Kill::new(4, Point::AfterCommit))).run();
    assert_eq!(killed.ending, Ending::KILLED, "{killed}");
    let before = fs::read(sandbox.journal()).unwrap();
    let report: Value = verify(&sandbox).expect_code(0).json();
    assert_eq!((&report["runs"], &report["damage"]), (&json!(1), &json!([])));
    assert!(fs::read(sandbox.journal()).unwrap() == before);
}

#[test]
fn a20_a_flipped_bit_is_named_and_does_not_stop_other_runs() {
    let sandbox = sandbox();
    flip(&sandbox.journal(), b"word 3.5");
    let (report, found) = damage(&sandbox);
    let record = format!("step of run {}, number 5", id(3));
    assert_eq!(found, [(record.clone(), "its checksum does not match".to_owned())]);
    assert_eq!((&report["runs"], &report["sessions"]), (&json!(RUNS - 1), &json!(RUNS)));
    let said = sandbox.deed(["verify"]).args(["--format", "text"]).run().expect_code(6).stdout;
    assert!(said.starts_with(&format!("damaged: {record}: its checksum does not match\n")), "{said}");

    let refused = sandbox.deed(["steps", &id(3)]).run().expect_code(6);
    assert!(refused.stderr.contains(&format!("record {record} is damaged")), "{refused}");
    for byte in [1, 2, 4, 5, 6] {
        assert_eq!(sandbox.steps(&id(byte)).len(), 8);
    }
    let runs: Vec<RunRow> = sandbox.deed(["runs"]).run().expect_code(0).json();
    assert_eq!(runs.len(), usize::from(RUNS));
    let transcript: Value = sandbox.deed(["transcript", &id(3)]).run().expect_code(0).json();
    assert_eq!(transcript.as_array().unwrap().len(), 2, "its transcript is not damaged");
    // Another run is recorded and executed in the same journal.
    fs::write(sandbox.workspace().join("a.txt"), "alpha\n").unwrap();
    let _ = sandbox.call("read_file", &json!({ "path": "a.txt" })).run().expect_code(0);
}

/// The host looked at every run's steps when one had ended, and failed over a damaged one: the run that had ended looked
/// failed, and whoever tried it again repeated its effects.
#[test]
fn a_damaged_run_that_waits_makes_no_other_run_look_failed() {
    let question = json!({ "question": "word of the first", "options": ["yes"] });
    let waits = json!({ "objective": "Wait", "calls": [{ "tool": "ask_owner", "input": question }] });
    let sandbox = Sandbox::bare();
    sandbox.set_mission(&waits);
    let _ = sandbox.run(None).run().expect_code(4);
    flip(&sandbox.journal(), b"word of the first");
    let call = json!({ "tool": "write_file", "input": { "path": "b.txt", "content": "beta\n" } });
    sandbox.set_mission(&json!({ "objective": "Write", "calls": [call] }));
    let seeded = sandbox.seeded("8");
    let done: Value = seeded.run(None).run().expect_code(0).json();
    assert_eq!((done["status"].as_str(), seeded.files().text("b.txt")), (Some("done"), "beta\n"));
}

#[test]
fn a20_every_page_can_be_lost_and_what_still_reads_is_told() {
    let sandbox = sandbox();
    let whole = fs::read(sandbox.journal()).unwrap();
    let (mut in_use, mut told_apart) = (0, 0);
    for page in (0..whole.len()).step_by(4096) {
        let mut torn = whole.clone();
        torn[page..page + 4096].fill(0);
        fs::write(sandbox.journal(), &torn).unwrap();
        let outcome = verify(&sandbox);
        assert!(fs::read(sandbox.journal()).unwrap() == torn, "page at {page}");
        // The first page is the file's own: without it nobody knows what it is.
        if page == 0 {
            assert!(outcome.clone().expect_code(6).stderr.contains("is no journal"), "{outcome}");
            continue;
        }
        let report: Value = outcome.json();
        let (runs, found) = (report["runs"].as_u64().unwrap(), report["damage"].as_array().unwrap().len());
        if found == 0 {
            assert_eq!(report["runs"], json!(RUNS), "page at {page}: {outcome}");
            let _ = outcome.expect_code(0);
        } else {
            in_use += 1;
            told_apart += u32::from((1..u64::from(RUNS)).contains(&runs));
            let _ = outcome.expect_code(6);
        }
    }
    assert!(in_use >= 20, "{in_use} pages hold something");
    assert!(told_apart >= 10, "{told_apart} of {in_use} losses left some runs and took others");
}

#[test]
fn a20_a_cut_file_and_one_that_is_something_else_are_refused() {
    let sandbox = sandbox();
    let whole = fs::read(sandbox.journal()).unwrap();
    fs::write(sandbox.journal(), &whole[..whole.len() / 2]).unwrap();
    let (report, found) = damage(&sandbox);
    assert_eq!((&report["records"], &report["runs"]), (&Value::Null, &json!(0)));
    assert_eq!(found[0].0, "store");

    fs::write(sandbox.journal(), "something else, and long enough to be taken for a journal").unwrap();
    let refused = verify(&sandbox).expect_code(6);
    assert!(refused.stderr.contains("is no journal"), "{refused}");
    fs::remove_file(sandbox.journal()).unwrap();
    let refused = verify(&sandbox).expect_code(2);
    assert!(refused.stderr.contains("there is no journal at"), "{refused}");
}

#[test]
fn a_journal_in_use_is_not_verified() {
    let sandbox = sandbox();
    let journal = open_journal(&sandbox.journal());
    let refused = verify(&sandbox).expect_code(5);
    assert!(refused.stderr.contains(&format!("in use by process {}", std::process::id())), "{refused}");
    drop(journal);
    let _ = verify(&sandbox).expect_code(0);
}

/// How many bits are flipped, one at a time, spread over the whole file.
const FLIPS: usize = 600;

#[test]
fn a20_a_bit_flipped_anywhere_gives_what_was_there_or_an_error_and_never_anything_else() {
    let sandbox = sandbox();
    let whole = fs::read(sandbox.journal()).unwrap();
    let copy = sandbox.root().join("flipped.redb");
    let read = |journal: &Path| {
        let steps = sandbox.deed_on(journal, ["steps", &id(4)]).run();
        let transcript = sandbox.deed_on(journal, ["transcript", &id(4)]).run();
        [steps, transcript]
    };
    let reference = read(&sandbox.journal()).map(|outcome| outcome.expect_code(0).stdout);
    let (mut same, mut refused) = (0, 0);
    for number in 0..FLIPS {
        // Every place is met once; the bit within it differs.
        let at = number * (whole.len() / FLIPS) + (number * 97) % (whole.len() / FLIPS);
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (number % 8);
        fs::write(&copy, &bytes).unwrap();
        for (outcome, expected) in read(&copy).into_iter().zip(&reference) {
            match outcome.ending {
                Ending::Exit(0) => {
                    assert_eq!(outcome.stdout, *expected, "byte {at}: something else was served");
                    same += 1;
                }
                Ending::Exit(1 | 2 | 6)
                    if outcome.stderr.contains("error: ") && outcome.stdout.is_empty() =>
                {
                    refused += 1;
                }
                _ => panic!("byte {at}: {outcome}"),
            }
        }
        let _ = fs::remove_file(&copy);
        let _ = fs::remove_file(sandbox.root().join("flipped.redb.owner"));
        let _ = fs::remove_file(sandbox.root().join("flipped.redb.marks"));
    }
    println!("{FLIPS} flips: {same} answers unharmed, {refused} refused");
    assert!(same > 0 && refused > 0);
}
