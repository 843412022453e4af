//! What a call leaves behind when its command will not end, or the process is killed in the middle: no process, no half of
//! a file, no lock of git's.
//!
//! Fault model: as in `kills.rs`, and a disk that takes no more.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, SystemTime};

use deed_tests::{CallReply, Ending, Envelope, Kill, MessageResult, Point, Sandbox, Wait};
use rustix::fs::OFlags;
use serde_json::{Value, json};

/// Starts a daemon that ignores what it can ignore, and closes everything but one end of the pipe `ALIVE`. It does `WORK`
/// until the sandbox is gone, where nothing else ends it.
const DAEMON: &str = r#"
    setsid bash -c '
        (
            trap "" HUP INT TERM QUIT
            exec 9> ALIVE
            for fd in /proc/$BASHPID/fd/*; do
                fd=${fd##*/}
                [ "$fd" = 9 ] || eval "exec $fd>&-"
            done
            echo > READY
            while [ -e READY ]; do WORK; done
        ) &
    '
    until [ -e READY ]; do :; done
"#;

/// The commands that start it in a sandbox, and the pipe's other end.
fn daemon(sandbox: &Sandbox, work: &str) -> (String, File) {
    let (path, both_ends) = sandbox.fifo("alive");
    drop(both_ends);
    let no_wait = OFlags::NONBLOCK.bits().cast_signed();
    let alive = OpenOptions::new().read(true).custom_flags(no_wait).open(&path).unwrap();
    let ready = sandbox.root().join("ready").display().to_string();
    let command = DAEMON.replace("ALIVE", &path.display().to_string()).replace("READY", &ready);
    (command.replace("WORK", work), alive)
}

