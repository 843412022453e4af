//! One process of a mission dies by SIGKILL at a named place; fresh ones finish; nothing differs from the undisturbed run.
//!
//! Fault model: SIGKILL of a real process at a point between two actions of the host, once. The kernel and the disk live on.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::sync::LazyLock;

use deed_tests::{
    Envelope, Kill, Passage, Point, Sandbox, Section, Snapshot, Trial, never_asked, reference, says_yes,
    trial,
};

static REFERENCE: LazyLock<(Passage, Snapshot)> =
    LazyLock::new(|| reference("fix-add", &says_yes).unwrap_or_else(|error| panic!("{error}")));

/// Kill the reference mission at the `nth` step with this `kind/name`, and hold it against the undisturbed run.
#[track_caller]
fn killed(title: &str, nth: usize, point: Point) -> Trial {
    let (_, reference) = &*REFERENCE;
    let trial = trial("fix-add", Kill::new(reference.seq(title, nth), point), &says_yes).unwrap();
    as_undisturbed(trial, reference)
}

#[track_caller]
fn as_undisturbed(trial: Trial, reference: &Snapshot) -> Trial {
    let Trial { kill, passage, snapshot } = &trial;
    assert_eq!(passage.kills, 1, "no process died at {kill}: {:?}", passage.endings());
    assert_eq!(passage.envelope.status, "done", "killed at {kill}");
    let differences = snapshot.compare(reference).and_then(|()| snapshot.requests_are_prefixes());
    if let Err(differences) = differences {
        panic!("killed at {kill}: {differences}");
    }
    trial
}

#[test]
fn b05_the_second_of_three_parallel_reads_after_exec() {
    killed("tool_call/read_file", 2, Point::AfterExec);
}

#[test]
fn b06_the_first_read_of_the_batch_after_commit() {
    killed("tool_call/read_file", 1, Point::AfterCommit);
}

#[test]
fn b07_the_last_call_of_the_read_batch_before_intent() {
    killed("tool_call/list_dir", 1, Point::BeforeIntent);
}

#[test]
fn b08_the_setup_prefix_after_exec() {
    killed("setup/prefix", 1, Point::AfterExec);
}

#[test]
fn b09_the_git_branch_after_exec() {
    let trial = killed("setup/git_branch", 1, Point::AfterExec);
    assert_eq!(trial.snapshot.references.len(), 2, "one branch was made: {:?}", trial.snapshot.references);
}

#[test]
fn b10_the_first_model_call_after_intent() {
    let trial = killed("model_call/scripted", 1, Point::AfterIntent);
    assert_eq!(trial.snapshot.requests.len(), 7, "the process died before it asked");
}

#[test]
fn b11_the_third_model_call_after_exec_shows_in_usage() {
    let trial = killed("model_call/scripted", 3, Point::AfterExec);
    assert_eq!(trial.passage.envelope.usage.repeated_model_calls, 1);
    assert_eq!(trial.snapshot.requests.len(), 8, "one request was made twice");
    assert_eq!(trial.snapshot.requests[2], trial.snapshot.requests[3], "and was the same both times");
}

#[test]
fn b12_the_policy_snapshot_of_the_write_batch_after_exec() {
    killed("policy/snapshot", 2, Point::AfterExec);
}

#[test]
fn b13_write_file_after_exec() {
    let trial = killed("tool_call/write_file", 1, Point::AfterExec);
    let step = trial.snapshot.step("tool_call/write_file", 1);
    assert_eq!((step.attempt, step.landed_before), (2, true));
}

#[test]
fn b14_an_edit_between_two_writes_after_intent() {
    let (_, reference) = reference("edit-between", &never_asked).unwrap();
    assert_eq!(reference.files.text("src/half.js"), "export const half = (n) => n / 2;\n");
    let kill = Kill::new(reference.seq("tool_call/edit_file", 1), Point::AfterIntent);
    let trial = as_undisturbed(trial("edit-between", kill, &never_asked).unwrap(), &reference);
    assert!(!trial.snapshot.step("tool_call/edit_file", 1).landed_before, "it had not begun");
}

