//! A mission that pushes: to a repository of this machine and over HTTP, with its owner's approval, and killed on the way.
//!
//! Fault model: SIGKILL of a real process, at a named point or in the middle of its transport, once. The remote lives on,
//! and goes on with what it was sent. How often it was moved is counted there, by a hook of its own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use deed_tests::{
    Ending, Envelope, Kill, MessageResult, Point, Repository, Sandbox, StepRow, Wait, git_server::GitServer,
    shape,
};
use git2::Oid;
use serde_json::json;

/// How the remote is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Path,
    Http,
}

/// A sandbox whose workspace has a remote beside it, which counts.
struct Pushing {
    sandbox: Sandbox,
    url: String,
    server: Option<GitServer>,
}

impl Pushing {
    /// The mission writes a file, commits it, pushes it to `main` of `origin`, and ends. `decision` is the policy of the
    /// push.
    fn new(way: Way, decision: &str) -> Self {
        let sandbox = Sandbox::bare();
        fs::write(sandbox.workspace().join("README"), "A workspace.\n").unwrap();
        Repository::init(&sandbox.workspace());
        let remote = sandbox.root().join("remote.git");
        git2::Repository::init_bare(&remote).unwrap();
        let server = (way == Way::Http).then(|| GitServer::start(sandbox.root()));
        let url = server
            .as_ref()
            .map_or_else(|| remote.to_str().unwrap().to_owned(), |server| server.url("remote.git"));
        let workspace = git2::Repository::open(sandbox.workspace()).unwrap();
        workspace.remote("origin", &url).unwrap();
        workspace
            .remote_anonymous(remote.to_str().unwrap())
            .unwrap()
            .push(&["refs/heads/main"], None)
            .unwrap();
        sandbox.set_mission(&json!({
            "objective": "Write hello.txt, commit it and push it",
            "criteria": [],
            "tools": ["fs", "git"],
            "policy": [{ "tool": "git_push", "decision": decision }],
            "grants": [{ "tool": "git_push", "remotes": [url] }],
            "model": { "script": [
                { "say": "Writing and committing.", "calls": [
                    { "tool": "write_file", "input": { "path": "hello.txt", "content": "hello\n" } },
                    { "tool": "git_commit", "input": { "message": "Say hello" } } ] },
                { "say": "Pushing.", "calls": [{ "tool": "git_push", "input": { "to": "main" } }] },
                { "say": "Done.", "calls": [{ "tool": "finish", "input": { "summary": "Pushed." } }] }
            ] }
        }));
        let pushing = Self { sandbox, url, server };
        // Not `post-receive`: that is not run when nobody is there any more to be told.
        pushing.hook(
            "reference-transaction",
            "if test \"$1\" = committed; then grep refs/heads/ >> updates; fi; true",
        );
        pushing
    }

    fn remote(&self) -> PathBuf {
        self.sandbox.root().join("remote.git")
    }

