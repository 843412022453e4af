//! The first SIGTERM or SIGINT stops a run before its next step, the second one cancels what is under way, whichever call
//! that is, the third one ends the process. The journal is whole each time.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use deed_tests::guests::MISBEHAVE;
use deed_tests::{Ending, Envelope, Running, Sandbox};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

/// Far beyond what starting a command takes; a test that fails ends all the same.
const PATIENCE: Duration = Duration::from_mins(1);

/// What a command writes first into a pipe.
fn first_line(pipe: File) -> Result<String, mpsc::RecvTimeoutError> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut line = String::new();
        BufReader::new(pipe).read_line(&mut line).unwrap();
        tell.send(line).ok();
    });
    told.recv_timeout(PATIENCE)
}

#[test]
fn a_signal_lets_the_step_under_way_end_and_the_run_is_resumed() {
    for signal in [Signal::TERM, Signal::INT] {
        let sandbox =
            Sandbox::with(&json!({ "objective": "", "calls": [] }), &[("README", "A workspace.\n")])
                .uncontained();
        let (started_path, started) = sandbox.fifo("started");
        let (gate_path, mut gate) = sandbox.fifo("gate");
        let (started_path, gate_path) = (started_path.display(), gate_path.display());
        let command =
            format!("echo tick >> counter.log; echo started > '{started_path}'; read word < '{gate_path}'");
        sandbox.set_mission(&json!({
            "objective": "Wait, then tick",
            "calls": [
                { "tool": "shell", "input": { "command": command } },
                { "tool": "shell", "input": { "command": "echo tock >> counter.log" } } ]
        }));
        let running = sandbox.run(None).start();
        assert_eq!(first_line(started).as_deref(), Ok("started\n"), "the command runs");
        // A signal to a process is there before the call that sends it returns.
        kill_process(Pid::from_raw(running.pid().cast_signed()).unwrap(), signal).unwrap();
        gate.write_all(b"opened\n").unwrap();
        let stopped = running.wait().expect_code(1);
        assert!(stopped.stderr.contains("was stopped before its next step"), "{stopped}");
        assert_eq!(sandbox.files().text("counter.log"), "tick\n");

        // Closed cleanly: a reader needs no repair. Nothing is asked, and nothing runs twice.
        let _ = sandbox.deed(["runs"]).run().expect_code(0);
        let done: Envelope = sandbox.resume(None).run().expect_code(0).json();
        assert_eq!(done.status, "done");
        assert_eq!(sandbox.files().text("counter.log"), "tick\ntock\n");
        let first = sandbox.steps(&done.run).into_iter().find(|step| step.name == "shell").unwrap();
        assert_eq!((first.status.as_str(), first.attempt), ("completed", 1));
    }
}

fn send(running: &Running, signal: Signal) {
    kill_process(Pid::from_raw(running.pid().cast_signed()).unwrap(), signal).unwrap();
}

/// Stop, and then cancel. Two signals of one kind could be one, when the second comes before the first was seen.
fn cancel(running: &Running) {
    send(running, Signal::INT);
    send(running, Signal::TERM);
}

/// Three calls that end, one that waits for ever, and one more.
fn waits_in_its_fourth_call() -> Sandbox {
    let tick = json!({ "tool": "shell", "input": { "command": "echo tick >> counter.log" } });
    let sandbox = Sandbox::with(
        &json!({
            "objective": "Tick three times, wait, and tick",
            "calls": [tick, tick, tick, { "tool": "wait_for", "input": { "path": "never" } }, tick],
        }),
        &[("README", "A workspace.\n")],
    );
    sandbox.install("misbehave", MISBEHAVE);
    sandbox
}

fn told(sandbox: &Sandbox) -> Running {
    let tools = sandbox.tools();
    let mut running = sandbox.run(None).args(["-v", "--tools", tools.to_str().unwrap()]).start();
    running.until_said("waiting");
    running
}

#[test]
fn a_second_signal_cancels_a_later_call_as_well_and_the_run_is_resumed_after_it() {
    let sandbox = waits_in_its_fourth_call();
    sandbox.set_operator("[[grants]]\ntool = \"wait_for\"\ncancel_grace_ms = 10\n");
    let running = told(&sandbox);
    cancel(&running);
    let stopped = running.wait().expect_code(1);
    assert!(stopped.stderr.contains("was stopped before its next step"), "{stopped}");
    assert_eq!(sandbox.files().text("counter.log"), "tick\ntick\ntick\n");

    let done: Envelope = sandbox.resume(None).run().expect_code(3).json();
    assert_eq!(sandbox.files().text("counter.log"), "tick\ntick\ntick\ntick\n");
    let steps = sandbox.steps(&done.run);
    let waited = steps.iter().find(|step| step.name == "wait_for").unwrap();
    let error = waited.error.as_ref().unwrap();
    assert_eq!(error["kind"], "cancelled");
    assert!(error["message"].as_str().unwrap().contains("within 10 ms (`cancel_grace_ms`)"), "{error}");
}

#[test]
fn a_command_that_is_cancelled_is_killed_and_its_owner_asked() {
    let sandbox = Sandbox::with(&json!({ "objective": "", "calls": [] }), &[("README", "A workspace.\n")])
        .uncontained();
    let (started_path, started) = sandbox.fifo("started");
    let wait =
        format!("echo tock >> counter.log; echo started > '{}'; exec sleep 600", started_path.display());
    let tick = json!({ "tool": "shell", "input": { "command": "echo tick >> counter.log" } });
    sandbox.set_mission(&json!({
        "objective": "Tick, and wait for ever",
        "calls": [tick, { "tool": "shell", "input": { "command": wait } }, tick]
    }));
    let running = sandbox.run(None).start();
    assert_eq!(first_line(started).as_deref(), Ok("started\n"), "the command runs");
    cancel(&running);
    let stopped = running.wait().expect_code(1);
    assert!(stopped.stderr.contains("was stopped before its next step"), "{stopped}");

    let asked: Envelope = sandbox.resume(None).run().expect_code(4).json();
    let [wait] = asked.waits.try_into().unwrap();
    assert_eq!(wait.kind, "reconcile");
    sandbox.answer(&wait.wait, "happened").unwrap();
    let done: Envelope = sandbox.resume(None).run().expect_code(0).json();
    assert_eq!(done.status, "done");
    assert_eq!(sandbox.files().text("counter.log"), "tick\ntock\ntick\n");
}

#[test]
fn a_third_signal_ends_the_process_at_once() {
    let sandbox = waits_in_its_fourth_call();
    sandbox.set_operator("[[grants]]\ntool = \"wait_for\"\ncancel_grace_ms = 600000\n");
    let mut running = told(&sandbox);
    cancel(&running);
    let begun = std::time::Instant::now();
    // The second one is acted on by a thread of the process; the first that comes after that ends it.
    while running.is_running() {
        assert!(begun.elapsed() < PATIENCE, "it goes on: {}", running.said());
        send(&running, Signal::TERM);
        thread::yield_now();
    }
    let ended = running.wait();
    assert_eq!(ended.ending, Ending::Signal(Signal::TERM.as_raw()), "{ended}");

    let tools = sandbox.tools();
    let mut resumed = sandbox.resume(None).args(["-v", "--tools", tools.to_str().unwrap()]).start();
    resumed.until_said("waiting");
    let _ = resumed.kill();
    assert_eq!(sandbox.files().text("counter.log"), "tick\ntick\ntick\n");
}
