//! A process that publishes, and is killed by SIGKILL at no particular moment: its parent does the redo.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};

use super::model::Model;
use super::power_loss::never_between;
use super::*;
use crate::tests::seeds::{Seeded, each, report};

/// Processes in one run of the tests.
const CASES: u64 = 50;

/// Names, in the process that publishes, the place.
const CHILD: &str = "DEED_PUBLISHING_CHILD";

/// Of the place: the changes, as the journal holds them.
const CHANGES: &str = "changes.json";

/// What the child says when it begins, and after each change.
const PASSED: &str = "passed";

#[test]
fn a_process_that_is_killed_while_it_publishes_leaves_what_the_redo_finishes() {
    if let Some(place) = std::env::var_os(CHILD) {
        return child(Path::new(&place));
    }
    let killed = AtomicU64::new(0);
    let counted = each("sudden_death", CASES, |seed| {
        let random = &mut Seeded::new(seed);
        let old = if random.once_in(2) { Model::repository(random) } else { Model::work(random) };
        let new = old.changed(random);
        let place = Place::new();
        old.lay(&place.lower(""));
        new.stage(&old, &place.upper(""), random);
        let changes = place.changes();
        fs::write(place.directory.path().join(CHANGES), serde_json::to_vec(&changes).unwrap()).unwrap();
        if kill(place.directory.path(), random.below(changes.len() + 1)) {
            killed.fetch_add(1, Ordering::Relaxed);
        }
        let (old, new) = (old.tree(), new.tree());
        never_between(&tree(&place.lower("")), &old, &new).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(place.publish(&changes), []);
        assert_eq!(tree(&place.lower("")), new);
        1
    });
    report(format_args!(
        "sudden death: {} of {} processes were killed before their end, from seed {}, no violations",
        killed.into_inner(),
        counted.total,
        counted.first
    ));
}

/// Let a child publish, and kill it when it has passed so many changes, wherever it is by then. False when it came to its end.
fn kill(place: &Path, passed: usize) -> bool {
    let name = "stage::tests::sudden_death::a_process_that_is_killed_while_it_publishes_leaves_what_the_redo_finishes";
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, place)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    // Its first word is that it begins. The name of the test may stand before it.
    let reached = lines.filter(|line| line.ends_with(PASSED)).take(passed + 1).count();
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert!(reached == passed + 1, "it passed {reached} changes of {passed}, and ended: {status}");
    status.signal().is_some()
}

fn child(place: &Path) {
    let open = |layer: &str| Dir::open_ambient_dir(place.join(layer), cap_std::ambient_authority()).unwrap();
    let changes: Vec<Change> = serde_json::from_slice(&fs::read(place.join(CHANGES)).unwrap()).unwrap();
    let passed = |_| {
        let mut out = io::stdout().lock();
        writeln!(out, "{PASSED}").unwrap();
        out.flush().unwrap();
    };
    passed(0);
    let (upper, workspace) = (&open("upper"), &open("lower"));
    let publication =
        Publication { changes: &changes, upper, workspace, key: KEY, replace: false, passed: &passed };
    crate::stage::publish::publish(&publication).unwrap();
}