    fn hook(&self, name: &str, script: &str) {
        let path = self.remote().join("hooks").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Each move of a branch of the remote: from, to, reference.
    fn updates(&self) -> Vec<String> {
        let log = fs::read_to_string(self.remote().join("updates")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    fn remote_main(&self) -> Oid {
        let remote = git2::Repository::open_bare(self.remote()).unwrap();
        remote.find_reference("refs/heads/main").unwrap().peel_to_commit().unwrap().id()
    }

    /// The commits of the workspace, newest first.
    fn history(&self) -> Vec<Oid> {
        self.sandbox.repository().history().unwrap().iter().map(|commit| commit.id).collect()
    }

    /// What the model is told of the push, in whatever way it was settled.
    fn told(&self) -> String {
        let [new, old] = self.history()[..] else { panic!("one commit was made: {:?}", self.history()) };
        let short = |id: Oid| id.to_string()[..7].to_owned();
        format!("pushed {} to main of {} (was at {})", short(new), self.url, short(old))
    }

    fn push_step(&self, run: &str) -> StepRow {
        let steps = self.sandbox.steps(run);
        let found = steps.iter().find(|step| step.name == "git_push" && step.kind == "tool_call");
        found.unwrap_or_else(|| panic!("no push in\n{}", shape(&steps))).clone()
    }

    fn push_result(&self, run: &str) -> MessageResult {
        let messages: Vec<deed_tests::Message> =
            self.sandbox.deed(["transcript", run]).run().expect_code(0).json();
        let mut results = messages.into_iter().filter_map(|message| message.result);
        let result = results.find(|result| result.tool == "git_push").unwrap();
        assert!(results.all(|result| result.tool != "git_push"), "told once");
        result
    }

    /// The run has ended, the remote was moved once, and the model was told so.
    #[track_caller]
    fn is_done(&self, envelope: &Envelope) {
        assert_eq!((envelope.status.as_str(), envelope.result.as_deref()), ("done", Some("Pushed.")));
        let [new, old] = self.history()[..] else { panic!("one commit was made") };
        assert_eq!(self.updates(), [format!("{old} {new} refs/heads/main")]);
        assert_eq!(self.remote_main(), new);
        let result = self.push_result(&envelope.run);
        assert!(result.ok, "{result:?}");
        assert_eq!(result.text.trim_end(), self.told());
        let step = self.push_step(&envelope.run);
        assert_eq!((step.status.as_str(), step.effect.as_deref()), ("completed", Some("non-idempotent")));
    }
}

/// The number of the push's step where nobody is asked.
fn push_seq() -> u64 {
    static SEQ: std::sync::LazyLock<u64> = std::sync::LazyLock::new(|| {
        let pushing = Pushing::new(Way::Path, "allow");
        let envelope: Envelope = pushing.sandbox.run(None).run().expect_code(0).json();
        pushing.is_done(&envelope);
        let step = pushing.push_step(&envelope.run);
        assert_eq!(
            (step.attempt, step.landed_before, step.settled_by.as_deref()),
            (1, false, Some("execution"))
        );
        step.seq
    });
    *SEQ
}

/// Killed there; the next process's end.
fn killed(pushing: &Pushing, point: Point) -> deed_tests::Outcome {
    let killed = pushing.sandbox.run(Some(Kill::new(push_seq(), point))).run();
    assert_eq!(killed.ending, Ending::KILLED, "{killed}");
    pushing.sandbox.resume(None).run()
}

fn stops_at_its_approval(way: Way) {
    let pushing = Pushing::new(way, "ask");
    let before = pushing.remote_main();
    let envelope: Envelope = pushing.sandbox.run(None).run().expect_code(4).json();
    let [wait] = <[Wait; 1]>::try_from(envelope.waits).unwrap();
    assert_eq!((wait.kind.as_str(), wait.name.as_str()), ("approval", "git_push"));
    assert_eq!(pushing.updates().len(), 0, "nothing was sent before it was approved");
    assert_eq!(pushing.remote_main(), before);

    pushing.sandbox.answer(&wait.wait, "approve").unwrap();
    let done: Envelope = pushing.sandbox.resume(None).run().expect_code(0).json();
    pushing.is_done(&done);
    let steps = pushing.sandbox.steps(&done.run);
    let from = steps.iter().position(|step| step.seq == wait.seq).unwrap();
    let around: Vec<_> = steps[from..from + 3].iter().map(|step| (step.seq, step.kind.as_str())).collect();
    assert_eq!(around, [(wait.seq, "wait"), (wait.seq + 1, "now"), (wait.seq + 2, "tool_call")]);
    assert_eq!(steps[from + 2].name, "git_push");
    if let Some(server) = &pushing.server {
        let posts = server
            .requests()
            .iter()
            .filter(|request| *request == "POST /remote.git/git-receive-pack")
            .count();
        assert_eq!(posts, 1, "{:?}", server.requests());
    }
}

#[test]
fn b29_a_push_to_a_path_stops_at_its_approval_and_proceeds() {
    stops_at_its_approval(Way::Path);
}

#[test]
fn b29_a_push_over_http_stops_at_its_approval_and_proceeds() {
    stops_at_its_approval(Way::Http);
}

#[test]
fn b29_a_push_that_is_denied_is_not_made() {
    let pushing = Pushing::new(Way::Path, "ask");
    let envelope: Envelope = pushing.sandbox.run(None).run().expect_code(4).json();
    pushing.sandbox.answer(&envelope.waits[0].wait, "deny").unwrap();
    let done: Envelope = pushing.sandbox.resume(None).run().expect_code(0).json();
    assert!(!pushing.push_result(&done.run).ok);
    assert_eq!(pushing.updates().len(), 0);
}

fn settled_by_its_probe(way: Way) {
    let pushing = Pushing::new(way, "allow");
    let done: Envelope = killed(&pushing, Point::AfterExec).expect_code(0).json();
    pushing.is_done(&done);
    let step = pushing.push_step(&done.run);
    assert_eq!((step.attempt, step.landed_before, step.settled_by.as_deref()), (1, true, Some("probe")));
}

#[test]
fn b30_a_push_to_a_path_that_had_landed_is_settled_by_its_probe() {
    settled_by_its_probe(Way::Path);
}

#[test]
fn b30_a_push_over_http_that_had_landed_is_settled_by_its_probe() {
    settled_by_its_probe(Way::Http);
}

/// The receipt is durable and nothing was sent: the probe sees the remote as the receipt has it, and the push is made.
#[test]
fn b30_a_push_that_had_not_been_sent_is_made_once() {
    for way in [Way::Path, Way::Http] {
        let pushing = Pushing::new(way, "allow");
        let done: Envelope = killed(&pushing, Point::AfterReceipt).expect_code(0).json();
        pushing.is_done(&done);
        let step = pushing.push_step(&done.run);
        assert_eq!(
            (step.attempt, step.landed_before, step.settled_by.as_deref()),
            (2, false, Some("execution"))
        );
    }
}

#[test]
fn b30_a_push_killed_at_any_point_is_made_once_and_nobody_is_asked() {
    // What reaches a remote is not contained, and has nothing to publish.
    let published = [Point::MidPublish, Point::AfterPublish];
    for point in Point::ALL.into_iter().filter(|point| !published.contains(point)) {
        let pushing = Pushing::new(Way::Path, "allow");
        let done: Envelope = killed(&pushing, point).expect_code(0).json();
        pushing.is_done(&done);
    }
}

/// The remote is in the middle of it when the host is killed: it has everything, and moves the branch a moment later. A
/// probe that looked at once would have found the branch where it was.
#[test]
fn b30_a_push_that_lands_after_the_host_has_died_is_made_once() {
    let pushing = Pushing::new(Way::Path, "allow");
    let (gate, mut ends) = pushing.sandbox.fifo("gate");
    let reached = pushing.sandbox.root().join("reached");
    let script = format!("echo > '{}'; read line < '{}'", reached.display(), gate.display());
    pushing.hook("pre-receive", &script);
    let running = pushing.sandbox.run(None).start();
    while !reached.exists() {
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_raw(running.pid().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    assert_eq!(running.wait().ending, Ending::KILLED);
    assert_eq!(pushing.updates().len(), 0);

    let resumed = pushing.sandbox.resume(None).start();
    // Two lines: a second push, were there one, must not hang here but be counted.
    ends.write_all(b"go\ngo\n").unwrap();
    let done: Envelope = resumed.wait().expect_code(0).json();
    // Recovery waits for what the first attempt left running here.
    let step = pushing.push_step(&done.run);
    assert_eq!((step.attempt, step.settled_by.as_deref()), (1, Some("probe")));
    pushing.is_done(&done);
}

/// Where the probe cannot tell, the owner gets its evidence.
fn asked_about(disturb: impl FnOnce(&Pushing), evidence: &str) -> (Pushing, Wait) {
    let pushing = Pushing::new(Way::Path, "allow");
    let killed = pushing.sandbox.run(Some(Kill::new(push_seq(), Point::AfterExec))).run();
    assert_eq!(killed.ending, Ending::KILLED, "{killed}");
    disturb(&pushing);
    let envelope: Envelope = pushing.sandbox.resume(None).run().expect_code(4).json();
    let [wait] = <[Wait; 1]>::try_from(envelope.waits).unwrap();
    assert_eq!((wait.kind.as_str(), wait.name.as_str()), ("reconcile", "git_push"));
    assert!(wait.question.contains(evidence), "{}", wait.question);
    (pushing, wait)
}

#[test]
fn a_remote_that_somebody_moved_elsewhere_is_the_owners_to_judge() {
    let moves = |pushing: &Pushing| {
        let remote = git2::Repository::open_bare(pushing.remote()).unwrap();
        let tree = remote.find_tree(remote.treebuilder(None).unwrap().write().unwrap()).unwrap();
        let who = git2::Signature::now("Somebody", "somebody@example.invalid").unwrap();
        let other = remote.commit(None, &who, &who, "Start over", &tree, &[]).unwrap();
        remote.reference("refs/heads/main", other, true, "forced").unwrap();
    };
    let (pushing, wait) = asked_about(moves, "which is not in the repository here");
    pushing.sandbox.answer(&wait.wait, "happened").unwrap();
    let done: Envelope = pushing.sandbox.resume(None).run().expect_code(0).json();
    assert_eq!((done.status.as_str(), pushing.updates().len()), ("done", 1));
}

#[test]
fn a_remote_that_cannot_be_asked_is_the_owners_to_judge() {
    let goes =
        |pushing: &Pushing| fs::rename(pushing.remote(), pushing.remote().with_extension("away")).unwrap();
    let (pushing, wait) = asked_about(goes, "failed to ask the remote");
    fs::rename(pushing.remote().with_extension("away"), pushing.remote()).unwrap();
    // It had happened, and the owner errs: the second attempt finds it there, and does not push again.
    pushing.sandbox.answer(&wait.wait, "did-not-happen").unwrap();
    let done: Envelope = pushing.sandbox.resume(None).run().expect_code(0).json();
    pushing.is_done(&done);
    let step = pushing.push_step(&done.run);
    assert_eq!((step.attempt, step.landed_before), (2, true));
}
