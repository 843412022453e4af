//! The first SIGTERM or SIGINT stops a run before its next step, and closes the journal.

use std::io::{BufRead, BufReader, Write};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use deed_tests::{Envelope, Sandbox};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

/// Far beyond what starting a command takes; a test that fails ends all the same.
const PATIENCE: Duration = Duration::from_mins(1);

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
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            BufReader::new(started).read_line(&mut line).unwrap();
            tell.send(line).ok();
        });
        assert_eq!(told.recv_timeout(PATIENCE).as_deref(), Ok("started\n"), "the command runs");
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
