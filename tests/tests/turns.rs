//! Writers of one workspace take turns, whichever journal they use.

use deed_tests::{CallReply, Ending, Held, Sandbox};
use serde_json::json;

/// What a writer says that has to wait.
const WAITS: &str = "waits for another writer of this workspace";

fn write(sandbox: &Sandbox) -> deed_tests::Deed {
    let input = json!({ "path": "b.txt", "content": "beta\n" }).to_string();
    let other = sandbox.root().join("other.redb");
    let call = sandbox.deed_on(&other, ["call", "write_file", &input]);
    call.args(["--workspace".as_ref(), sandbox.workspace().as_os_str()])
}

#[test]
fn a_writer_with_another_journal_waits_for_the_call_under_way() {
    let sandbox = Sandbox::with(&json!({}), &[("a.txt", "alpha\n")]);
    let held = Held::in_call(&sandbox, &sandbox.journal());
    let mut second = write(&sandbox).start();
    second.until_said(WAITS);
    assert_eq!(sandbox.files().paths(), ["a.txt"]);

    // Whoever only reads does not wait.
    let input = json!({ "path": "a.txt" }).to_string();
    let third = sandbox.root().join("third.redb");
    let read = sandbox.deed_on(&third, ["call", "read_file", &input]);
    let read = read.args(["--workspace".as_ref(), sandbox.workspace().as_os_str()]).run().expect_code(0);
    assert_eq!(read.json::<CallReply>().text().trim_end(), "alpha");

    held.release();
    let outcome = second.wait().expect_code(0);
    assert!(outcome.stderr.contains(WAITS), "{outcome}");
    assert_eq!(sandbox.files().text("b.txt"), "beta\n");
}

#[test]
fn the_turn_of_a_process_that_was_killed_is_over() {
    let sandbox = Sandbox::with(&json!({}), &[]);
    let Held { process, mut command } = Held::in_call(&sandbox, &sandbox.journal());
    let killed = process.kill();
    assert_eq!(killed.ending, Ending::KILLED);
    let outcome = write(&sandbox).run().expect_code(0);
    assert!(!outcome.stderr.contains(WAITS), "{outcome}");
    command.end();
}

#[test]
fn a_run_that_waits_for_its_turn_stops_when_it_is_told_to() {
    let sandbox = Sandbox::with(&json!({}), &[]);
    let held = Held::in_call(&sandbox, &sandbox.journal());
    let mut second = write(&sandbox).start();
    second.until_said(WAITS);
    let pid = i32::try_from(second.pid()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let stopped = second.wait().expect_code(1);
    assert!(stopped.stderr.contains("was stopped before its next step"), "{stopped}");
    held.release();
}
