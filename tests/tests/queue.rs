//! One journal, several runs; one journal, several processes.

use std::{
    io::{BufRead, BufReader, Write},
    sync::mpsc,
    thread,
    time::Duration,
};

use deed_tests::{CallReply, Ending, Envelope, Kill, Point, RunRow, Sandbox, StepRow, says_yes};
use serde_json::json;

/// How long a process may take to get to its command. Only a hang reaches it.
const PATIENCE: Duration = Duration::from_mins(2);

#[test]
fn b34_the_oldest_unfinished_run_goes_first() {
    // The journal is one; the second run has a workspace and ids of its own.
    let first = Sandbox::of("fix-add");
    let second = Sandbox::of("fix-add").seeded("8");
    let kill = Kill::new(4, Point::AfterIntent);
    let killed = first.run(Some(kill)).run();
    assert_eq!(killed.ending, Ending::KILLED, "{killed}");
    let mission = second.mission();
    let workspace = second.workspace();
    let killed = second
        .deed_on(
            &first.journal(),
            ["run".as_ref(), mission.as_os_str(), "--workspace".as_ref(), workspace.as_os_str()],
        )
        .args(["--kill-at", &kill.to_string()])
        .run();
    assert_eq!(killed.ending, Ending::KILLED, "{killed}");

    let runs: Vec<RunRow> = first.deed(["runs"]).run().expect_code(0).json();
    assert_eq!(runs.len(), 2, "{runs:?}");

    let waiting: Envelope = first.resume(None).run().expect_code(4).json();
    assert_eq!(waiting.run, runs[0].run, "the oldest");
    // The first one waits for its owner, so the next that can go on is the second.
    let other: Envelope = first.resume(None).run().expect_code(4).json();
    assert_eq!(other.run, runs[1].run, "the next");

    // Answers of both are there: oldest first again.
    for wait in first.waits() {
        first.answer(&wait.wait, says_yes(&wait).unwrap()).unwrap();
    }
    for row in &runs {
        let done: Envelope = first.resume(None).run().expect_code(0).json();
        assert_eq!((done.run.as_str(), done.status.as_str()), (row.run.as_str(), "done"));
    }
    for sandbox in [&first, &second] {
        assert_eq!(sandbox.files().text("counter.log"), "tick\n");
    }
}

#[test]
fn b34_a_named_run_goes_on_whatever_its_place() {
    let first = Sandbox::of("fix-add");
    let killed = first.run(Some(Kill::new(4, Point::AfterIntent))).run();
    assert_eq!(killed.ending, Ending::KILLED, "{killed}");
    let runs: Vec<RunRow> = first.deed(["runs"]).run().expect_code(0).json();
    let prefix = &runs[0].run[..6];
    let waiting: Envelope = first.deed(["resume", prefix]).run().expect_code(4).json();
    assert_eq!(waiting.run, runs[0].run);
    let nobody = first.deed(["resume", "ffffffff"]).run().expect_code(2);
    assert!(nobody.stderr.contains("`ffffffff`"), "{nobody}");
}

#[test]
fn b34_a_second_process_is_told_who_owns_the_journal() {
    let sandbox = Sandbox::of("ticks");
    let (started_path, started) = sandbox.fifo("started");
    let (go_path, mut go) = sandbox.fifo("go");
    let command = format!(
        "echo started > '{}'; read word < '{}'; echo \"$word\"",
        started_path.display(),
        go_path.display()
    );
    let holder = sandbox.call("shell", &json!({ "command": command })).start();

    // The command says when it runs; from then on its process holds the journal until it is told to go on.
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut line = String::new();
        BufReader::new(started).read_line(&mut line).unwrap();
        tell.send(line).ok();
    });
    assert_eq!(told.recv_timeout(PATIENCE).as_deref(), Ok("started\n"), "the command runs");

    let refused = sandbox.resume(None).run().expect_code(5);
    assert!(refused.stderr.starts_with("error: "), "{refused}");
    assert!(
        refused.stderr.contains(&holder.pid().to_string()),
        "it names process {}: {refused}",
        holder.pid()
    );
    let refused = sandbox.run(None).run().expect_code(5);
    assert!(
        refused.stderr.contains(&holder.pid().to_string()),
        "it names process {}: {refused}",
        holder.pid()
    );

    go.write_all(b"gone\n").unwrap();
    let reply: CallReply = holder.wait().expect_code(0).json();
    assert!(reply.text().contains("gone"), "{reply:?}");

    // Its end frees the journal.
    let steps: Vec<StepRow> = sandbox.steps(&reply.run);
    assert!(steps.iter().any(|step| step.name == "shell" && step.status == "completed"), "{steps:?}");
}
