//! `deed transcript`: what the model saw.

use anyhow::Result;
use clap::Args;
use deed_journal::{Message, Role};

use super::exit::Exit;
use super::output::{Format, out};
use super::{Global, find, journal_path, output};

#[derive(Debug, Args)]
pub(super) struct TranscriptArgs {
    /// The session's id or its start, or a run.
    session: String,
}

pub(super) fn run(global: &Global, args: &TranscriptArgs) -> Result<Exit> {
    let handle = journal_path::read_existing(global)?;
    let reader = handle.reader();
    let messages = reader.transcript(find::session(reader, &args.session)?)?;
    if global.format == Format::Json {
        output::json(&messages)?;
    } else {
        messages.iter().for_each(print);
    }
    Ok(Exit::Done)
}

/// Print a message.
pub(super) fn print(message: &Message) {
    let body = &message.body;
    let who = match (body.role, &body.result) {
        (Role::System, _) => "system".to_owned(),
        (Role::User, _) => "user".to_owned(),
        (Role::Assistant, _) => "assistant".to_owned(),
        (Role::Tool, Some(result)) => format!("{} {}", result.tool, if result.ok { "ok" } else { "failed" }),
        (Role::Tool, None) => "tool".to_owned(),
    };
    out!("{:>3} {who}", message.id);
    let text = body.result.as_ref().map_or(&body.text, |result| &result.text);
    for line in text.lines() {
        out!("      {line}");
    }
    for call in &body.calls {
        out!("    > {} {}", call.tool, call.input);
    }
}
