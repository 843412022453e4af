//! A component that is a plugin, and the tools that it holds.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::bindings::TOOLS_EXPORT;
use super::exports::Exports;
use super::facts::{Facts, HTTP_IMPORT, PROCESS_IMPORT};
use super::foreign::{Foreign, ForeignError};
use super::functions::{UnfitFunction, Wit};
use super::request::Abort;
use super::types::{Digest, ToolDescriptor};

/// The interfaces that only effectful tools may use, and what pure ones do not do.
const EFFECTFUL_IMPORTS: [(&str, &str); 2] =
    [(PROCESS_IMPORT, "run no commands"), (HTTP_IMPORT, "reach no network")];

/// Why a component is no plugin.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The bytes are no WebAssembly component, or one that uses what the engine does not support.
    #[error("load plugin `{name}`: not a WebAssembly component: {reason}")]
    NotAComponent {
        /// The plugin.
        name: String,
        /// In the engine's words.
        reason: String,
    },
    /// It imports what the host does not offer.
    #[error("load plugin `{name}`: it imports what the host does not offer: {}", list(missing))]
    MissingImports {
        /// The plugin.
        name: String,
        /// Each of them, with its version.
        missing: Vec<String>,
    },
    /// An import has a known name and another shape, or none of its tools may use it.
    #[error("load plugin `{name}`: {reason}")]
    UnusableImport {
        /// The plugin.
        name: String,
        /// Which import, and why.
        reason: String,
    },
    /// It exports neither tools nor a function that can be one.
    #[error(
        "load plugin `{name}`: it exports neither `{TOOLS_EXPORT}` nor a plain function that can be a tool{}",
        reasons(unfit)
    )]
    NoTools {
        /// The plugin.
        name: String,
        /// The functions that it does export.
        unfit: Vec<UnfitFunction>,
    },
    /// What the operator says of it does not fit it.
    #[error("load plugin `{name}`: {error}")]
    Foreign {
        /// The plugin.
        name: String,
        /// What does not fit.
        error: ForeignError,
    },
    /// It does not export the tools interface, or in another shape.
    #[error("load plugin `{name}`: it does not export `{export}`: {reason}")]
    MissingExport {
        /// The plugin.
        name: String,
        /// The interface.
        export: &'static str,
        /// In the engine's words.
        reason: String,
    },
    /// Its `describe` did not come to its end.
    #[error("load plugin `{name}`: describe its tools: {abort}")]
    Describe {
        /// The plugin.
        name: String,
        /// How it ended.
        abort: Abort,
    },
    /// A descriptor is not what the interface asks for.
    #[error("load plugin `{name}`: tool `{tool}`: {reason}")]
    InvalidDescriptor {
        /// The plugin.
        name: String,
        /// The tool, as the plugin names it.
        tool: String,
        /// What is wrong, and what was expected.
        reason: String,
    },
}

fn list(items: &[String]) -> String {
    let quoted: Vec<String> = items.iter().map(|item| format!("`{item}`")).collect();
    quoted.join(", ")
}

fn reasons(unfit: &[UnfitFunction]) -> String {
    let reasons = unfit.iter().map(|function| format!("; `{}`: {}", function.name, function.reason));
    reasons.collect()
}

/// A component that is known by what it says of its tools, and compiled when it is called first. Cheap to clone; clones are
/// the same component.
#[derive(Clone)]
pub struct Plugin(Arc<Inner>);

struct Inner {
    name: String,
    digest: Digest,
    /// With the classes that the operator gave them.
    tools: Vec<ToolDescriptor>,
    facts: Facts,
    foreign: Foreign,
    bytes: Bytes,
    /// Once it is compiled.
    exports: OnceLock<Result<Exports, LoadError>>,
}

