//! A loaded component and the tools it holds.

use std::fmt;

use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, InstancePre};

use super::bindings::{RECONCILE_EXPORT, TOOLS_EXPORT, ToolPre, probing::ToolWithProbePre};
use super::foreign::ForeignError;
use super::functions::{self, Functions, UnfitFunction, Wit};
use super::request::Abort;
use super::state::CallState;
use super::types::{Digest, ToolDescriptor};

/// What the host offers to a component, by interface; a version of the same `0.minor` or `major` fits.
const OFFERED: &[(&str, &[&str], (u64, u64))] = &[
    ("deed:tool", &["run", "types"], (0, 1)),
    ("deed:workspace", &["files"], (0, 1)),
    ("deed:process", &["exec"], (0, 1)),
    ("deed:git", &["remote", "repository"], (0, 1)),
    (
        "wasi:cli",
        &[
            "environment",
            "exit",
            "stdin",
            "stdout",
            "stderr",
            "terminal-input",
            "terminal-output",
            "terminal-stdin",
            "terminal-stdout",
            "terminal-stderr",
        ],
        (0, 2),
    ),
    ("wasi:clocks", &["monotonic-clock", "wall-clock"], (0, 2)),
    ("wasi:filesystem", &["types", "preopens"], (0, 2)),
    ("wasi:http", &["outgoing-handler", "types"], (0, 2)),
    ("wasi:io", &["error", "poll", "streams"], (0, 2)),
    ("wasi:random", &["random", "insecure", "insecure-seed"], (0, 2)),
    (
        "wasi:sockets",
        &[
            "instance-network",
            "ip-name-lookup",
            "network",
            "tcp",
            "tcp-create-socket",
            "udp",
            "udp-create-socket",
        ],
        (0, 2),
    ),
];

/// The interfaces that only effectful tools may use, and what pure ones do not do.
const EFFECTFUL_IMPORTS: [(&str, &str); 2] =
    [(PROCESS_IMPORT, "run no commands"), (HTTP_IMPORT, "reach no network")];

/// What it takes to run commands.
const GIT_IMPORT: &str = "deed:git/";
const HTTP_IMPORT: &str = "wasi:http/outgoing-handler";
const PROCESS_IMPORT: &str = "deed:process/exec";

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

/// A component that is ready to be called. Cheap to clone; clones are the same component.
#[derive(Clone)]
pub struct Plugin {
    name: String,
    digest: Digest,
    tools: Vec<ToolDescriptor>,
    pub(super) bindings: Bindings,
}

/// The component's exports, looked up once.
#[derive(Clone)]
pub(super) struct Bindings {
    pub(super) exports: Exports,
    runs_commands: bool,
    uses_git: bool,
    sends_requests: bool,
}

/// What of a component is called.
#[derive(Clone)]
pub(super) enum Exports {
    /// The interface of deed's tools, and the one of probes, if there is one.
    Tools(ToolPre<CallState>, Option<ToolWithProbePre<CallState>>),
    /// Plain functions.
    Functions(Functions),
}

impl Bindings {
    pub(super) fn probing(&self) -> Option<&ToolWithProbePre<CallState>> {
        match &self.exports {
            Exports::Tools(_, probing) => probing.as_ref(),
            Exports::Functions(_) => None,
        }
    }

    /// Its functions, when those are its tools.
    pub(super) fn functions(&self) -> Option<&Functions> {
        match &self.exports {
            Exports::Tools(..) => None,
            Exports::Functions(functions) => Some(functions),
        }
    }

    pub(super) fn functions_mut(&mut self) -> Option<&mut Functions> {
        match &mut self.exports {
            Exports::Tools(..) => None,
            Exports::Functions(functions) => Some(functions),
        }
    }
}

impl Plugin {
    pub(super) fn new(name: &str, digest: Digest, tools: Vec<ToolDescriptor>, bindings: Bindings) -> Self {
        Self { name: name.to_owned(), digest, tools, bindings }
    }

    /// What it was loaded as.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Of the component's bytes.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Its tools, in its own order.
    pub fn tools(&self) -> &[ToolDescriptor] {
        &self.tools
    }

    /// The tool of this name.
    pub fn tool(&self, name: &str) -> Option<&ToolDescriptor> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// Those of its functions that are no tools; none when its tools are no plain functions.
    pub fn unfit_functions(&self) -> &[UnfitFunction] {
        self.bindings.functions().map_or(&[], |functions| &functions.unfit)
    }

