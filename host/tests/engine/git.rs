//! The repository of the workspace.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use deed::engine::{EffectState, FailureKind, Output};
use git2::{Repository, Signature};
use serde_json::json;

use crate::support::{CLOCK_MS, Call, Recorder, engine, text};

/// A repository with one commit of `a.txt` by an identity of its own, on the branch `main`.
pub fn repository(workspace: &Path) -> Repository {
    let mut options = git2::RepositoryInitOptions::new();
    options.initial_head("main");
    let repository = Repository::init_opts(workspace, &options).unwrap();
    let mut config = repository.config().unwrap();
    config.set_str("user.name", "Ada").unwrap();
    config.set_str("user.email", "ada@example.org").unwrap();
    config.set_str("core.excludesFile", "/dev/null").unwrap();
    fs::write(workspace.join("a.txt"), "one\n").unwrap();
    commit_all(&repository, "Begin");
    repository
}

pub fn commit_all(repository: &Repository, message: &str) {
    let mut index = repository.index().unwrap();
    index.add_all(["*"], git2::IndexAddOption::DEFAULT, None).unwrap();
    index.write().unwrap();
    let tree = repository.find_tree(index.write_tree().unwrap()).unwrap();
    let who = Signature::now("Ada", "ada@example.org").unwrap();
    let parent = repository.head().ok().map(|head| head.peel_to_commit().unwrap());
    let parents: Vec<_> = parent.iter().collect();
    repository.commit(Some("HEAD"), &who, &who, message, &tree, &parents).unwrap();
}

fn commits(repository: &Repository) -> usize {
    let mut walk = repository.revwalk().unwrap();
    walk.push_head().unwrap();
    walk.count()
}

fn is_clean(repository: &Repository) -> bool {
    let mut options = git2::StatusOptions::new();
    options.include_untracked(true);
    repository.statuses(Some(&mut options)).unwrap().is_empty()
}

fn commit(workspace: &Path, key: &str, attempt: u32, paths: &[&str]) -> Output {
    let args = json!({"message": "Change things\n\nBecause.", "paths": paths});
    let mut call = Call::new("git", "git_commit", args, workspace);
    call.key = key;
    call.attempt = attempt;
    call.output()
}

#[test]
fn a_commit_takes_every_change_but_the_ignored_and_carries_the_key() {
    let workspace = tempfile::tempdir().unwrap();
    let repository = repository(workspace.path());
    fs::write(workspace.path().join(".gitignore"), "*.log\n").unwrap();
    fs::write(workspace.path().join("x.log"), "").unwrap();
    fs::create_dir(workspace.path().join("new")).unwrap();
    fs::write(workspace.path().join("new/b.txt"), "two\n").unwrap();
    fs::remove_file(workspace.path().join("a.txt")).unwrap();
    commit(workspace.path(), "k1", 1, &[]);

    let head = repository.head().unwrap().peel_to_commit().unwrap();
    assert_eq!(head.message().unwrap(), "Change things\n\nBecause.\n\nDeed-Key: k1\n");
    assert_eq!(head.author().name().unwrap(), "Ada");
    assert_eq!(head.time().seconds().cast_unsigned(), CLOCK_MS / 1_000);
    let tree = head.tree().unwrap();
    let names: Vec<_> = tree.iter().map(|entry| entry.name().unwrap().to_owned()).collect();
    assert_eq!(names, [".gitignore", "new"]);
    assert!(is_clean(&repository));
}

#[test]
fn two_attempts_with_one_key_make_one_commit_and_say_the_same() {
    let workspace = tempfile::tempdir().unwrap();
    let repository = repository(workspace.path());
    fs::write(workspace.path().join("b.txt"), "two\n").unwrap();
    let first = commit(workspace.path(), "k1", 1, &[]);
    // Somebody goes on in between.
    fs::write(workspace.path().join("c.txt"), "three\n").unwrap();
    commit_all(&repository, "More");
    let second = commit(workspace.path(), "k1", 2, &[]);
    assert_eq!(commits(&repository), 3);
    assert_eq!(first.content, second.content);
    assert_eq!((first.landed_before, second.landed_before), (false, true));

    fs::write(workspace.path().join("d.txt"), "four\n").unwrap();
    commit(workspace.path(), "k2", 1, &[]);
    assert_eq!(commits(&repository), 4);
}

/// Killed after the index was written and before the branch moved: the files are staged, and the next attempt commits
/// them as if nothing had been.
#[test]
fn an_attempt_that_had_only_staged_is_finished_by_the_next() {
    let workspace = tempfile::tempdir().unwrap();
    let repository = repository(workspace.path());
    fs::write(workspace.path().join("b.txt"), "two\n").unwrap();
    let mut index = repository.index().unwrap();
    index.add_path(Path::new("b.txt")).unwrap();
    index.write().unwrap();
    let output = commit(workspace.path(), "k1", 2, &[]);
    assert!(!output.landed_before);
    assert_eq!(commits(&repository), 2);
    assert!(is_clean(&repository));
}

