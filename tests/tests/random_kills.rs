//! Runs that mix classes, probes and approvals, killed from outside at random instants: what the receivers counted is what
//! the journal says.
//!
//! Fault model: SIGKILL of a real process, by another process, once it has made a number of writes that is drawn at
//! random; the kernel, the disk and the receivers live on. The owner who is asked tells the truth. The seed is printed,
//! and `DEED_SEED=N` draws the same calls and the same numbers of writes again; what a killed process got to do with its
//! last write is the kernel's to decide.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::env;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use deed::journal::Entropy;
use deed::sources::SeededEntropy;
use deed_tests::guests::PROBES;
use deed_tests::receiver::{Received, Receiver};
use deed_tests::{Ending, Envelope, RunRow, Sandbox, Wait, sweep};
use serde_json::json;

/// Runs, each with its own journal, workspace and receivers.
const RUNS: usize = 50;

/// Kills in all, at least: runs are added until there are so many.
const KILLS: usize = 500;

/// Kills of one run. From then on it is left alone, so that it ends.
const KILLS_A_RUN: usize = 25;

/// Runs in all, at most: four times what so many kills took when this was written.
const MAX_RUNS: usize = 200;

/// Processes that one run may take: a kill that comes early leaves everything to the next one.
const MAX_PROCESSES: usize = 400;

/// Writes of a process after which it is killed, at most. It takes some 25 to begin a run, and 10 for a call.
const WRITES: usize = 50;

struct Draw(SeededEntropy);

impl Draw {
    fn below(&self, bound: usize) -> usize {
        let id = self.0.id();
        let number = u64::from_le_bytes(id[..8].try_into().unwrap());
        usize::try_from(number % bound as u64).unwrap()
    }
}

/// What a call leaves behind, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Trace {
    Nothing,
    /// A file of this name.
    File(String),
    /// A line in the log of appends.
    Line(String),
    /// A line in the log of the shell.
    Tick(String),
    /// A request to the receiver that appends.
    Post(String),
    /// A request to the receiver that honours the key.
    Keyed(String),
}

struct World {
    sandbox: Sandbox,
    appending: Receiver,
    honouring: Receiver,
    traces: Vec<Trace>,
}

impl World {
    fn new(draw: &Draw) -> Self {
        let (appending, honouring) = (Receiver::appending(), Receiver::honouring());
        let mut calls = Vec::new();
        let mut traces = Vec::new();
        for number in 0..5 + draw.below(4) {
            let name = format!("call-{number}");
            let send = |receiver: &Receiver| json!({ "tool": "http_send", "input": { "method": "POST", "url": receiver.url("/"), "body": name } });
            let append = |tool: &str| json!({ "tool": tool, "input": { "path": "appends", "line": name } });
            let (call, trace) = match draw.below(7) {
                0 => (json!({ "tool": "read_file", "input": { "path": "a.txt" } }), Trace::Nothing),
                1 => {
                    let input = json!({ "path": name, "content": "written\n" });
                    (json!({ "tool": "write_file", "input": input }), Trace::File(name))
                }
                2 => (append("append"), Trace::Line(name)),
                3 => (append("append_blind"), Trace::Line(name)),
                4 => {
                    let input = json!({ "command": format!("echo {name} >> ticks") });
                    (json!({ "tool": "shell", "input": input }), Trace::Tick(name))
                }
                5 => (send(&appending), Trace::Post(name)),
                _ => (send(&honouring), Trace::Keyed(name)),
            };
            calls.push(call);
            traces.push(trace);
        }
        let asked = ["write_file", "append", "append_blind", "shell", "http_send"][draw.below(5)];
        let batch = json!({
            "objective": "Leave one trace each",
            "calls": calls,
            "policy": [{ "tool": asked, "decision": "ask" }],
            "grants": [{ "tool": "http_send", "hosts": [
                appending.origin(), { "origin": honouring.origin(), "honours_key": true },
            ] }],
        });
        let sandbox = Sandbox::with(&batch, &[("a.txt", "alpha\n")]);
        // Contained or not: each trace is there once, and whoever is asked knows the truth.
        let sandbox = if draw.below(2) == 0 { sandbox } else { sandbox.uncontained() };
        sandbox.install("probes", PROBES);
        Self { sandbox, appending, honouring, traces }
    }

