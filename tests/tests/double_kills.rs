//! A process dies over a step, and the one that recovers it dies, too.
//!
//! Fault model: as in `kills.rs`, twice in a run: at a point of a step, and then at a point of the same step while it is
//! recovered. `make fuzz` runs all pairs of the reference mission; `make test` those that recover differently.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "the number of cases is worth knowing")]

use deed_tests::guests::PROBES;
use deed_tests::{
    Ending, Envelope, Kill, Passage, Point, Sandbox, Section, Snapshot, StepRow, Wait, reference, says_yes,
    sweep,
};
use serde_json::json;

/// Processes one run may take here: two that are killed, and as many questions as there are.
const MAX_PROCESSES: usize = 12;

/// A kill, and another one of the same step by whoever takes it on.
#[derive(Clone, Copy, Debug)]
struct Pair {
    first: Kill,
    second: Point,
}

/// The owner knows the truth: whether the command's line is there.
fn truthful<'a>(sandbox: &'a Sandbox, file: &'a str) -> impl Fn(&Wait) -> Result<&'static str, String> + 'a {
    move |wait| match wait.kind.as_str() {
        "reconcile" if sandbox.files().paths().contains(&file) => Ok("happened"),
        "reconcile" => Ok("did-not-happen"),
        _ => says_yes(wait),
    }
}

/// Kill the run at `pair`, and take it to its end. Whether the second process died is not certain: it may have found the
/// step settled, or come by another way.
fn run(
    sandbox: &Sandbox,
    pair: Pair,
    owner: &dyn Fn(&Wait) -> Result<&'static str, String>,
) -> Result<Passage, String> {
    let second = Kill::new(pair.first.seq, pair.second);
    let mut processes = Vec::new();
    let mut kills = 0;
    while processes.len() < MAX_PROCESSES {
        let deed = match processes.len() {
            0 => sandbox.run(Some(pair.first)),
            _ if kills == 1 => sandbox.resume(Some(second)),
            _ => sandbox.resume(None),
        };
        let outcome = deed.run();
        processes.push(outcome.clone());
        match outcome.ending {
            Ending::KILLED => kills += 1,
            Ending::Exit(0) => {
                let envelope = outcome.try_json()?;
                return Ok(Passage { processes, kills, asked: Vec::new(), envelope });
            }
            Ending::Exit(4) => {
                for wait in outcome.try_json::<Envelope>()?.waits {
                    sandbox.answer(&wait.wait, owner(&wait)?)?;
                }
            }
            _ => return Err(format!("an undocumented end: {outcome}")),
        }
    }
    Err(format!("the run has not ended after {MAX_PROCESSES} processes"))
}

/// Pairs of the steps that `wanted` picks.
fn pairs(steps: &[StepRow], first: &[Point], wanted: impl Fn(&StepRow) -> bool) -> Vec<Pair> {
    let kills = steps.iter().filter(|step| wanted(step)).flat_map(|step| {
        let passes = |point: &Point| match point {
            Point::MidExec => step.runs_component(),
            Point::MidPublish | Point::AfterPublish => step.contained,
            _ => true,
        };
        first.iter().filter(move |point| passes(point)).map(|point| Kill::new(step.seq, *point))
    });
    kills.flat_map(|first| Point::ALL.map(|second| Pair { first, second })).collect()
}

fn the_reference_mission_survives(first: &[Point], wanted: impl Fn(&StepRow) -> bool) {
    let (_, expected) = reference("fix-add", &says_yes).unwrap();
    let pairs = pairs(&expected.steps, first, wanted);
    println!("{} pairs", pairs.len());
    let results = sweep(&pairs, |pair| {
        let sandbox = Sandbox::of("fix-add");
        let fault = |fault: String| format!("killed at {}, then at {}: {fault}", pair.first, pair.second);
        let passage = run(&sandbox, *pair, &truthful(&sandbox, "counter.log")).map_err(fault)?;
        let snapshot = Snapshot::take(&sandbox, &passage).map_err(fault)?;
        let ticks = snapshot.files.text("counter.log");
        if ticks != "tick\n" {
            return Err(fault(format!("the command ran not once: {ticks:?}")));
        }
        // What the owner confirmed is told in other words; all else is equal.
        let confirmed = snapshot
            .steps
            .iter()
            .any(|step| step.settled_by.as_deref() == Some("owner") && step.name == "shell");
        let told = |section: &Section| confirmed && *section == Section::Transcript;
        let mut sections = Section::ALL.into_iter().filter(|section| !told(section));
        let same = sections.try_for_each(|section| snapshot.compare_section(&expected, section));
        same.and_then(|()| snapshot.requests_are_prefixes()).map_err(fault)?;
        Ok(passage.kills)
    });
    let faults: Vec<_> = results.iter().filter_map(|result| result.as_ref().err().cloned()).collect();
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), results.len(), faults.join("\n"));
    let twice = results.iter().filter(|result| matches!(result, Ok(2))).count();
    // The second process often finds the step settled, and does not pass the point.
    println!("{twice} died twice");
    assert!(twice * 4 > results.len(), "many of them die twice: {twice} of {}", results.len());
}

#[test]
fn b35_a_second_kill_while_a_step_is_recovered_changes_nothing() {
    let first = [Point::AfterIntent, Point::MidExec, Point::AfterExec, Point::MidPublish];
    let names = ["git_branch", "write_file", "shell", "git_commit", "finish"];
    the_reference_mission_survives(&first, |step| names.contains(&step.name.as_str()));
}

#[test]
#[ignore = "all pairs take minutes: `make fuzz`"]
fn b35_all_pairs() {
    the_reference_mission_survives(&Point::ALL, |_| true);
}

#[test]
fn b35_a_second_kill_while_a_probe_settles_a_step_changes_nothing() {
    let calls = json!([{ "tool": "append", "input": { "path": "log", "line": "one" } }]);
    let sandbox = || {
        let sandbox = Sandbox::with(&json!({ "objective": "Once", "calls": calls }), &[]).uncontained();
        sandbox.install("probes", PROBES);
        sandbox
    };
    let first = [Point::AfterIntent, Point::MidExec, Point::AfterExec];
    let pairs: Vec<_> = first
        .iter()
        .flat_map(|first| Point::ALL.map(|second| Pair { first: Kill::new(4, *first), second }))
        .collect();
    let results = sweep(&pairs, |pair| {
        let sandbox = sandbox();
        run(&sandbox, *pair, &|wait| Err(format!("nothing was to be asked: {wait:?}")))?;
        let log = sandbox.files().text("log").to_owned();
        if log.lines().count() == 1 { Ok(()) } else { Err(format!("{pair:?}: {log:?}")) }
    });
    let faults: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
