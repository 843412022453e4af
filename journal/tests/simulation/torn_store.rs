//! A store file whose tail is gone: cut, zeroed, or overwritten with garbage, at every sector.
//!
//! Fault model: everything from some 512-byte sector of the file on is lost in one of the three ways, of a file that was
//! closed and of one whose process was killed. Then the journal opens at a whole commit; or says that it is damaged; or
//! serves what is left of it, reports the rest, and serves nothing that is wrong. It never panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use deed_journal::test_support::{FaultDisk, RedbStore, SECTOR_BYTES, Seeded, Storage};
use deed_journal::{Reader, StorageError};

use crate::generate::Scope;
use crate::model::Model;
use crate::report;
use crate::simulate::{Compare, Extent, State, fingerprint, go_on, open_journal};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tail {
    Cut,
    Zeroed,
    Garbage,
}

impl Tail {
    const ALL: [Self; 3] = [Self::Cut, Self::Zeroed, Self::Garbage];

    fn lose(self, image: &mut Vec<u8>, at: usize, random: &mut Seeded) {
        match self {
            Self::Cut => image.truncate(at),
            Self::Zeroed => image[at..].fill(0),
            Self::Garbage => image[at..].fill_with(|| random.number().to_le_bytes()[0]),
        }
    }
}

/// What became of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It is at a whole commit.
    Whole,
    /// It does not open, and says why.
    Refused,
    /// Some of it can be read.
    Partly,
}

fn look(states: &[State], image: Vec<u8>) -> Result<Outcome, String> {
    let disk = FaultDisk::scratch(image);
    let store = match RedbStore::open_medium(disk.medium()) {
        Ok(store) => store,
        Err(StorageError::Damaged(_) | StorageError::NotAStore) => return Ok(Outcome::Refused),
        Err(error) => return Err(format!("it is refused by `{error}`, which says nothing of damage")),
    };
    let storage: Arc<dyn Storage> = Arc::new(store);
    let digest = fingerprint(&*storage).ok();
    if let Some(state) = states.iter().find(|state| state.digest == digest && digest.is_some()) {
        state.model.compare(&Reader::over(storage))?;
        return Ok(Outcome::Whole);
    }
    // It was closed, or all of it was durable: whatever it serves is of its last state.
    let expected = &states.last().expect("there is a first state").model;
    serves_nothing_wrong(expected, &Reader::over(Arc::clone(&storage)))?;
    if let Ok(journal) = open_journal(storage) {
        serves_nothing_wrong(expected, journal.read())?;
    }
    Ok(Outcome::Partly)
}

/// Everything that a reader finds is as it was, and everything that it does not find it reports.
fn serves_nothing_wrong(expected: &Model, reader: &Reader) -> Result<(), String> {
    let reported = reader.verify().map_or(true, |report| !report.damage.is_empty());
    if !reported {
        return Err("verification finds no damage".to_owned());
    }
    // A list that cannot be made is an error. One that is made is right, and says what it lacks.
    let runs = reader.runs();
    if let Ok(found) = &runs {
        let all = expected.runs.len() == found.items.len();
        let right =
            |run: &&deed_journal::Run| expected.runs.get(&run.id).is_some_and(|state| state.run == **run);
        if !found.items.iter().all(|run| right(&run)) || (!all && found.unreadable.is_empty()) {
            return Err(format!("runs: {found:?}"));
        }
    }
    for (id, state) in &expected.runs {
        let listed = runs.as_ref().is_ok_and(|found| found.items.iter().any(|run| run.id == *id));
        let run = reader.run(*id);
        if let Ok(found) = &run
            && found.as_ref().is_some_and(|found| *found != state.run)
        {
            return Err(format!("run {id}: {found:?}"));
        }
        // Of a run that is not listed, a part that is missing is no surprise; one that is wrong is.
        if let Ok(steps) = reader.steps(*id)
            && (steps.len() != state.steps.len() && listed)
        {
            return Err(format!("run {id} has {} steps", steps.len()));
        }
        for (seq, events) in (1..).zip(&state.steps) {
            if let Ok(found) = reader.events(*id, seq)
                && listed
                && reader.step(*id, seq).is_ok_and(|step| step.is_some())
                && found != *events
            {
                return Err(format!("step {seq} of run {id}: {found:?}"));
            }
        }
        if let Ok(Some(source)) = reader.run_source(*id)
            && source != state.source
        {
            return Err(format!("source of run {id}: {source:?}"));
        }
    }
    for (id, state) in &expected.sessions {
        let record = reader.session(*id);
        let there = record.as_ref().is_ok_and(Option::is_some);
        if let Ok(transcript) = reader.transcript(*id)
            && transcript != state.main
            && (there || !transcript.is_empty())
        {
            return Err(format!("session {id}: {transcript:?}"));
        }
    }
    Ok(())
}

#[test]
fn a10_a_torn_tail_leaves_a_whole_commit_or_a_report_and_nothing_wrong() {
    let mut simulation = crate::simulate::Simulation::create();
    let extent = Extent { scope: Scope::Everything, commits: 40, compare: Compare::AtTheEnd };
    go_on(&mut simulation, 11, extent).unwrap();
    simulation.sync().unwrap();
    let disk = simulation.disk().clone();
    let killed = disk.contents();
    let recording = simulation.close();
    let closed = disk.contents();
    let mut random = Seeded::new(10);
    for (name, bytes) in [("killed", killed), ("closed", closed)] {
        for tail in Tail::ALL {
            let mut outcomes = Vec::new();
            // From the first sector on: an empty file is one that nobody has written to.
            for at in (1..bytes.len() / 512).map(|sector| sector * usize::try_from(SECTOR_BYTES).unwrap()) {
                let mut image = bytes.clone();
                tail.lose(&mut image, at, &mut random);
                if image == bytes {
                    continue;
                }
                let looked = catch_unwind(AssertUnwindSafe(|| look(&recording.states, image)));
                let outcome = looked.unwrap_or_else(|_| Err("it panicked".to_owned()));
                outcomes.push(outcome.unwrap_or_else(|reason| panic!("{name}, {tail:?} at {at}: {reason}")));
            }
            let count = |wanted| outcomes.iter().filter(|outcome| **outcome == wanted).count();
            let (whole, refused, partly) =
                (count(Outcome::Whole), count(Outcome::Refused), count(Outcome::Partly));
            report(format_args!(
                "a10: {name}, {tail:?}: {} images: {whole} whole, {refused} refused, {partly} read in part",
                outcomes.len()
            ));
            assert!(outcomes.len() > 100);
            assert!(partly == 0 || name == "closed", "a repair verifies everything");
        }
    }
}
