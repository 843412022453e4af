//! What the operator says of a component whose author knew nothing of deed.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Result;
use clap::Args;
use deed::engine::{EVERY, EffectClass, Engine, Foreign, Plugin, Stubs, Wit};
use deed::operator::PluginEntry;
use deed::plugin::installed::Installed;
use deed::toolbox::PluginSource;

use super::super::failure::Usage;

#[derive(Debug, Args)]
#[command(next_help_heading = "Components of plain functions")]
pub(super) struct ForeignArgs {
    /// The class of a function, such as `add=pure`, or of every one that is not named, such as `pure`; by default
    /// `non-idempotent`.
    #[arg(long, value_name = "[TOOL=]CLASS")]
    effect: Vec<Assigned>,
    /// An import that the host does not offer and that the component shall do without: a call that uses it fails.
    #[arg(long, value_name = "IMPORT")]
    stub: Vec<String>,
    /// The same for every import that the host does not offer.
    #[arg(long)]
    stub_missing: bool,
    /// The WIT of the component, a file or a directory: its words describe the functions to models.
    #[arg(long, value_name = "FILE|DIR")]
    wit: Option<PathBuf>,
}

/// A class, and the tool that it is for.
#[derive(Debug, Clone)]
struct Assigned {
    tool: String,
    effect: EffectClass,
}

impl FromStr for Assigned {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const CLASSES: [EffectClass; 3] =
            [EffectClass::Pure, EffectClass::Idempotent, EffectClass::NonIdempotent];
        let (tool, class) = text.split_once('=').unwrap_or((EVERY, text));
        let effect = CLASSES.into_iter().find(|effect| effect.to_string() == class);
        let known = || CLASSES.map(|effect| format!("`{effect}`")).join(", ");
        let effect = effect.ok_or_else(|| format!("`{class}` is no class: expected one of {}", known()))?;
        Ok(Self { tool: tool.to_owned(), effect })
    }
}

impl ForeignArgs {
    /// What is said of `plugin` by these arguments, and what was said before of the version that is installed, as far as it
    /// fits.
    pub(super) fn say(
        &self,
        engine: &Engine,
        plugin: &mut PluginSource,
        (installed, pin): (&Installed, Option<&PluginEntry>),
    ) -> Result<()> {
        let PluginSource { name, bytes, foreign } = plugin;
        // A version that cannot be read any more takes what was said of it along.
        let before = pin.and_then(|pin| Some(installed.source(name, pin).ok()?.foreign)).unwrap_or_default();
        let missing = engine.examine(name, bytes)?.missing_imports();
        let stubs = self.stubs(&missing, &before)?;
        let loaded = engine.load_as(name, bytes, &Foreign { stubs: Stubs::Every, ..Foreign::default() });
        // Why it cannot be loaded at all is told by whoever loads it.
        let loaded = loaded.ok();
        let lacking: Vec<_> = missing
            .iter()
            .filter(|import| !stubs.contains(*import))
            .map(|import| format!("`{import}`"))
            .collect();
        if !lacking.is_empty() && loaded.is_some() {
            return Err(Usage(format!(
                "`{name}` imports what the host does not offer: {}; `--stub-missing` installs it without: a call that uses one of them fails",
                lacking.join(", ")
            ))
            .into());
        }
        let mut effects = before.effects;
        effects.retain(|tool, _| loaded.as_ref().is_some_and(|plugin| is_function(plugin, tool)));
        effects.extend(self.effect.iter().map(|assigned| (assigned.tool.clone(), assigned.effect)));
        let wit = match (&self.wit, &loaded) {
            (Some(place), Some(plugin)) => Some(described(plugin, &Wit::read(place)?)?),
            (Some(_), None) => None,
            (None, _) => before.wit.filter(|_| loaded.as_ref().is_some_and(Plugin::is_foreign)),
        };
        *foreign = Foreign { effects, stubs: Stubs::Of(stubs), wit };
        Ok(())
    }

    fn stubs(&self, missing: &[String], before: &Foreign) -> Result<BTreeSet<String>> {
        if let Some(offered) = self.stub.iter().find(|import| !missing.contains(import)) {
            let missing: Vec<_> = missing.iter().map(|import| format!("`{import}`")).collect();
            let expected = if missing.is_empty() { "none".to_owned() } else { missing.join(", ") };
            return Err(Usage(format!(
                "`{offered}` is no import that the host does not offer: expected {expected}"
            ))
            .into());
        }
        let known = |import: &&String| match &before.stubs {
            Stubs::Of(imports) => imports.contains(*import),
            Stubs::Every => true,
        };
        let stubs =
            missing.iter().filter(|import| self.stub_missing || self.stub.contains(import) || known(import));
        Ok(stubs.cloned().collect())
    }
}

fn is_function(plugin: &Plugin, tool: &str) -> bool {
    plugin.is_foreign() && (tool == EVERY || plugin.tool(tool).is_some())
}

/// The WIT as text, if it describes the component.
fn described(plugin: &Plugin, wit: &Wit) -> Result<String> {
    let others = plugin.undescribed(wit);
    if others.len() == plugin.tools().len() || !plugin.is_foreign() {
        let name = plugin.name();
        return Err(Usage(format!(
            "the WIT describes none of the functions of `{name}`: expected the one that it was built from"
        ))
        .into());
    }
    for function in others {
        eprintln!("warning: the WIT knows nothing of the function `{function}`, or has it with other types");
    }
    Ok(wit.to_text()?)
}
