//! `deed tools`: the tools at hand.

use std::path::PathBuf;

use anyhow::Result;
use deed::engine::ToolTraits;
use serde_json::{Value, json};

use super::exit::Exit;
use super::output::Format;
use super::{Global, hosting, output};

pub(super) fn run(global: &Global) -> Result<Exit> {
    let toolbox =
        hosting::toolbox(global, vec![global.workspace.clone().unwrap_or_else(|| PathBuf::from("."))])?;
    if global.format == Format::Json {
        let tools = toolbox.tools().map(|tool| {
            let descriptor = &tool.descriptor;
            json!({
                "name": descriptor.name,
                "plugin": toolbox.plugin_of(tool),
                "effect": descriptor.effect,
                "traits": traits(descriptor.traits),
                "digest": toolbox.component(tool),
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
            let traits = traits(descriptor.traits).join(", ");
            [descriptor.name.clone(), plugin, descriptor.effect.to_string(), traits, digest, summary]
        });
        output::table(["tool", "plugin", "effect", "traits", "digest", "description"], rows);
    }
    Ok(Exit::Done)
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
