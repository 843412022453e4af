//! `deed prune`: remove runs that have ended, by age and by count.

use anyhow::Result;
use clap::Args;
use deed_journal::{OpenError, PrunePolicy, Run};
use serde_json::json;

use super::exit::Exit;
use super::failure::Usage;
use super::output::{Format, out};
use super::{Global, hosting, journal_path, output};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

#[derive(Debug, Args)]
pub(super) struct PruneArgs {
    /// Remove all ended runs but the N newest.
    #[arg(long, value_name = "N")]
    keep: Option<usize>,
    /// Remove the runs that ended so many days ago, or longer.
    #[arg(long, value_name = "DAYS")]
    older_than: Option<u64>,
    /// Only say which runs would go.
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(global: &Global, args: &PruneArgs) -> Result<Exit> {
    if args.keep.is_none() && args.older_than.is_none() {
        return Err(Usage("say what may go: `--keep N`, `--older-than DAYS`, or both".to_owned()).into());
    }
    let path = journal_path::of(global, None)?;
    if !path.exists() {
        return Err(OpenError::Missing(path).into());
    }
    let policy = PrunePolicy {
        older_than_ms: args.older_than.map(|days| days.saturating_mul(DAY_MS)),
        keep: args.keep,
    };
    let now_ms = hosting::clock(global).now_ms();
    let removed = if args.dry_run {
        let handle = journal_path::read_existing(global)?;
        let going = handle.reader().prune_plan(policy, now_ms)?;
        let mut runs = output::listed(handle.reader().runs()?);
        runs.retain(|run| going.contains(&run.id));
        runs
    } else {
        let journal = journal_path::open(global, &path)?;
        let mut runs = output::listed(journal.read().runs()?);
        let gone = journal.prune(policy, now_ms)?;
        runs.retain(|run| gone.contains(&run.id));
        runs
    };
    show(global, args, &removed)
}

fn show(global: &Global, args: &PruneArgs, removed: &[Run]) -> Result<Exit> {
    if global.format == Format::Json {
        let runs: Vec<_> = removed.iter().map(output::run_json).collect();
        output::json(&json!({ "dry_run": args.dry_run, "removed": runs }))?;
        return Ok(Exit::Done);
    }
    for run in removed {
        let ended = run.ended_ms.map_or_else(String::new, |ms| format!(", {}", output::time(ms)));
        out!("{}  {}{ended}  {}", run.id.short(), run.status.as_str(), run.objective);
    }
    match (removed.len(), args.dry_run) {
        (0, _) => eprintln!("no run may go; `deed runs` lists them"),
        (_, true) => eprintln!("these would go"),
        (_, false) => eprintln!("these are gone; `deed compact` gives their room back to the system"),
    }
    Ok(Exit::Done)
}
