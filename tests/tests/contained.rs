//! Contained calls: what a command or a tool does is held in a stage, and is in the workspace exactly once, or not at all.
//!
//! Fault model: as in `kills.rs`, and somebody else who edits the same files at the worst instant.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use deed_tests::guests::{MISBEHAVE, PROBES};
use deed_tests::{CallReply, Ending, Envelope, Kill, Point, RunRow, Running, Sandbox, Wait};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// The step of the first call of a batch in a git workspace, after prefix, branch and policy.
const FIRST: u64 = 4;

/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_mins(1);

fn batch(calls: &[Value], files: &[(&str, &str)]) -> Sandbox {
    Sandbox::with(&json!({ "objective": "Change something", "calls": calls }), files)
}

fn shell(command: &str) -> Value {
    json!({ "tool": "shell", "input": { "command": command } })
}

/// What a command of a single call wrote, and how it ended.
fn call(sandbox: &Sandbox, command: &str) -> CallReply {
    sandbox.call("shell", &json!({ "command": command })).run().json()
}

/// Whether this machine contains no calls: then what is tested here is not there to be tested, and deed says so.
#[expect(clippy::print_stdout, reason = "a test that does not run is to be seen")]
fn contains_nothing() -> bool {
    let sandbox = batch(&[], &[]);
    let outcome = sandbox.call("shell", &json!({ "command": "true" })).run().expect_code(0);
    let nothing = outcome.stderr.contains("calls are not contained here");
    if nothing {
        println!("skipped: {}", outcome.stderr.trim());
    }
    nothing
}

