//! What a component is: any component, one that is no plugin included.

use std::collections::BTreeSet;

use deed_journal::Digest;
use serde::Serialize;

use super::needs::Need;
use crate::engine::{Engine, Foreign, Interface, LoadError, Plugin, Stubs, ToolDescriptor, UnfitFunction};

/// What a component exports, imports, holds and needs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Inspection {
    /// Of its bytes.
    pub digest: Digest,
    /// How many those are.
    pub size_bytes: usize,
    /// What it exports.
    pub exports: Vec<Export>,
    /// What it imports.
    pub imports: Vec<Import>,
    /// Its tools; none when it is no plugin.
    pub tools: Vec<ToolDescriptor>,
    /// What its imports come to.
    pub needs: BTreeSet<Need>,
    /// Whether its tools are plain functions, whose classes the operator gives.
    pub is_foreign: bool,
    /// Functions that cannot be tools.
    pub unfit_functions: Vec<UnfitFunction>,
    /// Why it is no plugin, if it is none.
    pub refused: Option<String>,
}

/// One of its exports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Export {
    /// As the component names it.
    pub name: String,
    /// What can be called.
    pub functions: Vec<String>,
}

/// One of its imports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Import {
    /// As the component names it.
    pub name: String,
    /// What it would call.
    pub functions: Vec<String>,
    /// Whether the host has it.
    pub offered: bool,
    /// What it asks for, if it asks for something.
    pub need: Option<Need>,
}

/// Look at a component of which the operator says this; `name` is what errors call it.
///
/// # Errors
/// [`LoadError::NotAComponent`]: of everything else that is wrong, the inspection tells.
pub fn inspect(
    engine: &Engine,
    name: &str,
    bytes: &[u8],
    foreign: &Foreign,
) -> Result<Inspection, LoadError> {
    let examined = engine.examine(name, bytes)?;
    let missing = examined.missing_imports();
    let imports: Vec<_> = examined
        .imports()
        .into_iter()
        .map(|Interface { name, functions, .. }| Import {
            offered: !missing.contains(&name),
            need: Need::of_import(&name),
            name,
            functions,
        })
        .collect();
    let exports =
        examined.exports().into_iter().map(|Interface { name, functions, .. }| Export { name, functions });
    // By the way in which it would be loaded, so that what is told here is what happens there. With every stub that it may
    // be given: it has the same functions without.
    let stubbed = Foreign { stubs: Stubs::Every, ..foreign.clone() };
    let (plugin, mut refused) = match examined.load(&stubbed) {
        Ok(plugin) => (Some(plugin), None),
        Err(error) => (None, Some(error.to_string())),
    };
    if !missing.is_empty() {
        refused = examined.load(foreign).err().map(|error| error.to_string());
    }
    Ok(Inspection {
        digest: examined.digest(),
        size_bytes: bytes.len(),
        exports: exports.collect(),
        needs: Need::of_imports(imports.iter().map(|import| &*import.name)),
        imports,
        is_foreign: plugin.as_ref().is_some_and(Plugin::is_foreign),
        unfit_functions: plugin.as_ref().map_or(&[][..], Plugin::unfit_functions).to_vec(),
        tools: plugin.map_or_else(Vec::new, |plugin| plugin.tools().to_vec()),
        refused,
    })
}
