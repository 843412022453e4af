//! What is found in hand-made upper layers.

use super::*;
use crate::stage::changes::Conflict;

const DIRECTORY: Version = Version::Directory { mode: 0o755 };

fn conflicts(place: &Place, began: Timestamp) -> Vec<(String, String)> {
    let conflicts = place.collect(began).conflicts.into_iter();
    conflicts.map(|Conflict { path, what }| (path.to_string(), what)).collect()
}

#[test]
fn a_file_is_made_changed_and_deleted() {
    let place = Place::new();
    write(place.lower("changed"), "old");
    write(place.lower("deleted"), "gone");
    write(place.lower("other"), "stays");
    write(place.upper("changed"), "new");
    set_mode(&place.upper("changed"), 0o755);
    write(place.upper("made"), "x");
    whiteout(&place.upper("deleted"));
    whiteout(&place.upper("never-there"));
    assert_eq!(
        place.changes(),
        [
            change("changed", file("old", 0o644), file("new", 0o755)),
            change("made", Version::Absent, file("x", 0o644)),
            change("deleted", file("gone", 0o644), Version::Absent),
        ]
    );
}

#[test]
fn what_was_only_copied_up_is_no_change_and_a_touch_is_one() {
    let place = Place::new();
    for name in ["d/same", "d/touched"] {
        write(place.lower(name), "as it was");
        write(place.upper(name), "as it was");
        copied_up(&place.upper(name));
    }
    let modified = fs::metadata(place.lower("d/same")).unwrap().modified().unwrap();
    File::open(place.upper("d/same")).unwrap().set_modified(modified).unwrap();
    File::open(place.upper("d/touched")).unwrap().set_modified(modified - Duration::from_secs(9)).unwrap();
    copied_up(&place.upper("d"));
    let version = file("as it was", 0o644);
    assert_eq!(place.changes(), [change("d/touched", version.clone(), version)]);
}

#[test]
fn a_directory_is_deleted_replaced_and_given_another_mode() {
    let place = Place::new();
    write(place.lower("deleted/a/b"), "b");
    write(place.lower("replaced/old"), "old");
    write(place.lower("replaced/sub/old"), "old");
    write(place.lower("replaced/both"), "old");
    fs::create_dir(place.lower("mode")).unwrap();
    whiteout(&place.upper("deleted"));
    opaque(&place.upper("replaced"));
    write(place.upper("replaced/both"), "new");
    // Made anew as well: nothing of the old one shines through, though it has no attribute of its own.
    fs::create_dir(place.upper("replaced/sub")).unwrap();
    fs::create_dir(place.upper("mode")).unwrap();
    set_mode(&place.upper("mode"), 0o700);
    assert_eq!(
        place.changes(),
        [
            change("mode", DIRECTORY, Version::Directory { mode: 0o700 }),
            change("replaced/both", file("old", 0o644), file("new", 0o644)),
            change("replaced/sub/old", file("old", 0o644), Version::Absent),
            change("replaced/old", file("old", 0o644), Version::Absent),
            change("deleted/a/b", file("b", 0o644), Version::Absent),
            change("deleted/a", DIRECTORY, Version::Absent),
            change("deleted", DIRECTORY, Version::Absent),
        ]
    );
}

/// The attribute says `x` where a directory below has another kind of whiteouts, and hides nothing.
#[test]
fn a_directory_with_the_attribute_x_is_not_opaque() {
    let place = Place::new();
    write(place.lower("d/old"), "old");
    fs::create_dir(place.upper("d")).unwrap();
    set_attribute(&place.upper("d"), "user.overlay.opaque", b"x");
    assert_eq!(place.changes(), []);
}

#[test]
fn a_file_takes_a_directorys_place_and_the_other_way_round() {
    let place = Place::new();
    write(place.lower("was-directory/in/it"), "x");
    write(place.lower("was-file"), "x");
    write(place.upper("was-directory"), "y");
    opaque(&place.upper("was-file"));
    write(place.upper("was-file/in-it"), "z");
    assert_eq!(
        place.changes(),
        [
            change("was-file", file("x", 0o644), DIRECTORY),
            change("was-directory/in/it", file("x", 0o644), Version::Absent),
            change("was-directory/in", DIRECTORY, Version::Absent),
            change("was-directory", DIRECTORY, file("y", 0o644)),
            change("was-file/in-it", Version::Absent, file("z", 0o644)),
        ]
    );
}

