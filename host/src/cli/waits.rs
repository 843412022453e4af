//! `deed waits`: the open questions.

use anyhow::Result;
use serde_json::Value;

use super::exit::Exit;
use super::output::Format;
use super::{Global, journal_path, output};

pub(super) fn run(global: &Global) -> Result<Exit> {
    let mut open = Vec::new();
    if let Some(handle) = journal_path::read(global)? {
        let reader = handle.reader();
        for run in output::listed(reader.open_runs()?) {
            // Questions that cannot be read do not hide those of other runs.
            let waits = output::readable(reader.waits(run.id))?;
            open.extend(waits.into_iter().filter(|wait| wait.answer.is_none()).map(|wait| wait.asked));
        }
    }
    if global.format == Format::Json {
        output::json(&open.iter().map(output::wait_json).collect::<Vec<Value>>())?;
    } else {
        for asked in &open {
            output::question(global, asked);
        }
    }
    Ok(Exit::Done)
}
