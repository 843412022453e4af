//! What a component says of itself. It is kept, so that its tools can be listed and planned before it is compiled.

use serde::{Deserialize, Serialize};
use wasmtime::component::Component;
use wasmtime::component::types::ComponentItem;

use super::functions::UnfitFunction;
use super::types::{Digest, ToolDescriptor};

/// What it takes to run commands.
pub(super) const PROCESS_IMPORT: &str = "deed:process/exec";
/// What it takes to change a repository by the host's hands.
const GIT_IMPORT: &str = "deed:git/";
/// What it takes to send HTTP requests.
pub(super) const HTTP_IMPORT: &str = "wasi:http/outgoing-handler";

/// What is known of a component without compiling it again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Facts {
    /// Its tools. Of functions, before the operator gave them classes.
    pub(super) tools: Vec<ToolDescriptor>,
    /// What it imports, but for what asks for nothing.
    pub(super) imports: Vec<String>,
    /// Whether it exports the interface of probes.
    pub(super) exports_probe: bool,
    /// Those of its functions that are no tools, when its tools are functions.
    pub(super) unfit_functions: Option<Vec<UnfitFunction>>,
}

impl Facts {
    /// What they are kept under: the component, and the WIT whose words are among them.
    pub(super) fn key(component: Digest, wit: Option<&str>) -> Digest {
        match wit {
            None => component,
            Some(wit) => Digest::of(&[component.as_bytes(), wit.as_bytes()].concat()),
        }
    }

    /// Whether its tools are plain functions.
    pub(super) fn are_functions(&self) -> bool {
        self.unfit_functions.is_some()
    }

    /// Whether its tools can run commands.
    pub(super) fn runs_commands(&self) -> bool {
        self.imports(PROCESS_IMPORT)
    }

    /// Whether its tools can change a repository by the host's own hands.
    pub(super) fn uses_git(&self) -> bool {
        self.imports(GIT_IMPORT)
    }

    /// Whether its tools can send HTTP requests.
    pub(super) fn sends_requests(&self) -> bool {
        self.imports(HTTP_IMPORT)
    }

    fn imports(&self, interface: &str) -> bool {
        self.imports.iter().any(|import| import.starts_with(interface))
    }
}

/// The imports of a component that ask for something, in its own order. An import of nothing but types does not.
pub(super) fn imports(component: &Component) -> Vec<String> {
    let engine = component.engine();
    let ty = component.component_type();
    let imports = ty.imports(engine).filter(|(_, import)| !matches!(import.ty, ComponentItem::Type(_)));
    imports.map(|(name, _)| name.to_owned()).collect()
}
