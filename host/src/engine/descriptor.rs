//! What a component says of its tools, and whether it is what the interface asks for.

use std::collections::BTreeSet;

use serde_json::Value;

use super::bindings::deed::tool::types as wit;
use super::plugin::LoadError;
use super::types::{EffectClass, ToolDescriptor, ToolTraits};

/// Tools of one plugin. More could not be told apart by a model.
const TOOLS: usize = 256;

/// Length of a tool's name: what model interfaces accept.
const NAME_BYTES: usize = 64;

/// A tool in its component's own words, before anything of it is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// Its name, whatever that is.
    pub name: String,
    /// A short name for people.
    pub title: String,
    /// What it does and when to use it.
    pub description: String,
    /// What should be the JSON Schema of its arguments.
    pub input_schema: String,
    /// What should be the JSON Schema of its structured result.
    pub output_schema: Option<String>,
    /// The worst case over all arguments.
    pub effect: EffectClass,
    /// Further facts.
    pub traits: ToolTraits,
    /// Time limit of one call in milliseconds.
    pub timeout_ms: Option<u32>,
}

impl From<wit::ToolDescriptor> for Described {
    fn from(tool: wit::ToolDescriptor) -> Self {
        Self {
            name: tool.name,
            title: tool.title,
            description: tool.description,
            input_schema: tool.input_schema,
            output_schema: tool.output_schema,
            effect: tool.effect.into(),
            traits: tool.traits.into(),
            timeout_ms: tool.timeout_ms,
        }
    }
}

impl Described {
    /// The tool, or everything that keeps it from being one.
    pub fn check(&self) -> Result<ToolDescriptor, Vec<String>> {
        let mut faults = Vec::new();
        if !is_tool_name(&self.name) {
            faults.push("the name does not fit `^[a-zA-Z0-9_-]{1,64}$`".to_owned());
        }
        let mut read = |what: &str, text: &str| {
            schema(text).map_err(|why| faults.push(format!("{what} schema: {why}"))).unwrap_or_default()
        };
        let input_schema = read("input", &self.input_schema);
        let output_schema = self.output_schema.as_deref().map(|text| read("output", text));
        if input_schema.is_object() && input_schema.get("type").and_then(Value::as_str) != Some("object") {
            faults.push("input schema: its `type` is not `object`".to_owned());
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(ToolDescriptor {
            name: self.name.clone(),
            title: self.title.clone(),
            description: self.description.clone(),
            input_schema,
            output_schema,
            effect: self.effect,
            traits: self.traits,
            timeout_ms: self.timeout_ms,
        })
    }
}

/// What is wrong with all of them together: how many there are, and names that are used twice.
pub fn faults_together(described: &[Described]) -> Vec<(String, String)> {
    let mut faults = Vec::new();
    if described.is_empty() {
        faults.push((String::new(), "it holds no tool; expected at least one".to_owned()));
    }
    if described.len() > TOOLS {
        let reason = format!("it holds {} tools; at most {TOOLS} are allowed", described.len());
        faults.push((String::new(), reason));
    }
    let mut names = BTreeSet::new();
    for tool in described {
        if !names.insert(&tool.name) {
            faults.push((tool.name.clone(), "the name is used twice in this plugin".to_owned()));
        }
    }
    faults
}

/// The tools, or the first thing that is wrong with them.
pub(super) fn check_all(name: &str, described: &[Described]) -> Result<Vec<ToolDescriptor>, LoadError> {
    let invalid =
        |tool: String, reason: String| LoadError::InvalidDescriptor { name: name.to_owned(), tool, reason };
    if let Some((tool, reason)) = faults_together(described).into_iter().next() {
        return Err(invalid(tool, reason));
    }
    let checked = described.iter().map(|tool| {
        tool.check().map_err(|faults| {
            invalid(tool.name.clone(), faults.into_iter().next().expect("a refused tool has a fault"))
        })
    });
    checked.collect()
}

pub(super) fn is_tool_name(name: &str) -> bool {
    (1..=NAME_BYTES).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

fn schema(text: &str) -> Result<Value, String> {
    match serde_json::from_str(text) {
        Ok(schema @ Value::Object(_)) => Ok(schema),
        Ok(_) => Err("expected a JSON object".to_owned()),
        Err(error) => Err(format!("not JSON: {error}")),
    }
}
