//! A tool as [`export!`](crate::export) registers it, and the answers to the host's questions.

use std::marker::PhantomData;

use schemars::Schema;
use serde_json::Value;

use crate::arguments::parse;
use crate::bindings::deed::tool::types::{CallContext, ToolDescriptor, ToolTraits};
use crate::call::Call;
use crate::error::{EffectState, Error, Result};
use crate::output::Output;
use crate::tool::{Effect, Plan, Probe, Refine, Tool, Verdict, schema_of};

type RefineFn = fn(&str) -> Result<Plan>;
type ProbeFn = fn(&Call, &str) -> Result<Verdict>;

/// What a tool type offers beyond [`Tool`].
///
/// `Offers::<T>::REFINE` is the constant of the inherent block when `T` implements [`Refine`], else that of
/// [`OffersNothing`]: inherent constants win where their bounds hold. So a trait flag follows the implementation, and
/// neither can be forgotten.
#[derive(Debug)]
pub struct Offers<T>(PhantomData<T>);

/// The constants of a type that implements neither trait.
pub trait OffersNothing {
    /// Not refined.
    const REFINE: Option<RefineFn> = None;
    /// Not probed.
    const PROBE: Option<ProbeFn> = None;
}

impl<T> OffersNothing for Offers<T> {}

impl<T: Refine> Offers<T> {
    /// Narrows the class for given arguments.
    pub const REFINE: Option<RefineFn> = Some(|args| {
        let tool: T = parse(T::NAME, args)?;
        Ok(tool.refine().unwrap_or_else(|| Plan::new(T::EFFECT, title::<T>())))
    });
}

impl<T: Probe> Offers<T> {
    /// Tells whether a call landed.
    pub const PROBE: Option<ProbeFn> = Some(|call, args| parse::<T>(T::NAME, args)?.probe(call));
}

/// One tool of a component.
#[derive(Debug)]
pub struct Registered {
    name: &'static str,
    describe: fn() -> ToolDescriptor,
    run: fn(&Call, &str) -> Result<Output>,
    refine: Option<RefineFn>,
    probe: Option<ProbeFn>,
}

impl Registered {
    /// Does not compile for a name that the interface does not allow.
    pub const fn new<T: Tool>(refine: Option<RefineFn>, probe: Option<ProbeFn>) -> Self {
        const {
            assert!(
                is_valid_name(T::NAME),
                "a tool's name has 1 to 64 letters, digits, underscores and hyphens"
            );
        }
        Self { name: T::NAME, describe: describe::<T>, run: run::<T>, refine, probe }
    }
}

fn run<T: Tool>(call: &Call, args: &str) -> Result<Output> {
    parse::<T>(T::NAME, args)?.run(call).map_err(|mut error| {
        // Whatever failed: a pure call changes nothing.
        if T::EFFECT == Effect::Pure {
            error.effect = EffectState::NotApplied;
        }
        error
    })
}

const fn is_valid_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if !(bytes[at].is_ascii_alphanumeric() || bytes[at] == b'_' || bytes[at] == b'-') {
            return false;
        }
        at += 1;
    }
    matches!(bytes.len(), 1..=64)
}

/// Whether no two of `tools` have one name.
pub const fn are_distinct(tools: &[Registered]) -> bool {
    let mut one = 0;
    while one < tools.len() {
        let mut other = one + 1;
        while other < tools.len() {
            if is_same(tools[one].name, tools[other].name) {
                return false;
            }
            other += 1;
        }
        one += 1;
    }
    true
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    one.len() == other.len()
}

fn title<T: Tool>() -> String {
    if let Some(title) = T::TITLE {
        return title.into();
    }
    let mut title = T::NAME.replace(['_', '-'], " ");
    title[..1].make_ascii_uppercase();
    title
}

