//! JSON Schema (2020-12) of the types of plain functions.
//!
//! Integers have their bounds; those of 64 bits are strings, since most readers of JSON would round them. Floats that are no
//! numbers are strings. A list of bytes is Base64. An option is the value or `null`, and a field that is one may be left out. A
//! case with a payload is an object of one field, one without is a string.

use serde_json::{Map, Value, json};

use super::shape::{Float, Long, Part, Shape};

/// What every float but numbers is called.
pub(super) const NAN: &str = "NaN";
/// See [`NAN`].
pub(super) const INFINITY: &str = "Infinity";
/// See [`NAN`].
pub(super) const NEGATIVE_INFINITY: &str = "-Infinity";

/// The schema of a shape.
pub(super) fn of(shape: &Shape) -> Value {
    match shape {
        Shape::Bool => json!({ "type": "boolean" }),
        Shape::Integer(integer) => {
            let (least, greatest) = integer.bounds();
            json!({ "type": "integer", "minimum": least, "maximum": greatest })
        }
        Shape::Long(long) => {
            let (pattern, description) = match long {
                Long::S64 => ("^-?(0|[1-9][0-9]{0,18})$", "a signed integer of 64 bits, in decimal"),
                Long::U64 => ("^(0|[1-9][0-9]{0,19})$", "an unsigned integer of 64 bits, in decimal"),
            };
            json!({ "type": "string", "pattern": pattern, "description": description })
        }
        Shape::Float(float) => {
            let number = match float {
                Float::F32 => json!({ "type": "number", "minimum": f32::MIN, "maximum": f32::MAX }),
                Float::F64 => json!({ "type": "number" }),
            };
            json!({ "anyOf": [number, { "enum": [NAN, INFINITY, NEGATIVE_INFINITY] }] })
        }
        Shape::Char => json!({ "type": "string", "minLength": 1, "maxLength": 1 }),
        Shape::String => json!({ "type": "string" }),
        Shape::Bytes => json!({ "type": "string", "contentEncoding": "base64" }),
        Shape::List(item) => json!({ "type": "array", "items": of(item) }),
        Shape::Tuple(items) => {
            let count = items.len();
            let items: Vec<_> = items.iter().map(of).collect();
            json!({ "type": "array", "prefixItems": items, "minItems": count, "maxItems": count })
        }
        Shape::Record(fields) => record(fields),
        Shape::Variant(cases) => {
            let cases = cases.iter().map(|case| {
                let schema = case.of.as_ref().map_or_else(
                    || json!({ "const": case.name }),
                    |payload| tagged(&case.name, &of(payload)),
                );
                described(schema, case.docs.as_deref())
            });
            json!({ "oneOf": cases.collect::<Vec<_>>() })
        }
        Shape::Enum(cases) if cases.iter().all(|case| case.docs.is_none()) => {
            json!({ "type": "string", "enum": names(cases) })
        }
        Shape::Enum(cases) => {
            let cases =
                cases.iter().map(|case| described(json!({ "const": case.name }), case.docs.as_deref()));
            json!({ "type": "string", "oneOf": cases.collect::<Vec<_>>() })
        }
        Shape::Flags(flags) => {
            let docs: Vec<_> = flags
                .iter()
                .filter_map(|flag| Some(format!("`{}`: {}", flag.name, flag.docs.as_deref()?)))
                .collect();
            let items = json!({ "type": "string", "enum": names(flags) });
            let schema = json!({ "type": "array", "items": items, "uniqueItems": true });
            described(schema, (!docs.is_empty()).then(|| docs.join("\n")).as_deref())
        }
        Shape::Option(inner) => {
            let some = if inner.takes_null() { tagged("some", &of(inner)) } else { of(inner) };
            json!({ "anyOf": [some, { "type": "null" }] })
        }
        Shape::Result(ok, err) => {
            let side = |name, shape: &Option<Box<Shape>>| {
                tagged(name, &shape.as_deref().map_or_else(|| json!({ "type": "null" }), of))
            };
            json!({ "oneOf": [side("ok", ok), side("err", err)] })
        }
    }
}

/// An object with these fields and no others. A field that may be `null` may be left out.
pub(super) fn record(fields: &[Part<Shape>]) -> Value {
    let properties: Map<String, Value> = fields
        .iter()
        .map(|field| (field.name.clone(), described(of(&field.of), field.docs.as_deref())))
        .collect();
    let required: Vec<_> =
        fields.iter().filter(|field| !field.of.takes_null()).map(|field| &field.name).collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// An object with one field.
pub(super) fn tagged(name: &str, schema: &Value) -> Value {
    json!({
        "type": "object",
        "properties": { name: schema },
        "required": [name],
        "additionalProperties": false,
    })
}

/// What the WIT says comes first; what the type says by itself stays behind it.
fn described(mut schema: Value, docs: Option<&str>) -> Value {
    if let (Some(schema), Some(docs)) = (schema.as_object_mut(), docs) {
        let by_type = schema.get("description").and_then(Value::as_str);
        let text = by_type.map_or_else(|| docs.to_owned(), |by_type| format!("{docs} ({by_type})"));
        schema.insert("description".to_owned(), Value::String(text));
    }
    schema
}

fn names(parts: &[Part<()>]) -> Vec<&str> {
    parts.iter().map(|part| &*part.name).collect()
}
