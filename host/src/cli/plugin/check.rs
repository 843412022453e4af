//! `deed plugin check`: is it a plugin, and a good one?

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use deed::plugin::check::{self, Level};
use serde_json::json;

use super::super::exit::Exit;
use super::super::output::{Format, out, printable};
use super::super::{Global, output};

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// The component, a `.wasm` file.
    file: PathBuf,
}

pub(super) fn run(global: &Global, args: &CheckArgs) -> Result<Exit> {
    let (name, bytes) = super::read(&args.file)?;
    let engine = super::engine(global)?;
    let report = check::check(&engine, &name, &bytes);
    let passed = report.passed();
    if global.format == Format::Json {
        let mut value = serde_json::to_value(&report)?;
        value["file"] = json!(args.file);
        value["passed"] = json!(passed);
        output::json(&value)?;
    } else {
        out!("{}", args.file.display());
        out!("digest {}, {} bytes", report.digest, report.size_bytes);
        for finding in &report.findings {
            let level = match finding.level {
                Level::Ok => "ok",
                Level::Warning => "warning",
                Level::Error => "ERROR",
            };
            out!("  {level:<8}{}: {}", printable(&finding.subject), printable(&finding.message));
        }
        out!("{}", if passed { "passed" } else { "failed" });
    }
    if !passed
        && let Err(error) = engine.examine(&name, &bytes)
        && let Some(hint) = super::hint(&error, &bytes)
    {
        eprintln!("hint: {hint}");
    }
    Ok(if passed { Exit::Done } else { Exit::Failed })
}
