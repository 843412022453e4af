//! `deed session heads`: where the branches of a session end.

use anyhow::Result;
use clap::Args;
use deed_journal::{Head, Rewrite, Session};
use serde_json::{Value, json};

use super::super::exit::Exit;
use super::super::output::{self, Format};
use super::super::{Global, journal_path};
use super::{BEFORE, MAIN};

#[derive(Debug, Args)]
pub(super) struct HeadsArgs {
    /// The session's id or its start, or a run.
    session: String,
}

/// The end of a branch.
struct Row<'a> {
    name: String,
    kind: &'static str,
    head: Option<Head>,
    /// What left it.
    rewrite: Option<&'a Rewrite>,
}

pub(super) fn run(global: &Global, args: &HeadsArgs) -> Result<Exit> {
    let handle = journal_path::read_existing(global)?;
    let reader = handle.reader();
    let session = super::find(reader, &args.session)?;
    let rewrites = reader.rewrites(session.id)?;
    let rows = rows(&session, &rewrites);
    if global.format == Format::Json {
        output::json(&rows.iter().map(row_json).collect::<Vec<_>>())?;
        return Ok(Exit::Done);
    }
    let header = ["head", "kind", "messages", "last", "hash", "left by"];
    let shown = rows.iter().map(|row| {
        [
            row.name.clone(),
            row.kind.to_owned(),
            row.head.map_or(0, |head| head.count).to_string(),
            row.head.map_or_else(String::new, |head| head.message.to_string()),
            row.head.map_or_else(String::new, |head| head.hash.to_string()[..12].to_owned()),
            row.rewrite.map_or_else(String::new, |rewrite| {
                format!(
                    "{} to revision {}, {}",
                    rewrite.kind.as_str(),
                    rewrite.revision,
                    output::time(rewrite.at_ms)
                )
            }),
        ]
    });
    output::table(header, shown);
    Ok(Exit::Done)
}

fn rows<'a>(session: &Session, rewrites: &'a [Rewrite]) -> Vec<Row<'a>> {
    let main = Row { name: MAIN.to_owned(), kind: MAIN, head: session.main, rewrite: None };
    let named = session.heads.iter().map(|(name, head)| Row {
        name: name.clone(),
        kind: "named",
        head: Some(*head),
        rewrite: None,
    });
    let left = rewrites.iter().map(|rewrite| Row {
        name: format!("{BEFORE}{}", rewrite.revision),
        kind: "left",
        head: rewrite.before,
        rewrite: Some(rewrite),
    });
    std::iter::once(main).chain(named).chain(left).collect()
}

fn row_json(row: &Row<'_>) -> Value {
    json!({
        "head": row.name,
        "kind": row.kind,
        "count": row.head.map_or(0, |head| head.count),
        "message": row.head.map(|head| head.message),
        "hash": row.head.map(|head| head.hash),
        "rewrite": row.rewrite,
    })
}
