//! Components that know nothing of deed: each plain function that they export is a tool. Its arguments and its result are
//! converted by their types, its class is what the operator says.

mod convert;
mod docs;
mod schema;
mod shape;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use wasmtime::Store;
use wasmtime::component::types::{ComponentFunc, ComponentItem, Type};
use wasmtime::component::{Component, ComponentExportIndex, InstancePre, Val};

use self::convert::Misfit;
use self::shape::{Part, Shape, Shapes, part};
use super::bindings::deed::tool::types as wit;
use super::descriptor::Described;
use super::interface;
use super::state::CallState;
use super::types::{EffectClass, ToolTraits};

pub use self::docs::{Wit, WitError};

/// Packages whose exports have a meaning of their own: `wasi:cli/run` is a program, and not a function.
const NOT_PLAIN: [&str; 2] = ["wasi:", "deed:"];

/// The field that holds a result: a structured result is an object.
const RESULT: &str = "result";

/// The plain functions of a component.
#[derive(Clone)]
pub(super) struct Functions {
    pub(super) list: Vec<Function>,
    /// Those that are no tools.
    pub(super) unfit: Vec<UnfitFunction>,
    instance: InstancePre<CallState>,
}

/// A function that an export holds, and that cannot be a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnfitFunction {
    /// The function, with the interface that it is in.
    pub name: String,
    /// Why it is none.
    pub reason: String,
}

/// One function that is a tool.
#[derive(Clone)]
pub(super) struct Function {
    tool: String,
    interface: Option<String>,
    name: String,
    index: ComponentExportIndex,
    signature: String,
    docs: Option<String>,
    parameters: Vec<Part<Shape>>,
    result: Option<Shape>,
}

/// The plain functions that `component` exports.
pub(super) fn find(component: &Component, instance: InstancePre<CallState>) -> Functions {
    let engine = component.engine();
    let mut found = Functions { list: Vec::new(), unfit: Vec::new(), instance };
    for (name, export) in component.component_type().exports(engine) {
        match export.ty {
            ComponentItem::ComponentFunc(function) => found.take(component, None, name, &function),
            ComponentItem::ComponentInstance(instance)
                if !NOT_PLAIN.iter().any(|package| name.starts_with(package)) =>
            {
                for (function, export) in instance.exports(engine) {
                    if let ComponentItem::ComponentFunc(ty) = export.ty {
                        found.take(component, Some(name), function, &ty);
                    }
                }
            }
            _ => {}
        }
    }
    found.drop_doubles();
    found
}

impl Functions {
    fn take(&mut self, component: &Component, interface: Option<&str>, name: &str, ty: &ComponentFunc) {
        match Function::of(component, interface, name, ty) {
            Ok(function) => self.list.push(function),
            Err(reason) => self.unfit.push(UnfitFunction { name: full_name(interface, name), reason }),
        }
    }

    /// Functions of two interfaces that would go by one name: nobody could tell which is meant.
    fn drop_doubles(&mut self) {
        let names: Vec<_> = self.list.iter().map(|function| function.tool.clone()).collect();
        let is_double = |tool: &str| names.iter().filter(|name| *name == tool).count() > 1;
        let (doubles, rest) = self.list.drain(..).partition(|function| is_double(&function.tool));
        self.list = rest;
        self.unfit.extend(doubles.into_iter().map(|function: Function| UnfitFunction {
            reason: format!("another function would be called `{}` as well", function.tool),
            name: full_name(function.interface.as_deref(), &function.name),
        }));
    }

    /// The function that is this tool.
    pub(super) fn get(&self, tool: &str) -> Option<&Function> {
        self.list.iter().find(|function| function.tool == tool)
    }

    /// Every function, in the words in which plugins describe their tools.
    pub(super) fn described(&self) -> Vec<Described> {
        self.list.iter().map(Function::described).collect()
    }

    /// Take over what the WIT says. The names of functions that it does not know, or whose types it has otherwise.
    pub(super) fn document(&mut self, wit: &Wit) -> Vec<String> {
        let mut others = Vec::new();
        for function in &mut self.list {
            if !function.document(wit) {
                others.push(full_name(function.interface.as_deref(), &function.name));
            }
        }
        others
    }

    /// Call a function in a fresh instance.
    pub(super) async fn call(
        &self,
        store: &mut Store<CallState>,
        function: &Function,
        arguments: &[Val],
    ) -> wasmtime::Result<Option<Val>> {
        let instance = self.instance.instantiate_async(&mut *store).await?;
        let callee = instance
            .get_func(&mut *store, function.index)
            .ok_or_else(|| wasmtime::Error::msg("the function is gone from its component"))?;
        let mut results = vec![Val::Bool(false); usize::from(function.result.is_some())];
        callee.call_async(&mut *store, arguments, &mut results).await?;
        Ok(results.pop())
    }
}

fn full_name(interface: Option<&str>, name: &str) -> String {
    interface.map_or_else(|| name.to_owned(), |interface| format!("{interface}#{name}"))
}

/// `ops-add` for `add` of `docs:calculator/ops@1.0.0`. An interface that comes later changes no name.
fn tool_name(interface: Option<&str>, name: &str) -> String {
    let Some(interface) = interface else { return name.to_owned() };
    let interface = interface.split_once('@').map_or(interface, |(interface, _)| interface);
    let interface = interface.rsplit_once('/').map_or(interface, |(_, interface)| interface);
    format!("{interface}-{name}")
}

