//! `deed session rewind`: cut the end of main off.

use anyhow::Result;
use clap::Args;
use deed_journal::{
    Base, CommitError, Durability, Journal, Op, Reader, RewriteKind, Session, SnapshotConflict,
};
use serde_json::{Value, json};

use super::super::exit::Exit;
use super::super::failure::Usage;
use super::super::output::{self, Format, out};
use super::super::{Global, hosting};
use super::{BEFORE, counted, short};

#[derive(Debug, Args)]
pub(super) struct RewindArgs {
    /// The session's id or its start, or a run that has ended.
    session: String,
    /// So many messages of main stay, from its beginning.
    #[arg(long, value_name = "N")]
    keep: u64,
    /// Only if the session still is at this revision, which you looked at.
    #[arg(long, value_name = "REVISION")]
    base: Option<u64>,
}

pub(super) fn run(global: &Global, args: &RewindArgs) -> Result<Exit> {
    let journal = super::own(global)?;
    let session = super::find(journal.read(), &args.session)?;
    refuse_unfinished(journal.read(), &session)?;
    let base = base(journal.read(), &session, args.base)?;
    let count = session.base().count();
    if base == session.base() && args.keep > count {
        return Err(Usage(format!(
            "session {} has {}; {} cannot be kept",
            short(session.id),
            counted(count, "message"),
            args.keep
        ))
        .into());
    }
    let rewind = Op::Rewrite {
        session: session.id,
        base,
        keep: args.keep,
        messages: Vec::new(),
        kind: RewriteKind::Rewind,
        at_ms: hosting::clock(global).now_ms(),
    };
    match journal.commit(vec![rewind], Durability::Durable) {
        Ok(_) => said(global, &journal, &session, count),
        Err(CommitError::Snapshot(conflict)) => said_conflict(global, &conflict),
        Err(error) => Err(error.into()),
    }
}

/// A run reads its transcript as it goes on: nobody cuts it off under its feet.
fn refuse_unfinished(reader: &Reader, session: &Session) -> Result<()> {
    let run = session.run.map(|run| reader.run(run)).transpose()?.flatten();
    match run.filter(|run| !run.status.has_ended()) {
        None => Ok(()),
        Some(run) => Err(Usage(format!(
            "session {} belongs to run {}, which is {} and has not ended; `deed resume {1}` takes it on, `deed session fork` gives a place in it a name",
            short(session.id),
            run.id.short(),
            run.status.as_str()
        ))
        .into()),
    }
}

/// What the session was at `revision`, as far as that takes part in a conflict: what a rewrite left since, or the
/// beginning of what main still is.
fn base(reader: &Reader, session: &Session, revision: Option<u64>) -> Result<Base> {
    let Some(revision) = revision.filter(|revision| *revision != session.revision) else {
        return Ok(session.base());
    };
    if revision > session.revision {
        return Err(Usage(format!(
            "session {} is at revision {}; there is no {revision} yet",
            short(session.id),
            session.revision
        ))
        .into());
    }
    let rewrites = reader.rewrites(session.id)?;
    let since = rewrites.iter().find(|rewrite| rewrite.revision > revision);
    Ok(Base { revision, main: since.and_then(|rewrite| rewrite.before) })
}

fn said(global: &Global, journal: &Journal, before: &Session, count: u64) -> Result<Exit> {
    let after = super::find(journal.read(), &before.id.to_string())?;
    let kept = after.base().count();
    let changed = after.revision != before.revision;
    let left = changed.then(|| format!("{BEFORE}{}", after.revision));
    if global.format == Format::Json {
        output::json(&json!({
            "session": after.id,
            "changed": changed,
            "kept": kept,
            "cut": count - kept,
            "from_revision": before.revision,
            "revision": after.revision,
            "left": left,
        }))?;
        return Ok(Exit::Done);
    }
    let id = short(after.id);
    let kept = counted(kept, "message");
    match left {
        Some(left) => {
            out!(
                "session {id}: {kept} kept, {} cut off, revision {} to {}",
                count - after.base().count(),
                before.revision,
                after.revision
            );
            out!("they stay: deed session show {id} --head {left}");
        }
        None => out!("session {id}: {kept} kept, none cut off, revision {}", after.revision),
    }
    Ok(Exit::Done)
}

/// Nothing was written: someone changed the session since.
fn said_conflict(global: &Global, conflict: &SnapshotConflict) -> Result<Exit> {
    eprintln!("error: {conflict}");
    if global.format == Format::Json {
        output::json(&json!({ "conflict": conflict_json(conflict) }))?;
    }
    Ok(Exit::Failed)
}

fn conflict_json(conflict: &SnapshotConflict) -> Value {
    json!({
        "session": conflict.session,
        "kind": conflict.kind,
        "base": { "revision": conflict.base, "count": conflict.count },
        "stored": { "revision": conflict.stored, "count": conflict.stored_count },
    })
}
