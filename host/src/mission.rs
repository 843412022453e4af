//! What a run executes: a mission or a batch, as its JSON file says it.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::grants::{Grant, UnusableGrant};
use crate::operator::OperatorFile;
use crate::policy::Rule;

/// Turns of a model towards an objective.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mission {
    /// What is to be reached, in words.
    pub objective: String,
    /// The directory the tools see, relative to this file. Default: the directory of this file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<PathBuf>,
    /// What must be met before the run may finish. Default: nothing.
    #[serde(default)]
    pub criteria: Vec<String>,
    /// The plugins whose tools the model may call. Default: all that are installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Whether commands reach the network. Default: closed.
    #[serde(default)]
    pub network: Network,
    /// What calls need, by rules: the first that matches wins. Default: every call is allowed.
    #[serde(default)]
    pub policy: Vec<Rule>,
    /// What tools reach beyond the workspace. Default: nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
    /// Milliseconds after which an approval or a question that nobody answered expires: the call is then not made. A
    /// question about an unknown outcome never expires. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_within_ms: Option<u64>,
    /// How `deed crash-test` answers questions: the first rule that fits. Default: see there. No other command reads it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<AnswerRule>,
    /// What `deed crash-test` looks at beyond the workspace, its repository and its remotes. No other command reads it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observe: Vec<Observer>,
    /// Who decides what to do next.
    pub model: ModelSpec,
}

/// A list of calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// What the calls are for, in words.
    pub objective: String,
    /// The directory the tools see, relative to this file. Default: the directory of this file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<PathBuf>,
    /// The plugins whose tools may be called. Default: all that are installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Whether commands reach the network. Default: closed.
    #[serde(default)]
    pub network: Network,
    /// What calls need, by rules: the first that matches wins. Default: every call is allowed.
    #[serde(default)]
    pub policy: Vec<Rule>,
    /// What tools reach beyond the workspace. Default: nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
    /// Milliseconds after which an approval or a question that nobody answered expires: the call is then not made. A
    /// question about an unknown outcome never expires. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_within_ms: Option<u64>,
    /// How `deed crash-test` answers questions: the first rule that fits. Default: see there. No other command reads it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<AnswerRule>,
    /// What `deed crash-test` looks at beyond the workspace, its repository and its remotes. No other command reads it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observe: Vec<Observer>,
    /// The calls, in order. Neighbouring pure ones run in parallel.
    pub calls: Vec<Call>,
}

/// How a crash test answers a question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerRule {
    /// What is asked: `approval`, `question`, `reconcile` or `conflict`. Default: anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<String>,
    /// The tool that it is about. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The answer: one of the question's options.
    pub option: String,
    /// What the owner adds. Default: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// A command whose output shows an effect that a crash test cannot see by itself, such as a row in a database.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Observer {
    /// What it shows, in a word or two.
    pub name: String,
    /// The program and its arguments. It is started in this file's directory, with the workspace that is looked at in
    /// the variable `DEED_WORKSPACE`. A program in the workspace is refused: the tools could change it.
    pub command: Vec<String>,
}

/// One tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// The tool's name.
    pub tool: String,
    /// Its arguments, a JSON object. Default: empty.
    #[serde(default = "empty_object")]
    pub input: Value,
}

/// Whether commands reach the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// They do not.
    #[default]
    Closed,
    /// They do.
    Open,
}

/// Who decides what to do next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelSpec {
    /// A scripted model: its turns, in order.
    pub script: Vec<ScriptedTurn>,
}

/// One answer of a scripted model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptedTurn {
    /// What it says. Default: nothing.
    #[serde(default)]
    pub say: String,
    /// The calls it asks for. A turn without any ends the run.
    #[serde(default)]
    pub calls: Vec<Call>,
}

fn empty_object() -> Value {
    Value::Object(serde_json::Map::new())
}

/// A mission or a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spec {
    /// Turns of a model.
    Mission(Mission),
    /// A list of calls.
    Batch(Batch),
}

