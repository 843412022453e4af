//! A journal in use, from outside: inspection and answers while calls run, backups, and taking over from its holder.
//!
//! Fault model: SIGKILL, SIGSTOP and SIGCONT of real processes, which are held inside a call by a named pipe; an owner file
//! that names a process which never held the journal.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    iter::repeat_with,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use deed_journal::StepKind;
use deed_tests::{
    Ending, Envelope, Held, Message, RunRow, Sandbox, StepRow, Wait,
    made::{commit, create, made_run, open_journal, settled_step},
};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde_json::{Value, json};

/// A run of the reference mission, stopped at its question, and another workspace to make calls in.
fn at_its_question() -> (Sandbox, Wait, Sandbox) {
    let sandbox = Sandbox::of("fix-add").uncontained();
    let envelope: Envelope = sandbox.run(None).run().expect_code(4).json();
    let [wait] = envelope.waits.try_into().expect("it asks one thing");
    (sandbox, wait, Sandbox::bare())
}

/// What every command says that only reads, as text and as JSON.
fn everything_read(sandbox: &Sandbox, runs: &[String]) -> Vec<(String, String)> {
    let mut lines: Vec<Vec<&str>> =
        vec![vec!["runs"], vec!["waits"], vec!["session", "list"], vec!["recover", "--plan"]];
    lines.push(vec!["prune", "--keep", "0", "--dry-run"]);
    for run in runs {
        for command in ["steps", "transcript"] {
            lines.push(vec![command, run]);
        }
        for command in ["show", "heads", "export"] {
            lines.push(vec!["session", command, run]);
        }
        lines.push(vec!["show", run, "1"]);
        lines.push(vec!["show", run, "2"]);
    }
    let both = lines.iter().flat_map(|line| ["text", "json"].map(|format| (line, format)));
    let said = both.map(|(line, format)| {
        let outcome = sandbox.deed(line).args(["--format", format]).run().expect_code(0);
        (format!("{} as {format}", line.join(" ")), outcome.stdout)
    });
    said.collect()
}

fn socket(sandbox: &Sandbox) -> PathBuf {
    sandbox.root().join("journal.redb.socket")
}

