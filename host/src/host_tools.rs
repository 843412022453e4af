//! The tools that are the host's own: `ask_owner`, `update_criteria` and `finish`. They change nothing but the run's own
//! record, which commits with their outcome, so their class is `pure`.

use deed_journal::{Answer, Criterion, EXPIRED, EffectClass, EffectState, StepError};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::engine::{Output, ToolDescriptor, ToolTraits};

/// One of the host's own tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HostTool {
    /// Asks the owner a question, and waits for the answer.
    AskOwner,
    /// Says which criteria are met.
    UpdateCriteria,
    /// Ends the run, if every criterion is met.
    Finish,
}

/// The name under which the host's own tools are listed.
pub const HOST_PLUGIN: &str = "host";

/// Ask the owner a question, and wait for the answer.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AskOwner {
    /// The question.
    question: String,
    /// The answers to choose from, at least one.
    #[schemars(length(min = 1))]
    options: Vec<String>,
}

/// Say which criteria are met. Others stay as they are.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UpdateCriteria {
    /// Criteria that are met, word for word.
    met: Vec<String>,
}

/// End the run. Refused while a criterion is not met.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Finish {
    /// What was reached.
    summary: String,
}

impl HostTool {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::AskOwner, Self::UpdateCriteria, Self::Finish];

    /// The tool's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AskOwner => "ask_owner",
            Self::UpdateCriteria => "update_criteria",
            Self::Finish => "finish",
        }
    }

    /// As models see it.
    pub fn descriptor(self) -> ToolDescriptor {
        let (title, schema) = match self {
            Self::AskOwner => ("Ask the owner", schemars::schema_for!(AskOwner)),
            Self::UpdateCriteria => ("Update criteria", schemars::schema_for!(UpdateCriteria)),
            Self::Finish => ("Finish", schemars::schema_for!(Finish)),
        };
        let input_schema = schema.to_value();
        let description =
            input_schema.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
        ToolDescriptor {
            name: self.name().to_owned(),
            title: title.to_owned(),
            description,
            input_schema,
            output_schema: None,
            effect: EffectClass::Pure,
            traits: ToolTraits::default(),
            timeout_ms: None,
        }
    }
}

/// The question and the options of an `ask_owner` call whose arguments fit the schema.
pub(crate) fn question(args: &Value) -> Result<(String, Vec<String>), StepError> {
    let AskOwner { question, options } = parse(args)?;
    Ok((question, options))
}

/// The result of `ask_owner`.
pub(crate) fn ask_owner(answer: &Answer) -> Result<Output, StepError> {
    if answer.option == EXPIRED {
        return Err(StepError {
            kind: "expired".to_owned(),
            message: "nobody answered the question in time; decide without, or ask again".to_owned(),
            effect: EffectState::NotApplied,
        });
    }
    let mut text = format!("the owner answered: {}", answer.option);
    if let Some(more) = &answer.text {
        text.push('\n');
        text.push_str(more);
    }
    let structured = json!({ "option": answer.option, "text": answer.text });
    Ok(Output { structured: Some(structured), ..Output::text(text) })
}

/// The result of `update_criteria`, and what the criteria are then.
pub(crate) fn update_criteria(
    args: &Value,
    criteria: &[Criterion],
) -> Result<(Output, Vec<Criterion>), StepError> {
    let UpdateCriteria { met } = parse(args)?;
    if let Some(unknown) = met.iter().find(|name| criteria.iter().all(|known| known.criterion != **name)) {
        let known: Vec<_> = criteria.iter().map(|known| format!("`{}`", known.criterion)).collect();
        return Err(StepError {
            kind: "not-found".to_owned(),
            message: format!("`{unknown}` is no criterion of this run: expected one of {}", known.join(", ")),
            effect: EffectState::NotApplied,
        });
    }
    let updated: Vec<_> = criteria
        .iter()
        .map(|known| Criterion {
            criterion: known.criterion.clone(),
            met: known.met || met.contains(&known.criterion),
        })
        .collect();
    let count = updated.iter().filter(|known| known.met).count();
    Ok((Output::text(format!("{count} of {} criteria met", updated.len())), updated))
}

/// The result of `finish`: the summary, if every criterion is met.
pub(crate) fn finish(args: &Value, criteria: &[Criterion]) -> Result<String, StepError> {
    let Finish { summary } = parse(args)?;
    let missing: Vec<_> =
        criteria.iter().filter(|known| !known.met).map(|known| format!("`{}`", known.criterion)).collect();
    if missing.is_empty() {
        return Ok(summary);
    }
    Err(StepError {
        kind: "conflict".to_owned(),
        message: format!(
            "not finished: {} not met; meet them, and say so by update_criteria",
            missing.join(", ")
        ),
        effect: EffectState::NotApplied,
    })
}

fn parse<T: serde::de::DeserializeOwned>(args: &Value) -> Result<T, StepError> {
    T::deserialize(args).map_err(|error| StepError {
        kind: "invalid-arguments".to_owned(),
        message: format!("the arguments do not fit: {error}"),
        effect: EffectState::NotApplied,
    })
}
