//! `deed plugin remove`.

use anyhow::Result;
use clap::Args;
use serde_json::json;

use super::super::exit::Exit;
use super::super::output::{Format, out};
use super::super::{Global, output};

#[derive(Debug, Args)]
pub(super) struct RemoveArgs {
    /// The plugin.
    name: String,
}

pub(super) fn run(global: &Global, args: &RemoveArgs) -> Result<Exit> {
    super::installed()?.remove(&args.name)?;
    if global.format == Format::Json {
        output::json(&json!({ "plugin": args.name, "status": "removed" }))?;
    } else {
        out!("removed `{}`", args.name);
    }
    Ok(Exit::Done)
}
