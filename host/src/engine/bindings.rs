//! The WIT as Rust, and between it and the plain types of [`super::types`].

use serde_json::Value;

use super::limits::{MESSAGE_BYTES, OUTPUT_DEPTH, shortened};
use super::types::{
    Content, EffectClass, EffectPlan, EffectState, FailureKind, Output, ToolFailure, ToolTraits,
};

wasmtime::component::bindgen!({
    path: "../wit/tool",
    world: "deed:tool/tool",
    imports: { default: trappable },
    exports: { default: async },
});

/// The second world: a component that can also tell whether a call landed. It shares the types of the first.
pub(crate) mod probing {
    wasmtime::component::bindgen!({
        path: "../wit/tool",
        world: "deed:tool/tool-with-probe",
        imports: { default: trappable },
        exports: { default: async },
        with: {
            "deed:tool/types": super::deed::tool::types,
            "deed:tool/run": super::deed::tool::run,
        },
    });
}

use self::deed::tool::types as wit;

/// The interfaces a component exports, as its bytes name them.
pub(crate) const TOOLS_EXPORT: &str = "deed:tool/tools@0.1.0";
/// See [`TOOLS_EXPORT`].
pub(crate) const RECONCILE_EXPORT: &str = "deed:tool/reconcile@0.1.0";

/// A structured result that is no JSON text, or one that could not be read back from a record.
#[derive(Debug, thiserror::Error)]
pub enum NotJson {
    #[error("the structured result is no JSON: {0}")]
    Syntax(#[from] serde_json::Error),
    #[error("the structured result is nested deeper than {OUTPUT_DEPTH} levels")]
    TooDeep,
}

/// Whether `value` has at most `levels` levels.
fn is_within(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| is_within(item, levels - 1)),
        Value::Object(fields) => levels > 0 && fields.values().all(|field| is_within(field, levels - 1)),
        _ => true,
    }
}

impl From<wit::EffectClass> for EffectClass {
    fn from(class: wit::EffectClass) -> Self {
        match class {
            wit::EffectClass::Pure => Self::Pure,
            wit::EffectClass::Idempotent => Self::Idempotent,
            wit::EffectClass::NonIdempotent => Self::NonIdempotent,
        }
    }
}

impl From<wit::ToolTraits> for ToolTraits {
    fn from(traits: wit::ToolTraits) -> Self {
        Self {
            destructive: traits.contains(wit::ToolTraits::DESTRUCTIVE),
            open_world: traits.contains(wit::ToolTraits::OPEN_WORLD),
            refines: traits.contains(wit::ToolTraits::REFINES),
            probes: traits.contains(wit::ToolTraits::PROBES),
        }
    }
}

impl From<wit::EffectPlan> for EffectPlan {
    fn from(plan: wit::EffectPlan) -> Self {
        let shortened = |text| shortened(text, MESSAGE_BYTES);
        Self {
            effect: plan.effect.into(),
            target: plan.target.map(shortened),
            summary: shortened(plan.summary),
        }
    }
}

impl From<wit::Error> for ToolFailure {
    fn from(error: wit::Error) -> Self {
        let kind = match error.kind {
            wit::ErrorKind::InvalidArguments => FailureKind::InvalidArguments,
            wit::ErrorKind::NotFound => FailureKind::NotFound,
            wit::ErrorKind::Denied => FailureKind::Denied,
            wit::ErrorKind::Conflict => FailureKind::Conflict,
            wit::ErrorKind::Unavailable => FailureKind::Unavailable,
            wit::ErrorKind::Cancelled => FailureKind::Cancelled,
            wit::ErrorKind::Internal => FailureKind::Internal,
        };
        let effect = match error.effect {
            wit::EffectState::NotApplied => EffectState::NotApplied,
            wit::EffectState::Applied => EffectState::Applied,
            wit::EffectState::Unknown => EffectState::Unknown,
        };
        Self { kind, message: error.message, effect, refusals: Vec::new() }
    }
}

impl TryFrom<wit::Output> for Output {
    type Error = NotJson;

    fn try_from(output: wit::Output) -> Result<Self, NotJson> {
        let structured: Option<Value> = output.structured.as_deref().map(serde_json::from_str).transpose()?;
        if structured.as_ref().is_some_and(|value| !is_within(value, OUTPUT_DEPTH)) {
            return Err(NotJson::TooDeep);
        }
        let content = output.content.into_iter().map(|part| match part {
            wit::Content::Text(text) => Content::Text(text),
            wit::Content::Blob(wit::Blob { media_type, data }) => Content::Blob { media_type, data },
        });
        Ok(Self { structured, content: content.collect(), landed_before: output.landed_before })
    }
}
