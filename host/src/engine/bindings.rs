//! The WIT as Rust, and between it and the plain types of [`super::types`].

use serde_json::Value;

use super::types::{
    Content, EffectClass, EffectPlan, EffectState, FailureKind, Output, ToolFailure, ToolTraits, Verdict,
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

/// A structured result that is no JSON text.
#[derive(Debug, thiserror::Error)]
#[error("the structured result is no JSON: {0}")]
pub struct NotJson(#[from] serde_json::Error);

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
        Self { effect: plan.effect.into(), target: plan.target, summary: plan.summary }
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
        let content = output.content.into_iter().map(|part| match part {
            wit::Content::Text(text) => Content::Text(text),
            wit::Content::Blob(wit::Blob { media_type, data }) => Content::Blob { media_type, data },
        });
        Ok(Self { structured, content: content.collect(), landed_before: output.landed_before })
    }
}

impl TryFrom<probing::exports::deed::tool::reconcile::Verdict> for Verdict {
    type Error = NotJson;

    fn try_from(verdict: probing::exports::deed::tool::reconcile::Verdict) -> Result<Self, NotJson> {
        use probing::exports::deed::tool::reconcile::Verdict as Wit;
        Ok(match verdict {
            Wit::Landed(output) => Self::Landed(output.try_into()?),
            Wit::NotLanded => Self::NotLanded,
            Wit::Partial(what) => Self::Partial(what),
            Wit::Undecidable(why) => Self::Undecidable(why),
        })
    }
}