#[test]
fn a_link_is_a_change_and_is_never_followed() {
    let place = Place::new();
    let outside = place.directory.path().join("outside");
    write(outside.join("secret"), "secret");
    std::os::unix::fs::symlink(&outside, place.lower("to-directory")).unwrap();
    std::os::unix::fs::symlink("before", place.lower("link")).unwrap();
    std::os::unix::fs::symlink(&outside, place.lower("deleted")).unwrap();
    std::os::unix::fs::symlink("after", place.upper("link")).unwrap();
    std::os::unix::fs::symlink("/etc", place.upper("new")).unwrap();
    whiteout(&place.upper("deleted"));
    // The call put a directory in the link's place.
    opaque(&place.upper("to-directory"));
    let link = |target: &str| Version::Link { target: PathBytes::new(target) };
    let outside = || link(outside.to_str().unwrap());
    assert_eq!(
        place.changes(),
        [
            change("to-directory", outside(), DIRECTORY),
            change("link", link("before"), link("after")),
            change("new", Version::Absent, link("/etc")),
            change("deleted", outside(), Version::Absent),
        ]
    );
}

#[test]
fn a_pipe_is_left_out_and_one_of_the_workspace_can_go() {
    let place = Place::new();
    write(place.lower("was-file"), "stays");
    pipe(&place.lower("deleted"));
    pipe(&place.lower("replaced"));
    pipe(&place.upper("was-file"));
    pipe(&place.upper("made"));
    whiteout(&place.upper("deleted"));
    write(place.upper("replaced"), "file");
    let collected = place.collect(place.now());
    assert_eq!(collected.conflicts, []);
    assert_eq!(collected.skipped, ["made", "was-file"].map(PathBytes::new));
    assert_eq!(
        collected.changes,
        [
            change("replaced", Version::Special, file("file", 0o644)),
            change("deleted", Version::Special, Version::Absent),
        ]
    );
}

#[test]
fn names_need_not_be_text() {
    let place = Place::new();
    let name = OsStr::from_bytes(b"\xff\xfe\n");
    fs::create_dir(place.lower("").join(name)).unwrap();
    fs::create_dir(place.upper("").join(name)).unwrap();
    fs::write(place.upper("").join(name).join(name), "x").unwrap();
    let changes = place.changes();
    assert_eq!(changes[0].path, PathBytes::new(&b"\xff\xfe\n/\xff\xfe\n"[..]));
    assert_eq!(place.publish(&changes), []);
    assert_eq!(fs::read(place.lower("").join(name).join(name)).unwrap(), b"x");
}

/// Commands make files that their owner cannot read, and the host reads them all the same.
#[test]
fn what_the_call_made_unreadable_is_read_and_published_so() {
    let place = Place::new();
    write(place.upper("closed/file"), "x");
    write(place.upper("file"), "y");
    for path in ["closed/file", "closed", "file"] {
        set_mode(&place.upper(path), 0);
    }
    let changes = place.changes();
    assert_eq!(
        changes,
        [
            change("closed", Version::Absent, Version::Directory { mode: 0 }),
            change("closed/file", Version::Absent, file("x", 0)),
            change("file", Version::Absent, file("y", 0)),
        ]
    );
    place.sync(&changes);
    for _ in 0..2 {
        assert_eq!(place.publish(&changes), []);
        assert_eq!(fs::metadata(place.lower("closed")).unwrap().mode() & 0o7777, 0);
        assert_eq!(fs::metadata(place.lower("file")).unwrap().mode() & 0o7777, 0);
    }
}

/// Once, a file was made readable under the first of its names, and the second then seemed to have that mode.
#[test]
fn a_file_that_the_call_made_unreadable_is_so_under_each_of_its_names() {
    let place = Place::new();
    write(place.upper("a"), "x");
    fs::hard_link(place.upper("a"), place.upper("b")).unwrap();
    set_mode(&place.upper("a"), 0o300);
    let staged = ["a", "b"].map(|name| change(name, Version::Absent, file("x", 0o300)));
    assert_eq!(place.changes(), staged);
}

