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

/// Names, in the process that works on the lying disk, the first sequence. The store may panic there, and abort.
const CHILD: &str = "DEED_LYING_DISK";

/// Sequences on the lying disk.
const LIES: u64 = 40;

#[test]
fn a23_a_disk_that_lies_about_syncs_is_found_out() {
    if let Ok(first) = std::env::var(CHILD) {
        return lie(first.parse().unwrap());
    }
    let (mut next, mut images, mut wrong, mut panics, mut aborts) = (0, 0, 0, 0, 0);
    while next < LIES {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "controls::a23_a_disk_that_lies_about_syncs_is_found_out", "--nocapture"])
            .env(CHILD, next.to_string())
            .stderr(Stdio::null())
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&child.stdout);
        for line in output.lines().filter_map(|line| line.split_once("lying: ")).map(|(_, line)| line) {
            let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
            let &[seed, more_images, more_wrong, more_panics] = &numbers[..] else { panic!("{line}") };
            next = seed + 1;
            images += more_images;
            wrong += more_wrong;
            panics += more_panics;
        }
        if child.status.success() {
            assert_eq!(next, LIES, "it told of no sequence: {output}");
        } else {
            // The process died in the sequence after the last one it told of.
            next += 1;
            aborts += 1;
            wrong += 1;
        }
    }
    report(format_args!(
        "a23: {LIES} sequences on a lying disk, {images} images, {wrong} violations, {panics} of them panics, {aborts} \
         aborts"
    ));
    assert!(images > 1000, "{images} images are too few");
    assert!(wrong > 100, "the harness found {wrong} violations on a disk that keeps nothing");
}

fn lie(first: u64) {
    for seed in first..LIES {
        let (mut wrong, mut panics) = (0, 0);
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
        // Said after each, for the case that the next one aborts the process.
        let line = format!("lying: {seed} {} {wrong} {panics}\n", seen.len());
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    }
}
