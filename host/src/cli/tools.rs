//! `deed tools`: the tools at hand.

use std::path::PathBuf;

use anyhow::Result;
use deed::crash_test::Certificate;
use deed::engine::ToolTraits;
use serde_json::{Value, json};

use super::exit::Exit;
use super::output::Format;
use super::{Global, crash_test, hosting, output};

pub(super) fn run(global: &Global) -> Result<Exit> {
    let toolbox =
        hosting::toolbox(global, vec![global.workspace.clone().unwrap_or_else(|| PathBuf::from("."))])?;
    let directory = crash_test::certificates_dir();
    let certificate = |digest| Certificate::read(directory.as_deref()?, digest?);
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
            [descriptor.name.clone(), plugin, descriptor.effect.to_string(), traits, digest, summary]
        });
        output::table(["tool", "plugin", "effect", "traits", "digest", "description"], rows);
    }
    Ok(Exit::Done)
}

fn traits(traits: ToolTraits) -> Vec<&'static str> {
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
