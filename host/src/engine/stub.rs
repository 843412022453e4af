//! Imports with nothing behind them: whoever calls one ends its call.

use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, Linker, LinkerInstance, ResourceType};

use super::state::CallState;

/// A component called a stub.
#[derive(Debug, thiserror::Error)]
#[error("it called `{0}`, which is a stub: the host does not offer it")]
struct Called(String);

/// Something that nobody would own.
struct Nothing;

/// Put stubs in the place of these imports of `component`.
pub(super) fn define(
    linker: &mut Linker<CallState>,
    component: &Component,
    imports: &[String],
) -> wasmtime::Result<()> {
    let engine = component.engine();
    for (name, import) in component.component_type().imports(engine) {
        if !imports.iter().any(|import| import == name) {
            continue;
        }
        match import.ty {
            ComponentItem::ComponentInstance(instance) => {
                let mut stubs = linker.instance(name)?;
                for (item, export) in instance.exports(engine) {
                    stub(&mut stubs, item, &format!("{name}#{item}"), &export.ty)?;
                }
            }
            item => stub(&mut linker.root(), name, name, &item)?,
        }
    }
    Ok(())
}

fn stub(
    linker: &mut LinkerInstance<'_, CallState>,
    name: &str,
    full_name: &str,
    item: &ComponentItem,
) -> wasmtime::Result<()> {
    match item {
        ComponentItem::ComponentFunc(_) => {
            let full_name = full_name.to_owned();
            linker.func_new(name, move |_, _, _, _| Err(Called(full_name.clone()).into()))
        }
        ComponentItem::Resource(_) => linker.resource(name, ResourceType::host::<Nothing>(), |_, _| Ok(())),
        // Types ask for nothing. Modules and components are told by the linker, which finds nothing in their place.
        _ => Ok(()),
    }
}
