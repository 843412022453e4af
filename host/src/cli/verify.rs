//! `deed verify`: check every record.
//!
//! A store that is damaged in its own structure can take down whoever reads it. So the check is made by a process of its
//! own, on a copy; when that dies, its last words are the report. The journal itself is only read.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result};
use clap::Args;
use deed_journal::{Journal, OpenError, ReadError, Reader, VerifyReport};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};

use super::exit::Exit;
use super::output::Format;
use super::session::counted;
use super::{Global, journal_path, output};

/// What the check may take: it holds all records at once, small ones with an overhead of some times their size. A damaged
/// store can lead it around in circles, and this is where they end.
const MEMORY_BASE: u64 = 1 << 30;
/// See [`MEMORY_BASE`].
const MEMORY_PER_BYTE: u64 = 8;

/// The last words of a check that died are cut here.
const WORDS_CHARS: usize = 400;

#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// Check this copy, in this process.
    #[arg(long, hide = true, value_name = "FILE")]
    copy: Option<PathBuf>,
}

/// What a check found.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Report {
    records: u64,
    runs: u64,
    sessions: u64,
    damage: Vec<Damage>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Damage {
    record: String,
    reason: String,
}

pub(super) fn run(global: &Global, args: &VerifyArgs) -> Result<Exit> {
    if let Some(copy) = &args.copy {
        let report = check(global, copy);
        println!("{}", serde_json::to_string(&report)?);
        return Ok(exit_of(&report));
    }
    let path = journal_path::of(global, None)?;
    let room = tempfile::Builder::new()
        .prefix("deed-verify-")
        .tempdir()
        .context("failed to make room for a copy; `TMPDIR` names another place")?;
    let copy = room.path().join("journal.redb");
    Journal::copy(&path, &copy)?;
    let report = check_apart(&copy)?;
    show(global, &path, &report)?;
    Ok(exit_of(&report))
}

fn exit_of(report: &Report) -> Exit {
    if report.damage.is_empty() { Exit::Done } else { Exit::Damaged }
}

/// Have another process check `copy`.
fn check_apart(copy: &Path) -> Result<Report> {
    let deed = std::env::current_exe().context("failed to find this program, to check with it")?;
    let check = Command::new(deed)
        .args([OsStr::new("verify"), OsStr::new("--copy"), copy.as_os_str()])
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .output()
        .context("failed to start the check")?;
    if let Ok(report) = serde_json::from_slice(&check.stdout)
        && check.status.code().is_some()
    {
        return Ok(report);
    }
    let reason = format!("checking it ended by {}: {}", check.status, last_words(&check));
    Ok(Report { damage: vec![Damage { record: "store".to_owned(), reason }], ..Report::default() })
}

/// What a process said before it died, in one line.
fn last_words(check: &Output) -> String {
    let text = String::from_utf8_lossy(&check.stderr);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("note:"));
    let words: Vec<_> = lines.collect();
    let words = words.join("; ");
    let skipped = words.chars().count().saturating_sub(WORDS_CHARS);
    words.chars().skip(skipped).collect()
}

/// Check a copy in this process, which may die of it.
fn check(global: &Global, copy: &Path) -> Report {
    // Without a limit all the same: it is there for a case that hardly occurs.
    let _ = limit_memory(copy);
    let whole = |reason: String| Report {
        damage: vec![Damage { record: "store".to_owned(), reason }],
        ..Report::default()
    };
    let verified = match Reader::open(copy) {
        Ok(reader) => reader.verify(),
        // What the crash left is repaired in the copy.
        Err(OpenError::NeedsRepair(_)) => match journal_path::open(global, copy) {
            Ok(journal) => journal.read().verify(),
            Err(error) => return whole(cause(&*error)),
        },
        Err(error) => return whole(cause(&error)),
    };
    match verified {
        Ok(VerifyReport { records, runs, sessions, damage }) => {
            Report { records, runs, sessions, damage: damage.into_iter().map(named).collect() }
        }
        Err(error) => whole(error.to_string()),
    }
}

/// An error without the name of the copy in it.
fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

fn named(error: ReadError) -> Damage {
    let reason = error.to_string();
    match error {
        ReadError::Damaged { record, reason } => Damage { record, reason },
        ReadError::Newer { record, .. } => Damage { record, reason },
        ReadError::Storage(_) => Damage { record: "store".to_owned(), reason },
    }
}

fn limit_memory(copy: &Path) -> std::io::Result<()> {
    let bytes = std::fs::metadata(copy)?.len().saturating_mul(MEMORY_PER_BYTE).saturating_add(MEMORY_BASE);
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none)?;
    setrlimit(Resource::As, Rlimit { current: Some(bytes), maximum: Some(bytes) })?;
    Ok(())
}

fn show(global: &Global, path: &Path, report: &Report) -> Result<()> {
    if global.format == Format::Json {
        let mut value = serde_json::to_value(report)?;
        value["journal"] = serde_json::to_value(path)?;
        return output::json(&value);
    }
    for Damage { record, reason } in &report.damage {
        println!("damaged: {record}: {reason}");
    }
    let Report { records, runs, sessions, damage } = report;
    println!(
        "journal `{}`: {}, {} damaged; {} and {} read whole",
        path.display(),
        counted(*records, "record"),
        damage.len(),
        counted(*runs, "run"),
        counted(*sessions, "session"),
    );
    Ok(())
}
