//! Writers of one workspace take turns, whichever journal they use.

use std::io::Write;

use deed_tests::{CallReply, Ending, Envelope, Held, Sandbox};
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
    let sandbox = Sandbox::with(&json!({}), &[("a.txt", "alpha\n")]).uncontained();
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
    let sandbox = Sandbox::with(&json!({}), &[]).uncontained();
    let Held { process, mut command } = Held::in_call(&sandbox, &sandbox.journal());
    let killed = process.kill();
    assert_eq!(killed.ending, Ending::KILLED);
    let outcome = write(&sandbox).run().expect_code(0);
    assert!(!outcome.stderr.contains(WAITS), "{outcome}");
    command.end();
}

#[test]
fn a_run_that_waits_for_its_turn_stops_when_it_is_told_to() {
    let sandbox = Sandbox::with(&json!({}), &[]).uncontained();
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

/// While a call waits for its turn, the one before it is settled: nobody asks about it when the process dies.
#[test]
fn what_has_ended_is_durable_while_the_next_call_waits() {
    let shell = |command: &str| json!({ "tool": "shell", "input": { "command": command } });
    let sandbox = Sandbox::with(&json!({}), &[]).uncontained();
    let (go, mut ends) = sandbox.fifo("between");
    // The first command ends when the other writer is there.
    let first = format!("echo one >> log; read word < '{}'", go.display());
    sandbox.set_mission(&json!({ "objective": "Tick", "calls": [shell(&first), shell("echo two >> log")] }));
    let mut run = sandbox.run(None).args(["-v"]).start();
    // Its turn is taken when the command runs.
    let log = sandbox.workspace().join("log");
    while !log.exists() {
        assert!(run.is_running(), "it ended before its first command");
        std::thread::yield_now();
    }
    // The locks of workspaces are files; this one takes that of the test, as another writer would, for the second call.
    let locks = sandbox.home().join("state/deed/workspaces");
    let [lock] = std::fs::read_dir(&locks).unwrap().collect::<Vec<_>>().try_into().unwrap();
    let path = lock.unwrap().path();
    std::fs::remove_file(&path).unwrap();
    let other = std::fs::File::create(&path).unwrap();
    other.lock().unwrap();
    ends.write_all(b"go\n").unwrap();
    run.until_said(WAITS);
    let killed = run.kill();
    assert_eq!(killed.ending, Ending::KILLED);
    drop(other);
    let done: Envelope = sandbox.resume(None).run().expect_code(0).json();
    assert_eq!((done.status.as_str(), sandbox.files().text("log")), ("done", "one\ntwo\n"));
}
