//! Publishing and its redo, on hand-made upper layers.

use super::*;
use crate::stage::publish::Why;

/// A bit of everything.
pub(super) fn everything() -> (Place, Vec<Change>) {
    let place = Place::new();
    write(place.lower("changed"), "old");
    write(place.lower("chmod"), "same");
    write(place.lower("deleted/a/b"), "b");
    write(place.lower("was-directory/in/it"), "x");
    write(place.lower("was-file"), "x");
    write(place.lower("closed/in"), "x");
    std::os::unix::fs::symlink("a", place.lower("link")).unwrap();
    set_mode(&place.lower("closed"), 0o500);
    write(place.upper("changed"), "new");
    write(place.upper("chmod"), "same");
    set_mode(&place.upper("chmod"), 0o750);
    write(place.upper("made/deep/file"), "x");
    set_mode(&place.upper("made/deep"), 0o775);
    whiteout(&place.upper("deleted"));
    whiteout(&place.upper("closed"));
    write(place.upper("was-directory"), "y");
    opaque(&place.upper("was-file"));
    write(place.upper("was-file/in-it"), "z");
    std::os::unix::fs::symlink("b", place.upper("link")).unwrap();
    let changes = place.changes();
    (place, changes)
}

pub(super) fn published() -> Tree {
    let plain = tempfile::tempdir().unwrap();
    let at = |path: &str| plain.path().join(path);
    write(at("changed"), "new");
    write(at("chmod"), "same");
    set_mode(&at("chmod"), 0o750);
    write(at("made/deep/file"), "x");
    set_mode(&at("made/deep"), 0o775);
    write(at("was-directory"), "y");
    write(at("was-file/in-it"), "z");
    std::os::unix::fs::symlink("b", at("link")).unwrap();
    tree(plain.path())
}

#[test]
fn every_kind_of_change_is_published_and_told() {
    let (place, changes) = everything();
    place.sync(&changes);
    let passed = std::cell::RefCell::new(Vec::new());
    let (upper, workspace) = (place.open("upper"), place.open("lower"));
    let publication = Publication {
        changes: &changes,
        upper: &upper,
        workspace: &workspace,
        key: KEY,
        replace: false,
        passed: &|at| passed.borrow_mut().push(at),
    };
    assert_eq!(crate::stage::publish::publish(&publication).unwrap(), []);
    assert_eq!(tree(&place.lower("")), published());
    assert_eq!(passed.into_inner(), (0..changes.len()).collect::<Vec<_>>());
}

#[test]
fn killed_before_any_operation_the_redo_comes_to_the_same() {
    kill_everywhere(everything, &published());
}

/// A mode that is set in place leaves the file what it is, with all its names.
#[test]
fn a_mode_alone_does_not_make_another_file() {
    let (place, changes) = everything();
    let inode = || fs::metadata(place.lower("chmod")).unwrap().ino();
    let before = inode();
    place.publish(&changes);
    assert_eq!(inode(), before);
}

