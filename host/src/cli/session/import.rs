//! `deed session import`: make a session of an exported one.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use deed_journal::{Dropped, Durability, Import, SessionId};
use serde_json::json;

use super::super::exit::Exit;
use super::super::failure::Usage;
use super::super::output::{self, Format, out};
use super::super::{Global, hosting, journal_path};
use super::counted;

#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// The file; `-` for standard input.
    file: PathBuf,
}

pub(super) fn run(global: &Global, args: &ImportArgs) -> Result<Exit> {
    let shown = args.file.display();
    let bytes = read(&args.file).with_context(|| Usage(format!("failed to read `{shown}`")))?;
    let import = Import::parse(&bytes).with_context(|| Usage(format!("failed to import `{shown}`")))?;

    let path = journal_path::of(global, None)?;
    let journal = journal_path::open(global, &path)?;
    let session = SessionId::from_bytes(hosting::entropy(global, &journal).id());
    let Import { session: origin, head, hash, dropped, .. } = import.clone();
    let count = import.messages.len() as u64;
    journal
        .commit(import.into_ops(session, hosting::clock(global).now_ms()), Durability::Durable)
        .with_context(|| format!("failed to import `{shown}`"))?;
    drop(journal);

    if global.format == Format::Json {
        output::json(&json!({
            "session": session,
            "count": count,
            "hash": hash,
            "from": { "session": origin, "head": head },
            "dropped": dropped,
        }))?;
    } else {
        out!("session {session}: {} of `{head}` of session {origin}", counted(count, "message"));
    }
    match dropped {
        None => Ok(Exit::Done),
        Some(Dropped { line, lines, bytes, reason }) => {
            let (lines, bytes) = (counted(lines, "line"), counted(bytes, "byte"));
            eprintln!("warning: dropped {lines} ({bytes}) of `{shown}`, from line {line} on: {reason}");
            Ok(Exit::Partial)
        }
    }
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    std::fs::read(path)
}
