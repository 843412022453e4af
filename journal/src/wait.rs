//! Waits: durable questions to the owner.

use serde::{Deserialize, Serialize};

use crate::id::WaitId;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitKind {
    /// May this call run?
    Approval,
    /// A question of the model.
    Question,
    /// Did this call happen?
    Reconcile,
    /// Which version of a file is to stay?
    Conflict,
}

impl WaitKind {
    /// The kind as it is written everywhere.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::Question => "question",
            Self::Reconcile => "reconcile",
            Self::Conflict => "conflict",
        }
    }
}

/// A question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Which question.
    pub id: WaitId,
    /// What is asked.
    pub kind: WaitKind,
    /// The tool that the question is about.
    pub name: String,
    /// The question, in words.
    pub question: String,
    /// The answers to choose from, at least one.
    pub options: Vec<String>,
    /// When it was asked, milliseconds since the epoch.
    pub opened_ms: u64,
    /// When it stops counting, milliseconds since the epoch; none: never. From then on the one answer it takes is
    /// [`EXPIRED`].
    pub expires_ms: Option<u64>,
}

/// The option that stands for nobody's answer: see [`Asked::expires_ms`].
pub const EXPIRED: &str = "expired";

impl Asked {
    /// Whether it has stopped counting by then.
    pub fn has_expired(&self, now_ms: u64) -> bool {
        self.expires_ms.is_some_and(|expires_ms| now_ms >= expires_ms)
    }
}

/// The owner's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// One of the options, or [`EXPIRED`].
    pub option: String,
    /// What the owner added: a reason, or a result to record.
    pub text: Option<String>,
    /// When, milliseconds since the epoch.
    pub answered_ms: u64,
}

/// A question with its answer, if there is one: one record, so that neither can be lost alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The question.
    #[serde(flatten)]
    pub asked: Asked,
    /// The first answer; later ones are refused.
    pub answer: Option<Answer>,
}
