//! Publishing into a git directory: its order, and git's locks.

use super::publish::Recorder;
use super::*;
use crate::stage::publish::Why;

/// A call that committed: objects, logs, a reference, the index; and a branch that is gone.
pub(super) fn commit() -> (Place, Vec<Change>) {
    let place = Place::new();
    for (path, content) in [
        ("HEAD", "ref: refs/heads/main\n"),
        ("config", "[core]\n"),
        ("index", "old index"),
        ("refs/heads/main", "1111\n"),
        ("refs/heads/old/branch", "2222\n"),
        ("objects/11/11", "old object"),
        ("packed-refs", "# pack\n"),
    ] {
        write(place.lower(&format!(".git/{path}")), content);
    }
    for (path, content) in [
        ("HEAD", "ref: refs/heads/next\n"),
        ("config", "[core]\n[user]\n"),
        ("index", "new index"),
        ("refs/heads/main", "3333\n"),
        ("refs/heads/next", "3333\n"),
        ("objects/33/33", "new object"),
        ("objects/pack/pack-1.idx", "i"),
        ("objects/pack/pack-1.pack", "p"),
        ("packed-refs", "# pack\n1111 refs/tags/v1\n"),
        ("logs/HEAD", "log\n"),
    ] {
        write(place.upper(&format!(".git/{path}")), content);
    }
    write(place.upper("work"), "tree");
    whiteout(&place.upper(".git/refs/heads/old"));
    whiteout(&place.upper(".git/objects/11"));
    let changes = place.changes();
    (place, changes)
}

fn committed() -> Tree {
    let (place, changes) = commit();
    assert_eq!(place.publish(&changes), []);
    tree(&place.lower(""))
}

#[test]
fn what_is_named_is_there_before_what_names_it() {
    let (_, changes) = commit();
    let files: Vec<String> = changes
        .iter()
        .filter(|change| !change.staged.is_directory())
        .map(|change| change.path.to_string())
        .collect();
    assert_eq!(
        files,
        [
            ".git/objects/33/33",
            ".git/objects/pack/pack-1.pack",
            ".git/objects/pack/pack-1.idx",
            "work",
            ".git/logs/HEAD",
            ".git/config",
            ".git/refs/heads/main",
            ".git/refs/heads/next",
            ".git/packed-refs",
            ".git/HEAD",
            ".git/index",
            ".git/refs/heads/old/branch",
            ".git/objects/11/11",
            ".git/refs/heads/old",
            ".git/objects/11",
        ]
    );
    assert!(changes[..3].iter().all(|change| change.staged.is_directory()));
}

#[test]
fn a_commit_is_published_and_no_lock_stays() {
    let published = committed();
    let is_left = |path: &&PathBuf| path.to_string_lossy().contains("deed") || path.ends_with("lock");
    assert_eq!(published.keys().filter(is_left).count(), 0);
    assert_eq!(published[Path::new(".git/HEAD")].1, b"ref: refs/heads/next\n");
    assert!(!published.contains_key(Path::new(".git/refs/heads/old")));
}

#[test]
fn killed_before_any_operation_no_lock_of_ours_keeps_the_redo_out() {
    kill_everywhere(commit, &committed());
}

/// All that git guards stays as it was: a new index with the old HEAD would show changes that nobody made.
#[test]
fn a_lock_of_somebody_elses_keeps_everything_that_git_guards() {
    let (place, changes) = commit();
    let lock = place.lower(".git/refs/heads/old/branch.lock");
    write(lock.clone(), "");
    let left = place.publish(&changes);
    let why = Why::Locked(PathBuf::from(".git/refs/heads/old/branch.lock"));
    let guarded: Vec<String> =
        left.iter().filter(|left| left.why == why).map(|left| left.path.to_string()).collect();
    assert_eq!(
        guarded,
        [
            ".git/config",
            ".git/refs/heads/main",
            ".git/refs/heads/next",
            ".git/packed-refs",
            ".git/HEAD",
            ".git/index",
            ".git/refs/heads/old/branch",
        ]
    );
    let found = tree(&place.lower(""));
    assert_eq!(found[Path::new(".git/HEAD")].1, b"ref: refs/heads/main\n");
    assert!(found.contains_key(Path::new(".git/objects/33/33")), "what nobody names yet is there");
    let locks: Vec<&PathBuf> = found.keys().filter(|path| path.to_string_lossy().contains("lock")).collect();
    assert_eq!(locks, [Path::new(".git/refs/heads/old/branch.lock")], "ours are gone");
    assert!(left[0].to_string().contains("when no git is at work there any more, remove it"));
    fs::remove_file(lock).unwrap();
    assert_eq!(place.publish(&changes), []);
    assert_eq!(tree(&place.lower("")), committed());
}

