//! `deed show`: everything about one step.

use anyhow::{Context, Result};
use clap::Args;
use deed::engine::Output;
use deed_journal::{Change, ProbeVerdict, StepEvent, StepResult, Version};
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
        shown["changes"] = json!(step.changes);
        shown["diff"] = json!(step.diff);
        shown["published"] = json!(step.published);
        // What they changed is there already, all of it together.
        let is_other = |event: &&StepEvent| !matches!(event, StepEvent::Changes(_));
        shown["events"] = json!(events.iter().filter(is_other).collect::<Vec<_>>());
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
    if step.planned.contained {
        let fate = match (&step.published, &step.outcome) {
            (Some(_), _) => "contained, and published",
            (None, Some(_)) if step.is_pending() => "contained, and not yet published",
            (None, Some(_)) => "contained, and nothing to publish",
            (None, None) => "contained",
        };
        out!("changes    {fate}");
    }
    out!("\nevents");
    for event in &events {
        out!("  {}", event_line(event));
    }
    if let Some(value) = value {
        out!("\noutput\n{}", text_of(value));
    }
    if !step.changes.is_empty() {
        out!("\nchanged");
        for change in &step.changes {
            out!("  {}", output::printable(&change_line(change)));
        }
    }
    if !step.diff.is_empty() {
        out!("\ndifference\n{}", output::printable(&step.diff).trim_end());
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
        StepEvent::Changes(changes) => {
            let count = changes.changes.len();
            format!(
                "attempt {} changed {count} {}",
                changes.attempt,
                if count == 1 { "path" } else { "paths" }
            )
        }
        StepEvent::Published(published) => {
            let kept =
                published.kept.iter().map(|path| format!("; `{path}` stayed as somebody else made it"));
            format!("{}  published{}", output::time(published.published_ms), kept.collect::<String>())
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

/// One path that a step changed: what became of it, and of what kind it is.
fn change_line(change: &Change) -> String {
    let (sign, what) = match (&change.base, &change.staged) {
        (Version::Absent, staged) => ('+', kind(staged).to_owned()),
        (base, Version::Absent) => ('-', kind(base).to_owned()),
        (base, staged) if kind(base) != kind(staged) => {
            ('~', format!("{}, was {}", kind(staged), kind(base)))
        }
        (Version::File { mode: from, .. }, Version::File { mode: to, .. })
        | (Version::Directory { mode: from }, Version::Directory { mode: to })
            if from != to =>
        {
            ('~', format!("{}, mode {from:o} to {to:o}", kind(&change.staged)))
        }
        (_, staged) => ('~', kind(staged).to_owned()),
    };
    format!("{sign} {}  ({what})", change.path)
}

const fn kind(version: &Version) -> &'static str {
    match version {
        Version::Absent => "nothing",
        Version::File { .. } => "file",
        Version::Directory { .. } => "directory",
        Version::Link { .. } => "link",
        Version::Special => "special file",
    }
}

fn text_of(value: &Value) -> String {
    Output::deserialize(value).map_or_else(|_| value.to_string(), |output| output.to_text())
}
