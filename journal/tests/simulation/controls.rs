//! What must be noticed: the harness is tried on journals and disks that break their promises.

use std::collections::HashSet;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};

use deed_journal::test_support::{FaultDisk, ImageKind, Seeded};
use deed_journal::{Digest, Durability, Op, RunId};

use crate::generate::Scope;
use crate::report;
use crate::simulate::{Compare, Extent, Look, Recording, Simulation, go_on};

/// Violations among the images of every kind at every place.
fn violations(recording: &Recording) -> usize {
    let (mut random, mut seen) = (Seeded::new(1), HashSet::new());
    let mut found = 0;
    for crash in recording.crashes() {
        for kind in ImageKind::ALL {
            let looked = recording.crash(&crash, kind, Look::Bytes, &mut random, &mut seen, |_, _| Ok(()));
            found += usize::from(looked.is_err());
        }
    }
    found
}

fn worked(commits: usize) -> Simulation {
    let mut simulation = Simulation::create();
    let extent = Extent { scope: Scope::Everything, commits, compare: Compare::AtTheEnd };
    go_on(&mut simulation, 3, extent).unwrap();
    simulation
}

fn create_runs(count: u8) -> Vec<Op> {
    let run = |byte| {
        let id = RunId::from_bytes([byte; 16]);
        let session = deed_journal::SessionId::from_bytes([byte; 16]);
        deed_journal::Run::new(id, session, [byte; 16], "test", 0)
    };
    (1..=count)
        .map(|byte| Op::CreateRun { run: Box::new(run(byte)), source: serde_json::json!({}) })
        .collect()
}

#[test]
fn a_commit_that_was_made_in_two_parts_is_noticed() {
    let mut whole = worked(5);
    whole.commit(&create_runs(2), Durability::Durable).unwrap();
    assert_eq!(violations(&whole.close()), 0);

    let mut parted = worked(5);
    for op in create_runs(2) {
        parted.commit(&[op], Durability::Durable).unwrap();
    }
    let mut recording = parted.close();
    // Forget the state in between, as if both had been one commit.
    let (second, first) = (recording.states.len() - 2, recording.states.len() - 3);
    recording.states[second].from = recording.states[first].from;
    recording.states.remove(first);
    assert!(violations(&recording) > 0);
}

#[test]
fn a_durable_commit_that_only_rode_is_noticed() {
    let mut simulation = worked(5);
    simulation.commit(&create_runs(1), Durability::Riding).unwrap();
    let mut recording = simulation.close();
    assert_eq!(violations(&recording), 0);
    let riding = recording.states.len() - 2;
    assert!(!recording.states[riding].durable);
    recording.states[riding].durable = true;
    assert!(violations(&recording) > 0);
}

#[test]
fn a_record_that_was_never_committed_is_noticed() {
    let mut recording = worked(5).close();
    for state in &mut recording.states {
        state.digest = Some(Digest::of(b"another"));
    }
    assert!(violations(&recording) > 0);
}

/// Set in the process that works on the lying disk. The store may panic there, and abort.
const CHILD: &str = "DEED_LYING_DISK";

/// Sequences on the lying disk.
const LIES: u64 = 60;

#[test]
fn a23_a_disk_that_lies_about_syncs_is_found_out() {
    if std::env::var_os(CHILD).is_some() {
        return lie();
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "controls::a23_a_disk_that_lies_about_syncs_is_found_out", "--nocapture"])
        .env(CHILD, "1")
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    let counted: Vec<u64> = output
        .lines()
        .filter_map(|line| line.split_once("lying: "))
        .filter_map(|(_, numbers)| {
            numbers.split(' ').map(|number| number.parse().ok()).collect::<Option<Vec<u64>>>()
        })
        .next_back()
        .unwrap_or_default();
    let &[sequences, images, wrong, panics] = &counted[..] else { panic!("it counted nothing: {output}") };
    let aborted = if child.status.success() { "" } else { ", and it died of the last one" };
    report(format_args!(
        "a23: {sequences} sequences on a lying disk, {images} images, {wrong} violations, {panics} of them panics{aborted}"
    ));
    assert!(images > 1000, "{images} images are too few");
    assert!(wrong > 100, "the harness found {wrong} violations on a disk that keeps nothing");
}

fn lie() {
    let (mut images, mut wrong, mut panics) = (0u64, 0u64, 0u64);
    for seed in 0..LIES {
        let mut random = Seeded::new(seed);
        let disk = FaultDisk::new();
        disk.lie();
        let recording = catch_unwind(AssertUnwindSafe(|| {
            let mut simulation = Simulation::open(disk, std::sync::Arc::default(), Digest::of(&[])).unwrap();
            let extent = Extent { scope: Scope::Everything, commits: 10, compare: Compare::Never };
            go_on(&mut simulation, seed, extent).unwrap();
            simulation.close()
        }));
        let recording = recording.expect("while it is not turned off, the disk does as it says");
        let mut seen = HashSet::new();
        for crash in recording.crashes() {
            for kind in ImageKind::ALL {
                let looked =
                    recording.crash(&crash, kind, Look::Bytes, &mut random, &mut seen, |_, _| Ok(()));
                if let Err(reason) = looked {
                    wrong += 1;
                    panics += u64::from(reason.contains("dead end"));
                }
            }
        }
        images += seen.len() as u64;
        // Said after each, for the case that the next one aborts the process.
        let line = format!("lying: {} {images} {wrong} {panics}\n", seed + 1);
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    }
}