/// A lock as of `made`.
fn lock(path: &Path, made: SystemTime) {
    fs::File::create(path).unwrap().set_modified(made).unwrap();
}

/// Killed while the index or the branch was written: the lock stays. The second attempt failed by it, as if somebody else
/// were at work, and the run went on without the commit. Now it removes the lock, and says so.
#[test]
fn a_lock_that_a_killed_attempt_left_is_removed_by_the_next() {
    for name in ["index.lock", "refs/heads/main.lock"] {
        let workspace = tempfile::tempdir().unwrap();
        let repository = repository(workspace.path());
        fs::write(workspace.path().join("b.txt"), "two\n").unwrap();
        lock(&repository.path().join(name), UNIX_EPOCH + Duration::from_millis(CLOCK_MS + 10));
        let args = json!({"message": "Try"});
        let mut call = Call::new("git", "git_commit", args, workspace.path());
        let recorder = Arc::new(Recorder::default());
        (call.attempt, call.observer) = (2, recorder.clone());
        call.output();
        assert!(recorder.lines.lock().unwrap().iter().any(|line| line.contains(name)), "{name}");
        assert_eq!(commits(&repository), 2, "{name}");
        assert!(commit(workspace.path(), "0123456789abcdef", 3, &[]).landed_before);
        assert_eq!(commits(&repository), 2, "{name}");
    }
}

/// A lock that cannot be the earlier attempt's stays, and what came of the step stays open: the owner settles it.
#[test]
fn a_lock_that_may_be_somebody_elses_leaves_a_further_attempt_in_doubt() {
    engine();
    let before_the_intent = UNIX_EPOCH + Duration::from_millis(CLOCK_MS - 60_000);
    for made in [before_the_intent, SystemTime::now() + Duration::from_mins(1)] {
        let workspace = tempfile::tempdir().unwrap();
        let repository = repository(workspace.path());
        fs::write(workspace.path().join("b.txt"), "two\n").unwrap();
        let path = repository.path().join("index.lock");
        lock(&path, made);
        for (attempt, effect) in [(1, EffectState::NotApplied), (2, EffectState::Unknown)] {
            let args = json!({"message": "Try"});
            let mut call = Call::new("git", "git_commit", args, workspace.path());
            call.attempt = attempt;
            let failure = call.failure();
            assert_eq!((failure.kind, failure.effect), (FailureKind::Conflict, effect));
        }
        assert!(path.exists());
        assert_eq!(commits(&repository), 1);
    }
}

#[test]
fn paths_narrow_a_commit_and_leave_the_rest_as_it_was() {
    let workspace = tempfile::tempdir().unwrap();
    let repository = repository(workspace.path());
    fs::create_dir(workspace.path().join("in")).unwrap();
    for name in ["in/1", "in/2", "out", "staged", "a.txt"] {
        fs::write(workspace.path().join(name), "changed\n").unwrap();
    }
    let mut index = repository.index().unwrap();
    index.add_path(Path::new("staged")).unwrap();
    index.write().unwrap();
    commit(workspace.path(), "k1", 1, &["/in"]);

    let tree = repository.head().unwrap().peel_to_tree().unwrap();
    let names: Vec<_> = tree.iter().map(|entry| entry.name().unwrap().to_owned()).collect();
    assert_eq!(names, ["a.txt", "in"]);
    let status = Call::new("git", "git_status", json!({}), workspace.path()).output();
    let status = text(&status);
    assert!(status.contains("staged") && status.contains("out") && !status.contains("in/1"), "{status}");
}

#[test]
fn the_first_commit_of_a_repository_can_be_made() {
    let workspace = tempfile::tempdir().unwrap();
    let repository = Repository::init(workspace.path()).unwrap();
    repository.config().unwrap().set_str("user.name", "").unwrap();
    fs::write(workspace.path().join("a.txt"), "one\n").unwrap();
    commit(workspace.path(), "k1", 1, &[]);
    assert_eq!(commits(&repository), 1);
    assert_eq!(repository.head().unwrap().peel_to_commit().unwrap().author().name().unwrap(), "deed");
    assert!(commit(workspace.path(), "k1", 2, &[]).landed_before);
}

fn refused(workspace: &Path) -> (FailureKind, String) {
    let failure = Call::new("git", "git_commit", json!({"message": "Try"}), workspace).failure();
    (failure.kind, failure.message)
}