/// The stages of a sandbox's journal that are there.
fn stages(sandbox: &Sandbox) -> Vec<PathBuf> {
    let directory = sandbox.root().join("journal.redb.stages");
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn b17_shell_after_exec_is_run_once_more_and_ticks_once() {
    if contains_nothing() {
        return;
    }
    for point in [Point::AfterExec, Point::AfterCommit, Point::MidPublish, Point::AfterPublish] {
        let sandbox = batch(&[shell("echo tick >> log")], &[]);
        let killed = sandbox.run(Some(Kill::new(FIRST, point))).run();
        assert_eq!(killed.ending, Ending::KILLED, "{killed}");
        let before = matches!(point, Point::AfterExec | Point::AfterCommit);
        assert_eq!(sandbox.files().paths().contains(&"log"), !before, "at {point}");
        let done: Envelope = sandbox.resume(None).run().expect_code(0).json();
        assert_eq!((done.status.as_str(), done.waits.len()), ("done", 0), "at {point}");
        assert_eq!(sandbox.files().text("log"), "tick\n", "at {point}");
        let step = &sandbox.steps(&done.run)[3];
        assert_eq!((step.contained, step.attempt), (true, if point == Point::AfterExec { 2 } else { 1 }));
        assert_eq!(stages(&sandbox), [] as [PathBuf; 0], "at {point}");
    }
}

#[test]
fn a_tool_that_writes_files_is_contained_as_a_command_is() {
    if contains_nothing() {
        return;
    }
    for point in [Point::MidExec, Point::AfterExec, Point::MidPublish] {
        let append = json!({ "tool": "append", "input": { "path": "log", "line": "one" } });
        let sandbox = batch(&[append], &[]);
        sandbox.install("probes", PROBES);
        assert_eq!(sandbox.run(Some(Kill::new(FIRST, point))).run().ending, Ending::KILLED);
        let done: Envelope = sandbox.resume(None).run().expect_code(0).json();
        assert_eq!(done.status, "done");
        assert_eq!(sandbox.files().text("log").lines().count(), 1, "at {point}");
        assert!(sandbox.steps(&done.run)[3].contained);
    }
}

/// What an attempt noted for the next one is about files that went with its stage.
#[test]
fn a_receipt_goes_with_the_stage_that_it_is_about() {
    if contains_nothing() {
        return;
    }
    for point in [Point::AfterReceipt, Point::AfterExec] {
        let sandbox = batch(&[json!({ "tool": "append_after_receipt", "input": { "path": "b.txt" } })], &[]);
        sandbox.install("misbehave", MISBEHAVE);
        assert_eq!(sandbox.run(Some(Kill::new(FIRST, point))).run().ending, Ending::KILLED);
        let [run] = sandbox.deed(["runs"]).run().json::<[RunRow; 1]>();
        let receipt = || {
            let shown: Value =
                sandbox.deed(["show", &run.run, &FIRST.to_string()]).run().expect_code(0).json();
            shown["receipt"].clone()
        };
        assert_eq!(receipt(), "about to append");
        let killed = sandbox.resume(Some(Kill::new(FIRST, Point::AfterIntent))).run();
        assert_eq!(killed.ending, Ending::KILLED);
        assert_eq!(receipt(), Value::Null, "at {point}");
        let _ = sandbox.resume(None).run().expect_code(0);
        assert_eq!(sandbox.files().text("b.txt"), "tick\n", "at {point}");
    }
}

#[test]
fn a_call_that_comes_to_no_good_end_leaves_nothing() {
    if contains_nothing() {
        return;
    }
    let slow = json!({ "command": "echo half > half; exec sleep 600", "timeout_ms": 300 });
    let sandbox = batch(&[], &[("a.txt", "alpha\n")]);
    let outcome = sandbox.call("shell", &slow).run();
    assert_eq!(outcome.ending, Ending::Exit(1), "{outcome}");
    let said = format!("{}{}", outcome.stdout, outcome.stderr);
    assert!(said.contains("what it had written in the workspace was dropped"), "{said}");
    assert_eq!(sandbox.files().paths(), ["a.txt"]);
    assert_eq!(stages(&sandbox), [] as [PathBuf; 0]);
}

/// Everything that a command could try, and what the machine looks like afterwards.
#[test]
fn a_command_does_not_get_out() {
    if contains_nothing() {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    let sandbox = batch(&[], &[]);
    let listener = UnixListener::bind(outside.path().join("agent")).unwrap();
    listener.set_nonblocking(true).unwrap();
    // Beyond `/tmp`, where only what is private can be seen: a socket and a file in a place that stays in sight.
    let visible = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let agent = UnixListener::bind(visible.path().join("agent")).unwrap();
    agent.set_nonblocking(true).unwrap();
    let datagrams = UnixDatagram::bind(visible.path().join("datagrams")).unwrap();
    datagrams.set_nonblocking(true).unwrap();
    fs::write(visible.path().join("file"), "as it was").unwrap();
    std::os::unix::fs::symlink(visible.path(), sandbox.workspace().join("way-out")).unwrap();
    let name = format!("deed-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
    let abstracted = UnixListener::bind_addr(&address).unwrap();
    abstracted.set_nonblocking(true).unwrap();
    let shared = Path::new("/dev/shm").join(&name);
    let home = sandbox.home();
    let paths = [
        outside.path().join("file"),
        visible.path().join("file"),
        visible.path().join("new"),
        home.join("from-the-call"),
        shared.clone(),
        Path::new("/tmp").join(&name),
        Path::new("/var/tmp").join(&name),
        Path::new("/run").join(&name),
    ];
    for path in &paths {
        call(&sandbox, &format!("echo escaped > '{}'", path.display()));
    }
    call(
        &sandbox,
        "echo escaped > way-out/file; echo escaped > way-out/new; rm -rf way-out/file; chmod 777 way-out/file",
    );
    let victim = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let test = std::process::id();
    call(&sandbox, &format!("kill -STOP {test}; kill -9 {}; kill -9 -1", victim.id()));
    let connect = |address: &str| {
        format!(
            "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0) or exit 7; connect(S, {address}) or exit 8; print S \"hello\"'"
        )
    };
    let path = visible.path().join("agent").display().to_string();
    call(&sandbox, &connect(&format!("pack_sockaddr_un(\"{path}\")")));
    call(&sandbox, &connect(&format!("pack_sockaddr_un(\"\\0{name}\")")));
    let stray = format!("\"{}\"", visible.path().join("datagrams").display());
    let pair = "socketpair(A, B, AF_UNIX, SOCK_DGRAM, 0) or exit 7";
    call(
        &sandbox,
        &format!("perl -MSocket -e '{pair}; send(A, \"hello\", 0, pack_sockaddr_un({stray})) or exit 8'"),
    );
    let own = call(
        &sandbox,
        "perl -MSocket -e 'socketpair(A, B, AF_UNIX, SOCK_STREAM, 0) or exit 7; print \"a pair\"'",
    );
    assert!(own.text().contains("a pair"), "what is connected to itself may be had: {own:?}");
    call(&sandbox, "(trap '' HUP TERM; while :; do echo late >> late; done) & echo started > late");
    let late = fs::metadata(sandbox.workspace().join("late")).unwrap().len();

    assert_eq!(fs::read_to_string(visible.path().join("file")).unwrap(), "as it was");
    for path in paths.iter().filter(|path| **path != visible.path().join("file")) {
        assert!(!path.exists(), "`{}`", path.display());
    }
    assert!(datagrams.recv(&mut [0; 8]).is_err(), "a pair of datagrams is sent where its owner likes");
    for (listener, what) in [(&listener, "hidden"), (&agent, "by path"), (&abstracted, "abstract")] {
        assert!(listener.accept().is_err(), "somebody reached the {what} socket");
    }
    let mut victim = victim;
    assert_eq!(victim.try_wait().unwrap(), None, "the process goes on");
    victim.kill().unwrap();
    victim.wait().unwrap();
    assert_eq!(fs::metadata(sandbox.workspace().join("late")).unwrap().len(), late, "nobody writes any more");
}

#[test]
fn a_command_finds_private_directories_and_its_own_workspace() {
    if contains_nothing() {
        return;
    }
    let sandbox = batch(&[], &[]);
    fs::write(sandbox.home().join("setting"), "as it was").unwrap();
    let reply = call(
        &sandbox,
        "set -e; pwd; for d in /tmp /var/tmp /run /dev/shm \"$HOME\"; do echo x > $d/x; done; cat \"$HOME/setting\"; echo new > \"$HOME/setting\"; echo ' in' \"$PWD\" > where; ls /tmp/x",
    );
    let text = reply.text();
    assert!(
        text.contains(&sandbox.workspace().display().to_string()) && text.contains("as it was"),
        "{text}"
    );
    assert!(text.contains("exit code 0"), "{text}");
    assert_eq!(fs::read_to_string(sandbox.home().join("setting")).unwrap(), "as it was");
    assert_eq!(sandbox.files().paths(), ["where"]);
}

/// A call that has written `mine` to `a.txt` and waits until it is told to end.
struct Waits {
    process: Running,
    sleeper: Pid,
}

impl Waits {
    fn in_call(sandbox: &Sandbox, first: &str) -> Self {
        // Nobody else sleeps for that long.
        let seconds = 1_000_000 + u64::from(std::process::id());
        let command = format!("{first}; touch ready; sleep {seconds}; true");
        let process = sandbox.call("shell", &json!({ "command": command })).start();
        let sleeper = until(|| sleeping(seconds));
        until(|| stages(sandbox).iter().any(|stage| stage.join("upper/ready").exists()).then_some(()));
        Self { process, sleeper }
    }

    fn end(self) -> deed_tests::Outcome {
        kill_process(self.sleeper, Signal::KILL).unwrap();
        self.process.wait()
    }
}

fn until<T>(look: impl Fn() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "it never came");
        std::thread::yield_now();
    }
}

fn sleeping(seconds: u64) -> Option<Pid> {
    let words = format!("sleep\0{seconds}\0");
    let processes =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let is_it =
        |pid: &String| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == words.as_bytes());
    processes
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .find(is_it)
        .and_then(|pid| Pid::from_raw(pid.parse().ok()?))
}

