//! `deed compact`: give the journal's free room back to the system.

use anyhow::Result;
use deed_journal::{Compacted, Journal};
use indicatif::HumanBytes;
use serde_json::json;

use super::exit::Exit;
use super::output::{Format, out};
use super::{Global, journal_path, output};

pub(super) fn run(global: &Global) -> Result<Exit> {
    let path = journal_path::of(global, None)?;
    let Compacted { before_bytes, after_bytes } = Journal::compact(&path)?;
    if global.format == Format::Json {
        output::json(&json!({
            "journal": path,
            "before_bytes": before_bytes,
            "after_bytes": after_bytes,
        }))?;
    } else {
        let (before, after) = (HumanBytes(before_bytes), HumanBytes(after_bytes));
        out!("journal `{}`: {before} before, {after} after", path.display());
    }
    Ok(Exit::Done)
}
