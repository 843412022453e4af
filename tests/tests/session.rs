//! Sessions on the command line: shown, branched, rewound, exported and imported.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use deed_journal::{Durability, Journal, MessageBody, Op, Role, Run, RunId, RunStatus, SessionId};
use deed_tests::made::open_journal;
use deed_tests::{Outcome, Sandbox};
use serde_json::{Value, json};

const SESSION: SessionId = SessionId::from_bytes([0xab; 16]);
const OTHER: SessionId = SessionId::from_bytes([0xcd; 16]);
const RUN: RunId = RunId::from_bytes([0x12; 16]);

fn commit(journal: &Journal, op: Op) {
    journal.commit(vec![op], Durability::Durable).unwrap();
}

fn append(journal: &Journal, session: SessionId, texts: &[&str]) {
    let base = journal.read().session(session).unwrap().unwrap().base();
    let messages = texts.iter().map(|text| MessageBody::text(Role::User, *text)).collect();
    commit(journal, Op::Append { session, base, messages });
}

/// A journal with a session of its own, of five messages, and the session of a run.
fn sandbox(status: RunStatus) -> Sandbox {
    let sandbox = Sandbox::bare();
    let journal = open_journal(&sandbox.journal());
    commit(&journal, Op::CreateSession { session: SESSION, created_ms: 1_000 });
    append(&journal, SESSION, &["one", "two", "three"]);
    append(&journal, SESSION, &["four", "five"]);
    let run = Run::new(RUN, OTHER, [1; 16], "greet", 2_000);
    commit(&journal, Op::CreateRun { run: Box::new(run.clone()), source: json!({ "calls": [] }) });
    append(&journal, OTHER, &["hello", "there"]);
    commit(&journal, Op::UpdateRun(Box::new(Run { status, ..run })));
    sandbox
}

fn deed(sandbox: &Sandbox, args: &[&str]) -> Outcome {
    sandbox.deed(args).run()
}

#[track_caller]
fn ok(sandbox: &Sandbox, args: &[&str]) -> Value {
    deed(sandbox, args).expect_code(0).json()
}

#[track_caller]
fn text(sandbox: &Sandbox, args: &[&str]) -> String {
    sandbox.deed(args).args(["--format", "text"]).run().expect_code(0).stdout
}

