//! `deed plugin new`: a project that builds.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use deed::plugin::project::{self, Language};
use serde_json::json;

use super::super::exit::Exit;
use super::super::output::{Format, out};
use super::super::{Global, output};

#[derive(Debug, Args)]
pub(super) struct NewArgs {
    /// What the plugin is called; the project is a directory of this name.
    name: String,
    /// The language it is written in.
    #[arg(long, value_enum)]
    lang: LanguageArg,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LanguageArg {
    Rust,
    Python,
    Js,
    C,
}

impl From<LanguageArg> for Language {
    fn from(arg: LanguageArg) -> Self {
        match arg {
            LanguageArg::Rust => Self::Rust,
            LanguageArg::Python => Self::Python,
            LanguageArg::Js => Self::JavaScript,
            LanguageArg::C => Self::C,
        }
    }
}

pub(super) fn run(global: &Global, args: &NewArgs) -> Result<Exit> {
    let directory = PathBuf::from(&args.name);
    let language = Language::from(args.lang);
    project::create(&directory, &args.name, language)?;
    if global.format == Format::Json {
        output::json(
            &json!({ "plugin": args.name, "directory": directory, "language": language.to_string() }),
        )?;
    } else {
        out!("made `{}`, a plugin in {language}", args.name);
        out!("next: deed plugin build {}", args.name);
    }
    Ok(Exit::Done)
}
