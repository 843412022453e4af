//! `deed verify`: check every record.
//!
//! A store that is damaged in its own structure can take down whoever reads it. So the check is made by a process of its
//! own, on a copy; when that dies, its last words are part of the report, and another one looks at the pieces. The
//! journal itself is only read.

mod check;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::exit::Exit;
use super::output::{Format, out};
use super::session::counted;
use super::{Global, journal_path, output};

/// The last words of a check that died are cut here.
const WORDS_CHARS: usize = 400;

/// Asks for a check in pieces.
const IN_PIECES: &str = "--in-pieces";

#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// Check this copy, in this process.
    #[arg(long, hide = true, value_name = "FILE")]
    copy: Option<PathBuf>,
    /// Check each run and each session of the copy for itself.
    #[arg(long, hide = true, requires = "copy")]
    in_pieces: bool,
}

/// What a check found.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Report {
    /// Records looked at; none when not all could be.
    records: Option<u64>,
    /// Runs that read whole.
    runs: u64,
    /// Sessions that read whole.
    sessions: u64,
    damage: Vec<Damage>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Damage {
    record: String,
    reason: String,
}

impl Damage {
    fn of(record: &str, reason: String) -> Self {
        Self { record: record.to_owned(), reason }
    }
}

pub(super) fn run(global: &Global, args: &VerifyArgs) -> Result<Exit> {
    if let Some(copy) = &args.copy {
        let report = if args.in_pieces { check::in_pieces(global, copy) } else { check::whole(global, copy) };
        out!("{}", serde_json::to_string(&report)?);
        return Ok(exit_of(&report));
    }
    let path = journal_path::of(global, None)?;
    let room = tempfile::Builder::new()
        .prefix("deed-verify-")
        .tempdir()
        .context("failed to make room for a copy; `TMPDIR` names another place")?;
    let copy = room.path().join("journal.redb");
    if journal_path::copy(&path, &copy)? {
        eprintln!("a process has the journal: what it holds is checked, and not how the file is made");
    }
    let whole = match check_apart(&copy, None)? {
        Ok(report) if report.records.is_some() => Ok(report),
        Ok(report) => Err(report.damage),
        Err(words) => Err(vec![Damage::of("store", words)]),
    };
    let report = match whole {
        Ok(report) => report,
        Err(mut damage) => {
            // The first check may have written to its copy, to repair it.
            std::fs::remove_file(&copy).context("failed to make room for another copy")?;
            journal_path::copy(&path, &copy)?;
            let pieces = check_apart(&copy, Some(IN_PIECES))?.unwrap_or_default();
            damage.extend(pieces.damage);
            Report { damage, ..pieces }
        }
    };
    show(global, &path, &report)?;
    Ok(exit_of(&report))
}

fn exit_of(report: &Report) -> Exit {
    if report.damage.is_empty() { Exit::Done } else { Exit::Damaged }
}

/// Have another process check `copy`. Gives its last words when it died of it.
fn check_apart(copy: &Path, how: Option<&str>) -> Result<Result<Report, String>> {
    let deed = std::env::current_exe().context("failed to find this program, to check with it")?;
    let check = Command::new(deed)
        .args([OsStr::new("verify"), OsStr::new("--copy"), copy.as_os_str()])
        .args(how)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .output()
        .context("failed to start the check")?;
    Ok(match serde_json::from_slice(&check.stdout) {
        Ok(report) if check.status.code().is_some() => Ok(report),
        _ => Err(format!("checking it as a whole ended by {}: {}", check.status, last_words(&check))),
    })
}

/// What a process said before it died, in one line.
fn last_words(check: &Output) -> String {
    let text = String::from_utf8_lossy(&check.stderr);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("note:"));
    let words = lines.collect::<Vec<_>>().join("; ");
    let skipped = words.chars().count().saturating_sub(WORDS_CHARS);
    words.chars().skip(skipped).collect()
}

fn show(global: &Global, path: &Path, report: &Report) -> Result<()> {
    if global.format == Format::Json {
        let mut value = serde_json::to_value(report)?;
        value["journal"] = serde_json::to_value(path)?;
        return output::json(&value);
    }
    let Report { records, runs, sessions, damage } = report;
    for Damage { record, reason } in damage {
        out!("damaged: {record}: {reason}");
    }
    out!(
        "journal `{}`: {}, {} damaged; {} and {} read whole",
        path.display(),
        records.map_or_else(|| "records not counted".to_owned(), |records| counted(records, "record")),
        damage.len(),
        counted(*runs, "run"),
        counted(*sessions, "session"),
    );
    Ok(())
}
