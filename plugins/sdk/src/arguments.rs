//! From JSON text to a tool's struct, with errors that a model can act on.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::tool::schema_of;

/// Parses `args`, the arguments of the tool called `tool`. Unknown fields are refused at any depth, whether or not the
/// type asks for it: a misspelt option that is dropped in silence would run another call than the model meant.
pub(crate) fn parse<T: DeserializeOwned + JsonSchema>(tool: &str, args: &str) -> Result<T> {
    let refuse = |what: String| Error::invalid(format!("failed to read the arguments of `{tool}`: {what}"));
    // By way of a `Value`, so that an error names the field and not a column.
    let value: Value = serde_json::from_str(args).map_err(|error| refuse(format!("not JSON: {error}")))?;
    let mut unknown = Vec::new();
    let mut note = |path: serde_ignored::Path<'_>| unknown.push(path.to_string());
    let fields = serde_ignored::Deserializer::new(value, &mut note);
    let parsed = serde_path_to_error::deserialize(fields).map_err(|error| {
        let path = error.path().to_string();
        let reason = error.into_inner().to_string();
        refuse(if path == "." { format!("{reason}{}", takes::<T>()) } else { format!("`{path}`: {reason}") })
    })?;
    if let Some(field) = unknown.first() {
        return Err(refuse(format!("unknown field `{field}`{}", takes::<T>())));
    }
    Ok(parsed)
}

/// The known alternatives: `; it takes "name", "greeting"`.
fn takes<T: JsonSchema>() -> String {
    let schema = schema_of::<T>();
    let names: Vec<String> = schema
        .get("properties")
        .and_then(Value::as_object)
        .map(|properties| properties.keys().map(|name| format!("`{name}`")).collect())
        .unwrap_or_default();
    if names.is_empty() {
        "; it takes no arguments".into()
    } else {
        format!("; it takes {}", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::error::ErrorKind;

    #[derive(Debug, Deserialize, JsonSchema)]
    struct Range {
        first: u32,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    struct Show {
        path: String,
        range: Option<Range>,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    struct Nothing {}

    fn refusal<T: DeserializeOwned + JsonSchema + std::fmt::Debug>(args: &str) -> String {
        let error = parse::<T>("show", args).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidArguments);
        error.message
    }

    #[test]
    fn fitting_arguments_are_parsed() {
        let show: Show = parse("show", r#"{"path": "a", "range": {"first": 3}}"#).unwrap();
        assert_eq!((show.path.as_str(), show.range.unwrap().first), ("a", 3));
    }

    #[test]
    fn a_wrong_type_names_the_path_of_the_field_and_what_was_expected() {
        assert_eq!(
            refusal::<Show>(r#"{"path": "a", "range": {"first": "x"}}"#),
            "failed to read the arguments of `show`: `range.first`: invalid type: string \"x\", expected u32"
        );
    }

    #[test]
    fn a_missing_field_is_named_with_what_there_is() {
        assert_eq!(
            refusal::<Show>("{}"),
            "failed to read the arguments of `show`: missing field `path`; it takes `path`, `range`"
        );
    }

    #[test]
    fn an_unknown_field_is_refused_at_any_depth() {
        assert_eq!(
            refusal::<Show>(r#"{"path": "a", "rnage": {}}"#),
            "failed to read the arguments of `show`: unknown field `rnage`; it takes `path`, `range`"
        );
        let deep = refusal::<Show>(r#"{"path": "a", "range": {"first": 1, "last": 2}}"#);
        assert!(deep.contains("unknown field `range.?.last`") || deep.contains("unknown field `range.last`"));
        assert!(
            refusal::<Nothing>(r#"{"all": true}"#).ends_with("unknown field `all`; it takes no arguments")
        );
    }

    #[test]
    fn text_that_is_no_json_is_refused() {
        assert!(refusal::<Show>("{").starts_with("failed to read the arguments of `show`: not JSON: EOF"));
    }
}
