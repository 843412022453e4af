//! `deed tools`: the tools at hand.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::Result;
use deed::crash_test::Certificate;
use deed::engine::ToolTraits;
use deed::host_tools::HOST_PLUGIN;
use deed::standard::standard_plugins;
use deed_journal::Digest;
use serde_json::{Value, json};

use super::exit::Exit;
use super::output::Format;
use super::{Global, crash_test, hosting, output};

pub(super) fn run(global: &Global) -> Result<Exit> {
    let toolbox =
        hosting::toolbox(global, vec![global.workspace.clone().unwrap_or_else(|| PathBuf::from("."))])?;
    let directory = crash_test::certificates_dir();
    let certificate = |digest| Certificate::read(directory.as_deref()?, digest?);
    let sources = Sources::read(global)?;
    if global.format == Format::Json {
        let tools = toolbox.tools().map(|tool| {
            let descriptor = &tool.descriptor;
            json!({
                "name": descriptor.name,
                "plugin": toolbox.plugin_of(tool),
                "effect": descriptor.effect,
                "traits": traits(descriptor.traits),
                "digest": toolbox.component(tool),
                "crash_tested": certificate(toolbox.component(tool)),
                "source": sources.of(toolbox.component(tool)),
                "title": descriptor.title,
                "description": descriptor.description,
                "input_schema": descriptor.input_schema,
                "output_schema": descriptor.output_schema,
            })
        });
        output::json(&tools.collect::<Vec<Value>>())?;
    } else {
        let rows = toolbox.tools().map(|tool| {
            let descriptor = &tool.descriptor;
            let digest = toolbox
                .component(tool)
                .map_or_else(String::new, |digest| digest.to_string()[..12].to_owned());
            let summary = descriptor.description.lines().next().unwrap_or_default().to_owned();
            let plugin = toolbox.plugin_of(tool).to_owned();
            let mut traits = traits(descriptor.traits);
            if certificate(toolbox.component(tool)).is_some() {
                traits.push("crash-tested");
            }
            let traits = traits.join(", ");
            let source = sources.of(toolbox.component(tool));
            [descriptor.name.clone(), plugin, descriptor.effect.to_string(), traits, digest, source, summary]
        });
        output::table(["tool", "plugin", "effect", "traits", "digest", "source", "description"], rows);
    }
    Ok(Exit::Done)
}

/// Where components come from.
struct Sources {
    standard: BTreeSet<Digest>,
    installed: BTreeSet<Digest>,
    /// What `--tools` names.
    others: String,
}

impl Sources {
    fn read(global: &Global) -> Result<Self> {
        let pins = hosting::installed().map(|installed| installed.pins()).transpose()?.unwrap_or_default();
        Ok(Self {
            standard: standard_plugins().into_iter().map(|(_, bytes)| Digest::of(bytes)).collect(),
            installed: pins.into_values().map(|pin| pin.digest).collect(),
            others: global.tools.as_deref().map_or_else(String::new, |path| path.display().to_string()),
        })
    }

    /// `host` for the host's own tools, `standard`, `installed`, or the directory.
    fn of(&self, component: Option<Digest>) -> String {
        match component {
            None => HOST_PLUGIN.to_owned(),
            Some(digest) if self.standard.contains(&digest) => "standard".to_owned(),
            Some(digest) if self.installed.contains(&digest) => "installed".to_owned(),
            Some(_) => self.others.clone(),
        }
    }
}

/// Their words.
pub(super) fn traits(traits: ToolTraits) -> Vec<&'static str> {
    [
        (traits.destructive, "destructive"),
        (traits.open_world, "open-world"),
        (traits.refines, "refines"),
        (traits.probes, "probes"),
    ]
    .into_iter()
    .filter_map(|(is, word)| is.then_some(word))
    .collect()
}