/// Nothing is left to be replaced, so whoever holds a lock is in nobody's way.
#[test]
fn a_redo_of_what_is_done_asks_for_no_lock() {
    let (place, changes) = commit();
    place.publish(&changes);
    write(place.lower(".git/index.lock"), "a git at work");
    assert_eq!(place.publish(&changes), []);
}

/// Another publication's temporary file is not ours, whatever it holds.
#[test]
fn a_lock_is_ours_by_identity_alone() {
    let (place, changes) = commit();
    write(place.lower(".git/HEAD.lock"), "ref: refs/heads/next\n");
    let left = place.publish(&changes);
    assert!(left.iter().any(|left| left.why == Why::Locked(PathBuf::from(".git/HEAD.lock"))), "{left:?}");
}

/// An agent that finds a stale lock removes it, and commits.
#[test]
fn a_lock_that_the_call_removed_is_out_of_the_way() {
    let setup = || {
        let place = Place::new();
        write(place.lower(".git/index.lock"), "stale");
        write(place.lower(".git/index"), "old");
        write(place.upper(".git/index"), "new");
        whiteout(&place.upper(".git/index.lock"));
        let changes = place.changes();
        assert_eq!(paths(&changes), [".git/index.lock", ".git/index"]);
        (place, changes)
    };
    let (place, changes) = setup();
    assert_eq!(place.publish(&changes), []);
    let expected = tree(&place.lower(""));
    assert_eq!(expected.len(), 2, "{expected:?}");
    kill_everywhere(setup, &expected);
}

/// Once, directories came before anything else, also the one that a branch `a` becomes with `a/b`. All locks were asked for then,
/// and the stale one that the call had removed kept everything that git guards from being published, for ever.
#[test]
fn a_lock_that_the_call_removed_is_out_of_the_way_of_a_directory() {
    let place = Place::new();
    write(place.lower(".git/index.lock"), "stale");
    write(place.lower(".git/index"), "old");
    write(place.lower(".git/refs/heads/a"), "1");
    write(place.upper(".git/index"), "new");
    whiteout(&place.upper(".git/index.lock"));
    opaque(&place.upper(".git/refs/heads/a"));
    write(place.upper(".git/refs/heads/a/b"), "1");
    assert_eq!(place.publish(&place.changes()), []);
    let found: Vec<PathBuf> = tree(&place.lower(".git")).into_keys().collect();
    assert_eq!(found, ["index", "refs", "refs/heads", "refs/heads/a", "refs/heads/a/b"].map(PathBuf::from));
}

#[test]
fn a_lock_that_the_call_left_comes_last() {
    let place = Place::new();
    for (name, content) in [("HEAD", "a"), ("refs/heads/gone", "b")] {
        write(place.lower(&format!(".git/{name}")), content);
    }
    write(place.upper(".git/HEAD"), "c");
    write(place.upper(".git/HEAD.lock"), "");
    fs::create_dir_all(place.upper(".git/refs/heads")).unwrap();
    whiteout(&place.upper(".git/refs/heads/gone"));
    let changes = place.changes();
    assert_eq!(paths(&changes), [".git/HEAD", ".git/refs/heads/gone", ".git/HEAD.lock"]);
    for _ in 0..2 {
        assert_eq!(place.publish(&changes), []);
    }
}

