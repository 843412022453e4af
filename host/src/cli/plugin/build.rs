//! `deed plugin build`: a project's component, by its language's own tools.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use deed::plugin::project;
use serde_json::json;

use super::super::exit::Exit;
use super::super::output::{Format, out};
use super::super::{Global, output};

#[derive(Debug, Args)]
pub(super) struct BuildArgs {
    /// The project.
    #[arg(default_value = ".", value_name = "DIR")]
    directory: PathBuf,
    /// The wasi-sdk that a project in C is built by; without it, a compiler that is installed is.
    #[arg(long, value_name = "DIR", env = "WASI_SDK_PATH")]
    wasi_sdk: Option<PathBuf>,
}

pub(super) fn run(global: &Global, args: &BuildArgs) -> Result<Exit> {
    let component = project::build(&args.directory, args.wasi_sdk.as_deref())?;
    if global.format == Format::Json {
        output::json(&json!({ "component": component }))?;
    } else {
        out!("built {}", component.display());
        out!("next: deed plugin check {}", component.display());
    }
    Ok(Exit::Done)
}
