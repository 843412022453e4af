//! Remotes: listing and pushing, and what may stand in the way.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use deed::capability::GitEnvironment;
use deed::engine::{
    AbortReason, CallEnd, EffectClass, EffectState, Engine, EngineConfig, FailureKind, Output, Verdict,
};
use git2::{Oid, Repository};
use serde_json::{Value, json};

use crate::git::{commit_all, repository};
use crate::git_server::{Fault, GitServer};
use crate::support::{Call, OnReceipt, Recorder, text};

/// A workspace with a commit on `main`, and a bare repository beside it that keeps a log of every update.
struct Place {
    root: tempfile::TempDir,
    repository: Repository,
}

impl Place {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("workspace")).unwrap();
        let repository = repository(&root.path().join("workspace"));
        let place = Self { root, repository };
        Repository::init_bare(place.remote()).unwrap();
        place.hook("post-receive", "cat >> updates");
        place
    }

    fn workspace(&self) -> PathBuf {
        self.root.path().join("workspace")
    }

    fn remote(&self) -> PathBuf {
        self.root.path().join("remote.git")
    }

    fn url(&self) -> String {
        self.remote().to_str().unwrap().to_owned()
    }

    /// A hook of the remote's.
    fn hook(&self, name: &str, script: &str) {
        script_at(&self.remote().join("hooks").join(name), script);
    }

    /// What the remote's branches were moved to, each time.
    fn updates(&self) -> Vec<String> {
        let log = fs::read_to_string(self.remote().join("updates")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    fn remote_branch(&self, name: &str) -> Option<Oid> {
        let remote = Repository::open_bare(self.remote()).unwrap();
        let branch = remote.find_reference(&format!("refs/heads/{name}")).ok()?;
        Some(branch.peel_to_commit().unwrap().id())
    }

    fn head(&self) -> Oid {
        self.repository.head().unwrap().peel_to_commit().unwrap().id()
    }

    /// One more commit.
    fn go_on(&self, file: &str) -> Oid {
        fs::write(self.workspace().join(file), "more\n").unwrap();
        commit_all(&self.repository, "More");
        self.head()
    }

    /// A call that is granted the place it names.
    fn call(args: Value, workspace: &Path) -> Call<'_> {
        let url = args["remote"].as_str().unwrap().to_owned();
        let mut call = Call::new("git", "git_push", args, workspace);
        call.remotes = vec![url];
        call
    }

    fn push(&self, url: &str) -> CallEnd {
        Self::call(json!({"remote": url}), &self.workspace()).run()
    }
}