    /// Those of its functions that a WIT does not describe; every one when it describes another component.
    pub fn undescribed(&self, wit: &Wit) -> Vec<String> {
        self.bindings.functions().map_or_else(Vec::new, |functions| functions.clone().document(wit))
    }

    /// Whether its tools are plain functions, whose classes the operator gives.
    pub fn is_foreign(&self) -> bool {
        self.bindings.functions().is_some()
    }

    /// Whether its tools can run commands: it imports what that takes.
    pub fn runs_commands(&self) -> bool {
        self.bindings.runs_commands
    }

    /// Whether its tools can change a repository by the host's own hands: it imports what that takes.
    pub fn uses_git(&self) -> bool {
        self.bindings.uses_git
    }

    /// Whether its tools can send HTTP requests: it imports what that takes.
    pub fn sends_requests(&self) -> bool {
        self.bindings.sends_requests
    }

    /// Whether `tool` can tell after a crash if a call of it landed: it says so, and the component exports the probe.
    pub fn probes(&self, tool: &str) -> bool {
        self.bindings.probing().is_some() && self.tool(tool).is_some_and(|tool| tool.traits.probes)
    }
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin")
            .field("name", &self.name)
            .field("digest", &self.digest)
            .field("tools", &self.tools.iter().map(|tool| &tool.name).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// The imports of `component` that no capability offers, in its own order.
pub(super) fn missing_imports(engine: &wasmtime::Engine, component: &Component) -> Vec<String> {
    let ty = component.component_type();
    let imports = ty.imports(engine);
    imports
        // An import of nothing but types asks for nothing.
        .filter(|(_, import)| !matches!(import.ty, ComponentItem::Type(_)))
        .map(|(name, _)| name)
        .filter(|name| !is_offered(name))
        .map(ToOwned::to_owned)
        .collect()
}

fn is_offered(import: &str) -> bool {
    let Some((interface, version)) = import.split_once('@') else {
        return false;
    };
    let Some((package, interface)) = interface.split_once('/') else {
        return false;
    };
    let mut numbers = version.split(['.', '-', '+']).map(str::parse::<u64>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return false;
    };
    OFFERED.iter().any(|(offered, interfaces, version)| {
        *offered == package && interfaces.contains(&interface) && *version == (major, minor)
    })
}

/// Look up the exports.
pub(super) fn bind(
    name: &str,
    component: &Component,
    instance: InstancePre<CallState>,
) -> Result<Bindings, LoadError> {
    let exports = if component.get_export_index(None, TOOLS_EXPORT).is_some() {
        tools(name, component, instance)?
    } else {
        let functions = functions::find(component, instance);
        if functions.list.is_empty() {
            return Err(LoadError::NoTools { name: name.to_owned(), unfit: functions.unfit });
        }
        Exports::Functions(functions)
    };
    let ty = component.component_type();
    let imports = |interface| ty.imports(component.engine()).any(|(import, _)| import.starts_with(interface));
    Ok(Bindings {
        exports,
        runs_commands: imports(PROCESS_IMPORT),
        uses_git: imports(GIT_IMPORT),
        sends_requests: imports(HTTP_IMPORT),
    })
}

fn tools(name: &str, component: &Component, instance: InstancePre<CallState>) -> Result<Exports, LoadError> {
    let missing = |export, error: &wasmtime::Error| LoadError::MissingExport {
        name: name.to_owned(),
        export,
        reason: format!("{error:#}"),
    };
    let probing = match component.get_export_index(None, RECONCILE_EXPORT) {
        Some(_) => {
            let bound = ToolWithProbePre::new(instance.clone());
            Some(bound.map_err(|error| missing(RECONCILE_EXPORT, &error))?)
        }
        None => None,
    };
    let tools = ToolPre::new(instance).map_err(|error| missing(TOOLS_EXPORT, &error))?;
    Ok(Exports::Tools(tools, probing))
}

/// Refuse a component whose import none of its tools may use.
pub(super) fn check_use(
    name: &str,
    engine: &wasmtime::Engine,
    component: &Component,
    tools: &[ToolDescriptor],
) -> Result<(), LoadError> {
    let ty = component.component_type();
    if tools.iter().any(|tool| tool.effect.is_effectful()) {
        return Ok(());
    }
    for (import, _) in ty.imports(engine) {
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
