//! Batches: calls without a model, killed between any two of their actions.
//!
//! Fault model: as in `kills.rs`.

use deed_tests::{
    Ending, Kill, Message, Point, RunRow, Sandbox, StepRow, Wait, never_asked, reference, says_yes, shape,
    sweep, trial,
};

fn ticks(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

#[test]
fn c01_eight_commands_killed_around_the_fourth_and_the_fifth_leave_eight_ticks() {
    let (undisturbed, reference) = reference("ticks", &never_asked).unwrap();
    assert_eq!(undisturbed.endings(), [Ending::Exit(0)]);
    assert_eq!(undisturbed.envelope.result, None);
    assert_eq!((undisturbed.envelope.usage.calls, undisturbed.envelope.usage.turns), (8, 0));
    let expected: Vec<String> = (1..=8).map(|number| format!("tick {number}")).collect();
    assert_eq!(ticks(reference.files.text("counter.log")), expected);

    // Where calls are not contained, only the owner knows what became of a command that had run.
    let contained = reference.steps.iter().any(|step| step.contained);
    let published = [Point::MidPublish, Point::AfterPublish];
    let points = [Point::BeforeIntent, Point::AfterIntent, Point::AfterExec, Point::AfterCommit];
    let points: Vec<_> = points.into_iter().chain(published.into_iter().filter(|_| contained)).collect();
    let cases: Vec<Kill> = [4, 5]
        .into_iter()
        .flat_map(|nth| points.iter().map(move |point| (nth, *point)))
        .map(|(nth, point)| Kill::new(reference.seq("tool_call/shell", nth), point))
        .collect();
    let it_happened = |wait: &Wait| match wait.kind.as_str() {
        "reconcile" => Ok("happened"),
        other => Err(format!("a wait of kind `{other}` was not expected: {wait:?}")),
    };
    for trial in sweep(&cases, |kill| trial("ticks", *kill, &it_happened)) {
        let trial = trial.unwrap();
        let at = trial.kill;
        assert_eq!(trial.passage.kills, 1, "killed at {at}");
        assert_eq!(trial.passage.envelope.status, "done", "killed at {at}");
        assert_eq!(ticks(trial.snapshot.files.text("counter.log")), expected, "killed at {at}");
        assert_eq!(shape(&trial.snapshot.steps), shape(&reference.steps), "killed at {at}");
        let asked: Vec<u64> = trial.passage.asked.iter().map(|asked| asked.wait.seq).collect();
        let unknown: &[u64] = if at.point == Point::AfterExec && !contained { &[at.seq] } else { &[] };
        assert_eq!(asked, unknown, "killed at {at}");
        if unknown.is_empty() {
            trial
                .snapshot
                .compare(&reference)
                .unwrap_or_else(|difference| panic!("killed at {at}: {difference}"));
        }
    }
}

#[test]
fn c03_a_read_before_a_write_and_two_edits_of_one_line_killed_at_every_point() {
    let (_, reference) = reference("same-line", &never_asked).unwrap();
    assert_eq!(reference.files.text("list.txt"), "milk\nbread\neggs\n");
    assert_eq!(reference.files.text("paint.conf"), "colour = green\n");
    let read = |nth: usize| {
        let results = reference.typed_messages().into_iter().filter_map(|message| message.result);
        results.filter(|result| result.tool == "read_file").nth(nth - 1).unwrap().text
    };
    assert!(!read(1).contains("eggs") && read(2).contains("eggs") && read(3).contains("green"));

    let passes = |step: &StepRow, point: Point| match point {
        Point::AfterReceipt => step.name == "edit_file",
        Point::MidExec => step.runs_component(),
        Point::MidPublish | Point::AfterPublish => step.contained,
        _ => true,
    };
    let cases: Vec<Kill> = reference
        .steps
        .iter()
        .flat_map(|step| Point::ALL.map(|point| (step, point)))
        .filter(|(step, point)| passes(step, *point))
        .map(|(step, point)| Kill::new(step.seq, point))
        .collect();
    let faults: Vec<String> = sweep(&cases, |kill| trial("same-line", *kill, &never_asked))
        .into_iter()
        .filter_map(|trial| match trial {
            Ok(trial) if trial.passage.kills != 1 => Some(format!("no process died at {}", trial.kill)),
            Ok(trial) => {
                let fault =
                    trial.snapshot.compare(&reference).and_then(|()| trial.snapshot.requests_are_prefixes());
                fault.err().map(|fault| format!("killed at {}: {fault}", trial.kill))
            }
            Err(fault) => Some(fault),
        })
        .collect();
    assert!(faults.is_empty(), "{} of {} cases:\n{}", faults.len(), cases.len(), faults.join("\n"));
}

#[test]
fn c07_an_outcome_that_was_committed_is_in_the_transcript() {
    let cases = [("fix-add", "tool_call/shell", 1, "shell"), ("ticks", "tool_call/shell", 8, "shell")];
    for (mission, title, nth, tool) in cases {
        let (_, reference) = reference(mission, &says_yes).unwrap();
        let sandbox = Sandbox::of(mission);
        let killed = sandbox.run(Some(Kill::new(reference.seq(title, nth), Point::AfterCommit))).run();
        assert_eq!(killed.ending, Ending::KILLED, "{killed}");
        assert_eq!(killed.stdout, "", "it had shown nothing");

        // Nobody has resumed it yet.
        let runs: Vec<RunRow> = sandbox.deed(["runs"]).run().expect_code(0).json();
        let found: Vec<Message> = sandbox.deed(["transcript", &runs[0].run]).run().expect_code(0).json();
        let results: Vec<_> = found.into_iter().filter_map(|message| message.result).collect();
        let expected: Vec<_> =
            reference.typed_messages().into_iter().filter_map(|message| message.result).collect();
        assert_eq!(results.last().map(|result| result.tool.as_str()), Some(tool), "{mission}");
        assert_eq!(results[..], expected[..results.len()], "{mission}");
        assert_eq!(results.iter().filter(|result| result.tool == tool).count(), nth, "{mission}");
    }
}
