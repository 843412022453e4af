//! `deed runs`: every run, oldest first.

use anyhow::Result;
use deed_journal::{Position, Reader, Run};
use serde_json::json;

use super::exit::Exit;
use super::output::Format;
use super::{Global, journal_path, output};

pub(super) fn run(global: &Global) -> Result<Exit> {
    let mut rows = Vec::new();
    if let Some(handle) = journal_path::read(global)? {
        let reader = handle.reader();
        for run in output::listed(reader.runs()?) {
            // A question that cannot be read is said, and does not stop the rest.
            let waits = output::readable(reader.waits(run.id))?;
            let waits = waits.iter().filter(|wait| wait.answer.is_none()).count();
            let stages = stages(reader, &run)?;
            rows.push((run, waits, stages));
        }
    }
    if global.format == Format::Json {
        let rows = rows.iter().map(|(run, waits, stages)| {
            let mut value = output::run_json(run);
            value["steps"] = run.steps.into();
            value["waits"] = (*waits).into();
            let stages = stages.iter().map(|(seq, fate)| json!({ "seq": seq, "state": fate }));
            value["stages"] = stages.collect();
            value
        });
        output::json(&rows.collect::<Vec<_>>())?;
    } else {
        let header = ["run", "kind", "status", "steps", "waits", "stages", "created", "objective"];
        let rows = rows.into_iter().map(|(run, waits, stages)| {
            let steps = run.steps;
            let stages: Vec<_> = stages.iter().map(|(seq, fate)| format!("{seq} {fate}")).collect();
            let kind = run.kind.as_str().to_owned();
            let status = run.status.as_str().to_owned();
            let created = output::time(run.created_ms);
            [
                run.id.short(),
                kind,
                status,
                steps.to_string(),
                waits.to_string(),
                stages.join(", "),
                created,
                run.objective,
            ]
        });
        output::table(header, rows);
    }
    Ok(Exit::Done)
}

/// The contained steps of the batch under way whose changes are not in the workspace: still staged, or committed and not yet
/// published.
fn stages(reader: &Reader, run: &Run) -> Result<Vec<(u64, &'static str)>> {
    let Position::Batch { first, last, .. } = run.position else { return Ok(Vec::new()) };
    let mut stages = Vec::new();
    for seq in first..=last {
        for step in output::readable(reader.step(run.id, seq).map(|step| step.into_iter().collect()))? {
            if step.is_pending() {
                stages.push((seq, "unpublished"));
            } else if step.planned.contained && step.outcome.is_none() && !step.attempts.is_empty() {
                stages.push((seq, "staged"));
            }
        }
    }
    Ok(stages)
}
