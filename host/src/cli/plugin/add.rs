//! `deed plugin add`: install plugins, each pinned by its digest.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use clap::{Args, ValueEnum};
use deed::engine::{EVERY, Engine};
use deed::plugin::inspect::{self, Inspection};
use deed::plugin::installed::{Installed, Instant, check_name};
use deed::plugin::update::{Claims, Further, further};
use deed::standard::standard_plugins;
use deed::toolbox::{PluginSource, Toolbox};
use deed_journal::Digest;
use serde_json::{Value, json};

use super::super::exit::Exit;
use super::super::failure::Usage;
use super::super::output::{Format, out};
use super::super::{Global, hosting, output, terminal, trace};
use super::foreign::ForeignArgs;

#[derive(Debug, Args)]
pub(super) struct AddArgs {
    /// A component, or a directory that holds some: every `*.wasm` in it.
    #[arg(value_name = "FILE|DIR")]
    place: PathBuf,
    /// What the plugin is called; by default as its file.
    #[arg(long)]
    name: Option<String>,
    /// Install an update also if it claims a riskier class or needs more than the installed version.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    foreign: ForeignArgs,
    /// Send SIGKILL to this process at this instant.
    #[arg(long, hide = true, value_enum)]
    kill_at: Option<InstantArg>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum InstantArg {
    Writing,
    Written,
    Pinning,
    Pinned,
}

impl From<InstantArg> for Instant {
    fn from(arg: InstantArg) -> Self {
        match arg {
            InstantArg::Writing => Self::Writing,
            InstantArg::Written => Self::Written,
            InstantArg::Pinning => Self::Pinning,
            InstantArg::Pinned => Self::Pinned,
        }
    }
}

/// What became of one component.
struct Added {
    digest: Digest,
    /// `installed`, `updated` or `unchanged`.
    status: &'static str,
    inspection: Inspection,
    /// It has functions that nobody gave a class.
    unassigned: bool,
}

pub(super) fn run(global: &Global, args: &AddArgs) -> Result<Exit> {
    let components = components(args)?;
    for component in &components {
        check_name(&component.name)?;
    }
    let installed = super::installed()?;
    let engine = Arc::new(super::engine(global)?);
    let mut values = Vec::new();
    let mut failed = false;
    for component in components {
        let name = component.name.clone();
        match add(args, &installed, &engine, component) {
            Ok(added) => {
                values.push(json!({ "plugin": name, "status": added.status, "digest": added.digest }));
                if global.format == Format::Text {
                    let tools: Vec<_> = added
                        .inspection
                        .tools
                        .iter()
                        .map(|tool| format!("{} ({})", tool.name, tool.effect))
                        .collect();
                    out!("{} `{name}`, digest {}: {}", added.status, added.digest, tools.join(", "));
                    for unfit in &added.inspection.unfit_functions {
                        eprintln!("warning: `{}` is no tool: {}", unfit.name, unfit.reason);
                    }
                    if added.unassigned {
                        eprintln!(
                            "note: its tools are plain functions, non-idempotent until you say more: `--effect [TOOL=]CLASS`"
                        );
                    }
                }
            }
            // One that is refused keeps none of the others out.
            Err(error) => {
                failed = true;
                let further = error.downcast_ref::<Unconfirmed>().map(|unconfirmed| &unconfirmed.further);
                values.push(json!({ "plugin": name, "status": "refused", "further": further, "error": error.to_string() }));
                eprintln!("error: {error:#}");
            }
        }
    }
    if global.format == Format::Json {
        output::json(&Value::Array(values))?;
    }
    Ok(if failed { Exit::Failed } else { Exit::Done })
}

/// The component that was named, or those in the directory.
fn components(args: &AddArgs) -> Result<Vec<PluginSource>> {
    if !args.place.is_dir() {
        let (stem, bytes) = super::read(&args.place)?;
        let name = args.name.clone().unwrap_or(stem);
        return Ok(vec![PluginSource::new(name, bytes)]);
    }
    let mut components = hosting::components_in(&args.place)?;
    let place = args.place.display();
    match (&mut *components, &args.name) {
        ([], _) => Err(Usage(format!(
            "`{place}` holds no `*.wasm`; a project of plugins is built by `deed plugin build {place}`"
        ))
        .into()),
        ([only], Some(name)) => {
            only.name.clone_from(name);
            Ok(components)
        }
        (several, Some(_)) => {
            Err(Usage(format!("`{place}` holds {} components, and `--name` names one", several.len())).into())
        }
        (_, None) => Ok(components),
    }
}

/// An update that nobody confirmed.
#[derive(Debug, thiserror::Error)]
#[error("`{name}` is not updated: {}; `--yes` confirms it", listed(further))]
struct Unconfirmed {
    name: String,
    further: Vec<Further>,
}

fn listed(further: &[Further]) -> String {
    further.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn add(
    args: &AddArgs,
    installed: &Installed,
    engine: &Arc<Engine>,
    mut component: PluginSource,
) -> Result<Added> {
    let name = component.name.clone();
    if standard_plugins().iter().any(|(standard, _)| *standard == name) {
        return Err(anyhow!("`{name}` comes with deed; give another name with `--name`"));
    }
    let pin = installed.pins()?.remove(&name);
    args.foreign.say(engine, &mut component, (installed, pin.as_ref()))?;
    works_beside_the_others(engine, &component)?;
    let PluginSource { bytes, foreign, .. } = &component;
    let inspection = inspect::inspect(engine, &name, bytes, foreign)?;
    let digest = inspection.digest;
    let status = match &pin {
        None => "installed",
        Some(pin) if pin.digest == digest => "unchanged",
        Some(pin) => {
            let further =
                match installed.source(&name, pin).map_err(|reason| reason.to_string()).and_then(|old| {
                    inspect::inspect(engine, &name, &old.bytes, &old.foreign)
                        .map_err(|error| error.to_string())
                }) {
                    Ok(old) => further(&Claims::from(&old), &Claims::from(&inspection)),
                    Err(reason) => vec![Further::Unreadable { reason }],
                };
            confirm(args, &name, further)?;
            "updated"
        }
    };
    let source = std::path::absolute(source(args, &name)).ok();
    let reached = |instant| {
        if args.kill_at.map(Instant::from) == Some(instant) {
            trace::die();
        }
    };
    installed.add(&component, source.as_deref(), &reached)?;
    let effects = &component.foreign.effects;
    let unassigned = inspection.is_foreign
        && !effects.contains_key(EVERY)
        && inspection.tools.iter().any(|tool| !effects.contains_key(&tool.name));
    Ok(Added { digest, status, inspection, unassigned })
}

/// The file that a component came from.
fn source(args: &AddArgs, name: &str) -> PathBuf {
    if !args.place.is_dir() {
        return args.place.clone();
    }
    match &args.name {
        // Of a directory with one component: the directory finds it again.
        Some(_) => args.place.clone(),
        None => args.place.join(Path::new(name).with_extension("wasm")),
    }
}

/// Load it as every later command will.
fn works_beside_the_others(engine: &Arc<Engine>, plugin: &PluginSource) -> Result<()> {
    let (mut sources, _) = hosting::plugins()?;
    sources.retain(|source| source.name != plugin.name);
    // Behind all others: whose name it takes is then told of this one.
    sources.push(plugin.clone());
    let toolbox = Toolbox::load(Arc::clone(engine), &sources);
    match toolbox.refused().iter().find(|refused| refused.name == plugin.name) {
        Some(refused) => Err(anyhow!("{refused}")),
        None => Ok(()),
    }
}

/// Ask, when somebody is there, whether more may be claimed than before.
fn confirm(args: &AddArgs, name: &str, further: Vec<Further>) -> Result<()> {
    if further.is_empty() || args.yes {
        return Ok(());
    }
    if terminal::is_interactive() {
        eprintln!("the update of `{name}` claims more than the installed version:");
        for more in &further {
            eprintln!("  {more}");
        }
        eprint!("install it all the same? [y/N] ");
        let _ = std::io::stderr().flush();
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer).context("failed to read the answer")?;
        if matches!(answer.trim(), "y" | "yes") {
            return Ok(());
        }
    }
    Err(Unconfirmed { name: name.to_owned(), further }.into())
}