#[test]
fn somebody_elses_version_stays_until_the_owner_gives_it_up() {
    let place = Place::new();
    for name in ["written", "deleted-here", "deleted-there"] {
        write(place.lower(name), "old");
        write(place.upper(name), "mine");
    }
    fs::remove_file(place.upper("deleted-here")).unwrap();
    whiteout(&place.upper("deleted-here"));
    write(place.upper("made"), "mine");
    let changes = place.changes();
    write(place.lower("written"), "theirs");
    write(place.lower("deleted-here"), "theirs");
    fs::remove_file(place.lower("deleted-there")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", place.lower("made")).unwrap();
    let before = tree(&place.lower(""));
    let link = Version::Link { target: PathBytes::new("/etc/passwd") };
    let left = |path: &str, found: Version| Left { path: PathBytes::new(path), why: Why::Changed(found) };
    for _ in 0..2 {
        let found = [
            left("deleted-there", Version::Absent),
            left("made", link.clone()),
            left("written", file("theirs", 0o644)),
            left("deleted-here", file("theirs", 0o644)),
        ];
        assert_eq!(place.publish(&changes), found);
        assert_eq!(tree(&place.lower("")), before);
    }
    assert_eq!(place.publish_observed(&changes, true, &Unobserved).unwrap(), []);
    assert_eq!(
        tree(&place.lower("")).into_iter().map(|(path, (_, content))| (path, content)).collect::<Vec<_>>(),
        ["deleted-there", "made", "written"].map(|name| (PathBuf::from(name), b"mine".to_vec()))
    );
}

/// What somebody put there since has been seen by nobody, the owner included.
#[test]
fn a_directory_that_is_not_empty_stays_whatever_the_owner_says() {
    let place = Place::new();
    write(place.lower("deleted/old"), "x");
    write(place.lower("replaced/old"), "x");
    set_mode(&place.lower("deleted"), 0o500);
    whiteout(&place.upper("deleted"));
    write(place.upper("replaced"), "file");
    let changes = place.changes();
    set_mode(&place.lower("deleted"), 0o700);
    for name in ["deleted/new", "replaced/new"] {
        write(place.lower(name), "theirs");
    }
    set_mode(&place.lower("deleted"), 0o500);
    for replace in [false, true] {
        let left = place.publish_observed(&changes, replace, &Unobserved).unwrap();
        let expected =
            ["replaced", "deleted"].map(|name| Left { path: PathBytes::new(name), why: Why::NotEmpty });
        assert_eq!(left, expected);
        let found: Vec<PathBuf> = tree(&place.lower("")).into_keys().collect();
        assert_eq!(found, ["deleted", "deleted/new", "replaced", "replaced/new"].map(PathBuf::from));
        assert_eq!(fs::metadata(place.lower("deleted")).unwrap().mode() & 0o777, 0o500);
    }
}

/// A link in the place of a directory would lead the host's hands out of the workspace.
#[test]
fn nothing_is_written_through_a_link() {
    for replace in [false, true] {
        let place = Place::new();
        let outside = place.directory.path().join("outside");
        write(outside.join("deleted"), "old");
        write(place.lower("d/deleted"), "old");
        fs::create_dir(place.upper("d")).unwrap();
        write(place.upper("d/new"), "x");
        whiteout(&place.upper("d/deleted"));
        let changes = place.changes();
        fs::remove_dir_all(place.lower("d")).unwrap();
        std::os::unix::fs::symlink(&outside, place.lower("d")).unwrap();
        let left = place.publish_observed(&changes, replace, &Unobserved).unwrap();
        assert_eq!(left, [Left { path: PathBytes::new("d/new"), why: Why::NoDirectory }]);
        assert_eq!(tree(&outside).into_keys().collect::<Vec<_>>(), [PathBuf::from("deleted")]);
    }
}

#[test]
fn a_stage_that_lost_its_files_is_an_error_and_changes_nothing() {
    let place = Place::new();
    write(place.lower("a"), "old");
    write(place.upper("a"), "new");
    let changes = place.changes();
    for content in [None, Some("nev"), Some("")] {
        fs::remove_file(place.upper("a")).unwrap();
        if let Some(content) = content {
            write(place.upper("a"), content);
        }
        let error = place.publish_observed(&changes, false, &Unobserved).unwrap_err().to_string();
        assert!(error.contains("`a`"), "{error}");
        assert_eq!(fs::read(place.lower("a")).unwrap(), b"old");
        write(place.upper("a"), "");
    }
    write(place.upper("a"), "new");
    assert_eq!(place.publish(&changes), []);
    assert_eq!(tree(&place.lower("")).len(), 1, "the temporary file of the failed attempts is gone");
}

/// Sees the order of what is done.
#[derive(Default)]
pub(super) struct Recorder(pub(super) std::cell::RefCell<Vec<String>>);

impl Observer for Recorder {
    fn before(&self, operation: Operation<'_>) -> io::Result<()> {
        self.0.borrow_mut().push(format!("{operation:?}"));
        Ok(())
    }
}

#[test]
fn a_file_is_synced_before_it_is_renamed_and_its_directory_afterwards() {
    let place = Place::new();
    write(place.upper("d/a"), "x");
    let recorder = Recorder::default();
    place.publish_observed(&place.changes(), false, &recorder).unwrap();
    let temporary = format!("d/.deed-{KEY}-1");
    assert_eq!(
        recorder.0.into_inner(),
        [
            "MakeDirectory(\"d\")".to_owned(),
            "SetAttributes(\"d\")".to_owned(),
            format!("Create({temporary:?})"),
            format!("Write({temporary:?})"),
            format!("SetAttributes({temporary:?})"),
            format!("SyncFile({temporary:?})"),
            format!("Rename {{ from: {temporary:?}, to: \"d/a\" }}"),
            "SyncDirectory(\"d\")".to_owned(),
            "SyncDirectory(\"\")".to_owned(),
        ]
    );
}

/// Once, a mode was set in place also when it kept the owner from reading the file, and then the time. After a crash in between
/// the redo could not read what was there, its time was not the staged one, and every further redo failed. So such a file is
/// renamed, with both.
#[test]
fn a_mode_that_closes_a_file_comes_with_its_time() {
    let place = Place::new();
    for layer in [place.lower("a"), place.upper("a")] {
        write(layer, "same");
    }
    set_mode(&place.upper("a"), 0o200);
    let changes = place.changes();
    let recorder = Recorder::default();
    place.publish_observed(&changes, false, &recorder).unwrap();
    let done = recorder.0.into_inner();
    assert!(done.iter().all(|operation| operation != "SetAttributes(\"a\")"), "{done:?}");
    assert_eq!(place.publish(&changes), []);
    assert_eq!(fs::metadata(place.lower("a")).unwrap().mode() & 0o7777, 0o200);
}

#[test]
fn what_is_done_is_not_done_again() {
    let (place, changes) = everything();
    place.publish(&changes);
    let recorder = Recorder::default();
    place.publish_observed(&changes, false, &recorder).unwrap();
    let done = recorder.0.into_inner();
    assert!(done.iter().all(|operation| operation.starts_with("SyncDirectory")), "{done:?}");
}
