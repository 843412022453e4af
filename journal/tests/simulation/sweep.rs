//! One append, crashed at every operation of the disk that it makes, in every way, and once more while what is left is
//! opened again.

use std::collections::HashSet;

use deed_journal::test_support::{FaultDisk, ImageKind, Seeded};
use deed_journal::{
    Durability, MessageBody, Op, RewriteKind, Role, Run, RunId, RunStatus, SessionId, TailPolicy, Turn,
};
use serde_json::json;

use crate::model::SessionState;
use crate::report;
use crate::simulate::{Look, Recording, Simulation, State, fingerprint_of_contents};

const SESSION: SessionId = SessionId::from_bytes([2; 16]);

/// Images of each kind at each place. Most are random in some way; those that come out alike are looked at once.
const DRAWS: usize = 12;

fn bodies(texts: &[&str]) -> Vec<MessageBody> {
    texts.iter().map(|text| MessageBody::text(Role::User, *text)).collect()
}

fn append(simulation: &mut Simulation, messages: Vec<MessageBody>, durability: Durability) {
    let base = simulation.model.sessions[&SESSION].base();
    simulation.commit(&[Op::Append { session: SESSION, base, messages }], durability).unwrap();
}

/// A run with a session of some length.
fn begun() -> Simulation {
    let mut simulation = Simulation::create();
    let run = Run::new(RunId::from_bytes([1; 16]), SESSION, [3; 16], "test", 0);
    let create = Op::CreateRun { run: Box::new(run), source: json!({}) };
    simulation.commit(&[create], Durability::Durable).unwrap();
    for number in 0..30 {
        append(
            &mut simulation,
            bodies(&[&format!("message {number}"), &"x".repeat(200)]),
            Durability::Durable,
        );
    }
    simulation
}

/// An append of several messages, with what comes before and after it. `state` is the one it leads to.
struct Appended {
    recording: Recording,
    state: usize,
}

impl Appended {
    fn new() -> Self {
        let mut simulation = begun();
        append(&mut simulation, bodies(&["riding"]), Durability::Riding);
        append(&mut simulation, bodies(&["one", &"y".repeat(9000), "three"]), Durability::Durable);
        let state = simulation.states() - 1;
        append(&mut simulation, bodies(&["later, riding"]), Durability::Riding);
        append(&mut simulation, bodies(&["later, durable"]), Durability::Durable);
        Self { recording: simulation.close(), state }
    }

    /// The state that the append leads to.
    fn after(&self) -> &State {
        &self.recording.states[self.state]
    }
}

fn session(state: &State) -> &SessionState {
    &state.model.sessions[&SESSION]
}

#[test]
fn a07_an_append_crashed_at_every_operation_is_whole_or_not_there() {
    let appended = Appended::new();
    let (before, after) = (&appended.recording.states[appended.state - 1], appended.after());
    // The dry run: what the append crosses. The last state that was durable before it lost its riding message.
    let boundaries: Vec<usize> = (after.from..=after.to).collect();
    let last_durable = &appended.recording.states[appended.state - 2];
    let (mut random, mut then, mut seen) = (Seeded::new(7), Seeded::new(8), HashSet::new());
    let (mut fired, mut outcomes, mut second_crashes) = (HashSet::new(), [0, 0], 0);
    for crash in appended.recording.crashes().filter(|crash| boundaries.contains(&crash.at)) {
        fired.insert(crash.at);
        for kind in ImageKind::ALL {
            for _ in 0..DRAWS {
                let looked = appended.recording.crash(
                    &crash,
                    kind,
                    Look::Whole,
                    &mut random,
                    &mut seen,
                    |found, image| {
                        let main = &session(found).main;
                        // What was last saved is a prefix of it, and it is a prefix of what was being saved.
                        assert!(main.starts_with(&session(last_durable).main));
                        assert!(session(after).main.starts_with(main));
                        let is_after = main.len() == session(after).main.len();
                        assert!(is_after || main.len() <= session(before).main.len(), "a part of the append");
                        outcomes[usize::from(is_after)] += 1;
                        recovered_twice(found, image)?;
                        if then.once_in(40) {
                            second_crashes += crashed_while_opened(found, image, &mut then)?;
                        }
                        Ok(())
                    },
                );
                looked.unwrap();
            }
        }
    }
    assert_eq!(fired.len(), boundaries.len(), "every boundary fired");
    report(format_args!(
        "a07: {} boundaries, {} images ({} without the append, {} with it), {second_crashes} second crashes",
        boundaries.len(),
        seen.len(),
        outcomes[0],
        outcomes[1]
    ));
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "both outcomes were seen");
    assert!(second_crashes > 1000);
}