#[test]
fn somebody_elses_edit_during_the_call_survives_and_is_named() {
    if contains_nothing() {
        return;
    }
    let sandbox = batch(&[], &[("a.txt", "alpha\n"), ("b.txt", "beta\n")]);
    let waits = Waits::in_call(&sandbox, "echo mine >> a.txt; echo mine >> b.txt");
    fs::write(sandbox.workspace().join("a.txt"), "theirs\n").unwrap();
    let outcome = waits.end();
    assert_eq!(outcome.ending, Ending::Exit(1), "{outcome}");
    let said = format!("{}{}", outcome.stdout, outcome.stderr);
    assert!(
        said.contains("`a.txt`: was changed after the call began") && !said.contains("`b.txt`"),
        "{said}"
    );
    assert_eq!(sandbox.files().text("a.txt"), "theirs\n");
    assert_eq!(sandbox.files().text("b.txt"), "beta\n", "nothing of it was published");
    assert_eq!(sandbox.files().paths(), ["a.txt", "b.txt"]);
}

/// A run that was killed when one of its two files was published, and somebody else then wrote the other one.
fn cut_short() -> (Sandbox, Envelope, Wait) {
    let sandbox = batch(&[shell("echo one > one; echo two > two")], &[]);
    let killed = sandbox.run(Some(Kill::new(FIRST, Point::MidPublish))).run();
    assert_eq!(killed.ending, Ending::KILLED);
    assert_eq!(sandbox.files().paths(), ["one"]);
    let runs: Vec<Value> = sandbox.deed(["runs"]).run().expect_code(0).json();
    assert_eq!(runs[0]["stages"], json!([{ "seq": FIRST, "state": "unpublished" }]));
    fs::write(sandbox.workspace().join("two"), "theirs\n").unwrap();
    let held: Envelope = sandbox.resume(None).run().expect_code(4).json();
    assert_eq!(held.status, "waiting");
    let [wait] = sandbox.waits().try_into().unwrap();
    assert_eq!((wait.kind.as_str(), wait.seq), ("conflict", FIRST));
    (sandbox, held, wait)
}

