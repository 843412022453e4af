//! `deed resume`: take an interrupted or waiting run on.

use anyhow::Result;
use clap::Args;
use deed_journal::{Reader, RunId, RunStatus};

use super::exit::Exit;
use super::hosting::{self, TestArgs};
use super::{Global, find, journal_path, output, terminal};

#[derive(Debug, Args)]
pub(super) struct ResumeArgs {
    /// The run, or the start of its id; by default the oldest one that can go on.
    run: Option<String>,
    #[command(flatten)]
    test: TestArgs,
}

pub(super) fn run(global: &Global, args: &ResumeArgs) -> Result<Exit> {
    let path = journal_path::of(global, None)?;
    if !path.exists() {
        eprintln!("nothing to resume: there is no journal at `{}`", path.display());
        return Ok(Exit::Done);
    }
    let journal = journal_path::open(global, &path)?;
    let chosen = match &args.run {
        Some(text) => Some(find::run(journal.read(), text)?.id),
        None => oldest(journal.read())?,
    };
    let Some(run) = chosen else {
        eprintln!("nothing to resume: every run has ended; `deed runs` lists them");
        return Ok(Exit::Done);
    };
    let host = hosting::host(global, &args.test, hosting::toolbox(global)?, journal);
    let envelope = hosting::drive(&host, &args.test, run)?;
    drop(host);
    output::envelope(global, &envelope)?;
    Ok(Exit::of(envelope.status))
}

/// The oldest run that can go on, else the oldest that waits for an answer.
fn oldest(reader: &Reader) -> Result<Option<RunId>> {
    let open = output::listed(reader.open_runs()?);
    for run in &open {
        let held = run.status == RunStatus::Waiting
            && !terminal::is_interactive()
            && reader.waits(run.id)?.iter().any(|wait| wait.answer.is_none());
        if !held {
            return Ok(Some(run.id));
        }
    }
    Ok(open.first().map(|run| run.id))
}
