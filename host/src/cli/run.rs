//! `deed run`: record a mission or a batch, and take it on.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use deed::mission::Spec;
use deed::runner::RunOptions;

use super::exit::Exit;
use super::hosting::{self, TestArgs, UnattendedArgs};
use super::{Global, journal_path, output};

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// The mission or batch: a JSON file.
    mission: PathBuf,
    #[command(flatten)]
    unattended: UnattendedArgs,
    #[command(flatten)]
    test: TestArgs,
}

pub(super) fn run(global: &Global, args: &RunArgs) -> Result<Exit> {
    let spec = Spec::read(&args.mission)?;
    let beside =
        args.mission.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let workspace = match (&global.workspace, spec.workspace()) {
        (Some(named), _) => named.clone(),
        (None, Some(relative)) => beside.join(relative),
        (None, None) => beside.to_owned(),
    };
    let options = RunOptions { spec, workspace };
    let toolbox = hosting::toolbox(global, vec![options.workspace.clone()])?;
    let workspace = options.check(&toolbox)?;
    hosting::check_operator(&workspace)?;
    // What is printed names the workspace that the mission chose.
    let global = &Global { workspace: Some(options.workspace.clone()), ..global.clone() };
    let path = journal_path::of(global, Some(&workspace))?;
    journal_path::refuse_inside(&path, &workspace)?;

    let journal = args.test.open(global, &path)?;
    let host = hosting::host(global, &args.test, &args.unattended, toolbox, (&path, journal));
    let run = host.create_run(&options)?;
    if global.verbose > 0 {
        eprintln!("run {run}");
    }
    let envelope = hosting::drive(&host, &args.test, run)?;
    drop(host);
    output::envelope(global, &envelope)?;
    Ok(Exit::of(envelope.status))
}