#[test]
fn b15_edit_file_after_exec() {
    let trial = killed("tool_call/edit_file", 1, Point::AfterExec);
    let step = trial.snapshot.step("tool_call/edit_file", 1);
    assert_eq!((step.attempt, step.landed_before), (2, true));
}

#[test]
fn b15_edit_file_after_exec_where_the_new_text_contains_the_old() {
    let (_, reference) = reference("contains-old", &never_asked).unwrap();
    assert_eq!(reference.files.text("settings.conf"), "retries = 30\n");
    let seq = reference.seq("tool_call/edit_file", 1);
    // Before it is made as well: the receipt that tells the two apart must not be taken for the edit itself.
    for (point, landed_before) in [(Point::AfterReceipt, false), (Point::AfterExec, true)] {
        let trial = trial("contains-old", Kill::new(seq, point), &never_asked).unwrap();
        let trial = as_undisturbed(trial, &reference);
        let step = trial.snapshot.step("tool_call/edit_file", 1);
        assert_eq!((step.attempt, step.landed_before), (2, landed_before), "killed at {point}");
    }
}

#[test]
fn b16_shell_after_intent() {
    let trial = killed("tool_call/shell", 1, Point::AfterIntent);
    assert_eq!(trial.snapshot.files.text("counter.log"), "tick\n");
}

#[test]
fn b17_shell_after_commit() {
    let trial = killed("tool_call/shell", 1, Point::AfterCommit);
    assert_eq!(trial.snapshot.files.text("counter.log"), "tick\n");
    assert_eq!(trial.snapshot.step("tool_call/shell", 1).attempt, 1);
}

#[test]
fn b18_git_commit_after_exec_makes_one_commit() {
    let trial = killed("tool_call/git_commit", 1, Point::AfterExec);
    assert_eq!(trial.snapshot.history.len(), 2);
    let step = trial.snapshot.step("tool_call/git_commit", 1);
    assert_eq!((step.attempt, step.landed_before), (2, true));
}

#[test]
fn b19_the_first_clock_reading_after_commit() {
    killed("now/answered_at", 1, Point::AfterCommit);
}

#[test]
fn b20_update_criteria_after_exec() {
    killed("tool_call/update_criteria", 1, Point::AfterExec);
}

#[test]
fn b21_finish_after_commit() {
    killed("tool_call/finish", 1, Point::AfterCommit);
}

/// The comparison is worth something only if it can fail.
#[test]
fn control_a_run_that_differs_is_told_apart() {
    let (_, reference) = &*REFERENCE;
    let says_no = |_: &deed_tests::Wait| Ok("no");
    let sandbox = Sandbox::of("fix-add");
    let passage = sandbox.run_to_end(None, &says_no).unwrap();
    fs::write(sandbox.workspace().join("a.txt"), "omega\n").unwrap();
    let other = Snapshot::take(&sandbox, &passage).unwrap();
    for section in [Section::Transcript, Section::Files, Section::Status] {
        assert!(other.compare_section(reference, section).is_err(), "{section:?} was taken for equal");
    }
    other.compare_section(reference, Section::Shape).unwrap();
}

/// The story: a kill while HEAD moved left git's lock; the next process recorded that there is no branch, and the run
/// committed to the owner's.
#[test]
fn a_locked_head_stops_the_run_until_the_lock_is_gone() {
    let sandbox = Sandbox::of("fix-add");
    let lock = sandbox.workspace().join(".git/HEAD.lock");
    fs::write(&lock, "").unwrap();
    let stopped = sandbox.run(None).run().expect_code(1);
    assert!(stopped.stderr.contains("deed resume") && stopped.stderr.contains("branch `deed/"), "{stopped}");
    fs::remove_file(&lock).unwrap();
    let waiting: Envelope = sandbox.resume(None).run().expect_code(4).json();
    assert_eq!(sandbox.repository().branch().unwrap(), format!("deed/{}", &waiting.run[..8]));
    sandbox.answer(&waiting.waits[0].wait, "yes").unwrap();
    let _ = sandbox.resume(None).run().expect_code(0);
}