/// Panics, and so fails `deed plugin check`, for a tool without a description or with arguments that are no object.
fn describe<T: Tool>() -> ToolDescriptor {
    let mut schema = schema_of::<T>();
    let Some(Value::String(description)) = schema.remove("description") else {
        panic!("the tool `{}` has no description: write a doc comment on its struct", T::NAME)
    };
    assert!(
        schema.get("type").and_then(Value::as_str) == Some("object"),
        "the arguments of the tool `{}` are no object: make it a struct with named fields, or `{{}}`",
        T::NAME
    );
    // The type's name says nothing to a model.
    schema.remove("title");
    close(&mut schema);
    let mut traits = ToolTraits::empty();
    traits.set(ToolTraits::DESTRUCTIVE, T::DESTRUCTIVE);
    traits.set(ToolTraits::OPEN_WORLD, T::OPEN_WORLD);
    ToolDescriptor {
        name: T::NAME.into(),
        title: title::<T>(),
        description,
        input_schema: schema.as_value().to_string(),
        output_schema: T::RESULT.map(|result| result.schema().as_value().to_string()),
        effect: T::EFFECT,
        traits,
        timeout_ms: T::TIMEOUT_MS,
    }
}

/// States in the schema what [`parse`] enforces: unknown fields are refused. Not where the schema has further parts,
/// whose fields a validator would take for unknown ones.
fn close(schema: &mut Schema) {
    let open = ["additionalProperties", "unevaluatedProperties", "allOf", "anyOf", "oneOf", "$ref"];
    if open.iter().all(|key| schema.get(*key).is_none()) {
        schema.insert("additionalProperties".into(), Value::Bool(false));
    }
}

/// Answers `tools.describe`.
pub fn describe_all(tools: &[Registered]) -> Vec<ToolDescriptor> {
    let one = |tool: &Registered| {
        let mut descriptor = (tool.describe)();
        descriptor.traits.set(ToolTraits::REFINES, tool.refine.is_some());
        descriptor.traits.set(ToolTraits::PROBES, tool.probe.is_some());
        descriptor
    };
    tools.iter().map(one).collect()
}

/// Answers `tools.refine`. Only for tools with the trait `refines`.
pub fn refine(tools: &[Registered], name: &str, args: &str) -> Result<Plan> {
    let refine = find(tools, name)?.refine;
    refine.ok_or_else(|| Error::invalid(format!("the tool `{name}` does not refine its class")))?(args)
}

/// Answers `tools.invoke`.
pub fn invoke(tools: &[Registered], context: CallContext, name: &str, args: &str) -> Result<Output> {
    (find(tools, name)?.run)(&Call::from(context), args)
}

/// Answers `reconcile.probe`. A tool without a probe cannot tell.
pub fn probe(tools: &[Registered], context: CallContext, name: &str, args: &str) -> Result<Verdict> {
    match find(tools, name)?.probe {
        Some(probe) => probe(&Call::from(context), args),
        None => Ok(Verdict::Undecidable(format!("the tool `{name}` has no probe"))),
    }
}

