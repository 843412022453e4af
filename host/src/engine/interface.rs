//! What a component imports and exports, as text in the manner of WIT. Of records and their like a component keeps the
//! shape and not the name, so the shape is what is shown.

use wasmtime::component::Component;
use wasmtime::component::types::{ComponentFunc, ComponentItem, Type};

/// Levels of a type that are shown. What is deeper is nothing that anybody reads.
const DEPTH: usize = 6;

/// An import or an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// As the component names it, with its version: `wasi:http/types@0.2.6`. A plain function has a plain name.
    pub name: String,
    /// Its functions, each as `name: func(…) -> …`.
    pub functions: Vec<String>,
    /// It holds types, and nothing that could be called or offered.
    pub is_types: bool,
}

/// What a component imports, in its own order.
pub(super) fn imports(engine: &wasmtime::Engine, component: &Component) -> Vec<Interface> {
    let ty = component.component_type();
    ty.imports(engine).map(|(name, import)| interface(engine, name, &import.ty)).collect()
}

/// What a component exports, in its own order.
pub(super) fn exports(engine: &wasmtime::Engine, component: &Component) -> Vec<Interface> {
    let ty = component.component_type();
    ty.exports(engine).map(|(name, export)| interface(engine, name, &export.ty)).collect()
}

fn interface(engine: &wasmtime::Engine, name: &str, item: &ComponentItem) -> Interface {
    let functions = match item {
        ComponentItem::ComponentFunc(function) => vec![signature(name, function)],
        ComponentItem::ComponentInstance(instance) => instance
            .exports(engine)
            .filter_map(|(name, export)| match export.ty {
                ComponentItem::ComponentFunc(function) => Some(signature(name, &function)),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    };
    let is_types = match item {
        ComponentItem::Type(_) => true,
        ComponentItem::ComponentInstance(instance) => {
            functions.is_empty()
                && instance.exports(engine).all(|(_, export)| matches!(export.ty, ComponentItem::Type(_)))
        }
        _ => false,
    };
    Interface { name: name.to_owned(), functions, is_types }
}

pub(super) fn signature(name: &str, function: &ComponentFunc) -> String {
    let parameters: Vec<_> =
        function.params().map(|(name, ty)| format!("{name}: {}", shape(&ty, DEPTH))).collect();
    let result = function.results().next().map(|ty| format!(" -> {}", shape(&ty, DEPTH)));
    format!("{name}: func({}){}", parameters.join(", "), result.unwrap_or_default())
}

fn shape(ty: &Type, depth: usize) -> String {
    let Some(depth) = depth.checked_sub(1) else { return "…".to_owned() };
    let inner = |ty: &Type| shape(ty, depth);
    let optional = |ty: Option<Type>| ty.map_or_else(|| "_".to_owned(), |ty| inner(&ty));
    let named = |kind: &str, parts: Vec<String>| format!("{kind} {{ {} }}", parts.join(", "));
    let plain = match ty {
        Type::Bool => "bool",
        Type::S8 => "s8",
        Type::U8 => "u8",
        Type::S16 => "s16",
        Type::U16 => "u16",
        Type::S32 => "s32",
        Type::U32 => "u32",
        Type::S64 => "s64",
        Type::U64 => "u64",
        Type::Float32 => "f32",
        Type::Float64 => "f64",
        Type::Char => "char",
        Type::String => "string",
        Type::ErrorContext => "error-context",
        // The name of a resource is not kept either.
        Type::Own(_) => "resource",
        Type::Borrow(_) => "borrow<resource>",
        Type::Future(_) => "future",
        Type::Stream(_) => "stream",
        Type::List(list) => return format!("list<{}>", inner(&list.ty())),
        // Its length is not told.
        Type::FixedLengthList(list) => return format!("list<{}, …>", inner(&list.ty())),
        Type::Map(map) => return format!("map<{}, {}>", inner(&map.key()), inner(&map.value())),
        Type::Option(option) => return format!("option<{}>", inner(&option.ty())),
        Type::Result(result) => {
            return match (result.ok(), result.err()) {
                (None, None) => "result".to_owned(),
                (ok, None) => format!("result<{}>", optional(ok)),
                (ok, err) => format!("result<{}, {}>", optional(ok), optional(err)),
            };
        }
        Type::Tuple(tuple) => {
            let parts: Vec<_> = tuple.types().map(|ty| inner(&ty)).collect();
            return format!("tuple<{}>", parts.join(", "));
        }
        Type::Record(record) => {
            let fields = record.fields().map(|field| format!("{}: {}", field.name, inner(&field.ty)));
            return named("record", fields.collect());
        }
        Type::Variant(variant) => {
            let cases = variant.cases().map(|case| match &case.ty {
                Some(ty) => format!("{}({})", case.name, inner(ty)),
                None => case.name.to_owned(),
            });
            return named("variant", cases.collect());
        }
        Type::Enum(cases) => return named("enum", cases.names().map(ToOwned::to_owned).collect()),
        Type::Flags(flags) => return named("flags", flags.names().map(ToOwned::to_owned).collect()),
    };
    plain.to_owned()
}