/// The texts of a head.
#[track_caller]
fn texts(sandbox: &Sandbox, session: &str, head: &str) -> Vec<String> {
    let shown = ok(sandbox, &["session", "show", session, "--head", head]);
    let messages = shown["messages"].as_array().unwrap().iter();
    messages.map(|message| message["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn sessions_are_listed_and_shown() {
    let sandbox = sandbox(RunStatus::Done);
    let list = ok(&sandbox, &["session", "list"]);
    assert_eq!(list.as_array().unwrap().len(), 2);
    let first = &list[0];
    let shape = [&first["session"], &first["run"], &first["count"], &first["revision"], &first["created_ms"]];
    assert_eq!(shape, [&json!(SESSION), &Value::Null, &json!(5), &json!(2), &json!(1000)]);
    assert_eq!(list[1]["run"], json!(RUN));

    let shown = ok(&sandbox, &["session", "show", "abab"]);
    assert_eq!((&shown["head"], &shown["hash"]), (&json!("main"), &shown["messages"][4]["hash"]));
    assert_eq!(texts(&sandbox, "abab", "main"), ["one", "two", "three", "four", "five"]);

    let table = text(&sandbox, &["session", "list"]);
    assert!(table.contains("abababab") && table.contains("12121212"), "{table}");
    let shown = text(&sandbox, &["session", "show", "abab"]);
    assert!(shown.contains("revision 2, 5 messages on main, 0 named heads, 0 rewrites"), "{shown}");
    assert!(shown.contains("  5 user\n      five\n"), "{shown}");
}

#[test]
fn a_session_is_named_by_its_id_its_start_or_a_run_and_by_nothing_else() {
    let sandbox = sandbox(RunStatus::Done);
    for name in [&OTHER.to_string(), "cdcd", &RUN.to_string(), "1212"] {
        assert_eq!(ok(&sandbox, &["session", "show", name])["session"], json!(OTHER), "{name}");
    }
    let mut near = *SESSION.as_bytes();
    near[15] = 0;
    let session = SessionId::from_bytes(near);
    commit(&open_journal(&sandbox.journal()), Op::CreateSession { session, created_ms: 5_000 });
    for (name, said) in [
        ("abab", "`abab` names 2 sessions; give more digits"),
        ("ab", "`ab` is too short to name a session: give at least 4 digits of its id"),
        ("beef", "there is no session or run `beef`; `deed session list` lists them"),
    ] {
        let refused = deed(&sandbox, &["session", "heads", name]).expect_code(2);
        assert!(refused.stderr.contains(said), "{refused}");
    }
    assert_eq!(ok(&sandbox, &["session", "show", &SESSION.to_string()])["count"], 5);
    let refused = deed(&sandbox, &["session", "show", "cdcd", "--head", "none"]).expect_code(2);
    assert!(refused.stderr.contains("session cdcdcdcd has no head `none`"), "{refused}");
}

#[test]
fn a_rewind_moves_main_and_what_it_cut_off_stays() {
    let sandbox = sandbox(RunStatus::Done);
    let rewound = ok(&sandbox, &["session", "rewind", "abab", "--keep", "2"]);
    let expected = json!({
        "session": SESSION, "changed": true, "kept": 2, "cut": 3, "from_revision": 2, "revision": 3,
        "left": "before:3",
    });
    assert_eq!(rewound, expected);
    assert_eq!(texts(&sandbox, "abab", "main"), ["one", "two"]);
    assert_eq!(texts(&sandbox, "abab", "before:3"), ["one", "two", "three", "four", "five"]);

    let again = ok(&sandbox, &["session", "rewind", "abab", "--keep", "2"]);
    assert_eq!((&again["changed"], &again["cut"], &again["revision"]), (&json!(false), &json!(0), &json!(3)));

    let heads = ok(&sandbox, &["session", "heads", "abab"]);
    let rows: Vec<_> = heads.as_array().unwrap().iter().map(|row| (&row["head"], &row["count"])).collect();
    assert_eq!(rows, [(&json!("main"), &json!(2)), (&json!("before:3"), &json!(5))]);
    let rewrite = json!({ "kind": "rewind", "revision": 3 });
    assert_eq!((&heads[1]["kind"], &heads[1]["rewrite"]["kind"]), (&json!("left"), &rewrite["kind"]));
    assert_eq!(heads[1]["rewrite"]["revision"], rewrite["revision"]);
    let table = text(&sandbox, &["session", "heads", "abab"]);
    assert!(table.contains("before:3") && table.contains("rewind to revision 3, 2026-01-01"), "{table}");

    let said = text(&sandbox, &["session", "rewind", "abab", "--keep", "0"]);
    assert!(said.contains("0 messages kept, 2 cut off, revision 3 to 4"), "{said}");
    assert!(said.contains("deed session show abababab --head before:4"), "{said}");
    assert_eq!(texts(&sandbox, "abab", "main"), [""; 0]);

    let refused = deed(&sandbox, &["session", "rewind", "abab", "--keep", "6"]).expect_code(2);
    assert!(refused.stderr.contains("session abababab has 0 messages; 6 cannot be kept"), "{refused}");
}

#[test]
fn the_session_of_an_unfinished_run_is_not_rewound() {
    let sandbox = sandbox(RunStatus::Waiting);
    let before = ok(&sandbox, &["session", "show", "cdcd"]);
    for name in ["cdcd", "1212"] {
        let refused = deed(&sandbox, &["session", "rewind", name, "--keep", "1"]).expect_code(2);
        let said = "session cdcdcdcd belongs to run 12121212, which is waiting and has not ended";
        assert!(refused.stderr.contains(said), "{refused}");
        assert!(refused.stderr.contains("`deed resume 12121212`"), "{refused}");
    }
    assert_eq!(ok(&sandbox, &["session", "show", "cdcd"]), before);
    // A name for a place in it is no change of it.
    ok(&sandbox, &["session", "fork", "cdcd", "start", "--at", "1"]);
    assert_eq!(texts(&sandbox, "cdcd", "main"), ["hello", "there"]);
}

#[test]
fn a_stale_rewind_is_a_conflict_with_both_revisions_and_counts() {
    let sandbox = sandbox(RunStatus::Done);
    // Main has grown since revision 1.
    let conflict = |args: &[&str]| {
        let outcome = deed(&sandbox, args).expect_code(1);
        let conflict = outcome.json::<Value>()["conflict"].clone();
        (outcome.stderr, conflict)
    };
    let stale = ["session", "rewind", "abab", "--keep", "1", "--base", "1"];
    let (said, found) = conflict(&stale);
    let expected = json!({
        "session": SESSION,
        "kind": "stale-prefix",
        "base": { "revision": 1, "count": 1 },
        "stored": { "revision": 2, "count": 5 },
    });
    assert_eq!(found, expected);
    assert!(said.contains("snapshot conflict (stale-prefix)") && said.contains("is based on revision 1"));
    assert!(said.contains("the store is at revision 2 with 5; load it again"), "{said}");
    let plain = sandbox.deed(stale).args(["--format", "text"]).run().expect_code(1);
    assert_eq!((plain.stdout.as_str(), &plain.stderr), ("", &said));

    // What revision 2 was is cut off since.
    ok(&sandbox, &["session", "rewind", "abab", "--keep", "2", "--base", "2"]);
    let (said, found) = conflict(&["session", "rewind", "abab", "--keep", "4", "--base", "2"]);
    assert_eq!(found["kind"], "rewound", "{said}");
    assert_eq!(found["base"], json!({ "revision": 2, "count": 4 }));
    assert_eq!(found["stored"], json!({ "revision": 3, "count": 2 }));
    assert_eq!(texts(&sandbox, "abab", "main"), ["one", "two"]);

    let refused = deed(&sandbox, &["session", "rewind", "abab", "--keep", "1", "--base", "9"]).expect_code(2);
    assert!(refused.stderr.contains("session abababab is at revision 3; there is no 9 yet"), "{refused}");
}

#[test]
fn a_fork_names_a_place_and_a_name_is_given_once() {
    let sandbox = sandbox(RunStatus::Done);
    let forked = ok(&sandbox, &["session", "fork", "abab", "early", "--at", "2"]);
    assert_eq!(
        (&forked["head"], &forked["count"], &forked["message"]),
        (&json!("early"), &json!(2), &json!(2))
    );
    let said = text(&sandbox, &["session", "fork", "abab", "all"]);
    assert_eq!(said, "session abababab: head `all`, 5 messages\n");
    ok(&sandbox, &["session", "rewind", "abab", "--keep", "1"]);
    // Also of what a rewrite left.
    ok(&sandbox, &["session", "fork", "abab", "lost", "--head", "before:3", "--at", "4"]);
    assert_eq!(texts(&sandbox, "abab", "early"), ["one", "two"]);
    assert_eq!(texts(&sandbox, "abab", "all").len(), 5);
    assert_eq!(texts(&sandbox, "abab", "lost"), ["one", "two", "three", "four"]);
    assert_eq!(ok(&sandbox, &["session", "list"])[0]["heads"], json!(["all", "early", "lost"]));

    let taken = deed(&sandbox, &["session", "fork", "abab", "early"]).expect_code(1);
    assert!(taken.stderr.contains("has a head `early` already; choose another name"), "{taken}");
    for (name, said) in [("main", "`main` cannot name a head"), ("a:b", "`a:b` cannot name a head")] {
        let refused = deed(&sandbox, &["session", "fork", "abab", name]).expect_code(2);
        assert!(refused.stderr.contains(said), "{refused}");
    }
    for at in ["0", "2"] {
        let refused = deed(&sandbox, &["session", "fork", "abab", "more", "--at", at]).expect_code(2);
        let said = format!("has 1 message; nothing can be named after {at}");
        assert!(refused.stderr.contains(&said), "{refused}");
    }
}

#[test]
fn an_exported_session_comes_back_equal_in_another_journal() {
    let sandbox = sandbox(RunStatus::Done);
    ok(&sandbox, &["session", "rewind", "abab", "--keep", "3"]);
    let elsewhere = Sandbox::bare();
    for head in ["main", "before:3"] {
        let file = sandbox.root().join("session.jsonl");
        let named = file.to_str().unwrap();
        let exported = ok(&sandbox, &["session", "export", "abab", named, "--head", head]);
        let printed = deed(&sandbox, &["session", "export", "abab", "--head", head]).expect_code(0);
        assert_eq!(printed.stdout, fs::read_to_string(&file).unwrap(), "a file holds what is printed");

        let imported = ok(&elsewhere, &["session", "import", named]);
        let new = imported["session"].as_str().unwrap();
        assert_ne!(new, SESSION.to_string());
        assert_eq!(imported["from"], json!({ "session": SESSION, "head": head }));
        assert_eq!((&imported["hash"], &imported["count"]), (&exported["hash"], &exported["count"]));
        assert_eq!(imported["dropped"], Value::Null);
        assert_eq!(texts(&elsewhere, new, "main"), texts(&sandbox, "abab", head));
        let hash = |sandbox, session, head| ok(sandbox, &["session", "show", session, "--head", head]);
        let (theirs, ours) = (hash(&elsewhere, new, "main"), hash(&sandbox, "abab", head));
        let hashes = |shown: &Value| -> Vec<Value> {
            shown["messages"].as_array().unwrap().iter().map(|message| message["hash"].clone()).collect()
        };
        assert_eq!(hashes(&theirs), hashes(&ours));
        assert_eq!((&theirs["run"], &theirs["revision"]), (&Value::Null, &json!(1)));
    }
    assert_eq!(ok(&elsewhere, &["session", "list"]).as_array().unwrap().len(), 2);
    assert_eq!(ok(&elsewhere, &["verify"])["damage"], json!([]));
}

#[test]
fn a10_a_torn_file_is_imported_up_to_its_last_whole_message() {
    let sandbox = sandbox(RunStatus::Done);
    let whole = deed(&sandbox, &["session", "export", "abab"]).expect_code(0).stdout.into_bytes();
    let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    assert_eq!(lines.len(), 7, "a header, five messages, a closing record");
    let upto = |lines_kept: usize| lines[..lines_kept].concat();
    let changed = String::from_utf8(upto(7)).unwrap().replace("three", "3").into_bytes();
    // The file, the messages that are whole, the first line that goes, how many go, and why.
    let cases: [(Vec<u8>, usize, u64, u64, &str); 6] = [
        (upto(4), 3, 5, 0, "the closing record is missing"),
        ([upto(4), lines[4][..20].to_vec()].concat(), 3, 5, 1, "it is no whole record"),
        ([upto(3), vec![0; 512]].concat(), 2, 4, 1, "it is no whole record"),
        (
            [upto(5), lines[6].to_vec()].concat(),
            4,
            6,
            1,
            "the closing record counts 5 messages, and 4 are there",
        ),
        ([upto(2), lines[3..].concat()].concat(), 1, 3, 4, "message 3 does not follow the one before it"),
        (changed, 2, 4, 4, "message 3 does not fit its hash"),
    ];
    let file = sandbox.root().join("torn.jsonl");
    for (torn, kept, line, lines, reason) in cases {
        fs::write(&file, &torn).unwrap();
        let imported = deed(&sandbox, &["session", "import", file.to_str().unwrap()]).expect_code(3);
        let report: Value = imported.json();
        let dropped = &report["dropped"];
        assert_eq!((&dropped["line"], &dropped["lines"]), (&json!(line), &json!(lines)), "{imported}");
        assert!(dropped["reason"].as_str().unwrap().starts_with(reason), "{imported}");
        assert!(
            imported.stderr.contains("warning: dropped") && imported.stderr.contains(reason),
            "{imported}"
        );
        let session = report["session"].as_str().unwrap();
        let expected = ["one", "two", "three", "four", "five"];
        assert_eq!(texts(&sandbox, session, "main"), expected[..kept], "{reason}");
    }
}

#[test]
fn a_file_that_is_no_export_is_refused_and_nothing_is_made_of_it() {
    let sandbox = Sandbox::bare();
    let file = sandbox.root().join("file.jsonl");
    for (content, said) in [
        ("", "it is empty; expected an export of a session"),
        ("{\"role\":\"user\"}\n", "it is no export of a session: missing field `format`"),
        ("{\"format\":\"deed-session\",\"version\":9}\n", "it has version 9"),
    ] {
        fs::write(&file, content).unwrap();
        let refused = deed(&sandbox, &["session", "import", file.to_str().unwrap()]).expect_code(2);
        assert!(refused.stderr.contains("failed to import"), "{refused}");
        assert!(refused.stderr.contains(said), "{refused}");
    }
    let refused = deed(&sandbox, &["session", "import", "absent.jsonl"]).expect_code(2);
    assert!(refused.stderr.contains("failed to read `absent.jsonl`"), "{refused}");
    assert!(!sandbox.journal().exists());
}

#[test]
fn looking_at_sessions_leaves_the_journal_as_it_is() {
    let sandbox = sandbox(RunStatus::Done);
    let before = fs::read(sandbox.journal()).unwrap();
    let commands: [&[&str]; 6] = [
        &["session", "list"],
        &["session", "show", "abab"],
        &["session", "heads", "abab"],
        &["session", "export", "abab"],
        &["recover", "--plan"],
        &["prune", "--keep", "0", "--dry-run"],
    ];
    for command in commands {
        let _ = deed(&sandbox, command).expect_code(0);
        assert!(fs::read(sandbox.journal()).unwrap() == before, "{command:?} has written");
    }
}