fn script_at(path: &Path, script: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn short(id: Oid) -> String {
    id.to_string()[..7].to_owned()
}

#[track_caller]
fn output(end: CallEnd) -> Output {
    match end {
        CallEnd::Completed(output) => output,
        other => panic!("expected a result: {other:?}"),
    }
}

#[track_caller]
fn failed(end: CallEnd) -> (FailureKind, EffectState, String) {
    match end {
        CallEnd::Failed(failure) => (failure.kind, failure.effect, failure.message),
        other => panic!("expected a failure: {other:?}"),
    }
}

/// A new branch, the next commit, and again with nothing new.
fn pushes_to(place: &Place, url: &str) {
    let first = place.head();
    let said = text(&output(place.push(url)));
    assert_eq!(said, format!("pushed {} to main of {url} (a new branch)", short(first)));
    let second = place.go_on("b.txt");
    let said = text(&output(place.push(url)));
    assert_eq!(said, format!("pushed {} to main of {url} (was at {})", short(second), short(first)));
    let again = output(place.push(url));
    assert_eq!(text(&again), format!("nothing to push: main of {url} is at {} already", short(second)));
    assert!(!again.landed_before);
    assert_eq!(place.remote_branch("main"), Some(second));
    assert_eq!(place.updates().len(), 2, "{:?}", place.updates());
    let checked = std::process::Command::new("git")
        .args(["--git-dir", &place.url(), "fsck", "--strict"])
        .output()
        .unwrap();
    assert!(checked.status.success(), "{checked:?}");
}

#[test]
fn a_branch_is_pushed_to_a_path() {
    let place = Place::new();
    pushes_to(&place, &place.url());
    let place = Place::new();
    pushes_to(&place, &format!("file://{}", place.url()));
}

#[test]
fn a_branch_is_pushed_over_http() {
    let place = Place::new();
    let server = GitServer::start(place.root.path());
    pushes_to(&place, &server.url("remote.git"));
    assert!(server.requests().contains(&"POST /remote.git/git-receive-pack".to_owned()));
}

#[test]
fn branch_and_target_can_be_named() {
    let place = Place::new();
    let head = place.head();
    let args = json!({"remote": place.url(), "branch": "main", "to": "feature/x"});
    output(Place::call(args, &place.workspace()).run());
    assert_eq!((place.remote_branch("feature/x"), place.remote_branch("main")), (Some(head), None));
}

#[test]
fn the_objects_of_a_linked_work_tree_are_found_and_those_that_a_clone_borrows_are_not() {
    let place = Place::new();
    let linked = place.root.path().join("linked");
    place.repository.worktree("linked", &linked, None).unwrap();
    output(Place::call(json!({"remote": place.url()}), &linked).run());
    assert_eq!(place.remote_branch("linked"), Some(place.head()));

    // Whoever can write the list of alternates would push what is in any other repository of the user's.
    let clone = place.root.path().join("a \"clone\": one");
    let cloned = std::process::Command::new("git")
        .args(["clone", "--quiet", "--shared"])
        .args([place.workspace(), clone.clone()])
        .output()
        .unwrap();
    assert!(cloned.status.success(), "{cloned:?}");
    let borrowed = Place::call(json!({"remote": place.url(), "to": "borrowed"}), &clone);
    let (_, effect, message) = failed(borrowed.run());
    assert_eq!(effect, EffectState::NotApplied);
    assert!(message.contains("takes objects from") && message.contains("outside the workspace"), "{message}");
    assert_eq!(place.remote_branch("borrowed"), None);
}

#[test]
fn a_shallow_clone_pushes_what_it_has() {
    let place = Place::new();
    place.go_on("b.txt");
    output(place.push(&place.url()));
    let clone = place.root.path().join("shallow");
    let cloned = std::process::Command::new("git")
        .args(["clone", "--quiet", "--depth=1", "-b", "main", &format!("file://{}", place.url())])
        .arg(&clone)
        .output()
        .unwrap();
    assert!(cloned.status.success(), "{cloned:?}");
    fs::write(clone.join("c.txt"), "new\n").unwrap();
    let repository = Repository::open(&clone).unwrap();
    commit_all(&repository, "On top");
    output(Place::call(json!({"remote": place.url()}), &clone).run());
    let head = repository.head().unwrap().peel_to_commit().unwrap().id();
    assert_eq!(place.remote_branch("main"), Some(head));
}

/// A name is resolved before the gate is asked, and the gate is asked for the URL: a tool may write the configuration.
#[test]
fn a_remote_that_is_not_granted_is_refused_with_the_line_that_would_allow_it() {
    let place = Place::new();
    let url = place.url();
    place.repository.remote("origin", &url).unwrap();
    let workspace = place.workspace();
    let mut call = Call::new("git", "git_push", json!({}), &workspace);
    // The name is no grant.
    call.remotes = vec!["origin".to_owned()];
    let (kind, effect, message) = failed(call.run());
    assert_eq!((kind, effect), (FailureKind::Denied, EffectState::NotApplied));
    assert_eq!(
        message,
        format!(
            "failed to push to `origin`: git: to list `{url}` was refused: `git_push`, called as `non-idempotent`, is not \
             granted this remote; this line, first under `grants`, would allow it: {{\"remotes\":[\"origin\",\"{url}\"],\"tool\":\"git_push\"}}"
        )
    );
    let mut call = Call::new("git", "git_push", json!({}), &workspace);
    call.remotes = vec![url];
    output(call.run());
    assert_eq!(place.updates().len(), 1);
}

#[test]
fn a_call_that_is_not_non_idempotent_lists_at_most() {
    let place = Place::new();
    let workspace = place.workspace();
    let mut call = Place::call(json!({"remote": place.url()}), &workspace);
    call.class = EffectClass::Pure;
    let (kind, _, message) = failed(call.run());
    assert_eq!(kind, FailureKind::Denied);
    assert!(message.contains("reaches no network"), "{message}");
    assert_eq!(place.updates().len(), 0);
}

/// Whatever a tool writes below `.git`: nothing of it is read by the `git` program, and nothing of it runs.
#[test]
fn what_the_workspace_configures_does_not_run() {
    let place = Place::new();
    let proof = place.root.path().join("proof");
    let run = format!("touch {}", proof.display());
    let git = place.workspace().join(".git");
    for hook in ["pre-push", "reference-transaction", "post-index-change", "pre-auto-gc"] {
        script_at(&git.join("hooks").join(hook), &run);
        script_at(&git.join("myhooks").join(hook), &run);
    }
    let script = place.root.path().join("script");
    script_at(&script, &run);
    let script = script.to_str().unwrap();
    let mut config = place.repository.config().unwrap();
    for (name, value) in [
        ("core.sshCommand", script),
        ("core.gitProxy", script),
        ("core.askPass", script),
        ("core.fsmonitor", script),
        ("core.hooksPath", git.join("myhooks").to_str().unwrap()),
        ("credential.helper", &format!("!{script}")),
        ("protocol.ext.allow", "always"),
        ("remote.origin.url", &format!("ext::{script}")),
        ("remote.other.url", &place.url()),
        ("remote.other.receivepack", script),
        ("remote.other.uploadpack", script),
        ("gpg.program", script),
        ("push.gpgSign", "true"),
        ("push.followTags", "true"),
        (&format!("url.ext::{script}.insteadOf"), &place.url()),
        (&format!("url.ext::{script}.pushInsteadOf"), &place.url()),
    ] {
        config.set_str(name, value).unwrap();
    }
    let workspace = place.workspace();
    let mut call = Call::new("git", "git_push", json!({}), &workspace);
    call.remotes = vec![format!("ext::{script}")];
    let (kind, effect, message) = failed(call.run());
    assert_eq!((kind, effect), (FailureKind::NotFound, EffectState::NotApplied));
    assert!(message.contains("`origin`") && message.contains("ext::"), "{message}");

    let mut call = Call::new("git", "git_push", json!({"remote": "other"}), &workspace);
    call.remotes = vec![place.url()];
    output(call.run());
    assert_eq!(place.remote_branch("main"), Some(place.head()));

    // Nobody listens there; ssh itself is asked for, and not the script.
    let url = "ssh://127.0.0.1:1/a.git";
    let (_, effect, message) = failed(place.push(url));
    assert_eq!(effect, EffectState::NotApplied, "{message}");
    assert!(!proof.exists(), "something of the workspace's ran");

    // The control: it would, had git been started there.
    let there = std::process::Command::new("git")
        .arg("-C")
        .arg(&workspace)
        .args(["push", &place.url(), "main:other"])
        .output()
        .unwrap();
    assert!(proof.exists(), "{there:?}");
}

#[test]
fn a_remote_in_the_workspace_is_refused() {
    let place = Place::new();
    let inside = place.workspace().join("evil.git");
    Repository::init_bare(&inside).unwrap();
    let link = place.root.path().join("link.git");
    std::os::unix::fs::symlink(&inside, &link).unwrap();
    let inside = inside.to_str().unwrap();
    for url in [inside, &format!("file://{inside}"), link.to_str().unwrap()] {
        let (kind, _, message) = failed(place.push(url));
        assert_eq!(kind, FailureKind::Denied);
        assert!(message.contains("lies in the workspace"), "{message}");
    }
}

#[test]
fn arguments_that_would_be_options_are_none() {
    let place = Place::new();
    let url = place.url();
    for args in [
        json!({"remote": "--receive-pack=touch x"}),
        json!({"remote": "-uevil:x"}),
        json!({"remote": url, "to": "-x"}),
        json!({"remote": url, "to": "x:refs/heads/y"}),
        json!({"remote": url, "to": "../x"}),
        json!({"remote": url, "to": ""}),
        json!({"remote": url, "branch": "--all"}),
        json!({"remote": url, "branch": "nothing"}),
    ] {
        let (kind, effect, message) = failed(Place::call(args.clone(), &place.workspace()).run());
        assert_eq!((kind, effect), (FailureKind::NotFound, EffectState::NotApplied), "{args}: {message}");
    }
    assert_eq!(place.updates().len(), 0);
}

#[test]
fn what_cannot_be_pushed_is_said_clearly() {
    let place = Place::new();
    let head = place.head();
    place.repository.set_head_detached(head).unwrap();
    let (_, _, message) = failed(place.push(&place.url()));
    assert!(message.contains("HEAD is detached"), "{message}");
    place.repository.set_head("refs/heads/unborn").unwrap();
    let (_, _, message) = failed(place.push(&place.url()));
    assert!(message.contains("`unborn`"), "{message}");
    place.repository.set_head("refs/heads/main").unwrap();

    let missing = place.root.path().join("missing.git");
    let (kind, effect, message) = failed(place.push(missing.to_str().unwrap()));
    assert_eq!((kind, effect), (FailureKind::Unavailable, EffectState::NotApplied));
    assert!(message.contains("missing.git") && message.contains("was not reached"), "{message}");
}

/// Somebody else's commits are on the remote: they are not thrown away.
#[test]
fn what_the_remote_has_and_the_workspace_has_not_stays_there() {
    let place = Place::new();
    let url = place.url();
    output(place.push(&url));
    let theirs = theirs(place.root.path());
    let ours = place.go_on("ours.txt");
    let (kind, effect, message) = failed(place.push(&url));
    assert_eq!((kind, effect), (FailureKind::Conflict, EffectState::NotApplied));
    assert!(message.contains("fetch and merge"), "{message}");
    // Known here, and still not below what is pushed.
    fetch(&place);
    let (kind, _, message) = failed(place.push(&url));
    assert_eq!(kind, FailureKind::Conflict);
    assert!(message.contains("does not build on"), "{message}");
    assert_eq!(place.remote_branch("main"), Some(theirs));
    assert_ne!(ours, theirs);
}

/// A commit that somebody else pushes to `main` of the remote below `root`.
fn theirs(root: &Path) -> Oid {
    let clone = root.join("theirs");
    let repository = Repository::clone(root.join("remote.git").to_str().unwrap(), &clone).unwrap();
    repository
        .find_reference("refs/remotes/origin/main")
        .and_then(|main| repository.reference("refs/heads/main", main.peel_to_commit()?.id(), true, ""))
        .unwrap();
    repository.set_head("refs/heads/main").unwrap();
    repository.checkout_head(Some(git2::build::CheckoutBuilder::new().force())).unwrap();
    fs::write(clone.join("theirs.txt"), "theirs\n").unwrap();
    commit_all(&repository, "Theirs");
    let mut origin = repository.find_remote("origin").unwrap();
    origin.push(&["refs/heads/main"], None).unwrap();
    repository.head().unwrap().peel_to_commit().unwrap().id()
}

fn fetch(place: &Place) {
    let mut remote = place.repository.remote_anonymous(&place.url()).unwrap();
    remote.fetch(&["refs/heads/main"], None, None).unwrap();
}

/// The remote moves between the listing and the push: at the receipt, which says what it was.
#[test]
fn a_stale_lease_is_refused_by_the_remote() {
    for exists in [true, false] {
        let place = Place::new();
        let url = place.url();
        if exists {
            output(place.push(&url));
            place.go_on("ours.txt");
        }
        let workspace = place.workspace();
        let mut call = Place::call(json!({"remote": url}), &workspace);
        let root = place.root.path().to_owned();
        call.observer = Arc::new(OnReceipt(move |_: &[u8]| {
            if exists {
                theirs(&root);
            } else {
                let remote = Repository::open_bare(root.join("remote.git")).unwrap();
                let tree = remote.find_tree(remote.treebuilder(None).unwrap().write().unwrap()).unwrap();
                let who = git2::Signature::now("Bob", "bob@example.org").unwrap();
                remote.commit(Some("refs/heads/main"), &who, &who, "Theirs", &tree, &[]).unwrap();
            }
        }));
        let (kind, effect, message) = failed(call.run());
        assert_eq!((kind, effect), (FailureKind::Conflict, EffectState::NotApplied));
        assert!(message.contains("any more: somebody else moved it"), "{message}");
        assert_ne!(place.remote_branch("main"), Some(place.head()));
        assert_eq!(place.updates().len(), usize::from(exists));
    }
}

#[test]
fn a_remote_that_refuses_is_quoted_and_nothing_was_applied() {
    let place = Place::new();
    place.hook("update", "echo 'fatal: Could not read from remote repository' >&2; exit 1");
    let (kind, effect, message) = failed(place.push(&place.url()));
    assert_eq!((kind, effect), (FailureKind::Conflict, EffectState::NotApplied));
    assert!(message.contains("hook declined"), "{message}");
}

/// An end that nobody answered for is in doubt whether or not the update is there.
#[test]
fn a_connection_that_is_lost_in_the_middle_leaves_the_push_in_doubt() {
    for (fault, landed) in [(Fault::LostBefore, false), (Fault::LostAfter, true)] {
        let place = Place::new();
        let server = GitServer::start(place.root.path());
        server.fail(fault);
        let url = server.url("remote.git");
        let recorder = Arc::new(Recorder::default());
        let workspace = place.workspace();
        let mut call = Place::call(json!({"remote": url}), &workspace);
        call.observer = recorder.clone();
        let (_, effect, message) = failed(call.run());
        assert_eq!(effect, EffectState::Unknown, "{message}");
        assert!(message.contains("cannot be told"), "{message}");
        assert_eq!(place.updates().len(), usize::from(landed));

        // The probe can tell, once the server is back.
        let receipt = recorder.receipt();
        let probe = || {
            let mut call = Place::call(json!({"remote": url}), &workspace);
            call.receipt.clone_from(&receipt);
            call.probe().unwrap()
        };
        server.fail(Fault::Unauthorized);
        let Verdict::Undecidable(why) = probe() else { panic!() };
        assert!(why.contains("failed to ask the remote"), "{why}");
        server.fail(Fault::None);
        match (probe(), landed) {
            (Verdict::Landed(output), true) => {
                let id = short(place.head());
                assert_eq!(text(&output), format!("pushed {id} to main of {url} (a new branch)"));
            }
            (Verdict::NotLanded, false) => {
                let mut call = Place::call(json!({"remote": url}), &workspace);
                (call.receipt, call.attempt) = (receipt.clone(), 2);
                let again = call.output();
                let id = short(place.head());
                assert_eq!(text(&again), format!("pushed {id} to main of {url} (a new branch)"));
            }
            (verdict, _) => panic!("{verdict:?}"),
        }
        assert_eq!(place.updates().len(), 1);
    }
}

#[test]
fn what_was_never_reached_was_not_changed() {
    let place = Place::new();
    let server = GitServer::start(place.root.path());
    let url = server.url("remote.git");
    for (fault, words) in [(Fault::Unauthorized, "could not read Username"), (Fault::Redirect, "301")] {
        server.fail(fault);
        let (kind, effect, message) = failed(place.push(&url));
        assert_eq!((kind, effect), (FailureKind::Unavailable, EffectState::NotApplied), "{message}");
        assert!(message.contains(words), "{message}");
    }
    drop(server);
    for url in [&*url, "http://name.invalid/a.git", "git://127.0.0.1:1/a.git"] {
        let (kind, effect, message) = failed(place.push(url));
        assert_eq!((kind, effect), (FailureKind::Unavailable, EffectState::NotApplied), "{message}");
        assert!(message.contains(url), "{message}");
    }
}

/// The remote takes the update, and does not come to its end. What git started there goes with it.
#[test]
fn a_push_that_is_cancelled_is_in_doubt() {
    let place = Place::new();
    let ready = place.root.path().join("ready");
    place.hook("post-receive", &format!("cat >> updates; echo > '{}'; exec sleep 600", ready.display()));
    let workspace = place.workspace();
    let call = Place::call(json!({"remote": place.url()}), &workspace);
    let cancel = call.cancel.clone();
    let end = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ready.exists() {
                std::thread::yield_now();
            }
            cancel.cancel();
        });
        call.run()
    });
    let (_, effect, message) = failed(end);
    assert_eq!(effect, EffectState::Unknown, "{message}");
    assert!(message.contains("cancelled"), "{message}");
}

