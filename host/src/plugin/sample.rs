//! Arguments made up from a schema, to ask a tool something about a call that nobody makes.

use serde_json::{Map, Value, json};

/// Levels that are followed. A schema that refers to itself has no end.
const DEPTH: usize = 8;

/// A value that fits `schema`, as far as the common words of JSON Schema say: what is required, and nothing else. With
/// conditions and patterns it may not fit, and whoever takes it must be able to refuse it.
pub(super) fn sample(schema: &Value) -> Value {
    of(schema, schema, DEPTH)
}

fn of(schema: &Value, root: &Value, depth: usize) -> Value {
    let Some(depth) = depth.checked_sub(1) else { return Value::Null };
    if let Some(place) = schema.get("$ref").and_then(Value::as_str) {
        let target = place.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        return target.map_or(Value::Null, |target| of(target, root, depth));
    }
    if let Some(given) = ["const", "default"].iter().find_map(|word| schema.get(word)) {
        return given.clone();
    }
    let first = |word: &str| schema.get(word)?.as_array()?.first();
    if let Some(given) = first("examples").or_else(|| first("enum")) {
        return given.clone();
    }
    if let Some(part) = ["anyOf", "oneOf", "allOf"].iter().find_map(|word| first(word)) {
        return of(part, root, depth);
    }
    let kind = schema.get("type");
    match kind.and_then(Value::as_str).or_else(|| kind?.as_array()?.first()?.as_str()) {
        Some("object") => {
            let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
            let fields = required.filter_map(Value::as_str).map(|name| {
                let field = schema.get("properties").and_then(|properties| properties.get(name));
                (name.to_owned(), field.map_or(Value::Null, |field| of(field, root, depth)))
            });
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Some("array") => {
            let at_least = schema.get("minItems").and_then(Value::as_u64).unwrap_or_default();
            let item = schema.get("items").map_or(Value::Null, |items| of(items, root, depth));
            // One is enough to see an element: more would only be more of the same.
            Value::Array(vec![item; usize::from(at_least > 0)])
        }
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or(json!(1)),
        Some("boolean") => json!(true),
        Some("string") => json!("x"),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_required_is_made_up_and_nothing_else() {
        let schema = json!({
            "type": "object",
            "properties": {
                "method": { "enum": ["PUT", "GET"] },
                "path": { "$ref": "#/$defs/path" },
                "count": { "type": "integer", "minimum": 3 },
                "parts": { "type": "array", "minItems": 1, "items": { "type": "boolean" } },
                "more": { "type": "string" },
            },
            "required": ["method", "path", "count", "parts"],
            "$defs": { "path": { "type": ["string", "null"] } },
        });
        let made = sample(&schema);
        assert_eq!(made, json!({ "method": "PUT", "path": "x", "count": 3, "parts": [true] }));
        assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&made));
    }

    #[test]
    fn a_schema_without_an_end_comes_to_one() {
        let schema =
            json!({ "type": "object", "properties": { "next": { "$ref": "#" } }, "required": ["next"] });
        assert!(sample(&schema).is_object());
    }
}
