//! The exports of a component that are called, looked up once.

use wasmtime::component::{Component, InstancePre};

use super::bindings::{RECONCILE_EXPORT, TOOLS_EXPORT, ToolPre, probing::ToolWithProbePre};
use super::functions::{self, Functions};
use super::plugin::LoadError;
use super::state::CallState;

/// What of a component is called.
pub(super) enum Exports {
    /// The interface of deed's tools, and the one of probes, if there is one.
    Tools(ToolPre<CallState>, Option<ToolWithProbePre<CallState>>),
    /// Plain functions.
    Functions(Functions),
}

impl Exports {
    pub(super) fn probing(&self) -> Option<&ToolWithProbePre<CallState>> {
        match self {
            Self::Tools(_, probing) => probing.as_ref(),
            Self::Functions(_) => None,
        }
    }

    /// Its functions, when those are its tools.
    pub(super) fn functions(&self) -> Option<&Functions> {
        match self {
            Self::Tools(..) => None,
            Self::Functions(functions) => Some(functions),
        }
    }
}

/// Look up the exports.
pub(super) fn bind(
    name: &str,
    component: &Component,
    instance: InstancePre<CallState>,
) -> Result<Exports, LoadError> {
    if component.get_export_index(None, TOOLS_EXPORT).is_some() {
        return tools(name, component, instance);
    }
    let functions = functions::find(component, instance);
    if functions.list.is_empty() {
        return Err(LoadError::NoTools { name: name.to_owned(), unfit: functions.unfit });
    }
    Ok(Exports::Functions(functions))
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