#[test]
fn a_push_that_does_not_end_ends_with_the_calls_time() {
    let place = Place::new();
    place.hook("pre-receive", "exec sleep 600");
    let workspace = place.workspace();
    let mut call = Place::call(json!({"remote": place.url()}), &workspace);
    call.timeout = Duration::from_secs(1);
    let CallEnd::Aborted(abort) = call.run() else { panic!("it was to be ended") };
    assert_eq!(abort.reason, AbortReason::Timeout, "{abort}");
    assert_eq!(place.updates(), [""; 0]);
}

/// Nothing was sent before the receipt was durable.
#[test]
fn a_probe_without_a_receipt_says_not_landed() {
    let place = Place::new();
    let workspace = place.workspace();
    let verdict = Place::call(json!({"remote": place.url()}), &workspace).probe().unwrap();
    assert_eq!(verdict, Verdict::NotLanded);
}

#[test]
fn a_probe_tells_apart_what_came_of_the_branch() {
    let place = Place::new();
    let url = place.url();
    let workspace = place.workspace();
    let recorder = Arc::new(Recorder::default());
    let mut call = Place::call(json!({"remote": url}), &workspace);
    call.observer = recorder.clone();
    let pushed = call.output();
    let probe = || {
        let mut call = Place::call(json!({"remote": url}), &workspace);
        call.receipt = recorder.receipt();
        call.probe().unwrap()
    };
    let landed = |verdict| match verdict {
        Verdict::Landed(output) => {
            assert_eq!(output.content, pushed.content);
            assert!(output.landed_before);
        }
        other => panic!("{other:?}"),
    };
    landed(probe());
    // Somebody went on; that is not known here, and then it is.
    theirs(place.root.path());
    let Verdict::Undecidable(why) = probe() else { panic!() };
    assert!(why.contains("not in the repository here"), "{why}");
    fetch(&place);
    landed(probe());

    let remote = Repository::open_bare(place.remote()).unwrap();
    remote.find_reference("refs/heads/main").unwrap().delete().unwrap();
    assert_eq!(probe(), Verdict::NotLanded, "it was not there before, either");
}