/// Once, the lock that a call left was renamed into its place while what came before was not durable yet. After a loss of power
/// the lock could be there and `HEAD` be the old one; then the lock kept the redo out, for ever.
#[test]
fn what_comes_before_a_lock_that_the_call_left_is_durable_before_it() {
    let place = Place::new();
    write(place.lower(".git/HEAD"), "a");
    write(place.upper(".git/HEAD"), "b");
    write(place.upper(".git/index.lock"), "");
    let recorder = Recorder::default();
    place.publish_observed(&place.changes(), false, &recorder).unwrap();
    let done = recorder.0.into_inner();
    let at =
        |end: &str| done.iter().position(|done| done.starts_with("Rename") && done.ends_with(end)).unwrap();
    let (head, lock) = (at("\".git/HEAD\" }"), at("\".git/index.lock\" }"));
    assert!(done[head..lock].contains(&"SyncDirectory(\".git\")".to_owned()), "{done:?}");
}

/// Once, what was below a directory that gave way to a file went with it, a stale lock too, after all locks had been asked for.
#[test]
fn a_lock_that_the_call_removed_goes_first_also_with_its_directory() {
    let place = Place::new();
    write(place.lower(".git/HEAD"), "a");
    write(place.lower(".git/refs/heads/main"), "1");
    write(place.lower(".git/refs/heads/main.lock"), "stale");
    write(place.upper(".git/HEAD"), "b");
    write(place.upper(".git/refs"), "no directory");
    assert_eq!(place.publish(&place.changes()), []);
    assert_eq!(tree(&place.lower(".git")).len(), 2);
}

/// A branch `a` that becomes `a/b`, and one `c/d` that becomes `c`: a lock must not lie in a directory that has to go.
#[test]
fn a_reference_becomes_a_directory_and_the_other_way_round() {
    let setup = || {
        let place = Place::new();
        write(place.lower(".git/refs/heads/a"), "1");
        write(place.lower(".git/refs/heads/c/d"), "2");
        opaque(&place.upper(".git/refs/heads/a"));
        write(place.upper(".git/refs/heads/a/b"), "1");
        write(place.upper(".git/refs/heads/c"), "2");
        let changes = place.changes();
        (place, changes)
    };
    let plain = tempfile::tempdir().unwrap();
    write(plain.path().join(".git/refs/heads/a/b"), "1");
    write(plain.path().join(".git/refs/heads/c"), "2");
    kill_everywhere(setup, &tree(plain.path()));
}

/// `git submodule absorbgitdirs` does both at once.
#[test]
fn a_repository_that_comes_or_goes_as_a_whole_needs_no_locks() {
    let setup = || {
        let place = Place::new();
        for name in ["HEAD", "index", "refs/heads/main"] {
            write(place.lower(&format!("sub/.git/{name}")), name);
            write(place.upper(&format!("new/.git/{name}")), name);
        }
        write(place.upper("sub/.git"), "gitdir: ../new/.git\n");
        let changes = place.changes();
        (place, changes)
    };
    let plain = tempfile::tempdir().unwrap();
    for name in ["HEAD", "index", "refs/heads/main"] {
        write(plain.path().join("new/.git").join(name), name);
    }
    write(plain.path().join("sub/.git"), "gitdir: ../new/.git\n");
    kill_everywhere(setup, &tree(plain.path()));
}

/// Works with what real git makes, and real git works with what is published.
#[test]
fn real_git_commits_and_packs_on_a_stage() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let git = "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null \
        GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; ";
    let plainly = |script: &str| {
        let script = format!("{git}{script}");
        let output =
            Command::new("sh").args(["-euc", &script]).current_dir(place.lower("")).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    plainly("git init -q -b main; echo 1 > a; git add a; git commit -qm one; git branch side");
    let began = place.now();
    place.run(&format!(
        "{git}echo 2 > a; git commit -qam two; git branch -D side -q; git checkout -q -b next; git gc -q"
    ));
    let collected = place.collect(began);
    assert_eq!(collected.conflicts, []);
    place.sync(&collected.changes);
    assert_eq!(place.publish(&collected.changes), []);
    assert_eq!(
        plainly("git fsck --strict 2>&1; git status --porcelain; git branch --show-current"),
        "next\n"
    );
    assert_eq!(
        plainly("git log --format=%s; git for-each-ref --format='%(refname)'"),
        "two\none\nrefs/heads/main\nrefs/heads/next\n"
    );
}
