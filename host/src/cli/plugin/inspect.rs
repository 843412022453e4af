//! `deed plugin inspect`: what any component is.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use deed::engine::{Foreign, Wit};
use deed::plugin::inspect::{self, Inspection};
use serde_json::json;

use super::super::exit::Exit;
use super::super::output::{Format, out, printable};
use super::super::tools::traits;
use super::super::{Global, output};

#[derive(Debug, Args)]
pub(super) struct InspectArgs {
    /// The component, a `.wasm` file.
    file: PathBuf,
    /// The WIT of a component of plain functions, a file or a directory: what it says of them is shown as models see it.
    #[arg(long, value_name = "FILE|DIR")]
    wit: Option<PathBuf>,
}

pub(super) fn run(global: &Global, args: &InspectArgs) -> Result<Exit> {
    let (name, bytes) = super::read(&args.file)?;
    let engine = super::engine(global)?;
    let wit = args.wit.as_deref().map(|place| Wit::read(place)?.to_text()).transpose()?;
    let foreign = Foreign { wit, ..Foreign::default() };
    let inspection = match inspect::inspect(&engine, &name, &bytes, &foreign) {
        Ok(inspection) => inspection,
        Err(error) => {
            if let Some(hint) = super::hint(&error, &bytes) {
                eprintln!("hint: {hint}");
            }
            return Err(error.into());
        }
    };
    if global.format == Format::Json {
        let mut value = serde_json::to_value(&inspection)?;
        value["file"] = json!(args.file);
        output::json(&value)?;
    } else {
        out!("{}", args.file.display());
        print(&inspection);
    }
    Ok(Exit::Done)
}

/// Packages whose interfaces everybody knows: their functions would hide the others.
const KNOWN: [&str; 2] = ["deed:", "wasi:"];

/// Characters of a line. Types without their names can be pages long; `--format json` has them whole.
const LINE: usize = 400;

fn line(text: &str) -> String {
    let text = printable(text);
    match text.char_indices().nth(LINE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn print(inspection: &Inspection) {
    out!("digest {}, {} bytes", inspection.digest, inspection.size_bytes);
    let functions = |name: &str, functions: &[String]| {
        // A plain function is its own name.
        let shown = functions.iter().filter(|function| !function.starts_with(&format!("{name}: ")));
        for function in shown.filter(|_| !KNOWN.iter().any(|start| name.starts_with(start))) {
            out!("    {}", line(function));
        }
    };
    let title = |name: &str, functions: &[String]| match functions {
        [only] if only.starts_with(&format!("{name}: ")) => line(only),
        _ => printable(name),
    };
    out!("\nexports");
    for export in &inspection.exports {
        out!("  {}", title(&export.name, &export.functions));
        functions(&export.name, &export.functions);
    }
    out!("\nimports");
    for import in &inspection.imports {
        let need = import.need.map_or_else(String::new, |need| format!("  [{need}]"));
        let missing = if import.offered { "" } else { "  MISSING: the host does not offer it" };
        out!("  {}{need}{missing}", title(&import.name, &import.functions));
        functions(&import.name, &import.functions);
    }
    if !inspection.needs.is_empty() {
        out!("\nneeds, in `grants` of a deed.toml");
        for need in &inspection.needs {
            out!("  {need:<9} {}", need.explained());
        }
    }
    if !inspection.tools.is_empty() {
        out!("\ntools");
        for tool in &inspection.tools {
            let needs: Vec<_> = inspection
                .needs
                .iter()
                .filter(|need| need.fits(tool.effect))
                .map(ToString::to_string)
                .collect();
            let facts = [traits(tool.traits).join(", "), needs.join(", ")];
            let facts: Vec<_> = ["", " may use "]
                .iter()
                .zip(facts)
                .filter(|(_, fact)| !fact.is_empty())
                .map(|(before, fact)| format!("{before}{fact}"))
                .collect();
            out!("  {} ({}) {}", tool.name, tool.effect, facts.join(";"));
            // Of other tools `deed tools` tells as much; these exist nowhere else.
            if inspection.is_foreign {
                for text in tool.description.lines() {
                    out!("      {}", line(text));
                }
            }
        }
    }
    if inspection.is_foreign {
        out!(
            "\nthe tools are plain functions: `deed plugin add --effect TOOL=CLASS` gives them another class"
        );
    }
    for unfit in &inspection.unfit_functions {
        out!("no tool: `{}`: {}", printable(&unfit.name), unfit.reason);
    }
    if let Some(refused) = &inspection.refused {
        out!("\nno plugin: {}", printable(refused));
        if inspection.imports.iter().any(|import| !import.offered) && !inspection.tools.is_empty() {
            out!("`deed plugin add --stub-missing` installs it without them: a call that uses one fails");
        }
    }
}
