//! The tools at hand: those of the loaded plugins, and the host's own.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use deed_journal::{Digest, EffectState, StepError};
use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

use crate::arguments;
use crate::engine::{Engine, Foreign, LoadError, Plugin, ToolDescriptor};
use crate::host_tools::{HOST_PLUGIN, HostTool};

/// Bytes kept of what is said about arguments that do not fit.
const MISFIT_BYTES: usize = 4 << 10;

/// A component that may become a plugin.
#[derive(Debug, Clone)]
pub struct PluginSource {
    /// The plugin's name.
    pub name: String,
    /// The component.
    pub bytes: Bytes,
    /// What the operator says of it, where it does not speak for itself.
    pub foreign: Foreign,
}

impl PluginSource {
    /// A component that speaks for itself, or of which the operator says nothing.
    pub fn new(name: impl Into<String>, bytes: impl Into<Bytes>) -> Self {
        Self { name: name.into(), bytes: bytes.into(), foreign: Foreign::default() }
    }
}

/// A component that did not become one. The others work all the same.
#[derive(Debug, thiserror::Error)]
#[error("plugin `{name}` is refused: {reason}")]
pub struct RefusedPlugin {
    /// The plugin's name.
    pub name: String,
    /// Why.
    pub reason: RefusalReason,
}

/// Why a component did not become a plugin.
#[derive(Debug, thiserror::Error)]
pub enum RefusalReason {
    /// It cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It is not the one that was installed.
    #[error(
        "`{}` was changed: its digest is {found}, and {pinned} was installed; {again}", path.display()
    )]
    Changed {
        /// The component's file.
        path: PathBuf,
        /// What it should be.
        pinned: Digest,
        /// What it is.
        found: Digest,
        /// What makes it good again.
        again: String,
    },
    /// It is installed, and its file cannot be read.
    #[error("failed to read `{}`: {source}; {again}", path.display())]
    Gone {
        /// The component's file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
        /// What makes it good again.
        again: String,
    },
    /// Another plugin has a tool of this name.
    #[error("its tool `{tool}` has the name of a tool of plugin `{other}`")]
    NameTaken {
        /// The tool.
        tool: String,
        /// Whose it is already.
        other: String,
    },
}

/// A list of plugins names one that is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no plugin `{name}`: expected any of {}", known.join(", "))]
pub struct UnknownPlugin {
    name: String,
    known: Vec<String>,
}

/// One tool.
pub struct Tool {
    /// As models see it.
    pub descriptor: ToolDescriptor,
    source: Source,
    schema: OnceLock<Option<jsonschema::Validator>>,
}

#[derive(Debug, Clone, Copy)]
enum Source {
    Host(HostTool),
    Plugin(usize),
}

impl Tool {
    fn new(descriptor: ToolDescriptor, source: Source) -> Self {
        Self { descriptor, source, schema: OnceLock::new() }
    }

    /// Which of the host's own tools it is, if it is one.
    pub fn host_tool(&self) -> Option<HostTool> {
        match self.source {
            Source::Host(tool) => Some(tool),
            Source::Plugin(_) => None,
        }
    }

    /// Why `args` do not fit the input schema, if they do not: each place, and what is wrong there.
    fn misfit(&self, args: &Value) -> Option<String> {
        if !args.is_object() {
            return Some(format!("expected an object, got {}", arguments::shown_args(args)));
        }
        let schema =
            self.schema.get_or_init(|| jsonschema::validator_for(&self.descriptor.input_schema).ok());
        // A schema that is no schema constrains nothing; the tool itself still checks what it reads.
        let misfits: Vec<_> = schema
            .as_ref()?
            .iter_errors(args)
            .map(|error| {
                let known = known_fields(&self.descriptor.input_schema, &error);
                match error.instance_path().as_str() {
                    "" => format!("{error}{known}"),
                    path => format!("at `{path}`: {error}{known}"),
                }
            })
            .collect();
        // Some of them repeat the value that does not fit.
        (!misfits.is_empty()).then(|| arguments::shown(&misfits.join("; "), MISFIT_BYTES).into_owned())
    }
}

