//! `deed tools`: the tools at hand.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use deed::crash_test::Certificate;
use deed::engine::ToolTraits;
use deed::host_tools::HOST_PLUGIN;
use deed::standard::standard_plugins;
use deed::toolbox::{Tool, Toolbox};
use deed_journal::Digest;
use serde_json::{Value, json};

use super::exit::Exit;
use super::output::Format;
use super::{Global, crash_test, hosting, output};

pub(super) fn run(global: &Global) -> Result<Exit> {
    let workspace = global.workspace.clone().unwrap_or_else(|| PathBuf::from("."));
    let engine = Arc::new(hosting::engine(vec![workspace])?);
    let (sources, refused) = hosting::all_plugins(global)?;
    let listing = Listing { certificates: crash_test::certificates_dir(), sources: Sources::read(global)? };
    if global.format == Format::Json {
        let toolbox = hosting::open(global, &engine, &sources, refused);
        output::json(&toolbox.tools().map(|tool| listing.json(&toolbox, tool)).collect::<Vec<Value>>())?;
        return Ok(Exit::Done);
    }
    // Those that nobody has called yet are compiled now, which may take a minute; the others are shown before.
    let known: Vec<_> =
        sources.iter().filter(|source| engine.is_known(&source.bytes, &source.foreign)).cloned().collect();
    let mut shown = BTreeSet::new();
    if known.len() < sources.len() {
        let toolbox = Toolbox::load(Arc::clone(&engine), &known);
        output::table(HEADER, toolbox.tools().map(|tool| listing.row(&toolbox, tool)));
        shown.extend(toolbox.tools().map(|tool| tool.descriptor.name.clone()));
    }
    let toolbox = hosting::open(global, &engine, &sources, refused);
    let mut rows = toolbox
        .tools()
        .filter(|tool| !shown.contains(&tool.descriptor.name))
        .map(|tool| listing.row(&toolbox, tool))
        .peekable();
    if rows.peek().is_some() {
        output::table(HEADER, rows);
    }
    Ok(Exit::Done)
}

const HEADER: [&str; 7] = ["tool", "plugin", "effect", "traits", "digest", "source", "description"];

/// What is said of a tool beside what it says itself.
struct Listing {
    certificates: Option<PathBuf>,
    sources: Sources,
}

impl Listing {
    fn certificate(&self, component: Option<Digest>) -> Option<Certificate> {
        Certificate::read(self.certificates.as_deref()?, component?)
    }

    fn json(&self, toolbox: &Toolbox, tool: &Tool) -> Value {
        let (descriptor, component) = (&tool.descriptor, toolbox.component(tool));
        json!({
            "name": descriptor.name,
            "plugin": toolbox.plugin_of(tool),
            "effect": descriptor.effect,
            "traits": traits(descriptor.traits),
            "digest": component,
            "crash_tested": self.certificate(component),
            "source": self.sources.of(component),
            "title": descriptor.title,
            "description": descriptor.description,
            "input_schema": descriptor.input_schema,
            "output_schema": descriptor.output_schema,
        })
    }

    fn row(&self, toolbox: &Toolbox, tool: &Tool) -> [String; 7] {
        let (descriptor, component) = (&tool.descriptor, toolbox.component(tool));
        let mut traits = traits(descriptor.traits);
        if self.certificate(component).is_some() {
            traits.push("crash-tested");
        }
        [
            descriptor.name.clone(),
            toolbox.plugin_of(tool).to_owned(),
            descriptor.effect.to_string(),
            traits.join(", "),
            component.map_or_else(String::new, |digest| digest.to_string()[..12].to_owned()),
            self.sources.of(component),
            descriptor.description.lines().next().unwrap_or_default().to_owned(),
        ]
    }
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
