//! One journal, several runs; one journal, several processes.

use deed_tests::{Ending, Envelope, Held, Kill, Point, RunRow, Sandbox, StepRow, says_yes};

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
    let holder = Held::in_call(&sandbox, &sandbox.journal());
    let pid = holder.process.pid();

    let refused = sandbox.resume(None).run().expect_code(5);
    assert!(refused.stderr.starts_with("error: "), "{refused}");
    assert!(refused.stderr.contains(&format!("in use by process {pid}")), "{refused}");
    let refused = sandbox.run(None).run().expect_code(5);
    assert!(refused.stderr.contains(&format!("in use by process {pid}")), "{refused}");

    let reply = holder.release();

    // Its end frees the journal.
    let steps: Vec<StepRow> = sandbox.steps(&reply.run);
    assert!(steps.iter().any(|step| step.name == "shell" && step.status == "completed"), "{steps:?}");
}
