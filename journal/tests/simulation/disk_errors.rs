//! A disk that fails in the middle of the work: at every operation, with each error, once and from then on.
//!
//! The process says what the system said, stops taking work, and whoever opens the journal afterwards finds the state
//! before or after the commit that failed.

use std::collections::HashSet;
use std::sync::Arc;

use deed_journal::CommitError;
use deed_journal::test_support::{Errno, Fault, FaultDisk, FaultTarget, ImageKind, Seeded, Times};

use crate::generate::{Generator, Scope};
use crate::model::Model;
use crate::report;
use crate::simulate::{Compare, Done, Extent, Look, Recording, Simulation, State, go_on};

/// Commits after the opening.
const COMMITS: usize = 6;

/// What is on the disk when the work begins.
struct Start {
    bytes: Vec<u8>,
    model: Arc<Model>,
}

/// What the error did.
struct Failed {
    recording: Recording,
    disk: FaultDisk,
    /// It hit before the journal was open.
    opening: bool,
}

fn text_of(errno: Errno) -> &'static str {
    match errno {
        Errno::Eio => "Input/output error",
        Errno::Enospc => "No space left on device",
    }
}

/// The words must be the system's, or say that an earlier failure is the reason.
fn assert_clear(words: &str, errno: Errno, first: bool) {
    let earlier = words.contains("Previous I/O error") || words.contains("stopped after a failure");
    assert!(words.contains(text_of(errno)) || (!first && earlier), "`{words}` does not say what failed");
}

/// Work until the fault hits, and a little longer. None: it never does, the work is done before.
fn work_until_it_fails(start: &Start, seed: u64, fault: Fault) -> Option<Failed> {
    let disk = FaultDisk::with(start.bytes.clone());
    disk.inject(fault, seed);
    let mut simulation = match Simulation::open_unwatched(disk.clone(), Arc::clone(&start.model)) {
        Ok(simulation) => simulation,
        Err(words) => {
            assert!(disk.fired() > 0, "it failed by itself: {words}");
            assert_clear(&words, fault.errno, true);
            // The opening itself is a commit, which changes nothing that the model knows.
            let model = Arc::clone(&start.model);
            let begun = State { from: 0, to: 0, durable: true, digest: None, model };
            let recording = Recording::new(disk.history(), vec![begun]);
            return Some(Failed { recording, disk, opening: true });
        }
    };
    let mut generator = Generator::new(seed, Scope::Everything);
    let mut failed = false;
    for _ in 0..COMMITS {
        let (ops, durability) = generator.commit(&simulation.model);
        if ops.is_empty() {
            continue;
        }
        match simulation.try_commit(&ops, durability).unwrap() {
            Done::Agreed => assert!(!failed, "it took work after a failure"),
            Done::Failed(error) if !failed => {
                assert!(disk.fired() > 0, "it failed by itself: {error}");
                assert_clear(&error.to_string(), fault.errno, true);
                if fault.target == FaultTarget::Changes {
                    assert!(matches!(error, CommitError::Unknown(_)), "{error:?}");
                }
                failed = true;
            }
            Done::Failed(error) => {
                assert!(matches!(error, CommitError::Stopped(_)), "{error:?}");
                assert_clear(&error.to_string(), fault.errno, false);
            }
        }
    }
    let fired = disk.fired() > 0;
    assert!(failed || !fired, "a failure of the disk went unsaid");
    let recording = simulation.close();
    (fired || disk.fired() > 0).then_some(Failed { recording, disk, opening: false })
}

/// After the failure: the process is started again, on the same machine and after a power cut.
fn look_at_what_is_left(failed: &Failed, fault: Fault, random: &mut Seeded) -> usize {
    let at = failed.recording.changes();
    let context = |reason: String| format!("after {fault:?}: {reason}");
    // On a disk that still fails, opening works or says why.
    if fault.times == Times::ForGood {
        let disk = FaultDisk::scratch(failed.disk.contents());
        disk.inject(Fault { at: 0, ..fault }, 1);
        if let Err(words) = Simulation::open_unwatched(disk, Arc::default()) {
            assert_clear(&words, fault.errno, true);
        }
    }
    let left = failed.disk.contents();
    failed.recording.look(at, &left, Look::Whole).map_err(context).unwrap();
    let (mut seen, crash) = (HashSet::new(), failed.recording.crashes().last().unwrap());
    for kind in [ImageKind::Lost, *random.pick(&ImageKind::ALL), ImageKind::Anything] {
        let looked = failed.recording.crash(&crash, kind, Look::Bytes, random, &mut seen, |_, _| Ok(()));
        looked.map_err(context).unwrap();
    }
    1 + seen.len()
}

/// Nothing; what a kill leaves, which is repaired when it is opened; and what was closed, which is read as it is needed.
fn starts() -> [Start; 3] {
    let mut simulation = Simulation::create();
    let extent = Extent { scope: Scope::Everything, commits: 15, compare: Compare::AtTheEnd };
    go_on(&mut simulation, 5, extent).unwrap();
    simulation.journal().sync().unwrap();
    let (disk, model) = (simulation.disk().clone(), Arc::clone(&simulation.model));
    let killed = disk.contents();
    drop(simulation.close());
    [
        Start { bytes: Vec::new(), model: Arc::default() },
        Start { bytes: killed, model: Arc::clone(&model) },
        Start { bytes: disk.contents(), model },
    ]
}

/// Put each fault at every operation that the work makes. Returns how many failures there were, and how many images.
fn sweep(target: FaultTarget, errnos: &[Errno], seeds: std::ops::Range<u64>) -> (usize, usize) {
    let (mut failures, mut openings, mut images) = (0, 0, 0);
    let mut random = Seeded::new(21);
    for start in starts() {
        for seed in seeds.clone() {
            for errno in errnos {
                for times in [Times::Once, Times::ForGood] {
                    for at in 0.. {
                        let fault = Fault { target, at, errno: *errno, times };
                        let Some(failed) = work_until_it_fails(&start, seed, fault) else { break };
                        failures += 1;
                        openings += usize::from(failed.opening);
                        images += look_at_what_is_left(&failed, fault, &mut random);
                    }
                }
            }
        }
    }
    assert!(openings > 0, "it failed while opening");
    // A build with debug assertions has redb read all pages when it opens, and they stay in its cache.
    assert!(openings < failures || target == FaultTarget::Reads, "it failed later as well");
    (failures, images)
}

#[test]
fn a21_an_error_at_every_write_or_sync_is_said_and_leaves_before_or_after() {
    let (failures, images) = sweep(FaultTarget::Changes, &[Errno::Eio, Errno::Enospc], 1..3);
    report(format_args!("a21: {failures} failures of writes and syncs, {images} images of what they left"));
    assert!(failures > 500);
}

#[test]
fn a21_an_error_at_every_read_is_said_and_leaves_before_or_after() {
    let (failures, images) = sweep(FaultTarget::Reads, &[Errno::Eio], 1..3);
    report(format_args!("a21: {failures} failures of reads, {images} images of what they left"));
    assert!(failures > 20);
}