    fn lines(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.sandbox.workspace().join(file)).unwrap_or_default();
        // An append is `key line`.
        text.lines().map(|line| line.rsplit(' ').next().unwrap_or_default().to_owned()).collect()
    }

    /// How often a trace is there.
    fn count(&self, trace: &Trace) -> usize {
        let times = |found: Vec<String>, name: &String| found.iter().filter(|found| *found == name).count();
        let bodies = |receiver: &Receiver| {
            // What a killed process had handed to the kernel still arrives.
            receiver.quiet();
            receiver.effects().iter().map(Received::text).collect()
        };
        match trace {
            Trace::Nothing => 1,
            Trace::File(name) => usize::from(self.sandbox.workspace().join(name).exists()),
            Trace::Line(name) => times(self.lines("appends"), name),
            Trace::Tick(name) => times(self.lines("ticks"), name),
            Trace::Post(name) => times(bodies(&self.appending), name),
            Trace::Keyed(name) => times(bodies(&self.honouring), name),
        }
    }

    /// The trace that the question is about: its arguments name it.
    fn asked_about(&self, wait: &Wait) -> &Trace {
        let named = |trace: &&Trace| match trace {
            Trace::Nothing => false,
            Trace::File(name)
            | Trace::Line(name)
            | Trace::Tick(name)
            | Trace::Post(name)
            | Trace::Keyed(name) => wait.question.contains(&**name),
        };
        self.traces.iter().find(named).unwrap_or_else(|| panic!("nothing is named in {wait:?}"))
    }

    fn answer(&self, wait: &Wait) -> Result<(), String> {
        let option = match wait.kind.as_str() {
            "approval" => "approve",
            "reconcile" if self.count(self.asked_about(wait)) > 0 => "happened",
            "reconcile" => "did-not-happen",
            other => return Err(format!("a wait of kind `{other}` was not expected: {wait:?}")),
        };
        self.sandbox.answer(&wait.wait, option)
    }

    /// Run it to its end, killed on the way. Returns the kills, and the run.
    fn run(&self, draw: &Draw) -> Result<(usize, String), String> {
        let mut killed = 0;
        for _ in 0..MAX_PROCESSES {
            let begun = self.begun()?;
            if let Some((run, true)) = begun {
                return Ok((killed, run));
            }
            // Before the run is recorded there is nothing to resume.
            let deed = if begun.is_some() { self.sandbox.resume(None) } else { self.sandbox.run(None) };
            let outcome = if killed < KILLS_A_RUN {
                deed.start().kill_after_writes(1 + draw.below(WRITES) as u64)
            } else {
                deed.run()
            };
            match outcome.ending {
                Ending::KILLED => killed += 1,
                Ending::Exit(0) => {}
                Ending::Exit(4) => {
                    for wait in outcome.try_json::<Envelope>()?.waits {
                        self.answer(&wait)?;
                    }
                }
                _ => return Err(format!("an undocumented end: {outcome}")),
            }
        }
        Err(format!("the run has not ended after {MAX_PROCESSES} processes"))
    }

    /// The run, once it is recorded, and whether it has ended.
    fn begun(&self) -> Result<Option<(String, bool)>, String> {
        if !self.sandbox.journal().exists() {
            return Ok(None);
        }
        let runs: Vec<RunRow> = self.sandbox.deed(["runs"]).run().try_json()?;
        let ended = |status: &str| !["queued", "running", "waiting"].contains(&status);
        Ok(runs.into_iter().next().map(|row| (row.run, ended(&row.status))))
    }

    /// Each effect that the journal says happened is there once, and nothing else is.
    fn agrees(&self, run: &str) -> Result<(), String> {
        let steps = self.sandbox.steps(run);
        let calls: Vec<_> = steps.iter().filter(|step| step.kind == "tool_call").collect();
        if calls.len() != self.traces.len() {
            return Err(format!("{} calls are recorded of {}", calls.len(), self.traces.len()));
        }
        for (step, trace) in calls.iter().zip(&self.traces) {
            let found = self.count(trace);
            if step.status != "completed" || found != 1 {
                return Err(format!("{trace:?} is there {found} times, and its step is {step:?}"));
            }
        }
        let expected = |of: fn(&Trace) -> bool| self.traces.iter().filter(|trace| of(trace)).count();
        let counts = [
            ("appends", self.lines("appends").len(), expected(|trace| matches!(trace, Trace::Line(_)))),
            ("ticks", self.lines("ticks").len(), expected(|trace| matches!(trace, Trace::Tick(_)))),
            ("posts", self.appending.effects().len(), expected(|trace| matches!(trace, Trace::Post(_)))),
            ("keyed", self.honouring.effects().len(), expected(|trace| matches!(trace, Trace::Keyed(_)))),
        ];
        match counts.iter().find(|(_, found, expected)| found != expected) {
            Some((what, found, expected)) => Err(format!("{found} {what} were counted of {expected}")),
            None => Ok(()),
        }
    }
}

#[test]
fn five_hundred_random_kills_leave_each_effect_once() {
    let seed = env::var("DEED_SEED").ok().map_or(7, |seed| seed.parse().unwrap());
    println!("play it again: DEED_SEED={seed} cargo test --workspace --test random_kills -- --nocapture");
    let (killed, steps) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let mut runs = 0;
    let mut faults = Vec::new();
    while runs < RUNS || (killed.load(Ordering::Relaxed) < KILLS && runs < MAX_RUNS) {
        let more = if runs == 0 { RUNS } else { RUNS / 5 };
        let numbers: Vec<u64> = (runs as u64..(runs + more) as u64).collect();
        runs += numbers.len();
        let results = sweep(&numbers, |number| {
            let draw = Draw(SeededEntropy::new(seed, *number));
            let world = World::new(&draw);
            let fault = |fault: String| format!("run {number} of seed {seed}: {fault}");
            let (kills, run) = world.run(&draw).map_err(fault)?;
            killed.fetch_add(kills, Ordering::Relaxed);
            steps.fetch_add(world.sandbox.steps(&run).len(), Ordering::Relaxed);
            world.agrees(&run).map_err(fault)
        });
        faults.extend(results.into_iter().filter_map(Result::err));
    }
    let killed = killed.into_inner();
    println!("{killed} kills in {runs} runs of {} steps", steps.into_inner());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(killed >= KILLS, "{killed} kills of {KILLS}");
}
