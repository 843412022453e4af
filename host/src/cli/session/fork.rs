//! `deed session fork`: give a place in a session a name.

use anyhow::Result;
use clap::Args;
use deed_journal::{Durability, Head, Op, Reader, Session};
use serde_json::json;

use super::super::Global;
use super::super::exit::Exit;
use super::super::failure::Usage;
use super::super::output::{self, Format, out};
use super::{MAIN, counted, head, short};

#[derive(Debug, Args)]
pub(super) struct ForkArgs {
    /// The session's id or its start, or a run.
    session: String,
    /// The name of the new head.
    name: String,
    /// After so many messages; by default, after all of them.
    #[arg(long, value_name = "N")]
    at: Option<u64>,
    /// Of this head, one of those that `deed session heads` lists.
    #[arg(long, default_value = MAIN)]
    head: String,
}

pub(super) fn run(global: &Global, args: &ForkArgs) -> Result<Exit> {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    if args.name == MAIN || args.name.is_empty() || !args.name.chars().all(is_plain) {
        return Err(Usage(format!(
            "`{}` cannot name a head: use letters, digits and `-_./`, and not `{MAIN}`",
            args.name
        ))
        .into());
    }
    let journal = super::own(global)?;
    let session = super::find(journal.read(), &args.session)?;
    let from = place(journal.read(), &session, args)?;
    let fork = Op::KeepAsHead {
        session: session.id,
        name: args.name.clone(),
        from: Some(from),
        messages: Vec::new(),
    };
    journal.commit(vec![fork], Durability::Durable)?;
    drop(journal);
    if global.format == Format::Json {
        output::json(&json!({
            "session": session.id,
            "head": args.name,
            "count": from.count,
            "message": from.message,
            "hash": from.hash,
        }))?;
    } else {
        out!("session {}: head `{}`, {}", short(session.id), args.name, counted(from.count, "message"));
    }
    Ok(Exit::Done)
}

/// The end of the first messages of a branch.
fn place(reader: &Reader, session: &Session, args: &ForkArgs) -> Result<Head> {
    let end = head(reader, session, &args.head)?;
    let count = end.map_or(0, |head| head.count);
    let at = args.at.unwrap_or(count);
    let outside = || {
        let id = short(session.id);
        let has = counted(count, "message");
        Usage(format!("head `{}` of session {id} has {has}; nothing can be named after {at}", args.head))
    };
    match end {
        Some(head) if at == count => Ok(head),
        Some(head) if (1..count).contains(&at) => {
            let index = usize::try_from(at - 1).map_err(|_| outside())?;
            let messages = reader.branch(session, head)?;
            let message = messages.get(index).ok_or_else(outside)?;
            Ok(Head { message: message.id, count: at, hash: message.hash })
        }
        _ => Err(outside().into()),
    }
}