/// Why a mission file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MissionError {
    /// It cannot be read.
    #[error("failed to read mission `{}`: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// It is no JSON, or not of the form of a mission or a batch.
    #[error("failed to read {what} `{}`: {source}", path.display())]
    Form {
        /// `mission` or `batch`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What does not fit, and where.
        source: serde_json::Error,
    },
    /// A grant cannot be kept.
    #[error("failed to use `{}`: {source}", path.display())]
    Grant {
        /// The file.
        path: PathBuf,
        /// Which, and why.
        source: UnusableGrant,
    },
}

impl Spec {
    /// Read a file. It is a batch if it has `calls`, else a mission.
    pub fn read(path: &Path) -> Result<Self, MissionError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| MissionError::Read { path: path.to_owned(), source })?;
        let form = |what| move |source| MissionError::Form { what, path: path.to_owned(), source };
        let value: Value = serde_json::from_str(&text).map_err(form("mission"))?;
        // Read from the text and not from the value, so that an error tells line and column.
        let spec = if value.get("calls").is_some() {
            serde_json::from_str(&text).map(Self::Batch).map_err(form("batch"))?
        } else {
            serde_json::from_str(&text).map(Self::Mission).map_err(form("mission"))?
        };
        Grant::check_all(spec.grants())
            .map_err(|source| MissionError::Grant { path: path.to_owned(), source })?;
        Ok(spec)
    }

    /// In words, what it is for.
    pub fn objective(&self) -> &str {
        match self {
            Self::Mission(mission) => &mission.objective,
            Self::Batch(batch) => &batch.objective,
        }
    }

    /// The directory the tools see, as the file names it.
    pub fn workspace(&self) -> Option<&Path> {
        match self {
            Self::Mission(mission) => mission.workspace.as_deref(),
            Self::Batch(batch) => batch.workspace.as_deref(),
        }
    }

    /// What must be met.
    pub fn criteria(&self) -> &[String] {
        match self {
            Self::Mission(mission) => &mission.criteria,
            Self::Batch(_) => &[],
        }
    }

    /// The plugins whose tools may be called; all when none.
    pub fn tools(&self) -> Option<&[String]> {
        match self {
            Self::Mission(mission) => mission.tools.as_deref(),
            Self::Batch(batch) => batch.tools.as_deref(),
        }
    }

    /// Whether commands reach the network.
    pub fn network(&self) -> Network {
        match self {
            Self::Mission(mission) => mission.network,
            Self::Batch(batch) => batch.network,
        }
    }

    /// What tools reach beyond the workspace.
    pub fn grants(&self) -> &[Grant] {
        match self {
            Self::Mission(mission) => &mission.grants,
            Self::Batch(batch) => &batch.grants,
        }
    }

    /// When a question expires.
    pub fn answer_within_ms(&self) -> Option<u64> {
        match self {
            Self::Mission(mission) => mission.answer_within_ms,
            Self::Batch(batch) => batch.answer_within_ms,
        }
    }

    /// How a crash test answers questions.
    pub fn answers(&self) -> &[AnswerRule] {
        match self {
            Self::Mission(mission) => &mission.answers,
            Self::Batch(batch) => &batch.answers,
        }
    }

    /// What a crash test looks at besides.
    pub fn observe(&self) -> &[Observer] {
        match self {
            Self::Mission(mission) => &mission.observe,
            Self::Batch(batch) => &batch.observe,
        }
    }

    /// The rules.
    pub fn policy(&self) -> &[Rule] {
        match self {
            Self::Mission(mission) => &mission.policy,
            Self::Batch(batch) => &batch.policy,
        }
    }
}

/// The JSON Schemas of the files that people write, by name: `mission`, `batch`, and `operator` for `deed.toml`.
pub fn schemas() -> [(&'static str, Value); 3] {
    [
        ("mission", schemars::schema_for!(Mission).to_value()),
        ("batch", schemars::schema_for!(Batch).to_value()),
        ("operator", schemars::schema_for!(OperatorFile).to_value()),
    ]
}
