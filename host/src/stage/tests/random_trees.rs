//! Random scripts on random trees, on a real overlay, published by a process that dies before a random operation, once and
//! twice: what is in the workspace in the end is what the same script leaves on plain files.

use std::os::fd::AsRawFd as _;
use std::sync::Once;

use super::model::Model;
use super::power_loss::never_between;
use super::script::Script;
use super::*;
use crate::stage::changes::Conflict;
use crate::stage::{Mounted, Stage};
use crate::tests::seeds::{Seeded, each, report};

/// In one run of the tests.
const CASES: u64 = 200;

#[test]
fn a_random_script_is_published_as_a_whole_whenever_the_host_dies() {
    let counted = each("random_trees", CASES, case);
    report(format_args!(
        "random trees: {} of them from seed {}, {} publications cut off in the middle, no violations",
        counted.seeds, counted.first, counted.total
    ));
    // The control: had each been cut off at one of its ends, this would show nothing.
    assert!(!counted.is_all || counted.total > CASES / 2 || !can_mount());
}

/// Returns how many publications were cut off with one part of the changes there, and another not.
fn case(seed: u64) -> u64 {
    let random = &mut Seeded::new(seed);
    let old = if random.once_in(3) { Model::repository(random).unlocked() } else { Model::work(random) };
    let script = Script::random(&old, random);
    let place = Place::new();
    let at = |path: &str| place.directory.path().join(path);
    for path in ["plain", "twice"] {
        fs::create_dir(at(path)).unwrap();
    }
    for path in ["lower", "twice", "plain"] {
        old.lay(&at(path));
    }
    let by_shell = random.once_in(8);
    let stage = Stage::new(at("stages/call"), at("lower").canonicalize().unwrap());
    let (mounted, began) = match stage.mount(None, false) {
        Ok(made) => made,
        Err(error) => {
            static ONCE: Once = Once::new();
            ONCE.call_once(|| report(format_args!("not run, since this machine failed to {error}")));
            return 0;
        }
    };
    if by_shell {
        shell(&script, stage.workspace(), Some(&mounted));
        shell(&script, &at("plain"), None);
    } else {
        script.run(Path::new(&format!("/proc/self/fd/{}", mounted.root().as_raw_fd())));
        script.run(&at("plain"));
    }
    drop(mounted);
    let collected = stage.collect(began).unwrap();
    // In a directory that is closed to its owner he writes a file, but no other beside it.
    let is_closed = |conflict: &Conflict| conflict.what.ends_with("the user of the host may not");
    if !rustix::process::geteuid().is_root() && collected.conflicts.iter().any(is_closed) {
        return 0;
    }
    assert_eq!(collected.conflicts, [], "{script:?}");
    same(&tree(&at("lower")), &old.tree())
        .unwrap_or_else(|why| panic!("before the commit nothing is to be seen: {why}: {script:?}"));
    let (expected, changes) = (tree(&at("plain")), collected.changes);
    stage_is_published(&place, &changes, (&old.tree(), &expected), random, &script)
}

fn stage_is_published(
    place: &Place,
    changes: &[Change],
    (old, expected): (&Tree, &Tree),
    random: &mut Seeded,
    script: &Script,
) -> u64 {
    let mut between = 0;
    let (upper, most) = (&place.open("stages/call/upper"), 4 * changes.len() + 8);
    for (workspace, kills) in [("lower", 1), ("twice", 2)] {
        let path = place.directory.path().join(workspace);
        let workspace = &place.open(workspace);
        let publication =
            Publication { changes, upper, workspace, key: KEY, replace: false, passed: &|_| {} };
        for _ in 0..kills {
            let survived = random.below(most);
            let kill = Kill(Cell::new(i64::try_from(survived).unwrap()));
            // Or it comes to its end before.
            let _ = publish_observed(&publication, &kill, Duration::ZERO);
            let found = tree(&path);
            between += u64::from(found != *old && found != *expected);
            never_between(&found, old, expected)
                .unwrap_or_else(|why| panic!("killed after {survived}: {why}: {script:?}"));
        }
        // Once more than is needed.
        for _ in 0..2 {
            let all = Kill(Cell::new(i64::MAX));
            assert_eq!(publish_observed(&publication, &all, Duration::ZERO).unwrap(), [], "{script:?}");
            same(&tree(&path), expected).unwrap_or_else(|why| panic!("{why}: {script:?}: {changes:?}"));
        }
    }
    between
}

/// Run it by a real shell, in a workspace or on a stage over it.
fn shell(script: &Script, workspace: &Path, mounted: Option<&std::sync::Arc<Mounted>>) {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(script.shell());
    let (mounted, path) = (mounted.cloned(), CString::new(workspace.as_os_str().as_bytes()).unwrap());
    let enter = move || {
        if let Some(mounted) = &mounted {
            mounted.enter()?;
        }
        Ok(rustix::process::chdir(&*path)?)
    };
    // SAFETY: it makes plain system calls and allocates nothing.
    unsafe { command.pre_exec(enter) };
    command.output().unwrap();
}
