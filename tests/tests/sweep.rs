//! Every step of the reference mission, killed at every point that it passes.
//!
//! Fault model: SIGKILL of a real process at a point between two actions of the host, once in a run; the kernel and the
//! disk live on. The cases are all there are, so nothing is drawn at random and nothing needs a seed. The control, that
//! the comparison can fail, is in `kills.rs`.
//!
//! The sweep runs once; each test below holds all of its cases against one demand.

#![expect(clippy::print_stdout, reason = "the number of cases is worth knowing")]

use std::sync::LazyLock;

use deed_tests::{
    Ending, Kill, Passage, Point, Section, Snapshot, StepRow, Trial, reference, says_yes, sweep, trial,
};

static REFERENCE: LazyLock<(Passage, Snapshot)> =
    LazyLock::new(|| reference("fix-add", &says_yes).unwrap_or_else(|error| panic!("{error}")));

static SWEEP: LazyLock<Vec<Result<Trial, String>>> = LazyLock::new(|| {
    let cases = cases(Passes::AndGoesOn);
    println!("{} cases", cases.len());
    sweep(&cases, |kill| trial("fix-add", *kill, &says_yes))
});

/// What becomes of a step that is told to die at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passes {
    /// It passes the point, and a run killed there goes on without a question.
    AndGoesOn,
    /// It passes the point, and a run killed there cannot know the outcome: `unknown.rs` has these.
    ThenAsks,
    /// It does not pass the point.
    Never,
}

fn passes(step: &StepRow, point: Point) -> Passes {
    match (step.title().as_str(), point) {
        // Where calls are not contained, whoever ran a command cannot tell from the files whether it ran.
        ("tool_call/shell", Point::MidExec | Point::AfterExec) if !step.contained => Passes::ThenAsks,
        (_, Point::MidPublish | Point::AfterPublish) if !step.contained => Passes::Never,
        // Only an edit saves a receipt: the digest that its result will have.
        ("tool_call/edit_file", Point::AfterReceipt) => Passes::AndGoesOn,
        (_, Point::AfterReceipt) => Passes::Never,
        (_, Point::MidExec) if !step.runs_component() => Passes::Never,
        _ => Passes::AndGoesOn,
    }
}

fn cases(wanted: Passes) -> Vec<Kill> {
    let steps = &REFERENCE.1.steps;
    let all = steps.iter().flat_map(|step| Point::ALL.map(|point| (step, point)));
    let fitting = all.filter(|(step, point)| passes(step, *point) == wanted);
    fitting.map(|(step, point)| Kill::new(step.seq, point)).collect()
}

/// Hold every case against `demand`, and report all that fail.
#[track_caller]
fn each(demand: impl Fn(&Trial) -> Result<(), String>) {
    let faults: Vec<String> = SWEEP
        .iter()
        .filter_map(|trial| match trial {
            Ok(trial) => demand(trial).err().map(|fault| format!("killed at {}: {fault}", trial.kill)),
            Err(fault) => Some(fault.clone()),
        })
        .collect();
    assert!(faults.is_empty(), "{} of {} cases:\n{}", faults.len(), SWEEP.len(), faults.join("\n"));
}

fn same(trial: &Trial, section: Section) -> Result<(), String> {
    trial.snapshot.compare_section(&REFERENCE.1, section)
}

#[track_caller]
fn must(holds: bool, fault: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(fault()) }
}

#[test]
fn b22_a_kill_at_every_step_and_point_leaves_an_equal_envelope() {
    let (contained, asks) = if REFERENCE.1.steps.iter().any(|step| step.contained) { (2, 0) } else { (0, 2) };
    assert_eq!(
        SWEEP.len(),
        29 * 4 + 1 + 8 + contained - asks,
        "29 steps of 4 points, an edit's receipt, inside 8 calls, and the command's publication; where nothing is contained, but for what asks"
    );
    each(|trial| {
        let endings = trial.passage.endings();
        let killed = endings.iter().filter(|ending| **ending == Ending::KILLED).count();
        must(killed == 1 && trial.passage.kills == 1, || {
            format!("{killed} processes were killed: {endings:?}")
        })?;
        must(trial.passage.envelope.status == "done", || {
            format!("it ended as `{}`", trial.passage.envelope.status)
        })?;
        same(trial, Section::Envelope)
    });
}

#[test]
fn b22_points_that_a_step_does_not_pass_kill_nothing() {
    let cases = cases(Passes::Never);
    let published = REFERENCE.1.steps.iter().filter(|step| step.contained).count();
    assert_eq!(
        cases.len(),
        28 + 21 + 2 * (29 - published),
        "no receipt but the edit's, no component but in 8 calls, no publication but the command's"
    );
    for result in sweep(&cases, |kill| trial("fix-add", *kill, &says_yes)) {
        let trial = result.unwrap();
        assert_eq!(
            trial.passage.endings(),
            [Ending::Exit(4), Ending::Exit(0)],
            "told to die at {}",
            trial.kill
        );
        trial.snapshot.compare(&REFERENCE.1).unwrap();
    }
}

#[test]
fn b23_usage_is_equal_but_for_repeated_model_calls() {
    let (undisturbed, _) = &*REFERENCE;
    each(|trial| {
        let (usage, expected) = (&trial.passage.envelope.usage, &undisturbed.envelope.usage);
        must(usage.turns == expected.turns && usage.calls == expected.calls, || format!("{usage:?}"))?;
        // A process that died over the model's answer asked in vain; the next one had to ask again.
        let step = &REFERENCE.1.steps[usize::try_from(trial.kill.seq - 1).expect("there are few steps")];
        let repeated = u64::from(step.kind == "model_call" && trial.kill.point == Point::AfterExec);
        must(usage.repeated_model_calls == repeated, || format!("{usage:?}, expected {repeated} repeated"))?;
        let requests = trial.snapshot.requests.len() as u64;
        must(requests == usage.turns + repeated, || format!("{requests} requests were made"))
    });
}

#[test]
fn b24_the_shape_of_the_journal_is_equal() {
    each(|trial| same(trial, Section::Shape));
}

#[test]
fn b25_the_world_is_equal() {
    each(|trial| {
        same(trial, Section::Files)?;
        same(trial, Section::History)?;
        same(trial, Section::Status)?;
        let (found, expected) = (&trial.snapshot.envelope.criteria, &REFERENCE.1.envelope.criteria);
        must(found == expected, || format!("criteria: {found:?}"))?;
        let ticks = trial.snapshot.files.text("counter.log");
        must(ticks == "tick\n", || format!("the command ran not once: {ticks:?}"))?;
        let commits = trial.snapshot.history.iter().filter(|commit| commit.subject() == "Fix add()").count();
        must(commits == 1, || format!("{commits} commits were made"))
    });
}

#[test]
fn b26_the_transcript_is_equal() {
    each(|trial| same(trial, Section::Transcript));
}

#[test]
fn b27_an_effect_that_had_landed_is_marked_on_its_step() {
    each(|trial| {
        for step in &trial.snapshot.steps {
            let hit = step.seq == trial.kill.seq;
            let effectful = matches!(step.name.as_str(), "write_file" | "edit_file" | "git_commit");
            let landed = hit && effectful && step.kind == "tool_call" && trial.kill.point == Point::AfterExec;
            must(step.landed_before == landed, || format!("{step:?}"))?;
        }
        // The results are ok and say the same: the whole transcript is equal.
        same(trial, Section::Transcript)
    });
}

#[test]
fn b28_what_the_model_was_sent_is_a_prefix_of_the_final_transcript() {
    each(|trial| trial.snapshot.requests_are_prefixes());
}
