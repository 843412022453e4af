//! `deed plugin`: plugins as files.

mod add;
mod build;
mod check;
mod foreign;
mod inspect;
mod new;
mod remove;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use deed::engine::{Engine, LoadError};
use deed::plugin::installed::Installed;

use super::exit::Exit;
use super::failure::Usage;
use super::{Global, hosting};

#[derive(Debug, Args)]
pub(super) struct PluginArgs {
    #[command(subcommand)]
    command: PluginCommand,
}

#[derive(Debug, Subcommand)]
enum PluginCommand {
    /// Make a project that builds.
    New(new::NewArgs),
    /// Build a project by its language's own tools.
    Build(build::BuildArgs),
    /// Install a plugin, or another version of it: its digest goes into your `deed.toml`.
    Add(add::AddArgs),
    /// Remove an installed plugin.
    Remove(remove::RemoveArgs),
    /// Check that a component is a plugin, and one that models and crashes can rely on.
    Check(check::CheckArgs),
    /// Show what any component exports, imports and needs.
    Inspect(inspect::InspectArgs),
}

pub(super) fn run(global: &Global, args: &PluginArgs) -> Result<Exit> {
    match &args.command {
        PluginCommand::New(args) => new::run(global, args),
        PluginCommand::Build(args) => build::run(global, args),
        PluginCommand::Add(args) => add::run(global, args),
        PluginCommand::Remove(args) => remove::run(global, args),
        PluginCommand::Check(args) => check::run(global, args),
        PluginCommand::Inspect(args) => inspect::run(global, args),
    }
}

/// The engine, which takes no compiled code from where tools may write.
fn engine(global: &Global) -> Result<Engine> {
    hosting::engine(vec![global.workspace.clone().unwrap_or_else(|| PathBuf::from("."))])
}

/// Where plugins are installed.
fn installed() -> Result<Installed> {
    hosting::installed().context("failed to find the home directory, where plugins are installed; set `HOME`")
}

/// A component's bytes, and what messages call it: the file's name without its ending.
fn read(file: &Path) -> Result<(String, Vec<u8>)> {
    let bytes = std::fs::read(file).with_context(|| Usage(format!("failed to read `{}`", file.display())))?;
    let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok((name, bytes))
}

/// What to do about bytes that are no component, where their beginning tells.
fn hint(error: &LoadError, bytes: &[u8]) -> Option<&'static str> {
    /// How a WebAssembly module begins; a component has another version behind the first four bytes.
    const MODULE: &[u8] = b"\0asm\x01\0\0\0";
    if !matches!(error, LoadError::NotAComponent { .. }) {
        return None;
    }
    if bytes.starts_with(MODULE) {
        return Some(
            "it is a core module: build it for `wasm32-wasip2`, or make a component of it by `wasm-tools component new`",
        );
    }
    bytes.starts_with(b"(").then_some("it is the text form: make a binary of it by `wasm-tools parse`")
}