#[test]
fn c10_a_live_journal_is_read_answered_and_backed_up_while_a_call_runs() {
    let (sandbox, wait, elsewhere) = at_its_question();
    let held = Held::in_call(&elsewhere, &sandbox.journal());

    let runs: Vec<RunRow> = sandbox.deed(["runs"]).run().expect_code(0).json();
    let statuses: Vec<_> = runs.iter().map(|run| run.status.as_str()).collect();
    assert_eq!(statuses, ["waiting", "running"]);
    assert_eq!(sandbox.waits(), std::slice::from_ref(&wait));
    let steps: Vec<StepRow> = sandbox.steps(&runs[1].run);
    let call = steps.iter().find(|step| step.name == "shell").unwrap();
    assert_eq!(call.status, "intent", "it is under way");
    let transcript: Vec<Message> = sandbox.deed(["transcript", &wait.run]).run().expect_code(0).json();
    assert!(transcript.len() > 10);

    // A backup of this instant, and one after the answer.
    let backup = |name: &str| {
        let path = sandbox.root().join(name);
        let report: Value = sandbox.deed(["backup".as_ref(), path.as_os_str()]).run().expect_code(0).json();
        assert_eq!(report["bytes"], fs::metadata(&path).unwrap().len());
        assert_eq!(report["damaged"], 0);
        let verified: Value = sandbox.deed_on(&path, ["verify"]).run().expect_code(0).json();
        assert_eq!(verified["records"], report["records"]);
        path
    };
    let before = backup("before.redb");
    let refused = sandbox.deed(["backup".as_ref(), before.as_os_str()]).run().expect_code(2);
    assert!(refused.stderr.contains("exists; a backup replaces nothing"), "{refused}");

    let answer = |option: &str| sandbox.deed(["answer", &wait.wait, option]).run();
    let perhaps = answer("perhaps").expect_code(2);
    assert!(perhaps.stderr.contains("expected one of `yes`, `no`"), "{perhaps}");
    let unknown = sandbox.deed(["answer", "00000000-9", "yes"]).run().expect_code(2);
    assert!(unknown.stderr.contains("`00000000-9`") && unknown.stderr.contains("deed waits"), "{unknown}");
    assert_eq!(answer("yes").expect_code(0).json::<Value>()["already"], false);
    assert_eq!(answer("yes").expect_code(0).json::<Value>()["already"], true);
    let other = answer("no").expect_code(1);
    assert!(other.stderr.contains("was answered `yes` before"), "{other}");
    assert_eq!(sandbox.waits(), []);
    let after = backup("after.redb");

    let verified = sandbox.deed(["verify"]).run().expect_code(0);
    assert!(verified.stderr.contains("a process has the journal"), "{verified}");

    // Writers are told who has it, as ever.
    for line in [vec!["recover"], vec!["prune", "--keep", "9"], vec!["resume"], vec!["compact"]] {
        let refused = sandbox.deed(&line).run().expect_code(5);
        assert!(refused.stderr.contains(&held.process.pid().to_string()), "{refused}");
    }
    let reply = held.release();
    assert!(!socket(&sandbox).exists(), "it goes with its owner");

    // Each backup goes on from its own instant.
    let open =
        |journal: &Path| -> Vec<Wait> { sandbox.deed_on(journal, ["waits"]).run().expect_code(0).json() };
    assert_eq!((open(&before).len(), open(&after).len()), (1, 0));
    let there = |journal: &Path| -> Vec<StepRow> {
        sandbox.deed_on(journal, ["steps", &reply.run]).run().expect_code(0).json()
    };
    let shell = |steps: &[StepRow]| steps.iter().find(|step| step.name == "shell").unwrap().status.clone();
    assert_eq!(shell(&there(&before)), "intent");
    assert_eq!(shell(&there(&sandbox.journal())), "completed");
    // The call was under way: nobody can tell by the backup what came of it.
    let asks: Envelope = sandbox.deed_on(&before, ["resume", &reply.run]).run().expect_code(4).json();
    assert_eq!(asks.waits[0].kind, "reconcile");
    let done: Envelope = sandbox.resume(None).run().expect_code(0).json();
    assert_eq!((done.run, done.status.as_str()), (wait.run, "done"));
}

#[test]
fn c10_what_a_live_journal_says_is_what_the_closed_one_says() {
    let (sandbox, wait, elsewhere) = at_its_question();
    let held = Held::in_call(&elsewhere, &sandbox.journal());
    let runs: Vec<RunRow> = sandbox.deed(["runs"]).run().expect_code(0).json();
    let runs: Vec<String> = runs.into_iter().map(|run| run.run).collect();
    assert!(runs.len() == 2 && runs.contains(&wait.run));
    let live = everything_read(&sandbox, &runs);
    // Dropped, it is killed: the journal stays as it is.
    drop(held);
    let closed = everything_read(&sandbox, &runs);
    for (live, closed) in live.iter().zip(&closed) {
        assert_eq!(live, closed);
    }
    assert_eq!(live.len(), closed.len());
}