#[test]
fn a_conflict_after_the_commit_is_the_owners_to_settle() {
    if contains_nothing() {
        return;
    }
    for (option, text) in [("keep", "theirs\n"), ("replace", "two\n")] {
        let (sandbox, held, wait) = cut_short();
        let staged = stages(&sandbox)[0].join("upper");
        assert!(wait.question.contains("`two`") && wait.question.contains(&staged.display().to_string()));
        assert_eq!(fs::read_to_string(staged.join("two")).unwrap(), "two\n", "both versions are there");
        assert_eq!(sandbox.files().text("two"), "theirs\n");
        // What was published is the workspace's, whoever changes it from now on: the answer is about the other one.
        fs::write(sandbox.workspace().join("one"), "later\n").unwrap();
        sandbox.answer(&wait.wait, option).unwrap();
        let done: Envelope = sandbox.resume(None).run().expect_code(0).json();
        assert_eq!(done.status, "done");
        assert_eq!((sandbox.files().text("one"), sandbox.files().text("two")), ("later\n", text));
        let shown: Value = sandbox.deed(["show", &held.run, &FIRST.to_string()]).run().expect_code(0).json();
        let kept = if option == "keep" { json!(["two"]) } else { Value::Null };
        assert_eq!(shown["published"]["kept"], kept);
        assert_eq!(stages(&sandbox), [] as [PathBuf; 0]);
    }
}

/// A journal that was restored from a backup has no stages: every resumption failed, and nobody could give the step up.
#[test]
fn what_was_committed_and_lost_with_its_stage_is_the_owners_to_give_up() {
    if contains_nothing() {
        return;
    }
    for (point, lost) in [(Point::MidPublish, true), (Point::AfterPublish, false)] {
        let sandbox = batch(&[shell("echo one > one; echo two > two")], &[]);
        assert_eq!(sandbox.run(Some(Kill::new(FIRST, point))).run().ending, Ending::KILLED);
        fs::remove_dir_all(sandbox.root().join("journal.redb.stages")).unwrap();
        if lost {
            let held: Envelope = sandbox.resume(None).run().expect_code(4).json();
            let [wait] = held.waits.try_into().unwrap();
            assert!(wait.question.contains("`two`: what the step made of it is gone"), "{}", wait.question);
            assert_eq!(wait.options, ["keep"]);
            sandbox.answer(&wait.wait, "keep").unwrap();
        }
        let done: Envelope = sandbox.resume(None).run().expect_code(0).json();
        assert_eq!(done.status, "done");
        assert_eq!(sandbox.files().paths().contains(&"two"), !lost);
    }
}

