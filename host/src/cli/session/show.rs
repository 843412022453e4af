//! `deed session show`: a session, and the messages of one of its heads.

use anyhow::Result;
use clap::Args;
use serde_json::json;

use super::super::exit::Exit;
use super::super::output::{self, Format, out};
use super::super::{Global, journal_path, transcript};
use super::{BranchArgs, MAIN, counted, session_json};

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    #[command(flatten)]
    branch: BranchArgs,
}

pub(super) fn run(global: &Global, args: &ShowArgs) -> Result<Exit> {
    let handle = journal_path::read_existing(global)?;
    let (session, messages) = args.branch.read(handle.reader())?;
    if global.format == Format::Json {
        let mut shown = session_json(&session);
        shown["head"] = json!(args.branch.head);
        shown["messages"] = json!(messages);
        output::json(&shown)?;
        return Ok(Exit::Done);
    }
    let run = session.run.map_or_else(String::new, |run| format!(", of run {}", run.short()));
    out!("session {}{run}, begun {}", session.id, output::time(session.created_ms));
    out!(
        "revision {}, {} on main, {}, {}",
        session.revision,
        counted(session.base().count(), "message"),
        counted(session.heads.len() as u64, "named head"),
        counted(session.rewrites, "rewrite"),
    );
    if let Some(turn) = &session.turn {
        out!("turn `{}` in flight since {}", turn.id, output::time(turn.begun_ms));
    }
    if args.branch.head != MAIN {
        out!("head `{}`, {}", args.branch.head, counted(messages.len() as u64, "message"));
    }
    messages.iter().for_each(transcript::print);
    Ok(Exit::Done)
}