#[test]
fn what_cannot_be_committed_is_said_clearly() {
    let workspace = tempfile::tempdir().unwrap();
    let (_, message) = refused(workspace.path());
    assert!(message.contains("git init"), "{message}");

    let repository = repository(workspace.path());
    let (_, message) = refused(workspace.path());
    assert!(message.contains("nothing differs"), "{message}");

    fs::write(workspace.path().join("b.txt"), "two\n").unwrap();
    let lock = repository.path().join("index.lock");
    fs::write(&lock, "").unwrap();
    let (kind, message) = refused(workspace.path());
    assert_eq!(kind, FailureKind::Conflict);
    assert!(message.contains("lock"), "{message}");
    fs::remove_file(&lock).unwrap();

    let head = repository.head().unwrap().peel_to_commit().unwrap().id();
    repository.set_head_detached(head).unwrap();
    let (_, message) = refused(workspace.path());
    assert!(message.contains("detached"), "{message}");
    assert_eq!(commits(&repository), 1);
}

/// A tool may write below `.git`. If what it writes there could lead the host elsewhere, the next call would reach a
/// repository that was never granted.
#[test]
fn a_repository_that_leads_out_of_the_workspace_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let (workspace, other) = (place.path().join("workspace"), place.path().join("other"));
    fs::create_dir(&workspace).unwrap();
    fs::create_dir(&other).unwrap();
    let other_repository = repository(&other);
    fs::write(workspace.join("evil.txt"), "x").unwrap();

    fs::write(workspace.join(".git"), format!("gitdir: {}", other_repository.path().display())).unwrap();
    let (_, message) = refused(&workspace);
    assert!(message.contains("no work tree"), "{message}");
    fs::remove_file(workspace.join(".git")).unwrap();

    std::os::unix::fs::symlink("../other/.git", workspace.join(".git")).unwrap();
    let (_, message) = refused(&workspace);
    assert!(message.contains("no work tree"), "{message}");
    fs::remove_file(workspace.join(".git")).unwrap();

    Repository::init(&workspace).unwrap();
    fs::remove_dir_all(workspace.join(".git/objects")).unwrap();
    std::os::unix::fs::symlink("../../other/.git/objects", workspace.join(".git/objects")).unwrap();
    let (_, message) = refused(&workspace);
    assert!(message.contains("symbolic link"), "{message}");
    assert_eq!(commits(&other_repository), 1);

    // Nor one further up.
    fs::create_dir(other.join("sub")).unwrap();
    refused(&other.join("sub"));
}

/// A command may plant a pipe where git expects a file. Opening one waits for its other end, in the kernel: the call would
/// have outlived every limit.
#[test]
fn a_pipe_in_the_repository_hangs_nobody() {
    let places = [
        ".git/index",
        ".git/HEAD",
        ".git/config",
        ".git/packed-refs",
        ".git/info/exclude",
        ".git/refs/heads/main",
        ".git/objects/info/alternates",
        ".gitignore",
        ".git",
    ];
    for place in places {
        let workspace = tempfile::tempdir().unwrap();
        repository(workspace.path());
        let path = workspace.path().join(place);
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        for (tool, args) in [("git_status", json!({})), ("git_commit", json!({"message": "Try"}))] {
            let failure = Call::new("git", tool, args, workspace.path()).failure();
            assert!(failure.message.contains("no work tree"), "{place}: {}", failure.message);
        }
    }
}

#[test]
fn a_linked_work_tree_is_a_repository_of_its_own() {
    let place = tempfile::tempdir().unwrap();
    let (main, linked) = (place.path().join("main"), place.path().join("linked"));
    fs::create_dir(&main).unwrap();
    let repository = repository(&main);
    repository.worktree("linked", &linked, None).unwrap();
    fs::write(linked.join("b.txt"), "two\n").unwrap();
    commit(&linked, "k1", 1, &[]);
    assert_eq!(commits(&Repository::open(&linked).unwrap()), 2);
    assert_eq!(commits(&repository), 1);
}

#[test]
fn status_diff_and_log_are_open_to_a_pure_call_and_write_nothing() {
    let workspace = tempfile::tempdir().unwrap();
    let repository = repository(workspace.path());
    fs::write(workspace.path().join("a.txt"), "two\n").unwrap();
    fs::write(workspace.path().join("new.txt"), "").unwrap();
    let index = fs::read(repository.path().join("index")).unwrap();
    let ask = |tool: &str| text(&Call::new("git", tool, json!({}), workspace.path()).output());
    let status = ask("git_status");
    assert!(status.contains("a.txt") && status.contains("new.txt") && status.contains("main"), "{status}");
    let diff = ask("git_diff");
    assert!(diff.contains("-one\n+two\n"), "{diff}");
    assert!(ask("git_log").contains("Begin"));
    assert_eq!(fs::read(repository.path().join("index")).unwrap(), index);
}
