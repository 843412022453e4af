//! `deed session export`: write a session to a file.

use std::fs::Permissions;
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use deed_journal::{Message, Session, export};
use serde_json::json;

use super::super::exit::Exit;
use super::super::output::{self, Format, out};
use super::super::{Global, journal_path};
use super::{BranchArgs, counted, short};

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    #[command(flatten)]
    branch: BranchArgs,
    /// The file, replaced as a whole; by default, standard output.
    file: Option<PathBuf>,
}

pub(super) fn run(global: &Global, args: &ExportArgs) -> Result<Exit> {
    let handle = journal_path::read_existing(global)?;
    let (session, messages) = args.branch.read(handle.reader())?;
    let Some(file) = &args.file else {
        let mut out = BufWriter::new(std::io::stdout().lock());
        export(session.id, &args.branch.head, &messages, &mut out)
            .and_then(|()| out.flush())
            .context("failed to write to standard output")?;
        return Ok(Exit::Done);
    };
    write(file, &session, &args.branch.head, &messages)
        .with_context(|| format!("failed to write `{}`", file.display()))?;
    if global.format == Format::Json {
        output::json(&json!({
            "session": session.id,
            "head": args.branch.head,
            "count": messages.len(),
            "hash": messages.last().map(|message| message.hash),
            "file": file,
        }))?;
    } else {
        let count = counted(messages.len() as u64, "message");
        out!("session {}: {count} of `{}` in `{}`", short(session.id), args.branch.head, file.display());
    }
    Ok(Exit::Done)
}

/// Beside the file first, then in its place: a reader finds the old one or the new one.
fn write(path: &Path, session: &Session, head: &str, messages: &[Message]) -> std::io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    // Transcripts are as private as the journal.
    let beside = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o600))
        .tempfile_in(directory.unwrap_or(Path::new(".")))?;
    let mut out = BufWriter::new(&beside);
    export(session.id, head, messages, &mut out)?;
    out.flush()?;
    drop(out);
    beside.as_file().sync_all()?;
    beside.persist(path)?;
    Ok(())
}
