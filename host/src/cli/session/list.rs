//! `deed session list`: every session, oldest first.

use anyhow::Result;

use super::super::exit::Exit;
use super::super::output::{self, Format};
use super::super::{Global, journal_path};
use super::{session_json, short};

pub(super) fn run(global: &Global) -> Result<Exit> {
    let sessions = match journal_path::read(global)? {
        Some(handle) => output::listed(handle.reader().sessions()?),
        None => Vec::new(),
    };
    if global.format == Format::Json {
        output::json(&sessions.iter().map(session_json).collect::<Vec<_>>())?;
        return Ok(Exit::Done);
    }
    let header = ["session", "run", "messages", "revision", "rewrites", "heads", "created", "turn in flight"];
    let rows = sessions.iter().map(|session| {
        [
            short(session.id),
            session.run.map_or_else(String::new, |run| run.short()),
            session.base().count().to_string(),
            session.revision.to_string(),
            session.rewrites.to_string(),
            session.heads.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
            output::time(session.created_ms),
            session.turn.as_ref().map_or_else(String::new, |turn| turn.id.clone()),
        ]
    });
    output::table(header, rows);
    Ok(Exit::Done)
}