/// Of a field that is not known: which ones are. Everything else that may be wrong says by itself what was expected.
fn known_fields(schema: &Value, error: &jsonschema::ValidationError<'_>) -> String {
    if !matches!(error.kind(), ValidationErrorKind::AdditionalProperties { .. }) {
        return String::new();
    }
    let place = error.schema_path().as_str();
    let holder = place.rsplit_once('/').map_or("", |(holder, _)| holder);
    let fields = schema.pointer(holder).and_then(|holder| holder.get("properties")?.as_object());
    let fields: Vec<_> = fields.into_iter().flatten().map(|(name, _)| format!("`{name}`")).collect();
    if fields.is_empty() { String::new() } else { format!(": expected any of {}", fields.join(", ")) }
}

/// The tools at hand.
pub struct Toolbox {
    engine: Arc<Engine>,
    plugins: Vec<Plugin>,
    refused: Vec<RefusedPlugin>,
    tools: BTreeMap<String, Tool>,
}

impl Toolbox {
    /// Open plugins, several at a time. One that cannot be is refused by name; the others work. What is known is compiled when
    /// it is called first.
    ///
    /// # Panics
    /// If the engine panics while it loads one: a fault of deed itself.
    pub fn load(engine: Arc<Engine>, sources: &[PluginSource]) -> Self {
        let loaded: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = sources
                .iter()
                .map(|source| {
                    scope.spawn(|| engine.open(&source.name, source.bytes.clone(), &source.foreign))
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("loading a component ends with a value"))
                .collect()
        });
        let mut toolbox = Self { engine, plugins: Vec::new(), refused: Vec::new(), tools: BTreeMap::new() };
        for tool in HostTool::ALL {
            let name = tool.name().to_owned();
            toolbox.tools.insert(name, Tool::new(tool.descriptor(), Source::Host(tool)));
        }
        for (source, plugin) in sources.iter().zip(loaded) {
            let added = plugin.map_err(RefusalReason::from).and_then(|plugin| toolbox.add(plugin));
            if let Err(reason) = added {
                toolbox.refused.push(RefusedPlugin { name: source.name.clone(), reason });
            }
        }
        toolbox
    }

    fn add(&mut self, plugin: Plugin) -> Result<(), RefusalReason> {
        for tool in plugin.tools() {
            if let Some(other) = self.tools.get(&tool.name) {
                let other = self.plugin_of(other).to_owned();
                return Err(RefusalReason::NameTaken { tool: tool.name.clone(), other });
            }
        }
        for tool in plugin.tools() {
            let source = Source::Plugin(self.plugins.len());
            self.tools.insert(tool.name.clone(), Tool::new(tool.clone(), source));
        }
        self.plugins.push(plugin);
        Ok(())
    }

    /// Tell of a component that did not get as far as being loaded.
    pub fn refuse(&mut self, refused: RefusedPlugin) {
        self.refused.push(refused);
    }

    /// The engine that the plugins belong to.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Every tool, by name.
    pub fn tools(&self) -> impl Iterator<Item = &Tool> {
        self.tools.values()
    }

    /// The components that did not become plugins.
    pub fn refused(&self) -> &[RefusedPlugin] {
        &self.refused
    }

    /// The plugin that a tool comes from; none for the host's own.
    pub fn plugin(&self, tool: &Tool) -> Option<&Plugin> {
        match tool.source {
            Source::Host(_) => None,
            Source::Plugin(index) => self.plugins.get(index),
        }
    }

    /// The name of the plugin that a tool comes from.
    pub fn plugin_of(&self, tool: &Tool) -> &str {
        self.plugin(tool).map_or(HOST_PLUGIN, Plugin::name)
    }

    /// The component that a tool's calls run on; none for the host's own.
    pub fn component(&self, tool: &Tool) -> Option<Digest> {
        self.plugin(tool).map(Plugin::digest)
    }

    /// The plugin that is this component, if it is installed.
    pub fn installed(&self, component: Digest) -> Option<&Plugin> {
        self.plugins.iter().find(|plugin| plugin.digest() == component)
    }

    /// The bytes of an installed component.
    pub fn component_bytes(&self, component: Digest) -> Option<&[u8]> {
        self.installed(component).map(|plugin| &**plugin.bytes())
    }

    /// The tools that a run may call: those of `plugins` (all when none) and the host's own.
    ///
    /// # Errors
    /// A name that is neither a plugin nor a refused one.
    pub fn scope(&self, plugins: Option<&[String]>) -> Result<Scope, UnknownPlugin> {
        let Some(wanted) = plugins else {
            return Ok(Scope { names: self.tools.keys().cloned().collect() });
        };
        for name in wanted {
            let loaded = self.plugins.iter().any(|plugin| plugin.name() == name);
            if !loaded && self.refused.iter().all(|refused| refused.name != *name) {
                let mut known: Vec<_> =
                    self.plugins.iter().map(|plugin| format!("`{}`", plugin.name())).collect();
                known.sort();
                return Err(UnknownPlugin { name: name.clone(), known });
            }
        }
        let within = |tool: &&Tool| {
            tool.host_tool().is_some() || wanted.iter().any(|name| name == self.plugin_of(tool))
        };
        Ok(Scope { names: self.tools().filter(within).map(|tool| tool.descriptor.name.clone()).collect() })
    }

    /// The tool `name`, if it is within `scope`.
    ///
    /// # Errors
    /// What can be called in its place, and which plugins were refused.
    pub fn find(&self, scope: &Scope, name: &str) -> Result<&Tool, StepError> {
        self.tools.get(name).filter(|_| scope.names.contains(name)).ok_or_else(|| {
            let known: Vec<_> = scope.names.iter().map(|name| format!("`{name}`")).collect();
            let mut message = format!("there is no tool `{name}`: expected one of {}", known.join(", "));
            for refused in &self.refused {
                message.push_str("; ");
                message.push_str(&refused.to_string());
            }
            StepError { kind: "not-found".to_owned(), message, effect: EffectState::NotApplied }
        })
    }

    /// The tool `name`, if `args` fit it. Nothing runs.
    ///
    /// # Errors
    /// An unknown tool, or each argument that does not fit.
    pub fn check(&self, scope: &Scope, name: &str, args: &Value) -> Result<&Tool, StepError> {
        let tool = self.find(scope, name)?;
        match arguments::refusal(args).or_else(|| tool.misfit(args)) {
            None => Ok(tool),
            Some(misfit) => Err(StepError {
                kind: "invalid-arguments".to_owned(),
                message: format!("the arguments of `{name}` do not fit: {misfit}"),
                effect: EffectState::NotApplied,
            }),
        }
    }

    /// The tools of a scope, as a model sees them.
    pub fn descriptors(&self, scope: &Scope) -> Vec<ToolDescriptor> {
        self.tools()
            .filter(|tool| scope.names.contains(&tool.descriptor.name))
            .map(|tool| tool.descriptor.clone())
            .collect()
    }
}