/// The instants are numbers of writes: into the copy, at its end, and when it has got its name.
#[test]
fn a_backup_that_is_killed_is_whole_or_not_there() {
    let sandbox = Sandbox::bare().uncontained();
    let journal = open_journal(&sandbox.journal());
    for byte in 1..=60 {
        let run = made_run(byte);
        let mut ops = vec![create(&run, json!({ "calls": [] }))];
        for seq in 1..=6 {
            let args = json!({ "filling": "x".repeat(40_000) });
            ops.extend(settled_step(run.id, seq, StepKind::ToolCall, "say", args));
        }
        commit(&journal, ops);
    }
    drop(journal);
    let mut killed = [0, 0];
    for writes in [1, 10, 50, 100, 200, 400, 800, 1_600, 3_200, u64::MAX] {
        let backup = sandbox.root().join(format!("{writes}.redb"));
        let line = ["backup".as_ref(), backup.as_os_str()];
        let outcome = sandbox.deed(line).start().kill_after_writes(writes);
        let whole = backup.exists();
        match outcome.ending {
            Ending::KILLED => killed[usize::from(whole)] += 1,
            ending => assert!(ending == Ending::Exit(0) && whole, "{outcome}"),
        }
        if whole {
            let verified: Value = sandbox.deed_on(&backup, ["verify"]).run().expect_code(0).json();
            assert_eq!(verified["runs"], 60);
        }
    }
    println!("killed without a backup: {}, with one: {}", killed[0], killed[1]);
    assert!(killed[0] > 0, "no process died in the middle, so nothing was shown");
}

/// Ends what goes on until then.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn c10_readers_never_fail_while_owners_come_and_go() {
    let sandbox = Sandbox::bare().uncontained();
    let input = |number: usize| json!({ "path": format!("{number}.txt"), "content": "x" });
    let _ = sandbox.call("write_file", &input(0)).run().expect_code(0);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers: Vec<_> = ["runs", "waits"]
            .map(|command| {
                let (sandbox, over) = (&sandbox, &over);
                scope.spawn(move || {
                    let mut counts = Vec::new();
                    while !over.load(Ordering::Acquire) {
                        let rows: Vec<Value> = sandbox.deed([command]).run().expect_code(0).json();
                        counts.push(rows.len());
                    }
                    counts
                })
            })
            .into();
        // Also when something here fails: readers that go on would hide it.
        let end = Over(&over);
        let mut kills = 0;
        for number in 1..=20 {
            // Every other one dies with the journal open: the next reader repairs it, and has it for that instant.
            let kill = if number % 2 == 0 { vec!["--kill-at", "2:after_intent"] } else { vec![] };
            let call = || sandbox.call("write_file", &input(number)).args(&kill).run();
            let made = repeat_with(call).take(100).find(|outcome| outcome.ending != Ending::Exit(5));
            match made.unwrap().ending {
                Ending::KILLED => kills += 1,
                ending => assert_eq!(ending, Ending::Exit(0)),
            }
        }
        drop(end);
        assert_eq!(kills, 10);
        let counts: Vec<Vec<usize>> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        println!("{} and {} readings", counts[0].len(), counts[1].len());
        assert!(counts[0].is_sorted(), "no reader saw less than the one before it: {:?}", counts[0]);
    });
}

#[test]
fn b38_a_stopped_process_is_taken_over_from_and_commits_nothing_more() {
    let sandbox = Sandbox::bare().uncontained();
    let held = Held::in_call(&sandbox, &sandbox.journal());
    let old = Pid::from_raw(held.process.pid().try_into().unwrap()).unwrap();
    kill_process(old, Signal::STOP).unwrap();
    let stopped = waitpid(Some(old), WaitOptions::UNTRACED).unwrap().expect("it is waited for");
    assert!(stopped.1.stopped());

    // It has the journal, and answers nobody.
    let named = format!("process {}", held.process.pid());
    for command in ["runs", "resume"] {
        let refused = sandbox.deed([command]).run().expect_code(5);
        assert!(refused.stderr.contains(&named) && refused.stderr.contains("--take-over"), "{refused}");
    }

    // The outcome of its call is unknown, and asked about.
    let taken = sandbox.deed(["resume", "--take-over"]).run().expect_code(4);
    assert!(taken.stderr.contains(&format!("{named}, which held the journal, is ended")), "{taken}");
    let envelope: Envelope = taken.json();
    let [wait] = envelope.waits.try_into().expect("it asks one thing");
    assert_eq!((wait.kind.as_str(), wait.name.as_str()), ("reconcile", "shell"));

    let bytes = fs::read(sandbox.journal()).unwrap();
    kill_process(old, Signal::CONT).unwrap();
    let Held { process, mut command } = held;
    assert_eq!(process.wait().ending, Ending::KILLED);
    assert!(fs::read(sandbox.journal()).unwrap() == bytes, "it committed nothing more");

    // Without a holder it is an ordinary resume.
    sandbox.answer(&wait.wait, "did-not-happen").unwrap();
    command.end();
    let done = sandbox.deed(["resume", &envelope.run, "--take-over"]).run().expect_code(0);
    assert!(!done.stderr.contains("is ended"), "{done}");
    let steps = sandbox.steps(&envelope.run);
    let call = steps.iter().find(|step| step.name == "shell").unwrap();
    assert_eq!((call.status.as_str(), call.attempt), ("completed", 2));
    assert!(!socket(&sandbox).exists());
}

