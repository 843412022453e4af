//! Printing results: text for people, JSON for programs. Results go to standard output, everything else to standard
//! error.

use anyhow::Result;
use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets};
use deed::runner::Envelope;
use deed_journal::{Asked, Listing, Run, RunStatus};
use serde::Serialize;
use serde_json::{Value, json};

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people.
    Text,
    /// For programs: one JSON value.
    Json,
}

/// What could be read of a listing. What could not is said on standard error, and does not stop the rest.
pub(super) fn listed<T>(listing: Listing<T>) -> Vec<T> {
    for error in listing.unreadable {
        eprintln!("warning: {error}");
    }
    listing.items
}

/// Print a value as JSON.
pub(super) fn json<T: Serialize>(value: &T) -> Result<()> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}

/// Print a table of text.
pub(super) fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header);
    table.add_rows(rows);
    println!("{table}");
}

/// An open question, as JSON.
pub(super) fn wait_json(asked: &Asked) -> Value {
    json!({
        "wait": asked.id.to_string(),
        "run": asked.id.run,
        "seq": asked.id.seq,
        "revision": asked.id.revision,
        "kind": asked.kind,
        "name": asked.name,
        "question": asked.question,
        "options": asked.options,
        "opened_ms": asked.opened_ms,
        "expires_ms": asked.expires_ms,
    })
}

/// What came of a run.
pub(super) fn envelope(format: Format, envelope: &Envelope) -> Result<()> {
    if format == Format::Json {
        let mut value = serde_json::to_value(envelope)?;
        value["waits"] = envelope.waits.iter().map(wait_json).collect();
        return json(&value);
    }
    let result = envelope.result.as_ref().map_or_else(String::new, |text| format!(": {text}"));
    println!("{}{result}", envelope.status.as_str());
    for known in &envelope.criteria {
        println!("  [{}] {}", if known.met { "x" } else { " " }, known.criterion);
    }
    let usage = &envelope.usage;
    let repeated = match usage.repeated_model_calls {
        0 => String::new(),
        count => format!(", {count} repeated after a crash"),
    };
    println!("run {}, {} turns, {} calls{repeated}", envelope.run.short(), usage.turns, usage.calls);
    for asked in &envelope.waits {
        question(asked);
    }
    if envelope.status == RunStatus::Waiting {
        println!("then: deed resume {}", envelope.run.short());
    }
    Ok(())
}

/// An open question, and how to answer it.
pub(super) fn question(asked: &Asked) {
    println!("\n{} of `{}`: {}", asked.kind.as_str(), asked.name, asked.question);
    for option in &asked.options {
        let option =
            if option.contains(char::is_whitespace) { format!("'{option}'") } else { option.clone() };
        println!("  deed answer {} {option}", asked.id);
    }
}

/// A moment, as people read it.
pub(super) fn time(ms: u64) -> String {
    i64::try_from(ms)
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok())
        .map_or_else(|| ms.to_string(), |time| time.strftime("%Y-%m-%d %H:%M:%SZ").to_string())
}

/// A run without the counts that need its records, as JSON.
pub(super) fn run_json(run: &Run) -> Value {
    json!({
        "run": run.id,
        "kind": run.kind,
        "status": run.status,
        "objective": run.objective,
        "workspace": run.workspace,
        "session": run.session,
        "created_ms": run.created_ms,
        "result": run.result,
    })
}
