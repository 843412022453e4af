//! Printing results: text for people, JSON for programs. Results go to standard output, everything else to standard
//! error.

use std::io::Write as _;
use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets};
use deed::runner::Envelope;
use deed_journal::{Asked, Listing, ReadError, Run, RunStatus, StorageError};
use serde::Serialize;
use serde_json::{Value, json};

use super::Global;

/// Print a line of a result. A reader that has gone, such as `head`, has seen what it wanted.
pub(super) fn line(text: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// `println!` for results: see [`line`].
macro_rules! out {
    ($($text:tt)*) => {
        $crate::cli::output::line(format_args!($($text)*))
    };
}
pub(super) use out;

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

/// What could be read of one of several. Why it could not is said on standard error, and does not stop the rest.
pub(super) fn readable<T>(read: Result<Vec<T>, ReadError>) -> Result<Vec<T>, ReadError> {
    match read {
        // Nothing else could be read either.
        Err(ReadError::Storage(StorageError::Lost(_))) | Ok(_) => read,
        Err(error) => {
            eprintln!("warning: {error}");
            Ok(Vec::new())
        }
    }
}

/// Print a value as JSON.
pub(super) fn json<T: Serialize>(value: &T) -> Result<()> {
    out!("{}", serde_json::to_string_pretty(value)?);
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
    out!("{table}");
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
pub(super) fn envelope(global: &Global, envelope: &Envelope) -> Result<()> {
    if global.format == Format::Json {
        let mut value = serde_json::to_value(envelope)?;
        value["waits"] = envelope.waits.iter().map(wait_json).collect();
        return json(&value);
    }
    let result = envelope.result.as_ref().map_or_else(String::new, |text| format!(": {text}"));
    out!("{}{result}", envelope.status.as_str());
    for known in &envelope.criteria {
        out!("  [{}] {}", if known.met { "x" } else { " " }, known.criterion);
    }
    let usage = &envelope.usage;
    let repeated = match usage.repeated_model_calls {
        0 => String::new(),
        count => format!(", {count} repeated after a crash"),
    };
    out!("run {}, {} turns, {} calls{repeated}", envelope.run.short(), usage.turns, usage.calls);
    for asked in &envelope.waits {
        question(global, asked);
    }
    if envelope.status == RunStatus::Waiting {
        out!("then: deed resume {}{}", envelope.run.short(), same_journal(global));
    }
    Ok(())
}

/// The flags with which another command finds the same journal from here; empty when it needs none.
pub(super) fn same_journal(global: &Global) -> String {
    let quoted = |path: &Path| quoted(&path.display().to_string());
    if let Some(journal) = &global.journal {
        let from_environment = std::env::var_os("DEED_JOURNAL").is_some_and(|path| path == *journal);
        return if from_environment { String::new() } else { format!(" --journal {}", quoted(journal)) };
    }
    let here = std::env::current_dir().and_then(|path| path.canonicalize()).ok();
    match &global.workspace {
        Some(workspace) if workspace.canonicalize().ok() != here => {
            format!(" --workspace {}", quoted(workspace))
        }
        _ => String::new(),
    }
}

/// A word of a command line that people will paste into a shell: a model may have chosen it.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._/-+=:,@".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Text of a model or a tool, without what would move the cursor or change the screen.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}

/// An open question, and how to answer it.
pub(super) fn question(global: &Global, asked: &Asked) {
    out!("\n{} of `{}`: {}", asked.kind.as_str(), printable(&asked.name), printable(&asked.question));
    if let Some(expires_ms) = asked.expires_ms {
        out!("  expires {}", time(expires_ms));
    }
    for option in &asked.options {
        out!("  deed answer {} {}{}", asked.id, quoted(&printable(option)), same_journal(global));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_model_chose_is_one_word_to_the_shell() {
        assert_eq!(quoted("did-not-happen"), "did-not-happen");
        assert_eq!(quoted("yes;touch${IFS}x"), "'yes;touch${IFS}x'");
        assert_eq!(quoted("n' ; touch x"), r"'n'\'' ; touch x'");
        assert_eq!(quoted(""), "''");
        assert_eq!(printable("\u{1b}[2Ja"), "\u{fffd}[2Ja");
    }
}