/// A process that has nothing to do with any journal.
struct Bystander(Child);

impl Bystander {
    fn new() -> Self {
        let cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        Self(cat.unwrap())
    }

    /// Let it end. Panics when it has not lived until now.
    fn ends_by_itself(mut self) {
        drop(self.0.stdin.take());
        assert_eq!(Ending::from(self.0.wait().unwrap()), Ending::Exit(0), "it was touched");
    }
}

#[test]
fn c22_an_owner_file_that_names_a_living_process_locks_nothing_and_nobody_is_killed() {
    let sandbox = Sandbox::bare().uncontained();
    let read = json!({ "path": "." });
    let _ = sandbox.call("list_dir", &read).run().expect_code(0);
    let owner = sandbox.root().join("journal.redb.owner");
    let text = fs::read_to_string(&owner).unwrap();
    let store = text.lines().nth(1).unwrap();
    let bystander = Bystander::new();
    // As after a restart of the machine: the process that is named is another one.
    let named = [std::process::id(), 1, bystander.0.id(), u32::MAX, i32::MAX.cast_unsigned()];
    for (number, pid) in named.into_iter().enumerate() {
        for line in [vec!["runs"], vec!["resume", "--take-over"], vec!["resume"], vec!["verify"]] {
            fs::write(&owner, format!("{pid}\n{store}\n")).unwrap();
            let outcome = sandbox.deed(&line).run().expect_code(0);
            assert!(!outcome.stderr.contains("is ended"), "{outcome}");
        }
        fs::write(&owner, format!("{pid}\n{store}\n")).unwrap();
        let _ = sandbox.call("list_dir", &read).run().expect_code(0);
        let runs: Vec<RunRow> = sandbox.deed(["runs"]).run().expect_code(0).json();
        assert_eq!(runs.len(), number + 2);
    }
    bystander.ends_by_itself();
}

#[test]
fn a_socket_that_was_left_or_cannot_be_made_stops_nobody() {
    let sandbox = Sandbox::bare().uncontained();
    let held = Held::in_call(&sandbox, &sandbox.journal());
    drop(held);
    assert!(socket(&sandbox).exists(), "a killed process leaves it");
    let runs: Vec<RunRow> = sandbox.deed(["runs"]).run().expect_code(0).json();
    assert_eq!(runs.len(), 1);
    let read = json!({ "path": "." });
    let _ = sandbox.call("list_dir", &read).run().expect_code(0);
    assert!(!socket(&sandbox).exists(), "the next one replaces it, and takes it away");

    fs::create_dir(socket(&sandbox)).unwrap();
    let quiet = sandbox.call("list_dir", &read).run().expect_code(0);
    assert!(!quiet.stderr.contains("warning"), "{quiet}");
    let told = sandbox.call("list_dir", &read).args(["-v"]).run().expect_code(0);
    assert_eq!(told.stderr.matches("no socket: something else has its name").count(), 1, "{told}");
    fs::remove_dir(socket(&sandbox)).unwrap();
    let names = fs::read_dir(sandbox.root()).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<_> = names.filter_map(|name| name.into_string().ok()).collect();
    let left: Vec<_> = names.iter().filter(|name| name.contains("socket") || name.starts_with('.')).collect();
    assert!(left.is_empty() && names.len() > 3, "{names:?}");
}
