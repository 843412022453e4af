//! Models: who decides what a run does next.

mod scripted;

pub use scripted::ScriptedModel;

use deed_journal::{Message, RunId};
use serde::{Deserialize, Serialize};

use crate::engine::ToolDescriptor;
use crate::mission::{Call, ModelSpec};

/// What a model is asked. Everything in it is durable.
#[derive(Debug, Clone, Copy)]
pub struct ModelRequest<'a> {
    /// The run.
    pub run: RunId,
    /// The step that this request is.
    pub seq: u64,
    /// The transcript so far.
    pub messages: &'a [Message],
    /// The tools it may call.
    pub tools: &'a [ToolDescriptor],
}

/// What a model answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelAnswer {
    /// What it says.
    pub text: String,
    /// The calls it asks for, in order. None: it has nothing more to do.
    pub calls: Vec<Call>,
}

/// Why a model gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the model gave no answer: {0}")]
pub struct ModelError(pub String);

/// Answers requests. It may be asked the same twice, when a crash lost its answer.
pub trait Model: Send + Sync {
    /// What names it in the journal.
    fn name(&self) -> &'static str;

    /// Answer one request.
    fn respond(&self, request: &ModelRequest<'_>) -> Result<ModelAnswer, ModelError>;
}

/// The model that a mission names.
pub fn of(spec: &ModelSpec) -> Box<dyn Model> {
    Box::new(ScriptedModel::new(spec.script.clone()))
}
