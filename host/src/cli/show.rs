//! `deed show`: everything about one step.

use anyhow::{Context, Result};
use clap::Args;
use deed::engine::Output;
use deed_journal::{ProbeVerdict, StepEvent, StepResult};
use serde::Deserialize;
use serde_json::{Value, json};

use super::exit::Exit;
use super::failure::Usage;
use super::output::{Format, out};
use super::{Global, find, journal_path, output, steps};

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// The run, or the start of its id.
    run: String,
    /// The step's number.
    seq: u64,
}

pub(super) fn run(global: &Global, args: &ShowArgs) -> Result<Exit> {
    let handle = journal_path::read_existing(global)?;
    let reader = handle.reader();
    let run = find::run(reader, &args.run)?;
    let step = reader.step(run.id, args.seq)?.with_context(|| {
        Usage(format!("run {} has no step {}; `deed steps {0}` lists them", run.id.short(), args.seq))
    })?;
    let events = reader.events(run.id, args.seq)?;
    let key = reader.key(&run, args.seq)?;
    let value = match step.outcome.as_ref().map(|outcome| &outcome.result) {
        Some(StepResult::Completed { value }) => Some(value),
        _ => None,
    };
    if global.format == Format::Json {
        let mut shown = steps::step_json(&step);
        shown["run"] = json!(run.id);
        shown["key"] = json!(key);
        shown["component"] = json!(step.planned.component);
        shown["args"] = step.planned.args.clone();
        shown["output"] = json!(value);
        shown["receipt"] = json!(step.receipt.as_deref().map(String::from_utf8_lossy));
        shown["events"] = json!(events);
        output::json(&shown)?;
        return Ok(Exit::Done);
    }
    out!("step {} of run {}: {}/{}", step.seq, run.id.short(), step.planned.kind.as_str(), step.planned.name);
    out!("status     {}", step.status().as_str());
    out!("effect     {}", step.planned.effect);
    out!("key        {key}");
    if let Some(component) = step.planned.component {
        out!("component  {component}");
    }
    out!("arguments  {}", step.planned.args);
    out!("digest     {}", step.planned.args_digest);
    if let Some(receipt) = &step.receipt {
        out!("receipt    {}", String::from_utf8_lossy(receipt));
    }
    out!("\nevents");
    for event in &events {
        out!("  {}", event_line(event));
    }
    if let Some(value) = value {
        out!("\noutput\n{}", text_of(value));
    }
    Ok(Exit::Done)
}

fn event_line(event: &StepEvent) -> String {
    match event {
        StepEvent::Planned(planned) => format!("{}  planned", output::time(planned.planned_ms)),
        StepEvent::Intent(intent) => {
            format!("{}  intent of attempt {}", output::time(intent.clock_ms), intent.attempt)
        }
        StepEvent::Receipt(receipt) => {
            format!("receipt of attempt {}, {} bytes", receipt.attempt, receipt.bytes.len())
        }
        StepEvent::Probed(probed) => {
            let verdict = match &probed.verdict {
                ProbeVerdict::Landed => "landed".to_owned(),
                ProbeVerdict::NotLanded => "did not land".to_owned(),
                ProbeVerdict::Partial { what } => format!("landed in part: {what}"),
                ProbeVerdict::Undecidable { why } => format!("cannot be told: {why}"),
                ProbeVerdict::Failed { why } => format!("the probe failed: {why}"),
            };
            format!("{}  probe of attempt {}: {verdict}", output::time(probed.probed_ms), probed.attempt)
        }
        StepEvent::Unsettled(unsettled) => {
            format!("outcome of attempt {} unknown: {}", unsettled.attempt, unsettled.reason)
        }
        StepEvent::Outcome(outcome) => {
            let what = match &outcome.result {
                StepResult::Completed { .. } => "completed".to_owned(),
                StepResult::Failed { error } => format!("failed, {}: {}", error.kind, error.message),
                StepResult::Abandoned { reason } => format!("abandoned: {reason}"),
            };
            let landed = if outcome.landed_before { ", had landed before" } else { "" };
            let by = outcome.settled_by.as_str();
            format!("{}  {what}{landed}, settled by {by}", output::time(outcome.settled_ms))
        }
    }
}

fn text_of(value: &Value) -> String {
    Output::deserialize(value).map_or_else(|_| value.to_string(), |output| output.to_text())
}