/// Whether the daemon is there: it has the pipe's other end open.
fn is_there(mut alive: &File) -> bool {
    match alive.read(&mut [0]) {
        Ok(read) => read > 0,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

fn results(sandbox: &Sandbox, run: &str) -> Vec<MessageResult> {
    let transcript: Vec<deed_tests::Message> = sandbox.deed(["transcript", run]).run().expect_code(0).json();
    transcript.into_iter().filter_map(|message| message.result).collect()
}

fn shell(command: &str) -> Value {
    json!({ "tool": "shell", "input": { "command": command } })
}

/// Whether this machine denies namespaces of processes: then commands are not held together, and deed says so. Where there is
/// no `unshare` to ask, it is taken to allow them.
#[expect(clippy::print_stdout, reason = "a test that does not run is to be seen")]
fn denies_namespaces() -> bool {
    let tried = |user: &[&str]| {
        let mut unshare = std::process::Command::new("unshare");
        unshare.args(user).args(["--pid", "--fork", "--mount-proc", "true"]).output()
    };
    let allows = |user| tried(user).map_or(true, |output| output.status.success());
    let denied = !allows(&[]) && !allows(&["--user", "--map-root-user"]);
    if denied {
        println!("skipped: this machine denies namespaces of processes");
    }
    denied
}

#[test]
fn c17_a_command_that_daemonises_or_fills_stdout_leaves_no_process_and_the_run_goes_on() {
    if denies_namespaces() {
        return;
    }
    let sandbox =
        Sandbox::with(&json!({ "objective": "", "calls": [] }), &[("a.txt", "alpha\n")]).uncontained();
    let (daemon, alive) = daemon(&sandbox, ":");
    let endless = json!({ "tool": "shell", "input": { "command": "yes", "timeout_ms": 300 } });
    sandbox.set_mission(&json!({ "objective": "Go on", "calls": [
        shell(&format!("{daemon} echo left it")),
        shell("yes | head -c 100000000; echo problem >&2"),
        { "tool": "read_file", "input": { "path": "a.txt" } },
        endless,
    ] }));
    let outcome = sandbox.run(None).run();
    assert!(!is_there(&alive));
    // Only that the last one was killed in the middle is asked about.
    let held: Envelope = outcome.expect_code(4).json();
    let results = results(&sandbox, &held.run);
    assert!(results[0].ok && results[0].text.contains("left it"), "{results:?}");
    let text = &results[1].text;
    assert!(results[1].ok && text.len() < 1 << 17, "{} bytes", text.len());
    assert!(text.contains("[cut: 99934464 more bytes") && text.contains("problem"), "{}", &text[1 << 16..]);
    assert_eq!(results[2].text.trim_end(), "alpha");
}

#[test]
fn c24_the_processes_of_a_killed_hosts_command_are_gone_before_the_next_attempt() {
    if denies_namespaces() {
        return;
    }
    let sandbox = Sandbox::with(&json!({ "objective": "", "calls": [] }), &[]).uncontained();
    let (daemon, alive) = daemon(&sandbox, "echo old >> ticks");
    let (started_path, started) = sandbox.fifo("started");
    let started_path = started_path.display();
    let again = "if [ -e ticks ]; then echo new >> ticks; exit; fi;";
    let command =
        format!("{again} {daemon} until [ -s ticks ]; do :; done; echo > '{started_path}'; sleep 600");
    sandbox.set_mission(&json!({ "objective": "Tick", "calls": [shell(&command)] }));
    let running = sandbox.run(None).start();
    BufReader::new(started).read_line(&mut String::new()).unwrap();
    assert!(is_there(&alive));
    assert_eq!(running.kill().ending, Ending::KILLED);

    let held: Envelope = sandbox.resume(None).run().expect_code(4).json();
    let [wait]: [Wait; 1] = held.waits.try_into().unwrap();
    sandbox.answer(&wait.wait, "did-not-happen").unwrap();
    let _ = sandbox.resume(None).run().expect_code(0);
    assert!(!is_there(&alive));
    let ticks = sandbox.files().text("ticks").to_owned();
    assert!(ticks.starts_with("old\n") && ticks.ends_with("old\nnew\n"), "{}", &ticks[ticks.len() - 20..]);
    assert_eq!(ticks.matches("new").count(), 1);
}

/// Bytes of a file that takes many writes.
const LARGE: usize = 6 << 20;

#[test]
fn c20_a_large_write_that_fails_half_way_leaves_the_old_file_whole() {
    let old = format!("old\n{}", "x".repeat(LARGE));
    let new = old.replacen("old", "new", 1);
    let edit = json!({ "path": "large.txt", "old": "old", "new": "new" });
    let sandbox =
        Sandbox::with(&json!({ "objective": "", "calls": [] }), &[("large.txt", &old)]).uncontained();
    let path = sandbox.workspace().join("large.txt");
    let alone = |what: &str| {
        let names: Vec<_> =
            fs::read_dir(sandbox.workspace()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(names.iter().all(|name| name == "large.txt" || name == ".git"), "{what}: {names:?}");
    };

    // As on a full disk: the journal has room, the new file has not.
    let refused = sandbox.call("edit_file", &edit).file_limit_kib(5 << 10).run().expect_code(4);
    let reply: CallReply = refused.json();
    assert!(reply.waits[0].question.contains("`large.txt`: File too large"), "{refused}");
    assert!(fs::read_to_string(&path).unwrap() == old, "not whole after a refused write");
    alone("after a refused write");

    // Killed after ever more writes, until it is done before that.
    let (mut before, mut after) = (0, 0);
    for writes in (10..).step_by(15) {
        fs::write(&path, &old).unwrap();
        let journal = sandbox.root().join(format!("journal-{writes}.redb"));
        let input = edit.to_string();
        let workspace = sandbox.workspace();
        let call = sandbox.deed_on(&journal, ["call", "edit_file", &input]);
        let call = call.args(["--workspace".as_ref(), workspace.as_os_str()]);
        let ended = call.start().kill_after_writes(writes);
        let found = fs::read_to_string(&path).unwrap();
        assert!(found == old || found == new, "half a file after {writes} writes");
        *if found == old { &mut before } else { &mut after } += 1;
        if ended.ending == Ending::Exit(0) {
            break;
        }
    }
    assert!(before > 0 && after > 0, "killed before {before} times, after {after} times");
}

/// A run that is killed in its commit, with a lock in the repository that was made at `made`.
fn killed_in_a_commit(made: SystemTime) -> (Sandbox, std::path::PathBuf) {
    let commit = json!({ "tool": "git_commit", "input": { "message": "All of it" } });
    let sandbox =
        Sandbox::with(&json!({ "objective": "Commit", "calls": [commit] }), &[("a.txt", "alpha\n")])
            .uncontained();
    fs::write(sandbox.workspace().join("b.txt"), "beta\n").unwrap();
    let killed = sandbox.run(Some(Kill::new(4, Point::MidExec))).run();
    assert_eq!(killed.ending, Ending::KILLED, "{killed}");
    let lock = sandbox.workspace().join(".git/index.lock");
    File::create(&lock).unwrap().set_modified(made).unwrap();
    (sandbox, lock)
}

/// The processes' clock stands at the first instant of 2026.
fn intent() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_hours(490_896)
}

#[test]
fn c21_an_index_lock_that_a_killed_commit_left_is_said_and_removed() {
    let (sandbox, lock) = killed_in_a_commit(intent() + Duration::from_secs(1));
    let resumed = sandbox.resume(None).run().expect_code(0);
    assert!(resumed.stderr.contains("index.lock"), "{resumed}");
    assert!(!lock.exists());
    assert_eq!(sandbox.repository().history().unwrap().len(), 2);
}

#[test]
fn c21_an_index_lock_of_somebody_else_is_said_and_left() {
    let (sandbox, lock) = killed_in_a_commit(intent() - Duration::from_hours(1));
    let held = sandbox.resume(None).run().expect_code(4);
    let envelope: Envelope = held.json();
    assert!(envelope.waits[0].question.contains("the index is locked"), "{held}");
    assert!(lock.exists());
}

/// A machine that denies namespaces loses what they give, and nothing else; whoever runs there is told.
#[test]
fn where_namespaces_of_processes_are_denied_commands_run_all_the_same_and_that_is_said_once() {
    let sandbox = Sandbox::with(&json!({ "objective": "", "calls": [] }), &[]).uncontained();
    let can = std::process::Command::new("unshare").args(["--user", "--map-root-user", "true"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        println!("skipped: no `unshare` here, or no user namespaces");
        return;
    }
    let calls = [shell("readlink /proc/self/ns/pid /proc/self/ns/net"), shell("kill -9 $$"), shell("exit 3")];
    sandbox.set_mission(&json!({ "objective": "Run", "calls": calls }));
    let outcome = sandbox.run(None).without_process_namespaces().run().expect_code(0);
    assert_eq!(
        outcome.stderr.matches("commands run among the processes of the machine").count(),
        1,
        "{outcome}"
    );
    assert!(outcome.stderr.contains("limit of namespaces"), "{outcome}");
    let envelope: Envelope = outcome.json();
    let results = results(&sandbox, &envelope.run);
    let own = |kind: &str| fs::read_link(format!("/proc/self/ns/{kind}")).unwrap().display().to_string();
    let text = &results[0].text;
    assert!(text.contains(&own("pid")) && text.contains("net:") && !text.contains(&own("net")), "{text}");
    assert!(results[1].text.contains("signal 9") && results[2].text.contains("exit code 3"), "{results:?}");
}