impl Plugin {
    /// A plugin that is not compiled.
    pub(super) fn new(
        name: &str,
        bytes: Bytes,
        digest: Digest,
        facts: Facts,
        foreign: &Foreign,
    ) -> Result<Self, LoadError> {
        let mut tools = facts.tools.clone();
        foreign
            .assign(facts.are_functions(), &mut tools)
            .map_err(|error| LoadError::Foreign { name: name.to_owned(), error })?;
        let (name, foreign) = (name.to_owned(), foreign.clone());
        Ok(Self(Arc::new(Inner { name, digest, tools, facts, foreign, bytes, exports: OnceLock::new() })))
    }

    /// Its exports; `compile` makes them when nobody has asked before.
    pub(super) fn exports(
        &self,
        compile: impl FnOnce(&Self) -> Result<Exports, LoadError>,
    ) -> Result<&Exports, &LoadError> {
        self.0.exports.get_or_init(|| compile(self)).as_ref()
    }

    /// Whether it is compiled.
    pub(super) fn is_ready(&self) -> bool {
        self.0.exports.get().is_some()
    }

    /// What the operator says of it.
    pub(super) fn foreign(&self) -> &Foreign {
        &self.0.foreign
    }

    /// What it was loaded as.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The component.
    pub fn bytes(&self) -> &Bytes {
        &self.0.bytes
    }

    /// Of the component's bytes.
    pub fn digest(&self) -> Digest {
        self.0.digest
    }

    /// Its tools, in its own order.
    pub fn tools(&self) -> &[ToolDescriptor] {
        &self.0.tools
    }

    /// The tool of this name.
    pub fn tool(&self, name: &str) -> Option<&ToolDescriptor> {
        self.tools().iter().find(|tool| tool.name == name)
    }

    /// Those of its functions that are no tools; none when its tools are no plain functions.
    pub fn unfit_functions(&self) -> &[UnfitFunction] {
        self.0.facts.unfit_functions.as_deref().unwrap_or_default()
    }

    /// Those of its functions that a WIT does not describe, every one when it describes another component. None of a plugin
    /// that is not compiled, or whose tools are no functions.
    pub fn undescribed(&self, wit: &Wit) -> Vec<String> {
        let exports = self.0.exports.get().and_then(|exports| exports.as_ref().ok());
        let functions = exports.and_then(Exports::functions);
        functions.map_or_else(Vec::new, |functions| functions.clone().document(wit))
    }

    /// Whether its tools are plain functions, whose classes the operator gives.
    pub fn is_foreign(&self) -> bool {
        self.0.facts.are_functions()
    }

    /// Whether its tools can run commands: it imports what that takes.
    pub fn runs_commands(&self) -> bool {
        self.0.facts.runs_commands()
    }

    /// Whether its tools can change a repository by the host's own hands: it imports what that takes.
    pub fn uses_git(&self) -> bool {
        self.0.facts.uses_git()
    }

    /// Whether its tools can send HTTP requests: it imports what that takes.
    pub fn sends_requests(&self) -> bool {
        self.0.facts.sends_requests()
    }

    /// Whether `tool` can tell after a crash if a call of it landed: it says so, and the component exports the probe.
    pub fn probes(&self, tool: &str) -> bool {
        self.0.facts.exports_probe && self.tool(tool).is_some_and(|tool| tool.traits.probes)
    }
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin")
            .field("name", &self.name())
            .field("digest", &self.digest())
            .field("tools", &self.tools().iter().map(|tool| &tool.name).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// Refuse a component whose import none of its tools may use.
pub(super) fn check_use(name: &str, facts: &Facts) -> Result<(), LoadError> {
    if facts.tools.iter().any(|tool| tool.effect.is_effectful()) {
        return Ok(());
    }
    for import in &facts.imports {
        let useless = EFFECTFUL_IMPORTS.iter().find(|(interface, _)| import.starts_with(interface));
        if let Some((interface, what)) = useless {
            return Err(LoadError::UnusableImport {
                name: name.to_owned(),
                reason: format!("it imports `{interface}`, and all its tools are pure, which {what}"),
            });
        }
    }
    Ok(())
}
