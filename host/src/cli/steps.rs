//! `deed steps`: the steps of a run.

use anyhow::Result;
use clap::Args;
use deed_journal::{Step, StepResult};
use serde_json::{Value, json};

use super::exit::Exit;
use super::output::Format;
use super::{Global, find, journal_path, output};

#[derive(Debug, Args)]
pub(super) struct StepsArgs {
    /// The run, or the start of its id.
    run: String,
}

pub(super) fn run(global: &Global, args: &StepsArgs) -> Result<Exit> {
    let handle = journal_path::read_existing(global)?;
    let reader = handle.reader();
    let steps = reader.steps(find::run(reader, &args.run)?.id)?;
    if global.format == Format::Json {
        output::json(&steps.iter().map(step_json).collect::<Vec<_>>())?;
    } else {
        let header = ["seq", "kind", "name", "status", "effect", "attempt", "note"];
        let rows = steps.iter().map(|step| {
            [
                step.seq.to_string(),
                step.planned.kind.as_str().to_owned(),
                step.planned.name.clone(),
                step.status().as_str().to_owned(),
                step.planned.effect.to_string(),
                step.attempt().to_string(),
                note(step),
            ]
        });
        output::table(header, rows);
    }
    Ok(Exit::Done)
}

/// A step as JSON, as lists show it.
pub(super) fn step_json(step: &Step) -> Value {
    let outcome = step.outcome.as_ref();
    let error = match outcome.map(|outcome| &outcome.result) {
        Some(StepResult::Failed { error }) => Some(error),
        _ => None,
    };
    json!({
        "seq": step.seq,
        "kind": step.planned.kind,
        "name": step.planned.name,
        "status": step.status(),
        "effect": step.planned.effect,
        "contained": step.planned.contained,
        "args_digest": step.planned.args_digest,
        "attempt": step.attempt(),
        "landed_before": outcome.is_some_and(|outcome| outcome.landed_before),
        "settled_by": outcome.map(|outcome| outcome.settled_by),
        "error": error,
    })
}

fn note(step: &Step) -> String {
    match &step.outcome {
        Some(outcome) => match &outcome.result {
            StepResult::Failed { error } => format!("{}: {}", error.kind, first_line(&error.message)),
            StepResult::Abandoned { reason } => first_line(reason).to_owned(),
            StepResult::Completed { .. } if outcome.landed_before => "had landed before".to_owned(),
            StepResult::Completed { .. } => String::new(),
        },
        None => step
            .attempts
            .last()
            .and_then(|attempt| attempt.unsettled.as_ref())
            .map_or_else(String::new, |unsettled| unsettled.reason.clone()),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
