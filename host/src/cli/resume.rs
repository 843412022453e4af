//! `deed resume`: take an interrupted or waiting run on.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use deed::runner::RunError;
use deed_journal::{ReadError, Reader, Run, RunId, RunStatus};

use super::exit::Exit;
use super::hosting::{self, TestArgs, UnattendedArgs};
use super::{Global, find, journal_path, output, terminal};

#[derive(Debug, Args)]
pub(super) struct ResumeArgs {
    /// The run, or the start of its id; by default the oldest one that can go on.
    run: Option<String>,
    /// Kill the process that holds the journal, if there is one, and go on in its place.
    #[arg(long)]
    take_over: bool,
    #[command(flatten)]
    unattended: UnattendedArgs,
    #[command(flatten)]
    test: TestArgs,
}

pub(super) fn run(global: &Global, args: &ResumeArgs) -> Result<Exit> {
    let path = journal_path::of(global, None)?;
    if !path.exists() {
        eprintln!("nothing to resume: there is no journal at `{}`", path.display());
        return Ok(Exit::Done);
    }
    let journal = if args.take_over {
        journal_path::take_over(global, &path)?
    } else {
        journal_path::open_shared(global, &path)?
    };
    let chosen = match &args.run {
        Some(text) => vec![find::run(journal.read(), text)?.id],
        None => candidates(journal.read(), hosting::clock(global).now_ms())?,
    };
    if chosen.is_empty() {
        eprintln!("nothing to resume: every run has ended; `deed runs` lists them");
        return Ok(Exit::Done);
    }
    let workspace = |run: &RunId| journal.read().run(*run).ok()??.workspace.map(PathBuf::from);
    let toolbox = hosting::toolbox(global, chosen.iter().filter_map(workspace).collect())?;
    let host = hosting::host(global, &args.test, &args.unattended, toolbox, (&path, journal));
    let mut failure = None;
    for run in chosen {
        match hosting::drive(&host, &args.test, run) {
            Ok(envelope) => {
                drop(host);
                output::envelope(global, &envelope)?;
                return Ok(Exit::of(envelope.status));
            }
            // A run that cannot go on holds no other one back.
            Err(error) if args.run.is_none() && is_its_own(&error) => {
                eprintln!("warning: run {} cannot go on: {error}", run.short());
                failure.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    failure.map_or(Ok(Exit::Done), Err)
}

/// Whether what went wrong concerns one run only.
fn is_its_own(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref::<RunError>(),
        Some(
            RunError::Divergence { .. }
                | RunError::Source { .. }
                | RunError::UnknownPlugin(_)
                | RunError::Operator(_)
                | RunError::Read(ReadError::Damaged { .. } | ReadError::Newer { .. })
        )
    )
}

/// The runs that can go on, oldest first; else the oldest that waits for an answer.
fn candidates(reader: &Reader, now_ms: u64) -> Result<Vec<RunId>> {
    let open = output::listed(reader.open_runs()?);
    let held = |run: &Run| {
        let waits = reader.waits(run.id);
        run.status == RunStatus::Waiting
            && !terminal::is_interactive()
            && waits.is_ok_and(|waits| {
                waits.iter().any(|wait| wait.answer.is_none() && !wait.asked.has_expired(now_ms))
            })
    };
    let free: Vec<_> = open.iter().filter(|run| !held(run)).map(|run| run.id).collect();
    Ok(if free.is_empty() { open.first().map(|run| run.id).into_iter().collect() } else { free })
}