/// Opening an image once, or twice, leads to the same records.
fn recovered_twice(found: &State, image: &[u8]) -> Result<(), String> {
    let disk = FaultDisk::scratch(image.to_vec());
    for time in ["first", "second", "third"] {
        let digest =
            fingerprint_of_contents(&disk).map_err(|reason| format!("opened the {time} time: {reason}"))?;
        if Some(digest) != found.digest {
            return Err(format!("opened the {time} time it is in another state"));
        }
    }
    Ok(())
}

/// Open an image, crash at every operation that makes, and open what that leaves. Returns the number of images.
fn crashed_while_opened(found: &State, image: &[u8], random: &mut Seeded) -> Result<usize, String> {
    let disk = FaultDisk::with(image.to_vec());
    let simulation = Simulation::open(disk, found.model.clone(), found.digest.ok_or("an unseen state")?)?;
    let recording = simulation.close();
    let mut seen = HashSet::new();
    for crash in recording.crashes() {
        for kind in ImageKind::ALL {
            recording
                .crash(&crash, kind, Look::Bytes, random, &mut seen, |_, _| Ok(()))
                .map_err(|reason| format!("crashed while it was opened: {reason}"))?;
        }
    }
    Ok(seen.len())
}

#[test]
fn a08_a_durable_append_is_there_whatever_else_is_lost() {
    let appended = Appended::new();
    let saved = &session(appended.after()).main;
    let (mut random, mut seen) = (Seeded::new(8), HashSet::new());
    for crash in appended.recording.crashes().filter(|crash| crash.at >= appended.after().to) {
        for kind in ImageKind::ALL {
            for _ in 0..DRAWS {
                appended
                    .recording
                    .crash(&crash, kind, Look::Whole, &mut random, &mut seen, |found, _| {
                        assert!(session(found).main.starts_with(saved));
                        Ok(())
                    })
                    .unwrap();
            }
        }
    }
    report(format_args!("a08: {} images", seen.len()));
    assert!(seen.len() > 100);
}

#[test]
fn a09_after_a_crash_at_the_last_boundary_the_next_save_neither_fails_nor_forks() {
    let appended = Appended::new();
    let after = appended.after();
    let (mut random, mut seen) = (Seeded::new(9), HashSet::new());
    for crash in appended.recording.crashes().filter(|crash| crash.at == after.to) {
        for kind in ImageKind::ALL {
            appended
                .recording
                .crash(&crash, kind, Look::Whole, &mut random, &mut seen, |found, image| {
                    assert_eq!(session(found).main, session(after).main, "the load is complete");
                    let disk = FaultDisk::with(image.to_vec());
                    let mut simulation = Simulation::open(disk, found.model.clone(), found.digest.unwrap())?;
                    append(&mut simulation, bodies(&["next"]), Durability::Durable);
                    simulation.compare()?;
                    let state = &simulation.model.sessions[&SESSION];
                    assert_eq!(state.main.len(), session(after).main.len() + 1);
                    assert!(state.heads.is_empty() && state.rewrites.is_empty(), "nothing forked");
                    Ok(())
                })
                .unwrap();
        }
    }
    assert!(!seen.is_empty());
}

/// A crash while the store was created left a file that no journal would open, and that said it was something else: the
/// owner had to remove it by hand. Such a file is the beginning of a store nobody has written to, and is begun again.
#[test]
fn a_crash_while_the_store_is_created_leaves_something_that_opens() {
    let recording = Simulation::create().close();
    let (mut random, mut then, mut seen) = (Seeded::new(1), Seeded::new(2), HashSet::new());
    let mut second_crashes = 0;
    for crash in recording.crashes() {
        for kind in ImageKind::ALL {
            for _ in 0..DRAWS {
                recording
                    .crash(&crash, kind, Look::Whole, &mut random, &mut seen, |found, image| {
                        if then.once_in(60) {
                            second_crashes += crashed_while_opened(found, image, &mut then)?;
                        }
                        Ok(())
                    })
                    .unwrap();
            }
        }
    }
    report(format_args!("creation: {} images, {second_crashes} second crashes", seen.len()));
    assert!(seen.len() > 500 && second_crashes > 500);
}

