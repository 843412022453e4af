//! `deed backup`: copy a journal, in use or not, to a file.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use deed_journal::BackedUp;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use serde_json::json;

use super::exit::Exit;
use super::failure::Usage;
use super::output::{Format, out};
use super::session::counted;
use super::{Global, journal_path, output};

#[derive(Debug, Args)]
pub(super) struct BackupArgs {
    /// The new file. One that exists is not replaced.
    file: PathBuf,
}

pub(super) fn run(global: &Global, args: &BackupArgs) -> Result<Exit> {
    let handle = journal_path::read_existing(global)?;
    let workspaces = output::listed(handle.reader().runs()?).into_iter().filter_map(|run| run.workspace);
    for workspace in workspaces {
        if journal_path::is_inside(&args.file, Path::new(&workspace))? {
            let file = args.file.display();
            return Err(Usage(format!(
                "backup `{file}` would be inside the workspace `{workspace}`, where tools could reach it; name a file outside"
            ))
            .into());
        }
    }
    let bar = progress();
    let done = handle.reader().backup(&args.file, &mut |records, bytes| {
        // Not for each: to write the line takes longer than to copy one.
        if records % 1024 == 0 {
            bar.set_message(format!("{}, {}", counted(records, "record"), HumanBytes(bytes)));
        }
    });
    bar.finish_and_clear();
    let BackedUp { records, bytes, damaged } = done?;
    drop(handle);
    if global.format == Format::Json {
        output::json(&json!({
            "backup": args.file,
            "records": records,
            "bytes": bytes,
            "damaged": damaged,
        }))?;
    } else {
        let shown = args.file.display();
        out!("backup `{shown}`: {}, {}", counted(records, "record"), HumanBytes(bytes));
    }
    if damaged > 0 {
        let count = counted(damaged, "record");
        eprintln!("warning: {count} of the journal and of the backup damaged; `deed verify` names them");
        return Ok(Exit::Damaged);
    }
    Ok(Exit::Done)
}

/// A line on a terminal, when it takes long enough to be looked at.
fn progress() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("{spinner} {msg} ({elapsed})").expect("the template is well formed");
    let bar = ProgressBar::new_spinner().with_style(style);
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}
