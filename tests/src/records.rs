//! What the command line prints with `--format json`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The result of a run (`run`, `resume`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// The run's id.
    pub run: String,
    /// The session's id.
    pub session: String,
    /// How far it is.
    pub status: String,
    /// What the model left as its result.
    pub result: Option<String>,
    /// The criteria, in the mission's order.
    pub criteria: Vec<Criterion>,
    /// What it took.
    pub usage: Usage,
    /// Waits that are open.
    pub waits: Vec<Wait>,
}

/// A criterion and whether it is met.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Criterion {
    /// Its text.
    pub criterion: String,
    /// Whether it is met.
    pub met: bool,
}

/// What a run took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Answers of the model that count.
    pub turns: u64,
    /// Tool calls.
    pub calls: u64,
    /// Requests that had to be made again because a process died over the answer.
    pub repeated_model_calls: u64,
}

/// A question to the owner (`waits`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// Its id.
    pub wait: String,
    /// The run it holds.
    pub run: String,
    /// The step it is about.
    pub seq: u64,
    /// The revision of the question.
    pub revision: u64,
    /// `approval`, `question` or `reconcile`.
    pub kind: String,
    /// The tool or step it is about.
    pub name: String,
    /// Its text.
    pub question: String,
    /// The answers it takes.
    pub options: Vec<String>,
}

/// A run in the list (`runs`).
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct RunRow {
    /// Its id.
    pub run: String,
    /// `mission`, `batch` or `call`.
    pub kind: String,
    /// How far it is.
    pub status: String,
}

/// A step in the list (`steps`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRow {
    /// Its number.
    pub seq: u64,
    /// What kind of action it is.
    pub kind: String,
    /// The tool, or the action's name.
    pub name: String,
    /// How far it is.
    pub status: String,
    /// The effect class of the call.
    pub effect: Option<String>,
    /// The digest of its arguments.
    pub args_digest: String,
    /// The newest attempt.
    pub attempt: u32,
    /// Whether an earlier attempt's effect was found in place.
    pub landed_before: bool,
    /// Whether what it does is held back until its outcome commits.
    pub contained: bool,
    /// Who settled it, if not the call itself.
    pub settled_by: Option<String>,
    /// Why it failed.
    pub error: Option<Value>,
}

impl StepRow {
    /// `kind/name`.
    pub fn title(&self) -> String {
        format!("{}/{}", self.kind, self.name)
    }

    /// Whether it is the call of a plugin's tool, and none of the host's own.
    pub fn runs_component(&self) -> bool {
        let own = ["ask_owner", "update_criteria", "finish"];
        self.kind == "tool_call" && !own.contains(&self.name.as_str())
    }
}

/// The shape of a run, `seq:kind/name:status`, a line for each step: the same with and without crashes.
pub fn shape(steps: &[StepRow]) -> String {
    use std::fmt::Write as _;
    steps.iter().fold(String::new(), |mut text, step| {
        writeln!(text, "{}:{}:{}", step.seq, step.title(), step.status).expect("a string takes any text");
        text
    })
}

/// A message (`transcript`).
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Message {
    /// Its number in the session.
    pub id: u64,
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// Its text.
    #[serde(default)]
    pub text: String,
    /// What a tool answered.
    pub result: Option<MessageResult>,
}

/// A tool's result, as the model reads it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct MessageResult {
    /// The tool.
    pub tool: String,
    /// Whether the call succeeded.
    pub ok: bool,
    /// Its text.
    pub text: String,
}

/// The result of one call (`call`).
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct CallReply {
    /// The run that holds it.
    pub run: String,
    /// Its step.
    pub seq: u64,
    /// How it ended.
    pub status: String,
    /// Its output.
    pub output: Option<CallOutput>,
    /// Why it failed.
    pub error: Option<CallError>,
    /// Whether it had been made before, under the same key.
    pub joined: bool,
    /// The question that holds it.
    pub waits: Vec<Wait>,
}

impl CallReply {
    /// The text of the output.
    pub fn text(&self) -> String {
        let parts = self.output.iter().flat_map(|output| &output.content);
        parts.filter_map(|part| part["text"].as_str()).collect()
    }
}

/// What a call gave.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct CallOutput {
    /// What a model reads.
    pub content: Vec<Value>,
    /// What a program reads.
    pub structured: Option<Value>,
    /// Whether an earlier attempt's effect was found in place.
    pub landed_before: bool,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct CallError {
    /// What kind of failure it is.
    pub kind: String,
    /// What failed, and what to do.
    pub message: String,
    /// What is known of its effect.
    pub effect: String,
}

/// A tool in the list (`tools`).
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ToolRow {
    /// Its name.
    pub name: String,
    /// The plugin it comes from.
    pub plugin: String,
    /// Its declared effect class.
    pub effect: String,
    /// The component it is in; none for the host's own.
    pub digest: Option<String>,
    /// Where that came from.
    pub source: String,
}
