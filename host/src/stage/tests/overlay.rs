//! Shell scripts on a real overlay, published and compared with the same script on the plain files.

use super::*;

/// What the workspace has before each script.
const SETUP: &str = "mkdir -p d/e empty; echo 1 > a; echo 2 > b; echo 3 > d/x; echo 4 > d/e/y; \
    ln -s a link; ln -s d to-d; chmod 600 b; chmod 700 d/e; mkdir locked; echo 5 > locked/in; chmod 555 locked";

const SCRIPTS: [&str; 26] = [
    "echo tick >> a",
    "echo new > n; mkdir -p p/q; echo 1 > p/q/r",
    "rm a; rm -r d",
    "rm -rf d; mkdir d",
    "rm -rf d; mkdir d; echo new > d/x; mkdir d/e",
    "rm -rf d; mkdir -p d/e/y/z; echo deep > d/e/y/z/w",
    "rm -rf d; echo file > d",
    "rm a; mkdir a; echo x > a/b",
    "rm a; mkdir -p a/b; echo x > a/b/c; rm -rf a; echo back > a",
    "mv a moved",
    "mv a b",
    "mv a d/x; mv b d/e/",
    "chmod 755 a; chmod 500 d; chmod 1777 empty",
    "chmod 000 b",
    "touch -d 2001-01-01 a",
    "rm link; ln -s b link; ln -s nowhere dangling",
    "rm to-d; mkdir to-d; echo x > to-d/x",
    "rm -rf d; ln -s empty d",
    "rm link; echo file > link",
    "echo through > link",
    "rmdir empty; echo x > empty",
    "chmod 755 locked; echo 6 > locked/new; chmod 755 locked",
    "chmod -R u+w locked; rm -rf locked",
    "mkdir -p ro/in; echo x > ro/in/file; chmod 444 ro/in/file; chmod 555 ro/in ro",
    "ln a second; echo both >> second",
    "true",
];

fn plainly(directory: &Path, script: &str) {
    let output = Command::new("sh").args(["-euc", script]).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}

fn after(script: &str) -> Tree {
    let plain = tempfile::tempdir().unwrap();
    plainly(plain.path(), SETUP);
    plainly(plain.path(), script);
    let whole = tree(plain.path());
    open_up(plain.path());
    whole
}

fn run(script: &str) -> (Place, Vec<Change>) {
    let place = Place::new();
    plainly(&place.lower(""), SETUP);
    let began = place.now();
    place.run(script);
    let collected = place.collect(began);
    assert_eq!(collected.conflicts, [], "{script}");
    place.sync(&collected.changes);
    (place, collected.changes)
}

#[test]
fn a_published_script_leaves_what_it_leaves_on_the_plain_files() {
    if !can_mount() {
        return;
    }
    for script in SCRIPTS {
        let (place, changes) = run(script);
        let before = tree(&place.lower(""));
        assert_eq!(place.publish(&changes), [], "{script}");
        let expected = after(script);
        assert_eq!(tree(&place.lower("")), expected, "{script}");
        let only_times = script.starts_with("touch");
        assert_eq!(changes.is_empty(), before == expected && !only_times, "{script}: {changes:?}");
        // Again, as after a crash.
        assert_eq!(place.publish(&changes), [], "{script}");
        assert_eq!(tree(&place.lower("")), expected, "{script}");
    }
}

/// One of each kind: what is done for one file is done for all.
#[test]
fn a_published_script_that_is_killed_anywhere_is_finished_by_the_redo() {
    if !can_mount() {
        return;
    }
    for script in [
        "echo tick >> a; mv b moved; chmod 755 link",
        "rm -rf d; mkdir d; echo new > d/x; mkdir d/e",
        "rm -rf d; echo file > d; rm a; mkdir a; echo x > a/b",
        "rm -rf d; ln -s empty d; rm to-d; mkdir to-d; echo x > to-d/x",
    ] {
        kill_everywhere(|| run(script), &after(script));
    }
}

#[test]
fn a_file_keeps_the_time_that_the_call_gave_it() {
    if !can_mount() {
        return;
    }
    let (place, changes) = run("touch -d @1000000000 a; echo x > n; touch -d @1000000001 n");
    assert_eq!(paths(&changes), ["a", "n"]);
    place.publish(&changes);
    let modified = |name: &str| fs::metadata(place.lower(name)).unwrap().mtime();
    assert_eq!((modified("a"), modified("n")), (1_000_000_000, 1_000_000_001));
}

/// The mark that a file was copied up is real here, and so is who else is at work.
#[test]
fn others_at_work_are_seen() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    plainly(&place.lower(""), SETUP);
    let began = place.now();
    place.run("echo mine >> a; echo mine >> d/x; mv b renamed; echo mine >> d/e/y");
    plainly(&place.lower(""), "rm d/x; echo theirs >> a");
    let collected = place.collect(began);
    let found: Vec<String> = collected.conflicts.iter().map(|conflict| conflict.path.to_string()).collect();
    // `renamed` looks as `d/x` does, were its directory one that others changed.
    assert_eq!(found, ["a", "d/x"]);
}