#[test]
fn what_others_changed_since_is_a_conflict() {
    let place = Place::new();
    for name in ["written", "deleted", "gone", "touched", "same"] {
        write(place.lower(name), "old");
        write(place.upper(name), "mine");
    }
    for path in ["", "kept/", "replaced/"] {
        write(place.lower(&format!("{path}settled")), "old");
    }
    fs::remove_file(place.upper("deleted")).unwrap();
    whiteout(&place.upper("deleted"));
    copied_up(&place.upper("gone"));
    whiteout(&place.upper("kept"));
    opaque(&place.upper("replaced"));
    fs::create_dir(place.upper("made")).unwrap();
    let began = place.now();
    write(place.lower("written"), "theirs");
    write(place.lower("deleted"), "theirs");
    fs::remove_file(place.lower("gone")).unwrap();
    // With the old time: nobody can hide a change by that.
    File::open(place.lower("touched")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    write(place.lower("same"), "mine");
    write(place.lower("kept/new"), "theirs");
    write(place.lower("replaced/new"), "theirs");
    write(place.lower("made"), "theirs");
    let deleted = "was made or changed after the call began, which deleted what was there";
    let changed = "was changed after the call began, which changed it as well";
    let expected = [
        ("deleted", deleted),
        ("gone", "is gone, perhaps since the call began: others changed its directory"),
        ("kept", deleted),
        ("kept/new", deleted),
        ("made", "was made or changed after the call began, which made a directory here"),
        ("replaced/new", deleted),
        ("touched", changed),
        ("written", changed),
    ];
    assert_eq!(conflicts(&place, began), expected.map(|(path, what)| (path.to_owned(), what.to_owned())));
}

#[test]
fn a_directory_that_others_took_away_is_a_conflict() {
    let place = Place::new();
    for name in ["gone", "now-a-file", "now-a-link"] {
        fs::create_dir(place.lower(name)).unwrap();
        write(place.upper(&format!("{name}/made")), "x");
        copied_up(&place.upper(name));
    }
    let began = place.now();
    for name in ["gone", "now-a-file", "now-a-link"] {
        fs::remove_dir(place.lower(name)).unwrap();
    }
    write(place.lower("now-a-file"), "theirs");
    std::os::unix::fs::symlink("/etc", place.lower("now-a-link")).unwrap();
    let found: Vec<String> = conflicts(&place, began).into_iter().map(|(path, _)| path).collect();
    assert_eq!(found, ["gone", "now-a-file", "now-a-link"]);
}

/// overlayfs leaves the mark of a copy at a file that is renamed: under the new name, nothing was there.
#[test]
fn a_renamed_file_is_no_conflict() {
    let place = Place::new();
    write(place.lower("before"), "x");
    whiteout(&place.upper("before"));
    write(place.upper("after"), "x");
    copied_up(&place.upper("after"));
    assert_eq!(
        place.changes(),
        [
            change("after", Version::Absent, file("x", 0o644)),
            change("before", file("x", 0o644), Version::Absent),
        ]
    );
}

#[test]
fn what_could_not_be_published_is_a_conflict_at_once() {
    if rustix::process::geteuid().is_root() {
        // Root may write everywhere.
        return;
    }
    let place = Place::new();
    fs::create_dir(place.lower("closed")).unwrap();
    write(place.upper("closed/new"), "x");
    for path in [place.lower("closed"), place.upper("closed")] {
        set_mode(&path, 0o555);
    }
    let found = conflicts(&place, place.now());
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, "closed");
}

#[test]
fn texts_are_compared_as_git_does() {
    let place = Place::new();
    let lines = ["1", "2", "3", "4", "5", "6", "7", "8", "9", ""].join("\n");
    write(place.lower("a/changed"), &lines);
    write(place.upper("a/changed"), lines.replace('5', "five"));
    write(place.upper("new"), "no end");
    write(place.lower("gone"), "x\n");
    whiteout(&place.upper("gone"));
    write(place.lower("run"), "x\n");
    write(place.upper("run"), "x\n");
    set_mode(&place.upper("run"), 0o755);
    write(place.upper("zero"), "a\0b");
    write(place.upper(".git/COMMIT_EDITMSG"), "not shown\n");
    std::os::unix::fs::symlink("new", place.upper("link")).unwrap();
    let expected = "\
diff --git a/a/changed b/a/changed
--- a/a/changed
+++ b/a/changed
@@ -2,7 +2,7 @@
 2
 3
 4
-5
+five
 6
 7
 8
diff --git a/link b/link
new file mode 120000
--- /dev/null
+++ b/link
@@ -0,0 +1 @@
+new
\\ No newline at end of file
diff --git a/new b/new
new file mode 100644
--- /dev/null
+++ b/new
@@ -0,0 +1 @@
+no end
\\ No newline at end of file
diff --git a/run b/run
old mode 100644
new mode 100755
diff --git a/zero b/zero
new file mode 100644
Binary files /dev/null and b/zero differ
diff --git a/gone b/gone
deleted file mode 100644
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-x
";
    assert_eq!(place.collect(place.now()).diff, expected);
}

#[test]
fn differences_have_a_bound() {
    let place = Place::new();
    let line = "x".repeat(99) + "\n";
    write(place.upper("a-large"), line.repeat(20_000));
    write(place.upper("b-much"), line.repeat(2_000));
    for name in ["c-more", "d-more"] {
        write(place.upper(name), line.repeat(1_000));
    }
    let diff = place.collect(place.now()).diff;
    assert!(diff.contains("Binary files /dev/null and b/a-large differ"), "more than 1 MiB");
    assert!(diff.contains("+++ b/b-much"));
    assert!(diff.ends_with("(2 more differ; this shows at most 262144 bytes)\n"));
}
