//! `deed runs`: every run, oldest first.

use anyhow::Result;

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
            let steps = run.steps;
            rows.push((run, steps, waits.iter().filter(|wait| wait.answer.is_none()).count()));
        }
    }
    if global.format == Format::Json {
        let rows = rows.iter().map(|(run, steps, waits)| {
            let mut value = output::run_json(run);
            value["steps"] = (*steps).into();
            value["waits"] = (*waits).into();
            value
        });
        output::json(&rows.collect::<Vec<_>>())?;
    } else {
        let header = ["run", "kind", "status", "steps", "waits", "created", "objective"];
        let rows = rows.into_iter().map(|(run, steps, waits)| {
            let kind = run.kind.as_str().to_owned();
            let status = run.status.as_str().to_owned();
            let created = output::time(run.created_ms);
            [run.id.short(), kind, status, steps.to_string(), waits.to_string(), created, run.objective]
        });
        output::table(header, rows);
    }
    Ok(Exit::Done)
}