/// What a publication left half done used to be somebody else's workspace. Now whoever is next ends it, or says who can.
#[test]
fn a_publication_that_was_cut_short_is_ended_before_anybody_else_writes() {
    if contains_nothing() {
        return;
    }
    let sandbox = batch(&[shell("echo one > one; echo two > two")], &[]);
    let killed = sandbox.run(Some(Kill::new(FIRST, Point::MidPublish))).run();
    assert_eq!(killed.ending, Ending::KILLED);
    let write = ["call", "write_file", r#"{"path":"three","content":"three"}"#];
    let workspace = sandbox.workspace();
    let with_workspace = |deed: deed_tests::Deed| deed.args(["--workspace".as_ref(), workspace.as_os_str()]);
    // Another journal knows nothing of it, and says whose it is.
    let other = sandbox.root().join("other.redb");
    let refused = with_workspace(sandbox.deed_on(&other, write)).run();
    assert_eq!(refused.ending, Ending::Exit(1), "{refused}");
    let said = format!("{}{}", refused.stdout, refused.stderr);
    assert!(said.contains("is in the middle of what step") && said.contains("journal.redb"), "{said}");
    assert_eq!(sandbox.files().paths(), ["one"]);
    // The same journal can end it.
    let _ = with_workspace(sandbox.deed(write)).run().expect_code(0);
    assert_eq!(sandbox.files().paths(), ["one", "three", "two"]);
    let write = ["call", "write_file", r#"{"path":"four","content":""}"#];
    let _ = with_workspace(sandbox.deed_on(&other, write)).run().expect_code(0);
    let done: Envelope = sandbox.resume(None).run().expect_code(0).json();
    assert_eq!(done.status, "done");
}

/// The word that a publication has ended is not synced. When the power took it, the run itself had long ended, and the
/// workspace stayed closed to every other journal for good.
#[test]
fn a_note_of_a_publication_that_had_ended_is_taken_back_by_its_run() {
    if contains_nothing() {
        return;
    }
    let sandbox = batch(&[shell("echo one > one")], &[]);
    let done: Envelope = sandbox.run(None).run().expect_code(0).json();
    let locks = sandbox.home().join("state/deed/workspaces");
    let [lock] = fs::read_dir(locks)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect::<Vec<_>>()
        .try_into()
        .unwrap();
    assert_eq!(fs::read_to_string(&lock).unwrap(), "");
    let note = json!({ "journal": sandbox.journal(), "run": done.run, "seq": FIRST });
    fs::write(&lock, note.to_string()).unwrap();
    let other = sandbox.root().join("other.redb");
    let write = || {
        let deed = sandbox.deed_on(&other, ["call", "write_file", r#"{"path":"two","content":""}"#]);
        deed.args(["--workspace".as_ref(), sandbox.workspace().as_os_str()]).run()
    };
    let refused = write();
    assert_eq!(refused.ending, Ending::Exit(1), "{refused}");
    assert!(refused.stderr.contains(&format!("resume {}", done.run)), "{refused}");
    let _ = sandbox.deed(["resume", &done.run]).run().expect_code(0);
    let _ = sandbox.deed_on(&other, ["resume"]).run().expect_code(0);
    assert!(sandbox.files().paths().contains(&"two"));
}

#[test]
fn each_process_of_a_command_holds_as_much_as_a_grant_says() {
    let hog = json!({ "command": "perl -e '$x = \"a\" x (256 << 20); print \"held it\"'" });
    for contain in ["auto", "never"] {
        let sandbox = batch(&[], &[]);
        let rule = format!("[[policy]]\ntool = \"*\"\ndecision = \"allow\"\ncontain = \"{contain}\"\n");
        for (grant, holds) in
            [("", true), ("[[grants]]\ntool = \"*\"\ncommand_memory_bytes = 67108864\n", false)]
        {
            sandbox.set_operator(&format!("{rule}{grant}"));
            let reply: CallReply = sandbox.call("shell", &hog).run().json();
            assert_eq!(reply.text().contains("held it"), holds, "{contain}: {reply:?}");
        }
    }
}

#[test]
fn a_rule_says_what_is_contained() {
    if contains_nothing() {
        return;
    }
    let sandbox = batch(&[], &[("a.txt", "alpha\n")]);
    let contained = |tool: &str, input: &Value| {
        let outcome = sandbox.call(tool, input).run();
        let runs: Vec<Value> = sandbox.deed(["runs"]).run().expect_code(0).json();
        let steps = sandbox.steps(runs.last().unwrap()["run"].as_str().unwrap());
        (steps.last().unwrap().contained, outcome)
    };
    let write = json!({ "path": "b.txt", "content": "beta\n" });
    let (command, commit) =
        (json!({ "command": "echo x >> x" }), json!({ "message": "m", "paths": ["a.txt"] }));
    assert!(contained("shell", &command).0 && !contained("write_file", &write).0);
    sandbox.set_operator("[[policy]]\ntool = \"*\"\ndecision = \"allow\"\ncontain = \"always\"\n");
    assert!(contained("write_file", &write).0);
    assert_eq!(sandbox.files().text("b.txt"), "beta\n");
    assert!(!contained("read_file", &json!({ "path": "b.txt" })).0, "it changes nothing");
    let (_, refused) = contained("git_commit", &commit);
    assert_eq!(refused.ending, Ending::Exit(1), "{refused}");
    assert!(format!("{refused}").contains("it uses git by the host's hands"), "{refused}");
    sandbox.set_operator("[[policy]]\ntool = \"shell\"\ndecision = \"allow\"\ncontain = \"never\"\n");
    assert!(!contained("shell", &command).0);
    for point in [Point::MidPublish, Point::AfterPublish] {
        let kill = Kill::new(2, point).to_string();
        let call = sandbox.call("shell", &command).args(["--kill-at", &kill]);
        assert_eq!(call.run().ending, Ending::Exit(0), "it has nothing to publish");
    }
    // What reaches further is not contained in the first place.
    sandbox.set_operator("[[grants]]\ntool = \"shell\"\nnetwork = \"open\"\n");
    assert!(!contained("shell", &command).0);
}

/// A command may write what it likes, but for the file by which the operator speaks.
#[test]
fn a_contained_command_cannot_write_the_operators_file() {
    if contains_nothing() {
        return;
    }
    let sandbox = batch(&[], &[]);
    let reply = sandbox.call("shell", &json!({ "command": "echo x > x; echo > deed.toml" })).run();
    assert_eq!(reply.ending, Ending::Exit(1), "{reply}");
    assert!(format!("{reply}").contains("by which the operator speaks"), "{reply}");
    assert_eq!(sandbox.files().paths(), [] as [&str; 0]);
}

/// Where the machine makes no namespaces, such calls are plain non-idempotent ones: that is said once, and after a crash it is
/// asked.
#[test]
fn where_nothing_can_be_contained_it_is_said_once_and_asked() {
    let sandbox = batch(&[shell("echo tick >> log"), shell("echo tock >> log")], &[]);
    let killed = sandbox.run(Some(Kill::new(FIRST, Point::AfterExec))).without_process_namespaces().run();
    assert_eq!(killed.ending, Ending::KILLED, "{killed}");
    assert_eq!(killed.stderr.matches("calls are not contained here").count(), 1, "{killed}");
    let held: Envelope = sandbox.resume(None).without_process_namespaces().run().expect_code(4).json();
    assert_eq!(held.waits[0].kind, "reconcile");
    assert_eq!(sandbox.files().text("log"), "tick\n");
}

#[test]
fn what_a_step_changed_is_listed_with_its_difference() {
    if contains_nothing() {
        return;
    }
    let sandbox = batch(
        &[shell("echo more >> a.txt; rm b.txt; mkdir d; ln -s ../a.txt d/l")],
        &[("a.txt", "alpha\n"), ("b.txt", "beta\n")],
    );
    let done: Envelope = sandbox.run(None).run().expect_code(0).json();
    let seq = FIRST.to_string();
    let shown: Value = sandbox.deed(["show", &done.run, &seq]).run().expect_code(0).json();
    let paths: Vec<_> =
        shown["changes"].as_array().unwrap().iter().map(|change| change["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["d", "a.txt", "d/l", "b.txt"]);
    let text = sandbox.deed(["show", &done.run, &seq]).args(["--format", "text"]).run().expect_code(0).stdout;
    for line in [
        "+ d  (directory)",
        "~ a.txt  (file)",
        "+ d/l  (link)",
        "- b.txt  (file)",
        "+more",
        "contained, and published",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn names_that_are_no_text_and_modes_come_through() {
    if contains_nothing() {
        return;
    }
    let sandbox = batch(&[], &[]);
    call(
        &sandbox,
        "printf x > \"$(printf 'a\\377b')\"; touch script; chmod 750 script; mkdir -m 700 private",
    );
    let name = std::ffi::OsStr::from_bytes(b"a\xffb");
    assert_eq!(fs::read_to_string(sandbox.workspace().join(name)).unwrap(), "x");
    let mode =
        |path: &str| fs::metadata(sandbox.workspace().join(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("script"), mode("private")), (0o750, 0o700));
}