/// The names of the tools that a run may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    names: BTreeSet<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::engine::{EffectClass, ToolTraits};

    fn misfit(schema: Value, args: &Value) -> Option<String> {
        let descriptor = ToolDescriptor {
            name: "t".into(),
            title: String::new(),
            description: String::new(),
            input_schema: schema,
            output_schema: None,
            effect: EffectClass::Pure,
            traits: ToolTraits::default(),
            timeout_ms: None,
        };
        Tool::new(descriptor, Source::Plugin(0)).misfit(args)
    }

    #[test]
    fn what_does_not_fit_is_told_with_its_place_what_was_expected_and_what_came() {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string" },
                "edits": { "type": "array", "items": {
                    "type": "object",
                    "properties": { "old": { "type": "string" }, "new": { "enum": ["a", "b"] } },
                    "additionalProperties": false,
                } },
            },
            "required": ["name"],
            "additionalProperties": false,
        });
        assert_eq!(misfit(schema.clone(), &json!({ "name": "x" })), None);
        let args = json!({ "nam": 1, "edits": [{ "old": 5, "new": "c", "news": 1 }] });
        let told = misfit(schema, &args).unwrap();
        for part in [
            r#"at `/edits/0/old`: 5 is not of type "string""#,
            r#"at `/edits/0/new`: "c" is not one of "a" or "b""#,
            "at `/edits/0`: Additional properties are not allowed ('news' was unexpected): expected any of `new`, `old`",
            "Additional properties are not allowed ('nam' was unexpected): expected any of `edits`, `name`",
            r#""name" is a required property"#,
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(
            misfit(json!({ "type": "object" }), &json!([1]))
                .unwrap()
                .starts_with("expected an object, got [1]")
        );
    }
}