/// Look at everything that a crash at any of `boundaries` could leave.
fn each_image(
    recording: &Recording,
    boundaries: std::ops::RangeInclusive<usize>,
    random: u64,
    mut each: impl FnMut(&State, &[u8]) -> Result<(), String>,
) -> usize {
    let (mut random, mut seen) = (Seeded::new(random), HashSet::new());
    for crash in recording.crashes().filter(|crash| boundaries.contains(&crash.at)) {
        for kind in ImageKind::ALL {
            for _ in 0..DRAWS {
                recording.crash(&crash, kind, Look::Whole, &mut random, &mut seen, &mut each).unwrap();
            }
        }
    }
    seen.len()
}

#[test]
fn a03_after_a_crash_in_an_append_the_result_extends_what_was_last_saved() {
    let appended = Appended::new();
    let saved = &session(&appended.recording.states[appended.state - 2]).main;
    let after = appended.after();
    let images = each_image(&appended.recording, after.from..=after.to, 3, |found, _| {
        assert!(session(found).main.starts_with(saved));
        Ok(())
    });
    assert!(images > 100);
}

#[test]
fn a04_after_a_crash_in_an_append_the_result_is_a_prefix_of_what_was_being_saved() {
    let appended = Appended::new();
    let after = appended.after();
    let images = each_image(&appended.recording, after.from..=after.to, 4, |found, _| {
        assert!(session(after).main.starts_with(&session(found).main));
        Ok(())
    });
    assert!(images > 100);
}

#[test]
fn a05_after_a_crash_in_a_rewrite_the_result_is_the_old_or_the_new_transcript() {
    let mut simulation = begun();
    let old = simulation.model.sessions[&SESSION].main.clone();
    let base = simulation.model.sessions[&SESSION].base();
    let messages = bodies(&["summary", &"z".repeat(9000)]);
    let rewrite =
        Op::Rewrite { session: SESSION, base, keep: 10, messages, kind: RewriteKind::Compact, at_ms: 1 };
    simulation.commit(&[rewrite], Durability::Durable).unwrap();
    let new = simulation.model.sessions[&SESSION].main.clone();
    let state = simulation.states() - 1;
    let recording = simulation.close();
    let mut outcomes = [0, 0];
    let (from, to) = (recording.states[state].from, recording.states[state].to);
    let images = each_image(&recording, from..=to, 5, |found, _| {
        let main = &session(found).main;
        assert!(*main == old || *main == new, "a mixture of {} messages", main.len());
        outcomes[usize::from(*main == new)] += 1;
        Ok(())
    });
    assert!(images > 100 && outcomes[0] > 0 && outcomes[1] > 0, "{images} images, {outcomes:?}");
}

#[test]
fn a01_recovering_again_also_after_a_crash_inside_gives_equal_transcripts() {
    let mut simulation = begun();
    let base = simulation.model.sessions[&SESSION].base();
    let whole = simulation.model.sessions[&SESSION].main.clone();
    let ended =
        Run { status: RunStatus::Done, ..Run::new(RunId::from_bytes([1; 16]), SESSION, [3; 16], "test", 0) };
    let turn = Turn { id: "cut short".to_owned(), base, begun_ms: 1 };
    let ops = [Op::UpdateRun(Box::new(ended)), Op::BeginTurn { session: SESSION, turn }];
    simulation.commit(&ops, Durability::Durable).unwrap();
    append(&mut simulation, bodies(&["partial"]), Durability::Durable);
    let cut = simulation.states();
    simulation.recover(TailPolicy::Strip).unwrap();
    assert_eq!(simulation.model.sessions[&SESSION].main, whole);
    let recording = simulation.close();
    let (from, to) = (recording.states[cut].from, recording.states.last().unwrap().to);
    let images = each_image(&recording, from..=to, 1, |found, image| {
        let disk = FaultDisk::with(image.to_vec());
        let mut again = Simulation::open(disk, found.model.clone(), found.digest.ok_or("an unseen state")?)?;
        for time in ["once", "twice", "three times"] {
            again.recover(TailPolicy::Strip)?;
            assert_eq!(again.model.sessions[&SESSION].main, whole, "recovered {time}");
            again.compare()?;
        }
        Ok(())
    });
    assert!(images > 20, "{images} images");
}
