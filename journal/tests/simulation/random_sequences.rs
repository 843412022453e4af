//! Random sequences of commits, crashed at random places in every way.

use std::collections::HashSet;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use deed_journal::test_support::{FaultDisk, ImageKind, Seeded};

use crate::generate::Scope;
use crate::report;
use crate::simulate::{Compare, Extent, Look, Recording, Simulation, State, go_on};

/// Sequences in one run of the tests.
const SEQUENCES: u64 = 10_000;

/// Images of each sequence, the second crashes not counted.
const IMAGES: usize = 10;

/// What is asked for in one run of the tests.
const AT_LEAST_IMAGES: u64 = 100_000;

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    sequences: u64,
    images: u64,
    /// Those of a crash while the image of an earlier crash was reopened, and in the work after that.
    second_crashes: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.sequences += other.sequences;
        self.images += other.images;
        self.second_crashes += other.second_crashes;
    }
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// One seed: a sequence, its images, and of some of them the images of a second crash.
fn sequence(seed: u64) -> Result<Counts, String> {
    let mut random = Seeded::new(seed.wrapping_mul(3));
    let scope = if random.once_in(2) { Scope::Sessions } else { Scope::Everything };
    let compare = match random.below(16) {
        0 => Compare::AfterEach,
        1..=3 => Compare::AtTheEnd,
        _ => Compare::Never,
    };
    let extent = Extent { scope, commits: 2 + random.below(9), compare };
    let mut simulation = Simulation::create();
    go_on(&mut simulation, seed, extent)?;
    let recording = simulation.close();
    let mut counts = Counts { sequences: 1, ..Counts::default() };
    let twice = random.once_in(8);
    counts.images += crash_at_random(&recording, &mut random, IMAGES, |state, image, random| {
        if twice && random.once_in(IMAGES) {
            counts.second_crashes += crash_again(state, image, random)?;
        }
        Ok(())
    })?;
    counts.images += counts.second_crashes;
    Ok(counts)
}

/// Look at so many different images. Returns how many there were.
fn crash_at_random(
    recording: &Recording,
    random: &mut Seeded,
    images: usize,
    mut each: impl FnMut(&State, &[u8], &mut Seeded) -> Result<(), String>,
) -> Result<u64, String> {
    let places = recording.changes() + 1;
    // A few more than are needed, since some will be alike.
    let mut chosen: Vec<usize> = (0..images + images / 2).map(|_| random.below(places)).collect();
    chosen.sort_unstable();
    let (mut seen, mut then) = (HashSet::new(), Seeded::new(random.number()));
    for crash in recording.crashes() {
        for _ in chosen.iter().filter(|at| **at == crash.at) {
            if seen.len() < images {
                let kind = *random.pick(&ImageKind::ALL);
                let look = if random.once_in(8) { Look::Whole } else { Look::Bytes };
                recording.crash(&crash, kind, look, random, &mut seen, |state, image| {
                    each(state, image, &mut then)
                })?;
            }
        }
    }
    Ok(seen.len() as u64)
}

/// Open an image, which is in the state `state`, go on with it, and crash in the opening or in what follows.
fn crash_again(state: &State, image: &[u8], random: &mut Seeded) -> Result<u64, String> {
    let digest = state.digest.ok_or("a state nobody has seen")?;
    let disk = FaultDisk::with(image.to_vec());
    let mut simulation = Simulation::open(disk, state.model.clone(), digest)?;
    let extent = Extent { scope: Scope::Everything, commits: 2, compare: Compare::AtTheEnd };
    go_on(&mut simulation, random.number(), extent).map_err(|reason| format!("after reopening: {reason}"))?;
    let recording = simulation.close();
    let found = crash_at_random(&recording, random, IMAGES, |_, _, _| Ok(()));
    found.map_err(|reason| format!("a second crash: {reason}"))
}

#[test]
fn a_seed_brings_back_the_same_work_and_the_same_changes_of_the_disk() {
    let record = |seed| {
        let mut simulation = Simulation::create();
        let extent = Extent { scope: Scope::Everything, commits: 20, compare: Compare::Never };
        go_on(&mut simulation, seed, extent).unwrap();
        simulation.close()
    };
    assert!(record(1) == record(1));
    assert!(record(1) != record(2));
}

#[test]
fn a17_random_sequences_crashed_anywhere_are_at_a_state_the_model_knows() {
    let (first, count) =
        (from_environment("DEED_FUZZ_SEED", 1), from_environment("DEED_FUZZ_COUNT", SEQUENCES));
    let (begun, next) = (Instant::now(), AtomicU64::new(first));
    let work = || {
        let mut counts = Counts::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count {
                return counts;
            }
            match sequence(seed) {
                Ok(more) => counts += more,
                Err(reason) => panic!(
                    "seed {seed}: {reason}\nreplay: DEED_FUZZ_SEED={seed} DEED_FUZZ_COUNT=1 cargo test -p deed-journal \\\n    \
                     --test simulation a17 -- --nocapture"
                ),
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut counts = Counts::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            counts += worker.join().unwrap();
        }
    });
    let Counts { sequences, images, second_crashes } = counts;
    report(format_args!(
        "a17: {sequences} sequences from seed {first}, {images} images, {second_crashes} of them of second crashes, no \
         violations, {:.1} s on {threads} threads",
        begun.elapsed().as_secs_f64()
    ));
    if count == SEQUENCES {
        assert!(images >= AT_LEAST_IMAGES, "{images} images are too few");
    }
}