#[test]
fn a_second_attempt_that_finds_it_landed_says_what_the_first_would_have() {
    let place = Place::new();
    let url = place.url();
    let workspace = place.workspace();
    let recorder = Arc::new(Recorder::default());
    let mut call = Place::call(json!({"remote": url}), &workspace);
    call.observer = recorder.clone();
    let first = call.output();
    place.go_on("later.txt");
    let mut call = Place::call(json!({"remote": url}), &workspace);
    (call.receipt, call.attempt) = (recorder.receipt(), 2);
    let second = call.output();
    assert_eq!(first.content, second.content);
    assert_eq!((first.landed_before, second.landed_before), (false, true));
    assert_eq!(place.updates().len(), 1);
}

#[test]
fn without_a_git_program_the_push_says_what_to_install() {
    let place = Place::new();
    let git = GitEnvironment { search_path: "/nonexistent".into(), ..GitEnvironment::default() };
    let engine = Engine::new(EngineConfig { git, ..crate::support::config() }).unwrap();
    let workspace = place.workspace();
    let end = Place::call(json!({"remote": place.url()}), &workspace).run_on(&engine);
    let (kind, effect, message) = failed(end);
    assert_eq!((kind, effect), (FailureKind::Unavailable, EffectState::NotApplied));
    assert!(message.contains("install git"), "{message}");
}

/// A lock that an earlier attempt's processes hold: then nothing is started, neither git nor a command.
#[test]
fn nothing_is_started_beside_what_an_earlier_attempt_left_running() {
    let place = Place::new();
    let workspace = place.workspace();
    let lock = place.root.path().join("call.lock");
    let held = fs::File::create(&lock).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let calls = || {
        let mut push = Place::call(json!({"remote": place.url()}), &workspace);
        let mut shell = Call::new("shell", "shell", json!({"command": "echo x > x"}), &workspace);
        (push.lock, shell.lock) = (Some(lock.as_path()), Some(lock.as_path()));
        [push, shell]
    };
    for call in calls() {
        let (kind, effect, message) = failed(call.run());
        assert_eq!((kind, effect), (FailureKind::Denied, EffectState::NotApplied), "{message}");
        assert!(message.contains("earlier attempt") && message.contains("call.lock"), "{message}");
    }
    drop(held);
    for call in calls() {
        output(call.run());
        // What the remote does after it has answered (it looks whether to pack) is a process of the call, too.
        let free = fs::File::open(&lock).unwrap();
        rustix::fs::flock(&free, rustix::fs::FlockOperation::LockExclusive).unwrap();
    }
    assert!(workspace.join("x").exists());
}