fn find<'a>(tools: &'a [Registered], name: &str) -> Result<&'a Registered> {
    tools.iter().find(|tool| tool.name == name).ok_or_else(|| {
        let known: Vec<String> = tools.iter().map(|tool| format!("`{}`", tool.name)).collect();
        Error::not_found(format!("no tool `{name}` in this component; it has {}", known.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::*;
    use crate::error::ErrorKind;
    use crate::tool::ResultType;

    /// Look at a page.
    #[derive(Deserialize, JsonSchema)]
    struct TurnPage {
        /// Counted from 1.
        page: u32,
    }

    impl Tool for TurnPage {
        const NAME: &str = "turn_page";
        const EFFECT: Effect = Effect::NonIdempotent;
        const OPEN_WORLD: bool = true;
        const TIMEOUT_MS: Option<u32> = Some(500);
        const RESULT: Option<ResultType> = Some(ResultType::of::<Vec<u32>>());

        fn run(self, call: &Call) -> Result<Output> {
            Ok(Output::text(format!("page {} by {}", self.page, call.key())))
        }
    }

    impl Refine for TurnPage {
        fn refine(&self) -> Option<Plan> {
            (self.page == 1).then(|| Plan::new(Effect::Pure, "stay").on("the book"))
        }
    }

    /// Read in the book.
    #[derive(Deserialize, JsonSchema)]
    struct Read {}

    impl Tool for Read {
        const NAME: &str = "read";
        const EFFECT: Effect = Effect::Pure;

        fn run(self, _: &Call) -> Result<Output> {
            Err(Error::unavailable("the light went out").unknown())
        }
    }

    /// Close the book.
    #[derive(Deserialize, JsonSchema)]
    struct Close {}

    impl Tool for Close {
        const NAME: &str = "close";
        const EFFECT: Effect = Effect::Idempotent;
        const DESTRUCTIVE: bool = true;

        fn run(self, _: &Call) -> Result<Output> {
            Ok(Output::text("closed"))
        }
    }

    impl Probe for Close {
        fn probe(&self, _: &Call) -> Result<Verdict> {
            Ok(Verdict::NotLanded)
        }
    }

    const TOOLS: &[Registered] = &[
        Registered::new::<TurnPage>(Offers::<TurnPage>::REFINE, Offers::<TurnPage>::PROBE),
        Registered::new::<Close>(Offers::<Close>::REFINE, Offers::<Close>::PROBE),
    ];

    fn context() -> CallContext {
        CallContext {
            idempotency_key: "k1".into(),
            attempt: 1,
            session: "5e55".into(),
            deadline_ms: 1000,
            receipt: None,
        }
    }

    #[test]
    fn a_descriptor_is_made_of_the_type() {
        let [turn, close] = &describe_all(TOOLS)[..] else { panic!("two tools") };
        assert_eq!((turn.name.as_str(), turn.title.as_str()), ("turn_page", "Turn page"));
        assert_eq!(turn.description, "Look at a page.");
        let schema: Value = serde_json::from_str(&turn.input_schema).unwrap();
        assert_eq!(
            schema,
            serde_json::json!({
                "type": "object",
                "properties": {
                    "page": {
                        "description": "Counted from 1.", "type": "integer", "format": "uint32", "minimum": 0
                    }
                },
                "required": ["page"],
                "additionalProperties": false
            })
        );
        assert!(turn.output_schema.as_ref().is_some_and(|schema| schema.contains("array")));
        assert_eq!(turn.timeout_ms, Some(500));
        assert!(close.output_schema.is_none());
    }

    #[test]
    fn trait_flags_follow_what_is_implemented() {
        let traits: Vec<_> = describe_all(TOOLS).iter().map(|tool| tool.traits).collect();
        assert_eq!(
            traits,
            [ToolTraits::OPEN_WORLD | ToolTraits::REFINES, ToolTraits::DESTRUCTIVE | ToolTraits::PROBES]
        );
    }

    #[test]
    fn calls_reach_the_tool_they_name() {
        let output = invoke(TOOLS, context(), "turn_page", r#"{"page": 3}"#).unwrap();
        assert!(matches!(&output.content[..], [crate::Content::Text(text)] if text == "page 3 by k1"));
        let error = invoke(TOOLS, context(), "open", "{}").unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotFound);
        assert_eq!(error.message, "no tool `open` in this component; it has `turn_page`, `close`");
    }

    #[test]
    fn a_pure_call_that_fails_changed_nothing() {
        const READ: &[Registered] = &[Registered::new::<Read>(None, None)];
        assert_eq!(invoke(READ, context(), "read", "{}").unwrap_err().effect, EffectState::NotApplied);
    }

    #[test]
    fn a_plan_left_out_is_the_declared_class() {
        let narrowed = refine(TOOLS, "turn_page", r#"{"page": 1}"#).unwrap();
        assert_eq!((narrowed.effect, narrowed.target.as_deref()), (Effect::Pure, Some("the book")));
        let declared = refine(TOOLS, "turn_page", r#"{"page": 2}"#).unwrap();
        assert_eq!((declared.effect, declared.summary.as_str()), (Effect::NonIdempotent, "Turn page"));
        assert!(refine(TOOLS, "close", "{}").is_err());
    }

    #[test]
    fn a_tool_without_a_probe_cannot_tell() {
        assert!(matches!(probe(TOOLS, context(), "close", "{}"), Ok(Verdict::NotLanded)));
        assert!(matches!(
            probe(TOOLS, context(), "turn_page", r#"{"page": 1}"#),
            Ok(Verdict::Undecidable(_))
        ));
    }

    #[test]
    fn names_are_checked() {
        assert!(is_valid_name("read_file-2") && !is_valid_name("") && !is_valid_name("a b"));
        assert!(is_valid_name(&"a".repeat(64)) && !is_valid_name(&"a".repeat(65)));
        assert!(is_same("ab", "ab") && !is_same("ab", "abc") && !is_same("ab", "ac"));
        assert!(are_distinct(TOOLS));
    }
}
