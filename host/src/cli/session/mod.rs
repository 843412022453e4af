//! `deed session`: transcripts and their branches.

mod export;
mod fork;
mod heads;
mod import;
mod list;
mod rewind;
mod show;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use deed_journal::{Head, Journal, Message, OpenError, Reader, Session, SessionId};
use serde_json::{Value, json};

use super::exit::Exit;
use super::failure::Usage;
use super::{Global, find, journal_path};

/// The end of the branch that everybody works on.
const MAIN: &str = "main";

/// How the end of a branch is named that a rewrite left: what `main` was before the session came to this revision.
const BEFORE: &str = "before:";

#[derive(Debug, Args)]
pub(super) struct SessionArgs {
    #[command(subcommand)]
    command: SessionCommand,
}

#[derive(Debug, Subcommand)]
enum SessionCommand {
    /// List the sessions, oldest first.
    List,
    /// Show a session and the messages of one of its heads.
    Show(show::ShowArgs),
    /// List where the branches of a session end: main, named heads, and what rewrites left.
    Heads(heads::HeadsArgs),
    /// Cut the end of main off. It stays reachable: `heads` names it.
    Rewind(rewind::RewindArgs),
    /// Give a place in a session a name.
    Fork(fork::ForkArgs),
    /// Write a session to a file, as JSON Lines.
    Export(export::ExportArgs),
    /// Make a new session of an exported one, up to its last whole message.
    Import(import::ImportArgs),
}

/// A branch of a session.
#[derive(Debug, Args)]
struct BranchArgs {
    /// The session's id or its start, or a run.
    session: String,
    /// One of the heads that `deed session heads` lists.
    #[arg(long, default_value = MAIN)]
    head: String,
}

impl BranchArgs {
    /// The session, and the messages of the branch.
    fn read(&self, reader: &Reader) -> Result<(Session, Vec<Message>)> {
        let session = find(reader, &self.session)?;
        let messages = match head(reader, &session, &self.head)? {
            Some(head) => reader.branch(&session, head)?,
            None => Vec::new(),
        };
        Ok((session, messages))
    }
}

pub(super) fn run(global: &Global, args: &SessionArgs) -> Result<Exit> {
    match &args.command {
        SessionCommand::List => list::run(global),
        SessionCommand::Show(args) => show::run(global, args),
        SessionCommand::Heads(args) => heads::run(global, args),
        SessionCommand::Rewind(args) => rewind::run(global, args),
        SessionCommand::Fork(args) => fork::run(global, args),
        SessionCommand::Export(args) => export::run(global, args),
        SessionCommand::Import(args) => import::run(global, args),
    }
}

/// Own the journal, which has to be there.
fn own(global: &Global) -> Result<Journal> {
    let path = journal_path::of(global, None)?;
    if !path.exists() {
        return Err(OpenError::Missing(path).into());
    }
    journal_path::open(global, &path)
}

/// The session that a person names.
fn find(reader: &Reader, text: &str) -> Result<Session> {
    let id = find::session(reader, text)?;
    reader.session(id)?.with_context(|| Usage(format!("there is no session {id}")))
}

/// The first digits of a session's id, as people type them.
fn short(session: SessionId) -> String {
    session.to_string()[..8].to_owned()
}

/// Where the branch ends that a person names; none when that is an empty main.
fn head(reader: &Reader, session: &Session, name: &str) -> Result<Option<Head>> {
    if name == MAIN {
        return Ok(session.main);
    }
    if let Some(head) = session.heads.get(name) {
        return Ok(Some(*head));
    }
    if let Some(revision) = name.strip_prefix(BEFORE).and_then(|revision| revision.parse::<u64>().ok()) {
        let rewrites = reader.rewrites(session.id)?;
        if let Some(rewrite) = rewrites.iter().find(|rewrite| rewrite.revision == revision) {
            return Ok(rewrite.before);
        }
    }
    let session = short(session.id);
    Err(Usage(format!("session {session} has no head `{name}`; `deed session heads {session}` lists them"))
        .into())
}

/// A session without its messages, as JSON.
fn session_json(session: &Session) -> Value {
    json!({
        "session": session.id,
        "run": session.run,
        "created_ms": session.created_ms,
        "revision": session.revision,
        "count": session.base().count(),
        "hash": session.main.map(|head| head.hash),
        "heads": session.heads.keys().collect::<Vec<_>>(),
        "rewrites": session.rewrites,
        "turn": session.turn,
    })
}

/// `1 message`, `2 messages`.
pub(super) fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