impl Function {
    fn of(
        component: &Component,
        interface: Option<&str>,
        name: &str,
        ty: &ComponentFunc,
    ) -> Result<Self, String> {
        if ty.async_() {
            return Err("it is asynchronous, which the host does not call".to_owned());
        }
        if name.starts_with('[') {
            return Err("it belongs to a resource, which no JSON can hold".to_owned());
        }
        let tool = tool_name(interface, name);
        if !super::descriptor::is_tool_name(&tool) {
            return Err(format!(
                "`{tool}` is no name of a tool: expected at most 64 letters, digits, `_` and `-`"
            ));
        }
        let mut shapes = Shapes::new();
        let parameters = ty.params().map(|(name, ty)| match shapes.of(&ty) {
            Ok(shape) => Ok(part(name, shape)),
            Err(unfit) => Err(format!("its parameter `{name}` has {unfit}")),
        });
        let parameters = parameters.collect::<Result<_, _>>()?;
        let of_result = |ty: Type| shapes.of(&ty).map_err(|unfit| format!("its result has {unfit}"));
        let result = ty.results().next().map(of_result).transpose()?;
        let at = match interface {
            Some(interface) => component.get_export_index(None, interface).map(Some),
            None => Some(None),
        };
        let index = at.and_then(|at| component.get_export_index(at.as_ref(), name));
        Ok(Self {
            tool,
            interface: interface.map(ToOwned::to_owned),
            name: name.to_owned(),
            index: index.ok_or("it cannot be looked up")?,
            signature: interface::signature(name, ty),
            docs: None,
            parameters,
            result,
        })
    }

    fn document(&mut self, wit: &Wit) -> bool {
        let Some(function) = wit.function(self.interface.as_deref(), &self.name) else { return false };
        // Into a copy: of a WIT that says something else, nothing is taken over.
        let mut parameters = self.parameters.clone();
        let mut result = self.result.clone();
        let fits = parameters.len() == function.params.len()
            && parameters.iter_mut().zip(&function.params).all(|(parameter, param)| {
                parameter.name == param.name
                    && wit.describe(&mut parameter.of, &param.ty).is_ok_and(|docs| {
                        parameter.docs = docs;
                        true
                    })
            })
            && match (&mut result, &function.result) {
                (None, None) => true,
                (Some(shape), Some(ty)) => wit.describe(shape, ty).is_ok(),
                _ => false,
            };
        if fits {
            self.docs = docs::words(&function.docs);
            (self.parameters, self.result) = (parameters, result);
        }
        fits
    }

    fn described(&self) -> Described {
        let place = self.interface.as_deref().map(|interface| format!(" of `{interface}`"));
        let signature = format!("`{}`{}", self.signature, place.unwrap_or_default());
        Described {
            name: self.tool.clone(),
            title: self.name.replace('-', " "),
            // The signature says what the schema cannot: the names that the author gave.
            description: match &self.docs {
                Some(docs) => format!("{docs}\n\nThe function {signature}."),
                None => format!("The function {signature}."),
            },
            input_schema: schema::record(&self.parameters).to_string(),
            output_schema: self
                .returned()
                .map(|shape| schema::tagged(RESULT, &schema::of(shape)).to_string()),
            effect: EffectClass::NonIdempotent,
            traits: ToolTraits::default(),
            timeout_ms: None,
        }
    }

    /// What a call that did not fail returns.
    fn returned(&self) -> Option<&Shape> {
        match self.result.as_ref()? {
            Shape::Result(ok, _) => ok.as_deref(),
            shape => Some(shape),
        }
    }

    /// The values that a call's arguments stand for.
    pub(super) fn arguments(&self, args: &str) -> Result<Vec<Val>, String> {
        let object: Map<String, Value> =
            serde_json::from_str(args).map_err(|error| format!("they are no JSON object: {error}"))?;
        let values =
            convert::to_fields(&self.parameters, &object).map_err(|misfit: Misfit| misfit.to_string())?;
        Ok(values.into_iter().map(|(_, value)| value).collect())
    }

    /// What a call returned, in the words in which plugins return it. A `result` on the outside is how the call ended, and
    /// not a value.
    pub(super) fn outcome(&self, returned: Option<&Val>) -> Option<Result<wit::Output, wit::Error>> {
        let value = match (self.result.as_ref(), returned) {
            (None, _) => None,
            (Some(Shape::Result(_, err)), Some(Val::Result(Err(error)))) => {
                return Some(Err(failed(&convert::side(err.as_deref(), error.as_deref())?)));
            }
            (Some(Shape::Result(ok, _)), Some(Val::Result(Ok(value)))) => match (ok, value) {
                (Some(shape), Some(value)) => Some(convert::to_json(shape, value)?),
                _ => None,
            },
            (Some(shape), Some(value)) => Some(convert::to_json(shape, value)?),
            (Some(_), None) => return None,
        };
        Some(Ok(output(value)))
    }
}

fn output(value: Option<Value>) -> wit::Output {
    let text = match &value {
        None => "done".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    wit::Output {
        structured: value.map(|value| json!({ RESULT: value }).to_string()),
        content: vec![wit::Content::Text(text)],
        landed_before: false,
    }
}

/// An error in the function's own words. Whether it had an effect is not among them.
fn failed(error: &Value) -> wit::Error {
    let message = match error {
        Value::Null => "the function failed, and does not say why".to_owned(),
        Value::String(text) => text.clone(),
        error => error.to_string(),
    };
    wit::Error { kind: wit::ErrorKind::Internal, message, effect: wit::EffectState::Unknown }
}

#[cfg(test)]
mod tests;
