//! What a tool says of itself and of a call, in plain Rust: the WIT's words without the engine's types.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use deed_journal::{Digest, EffectClass, EffectState};

/// Further facts about a tool.
#[expect(clippy::struct_excessive_bools, reason = "the flags of the WIT, each independent of the others")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolTraits {
    /// May destroy what was there before. A hint.
    pub destructive: bool,
    /// Reaches beyond the workspace. A hint.
    pub open_world: bool,
    /// Its `refine` narrows the class for given arguments.
    pub refines: bool,
    /// Its `probe` can tell whether a call landed.
    pub probes: bool,
}

/// One tool, as models and people see it. Its name and schemas were checked when the plugin was loaded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolDescriptor {
    /// Fits `^[a-zA-Z0-9_-]{1,64}$`, unique within its plugin.
    pub name: String,
    /// A short name for people.
    pub title: String,
    /// What it does and when to use it, for models.
    pub description: String,
    /// JSON Schema of the arguments; a JSON object whose type is `object`.
    pub input_schema: Value,
    /// JSON Schema of the structured result; a JSON object.
    pub output_schema: Option<Value>,
    /// The worst case over all arguments.
    pub effect: EffectClass,
    /// Further facts.
    pub traits: ToolTraits,
    /// Time limit of one call in milliseconds; the host's default when none.
    pub timeout_ms: Option<u32>,
}

/// The class of one call, narrowed for its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectPlan {
    /// Never riskier than the declared class.
    pub effect: EffectClass,
    /// What the call acts on, if one thing.
    pub target: Option<String>,
    /// One line for the owner.
    pub summary: String,
}

/// A part of a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// Text, as the model reads it.
    Text(String),
    /// Bytes with their media type.
    #[serde(rename_all = "kebab-case")]
    Blob {
        /// Such as `image/png`.
        media_type: String,
        /// Stored in hexadecimal.
        #[serde(with = "hex::serde")]
        data: Vec<u8>,
    },
}

/// The result of a call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// Fits the output schema, when the tool has one.
    pub structured: Option<Value>,
    /// What the model reads.
    pub content: Vec<Content>,
    /// The effect was already there when this attempt looked.
    pub landed_before: bool,
}

impl Output {
    /// A result of one text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Content::Text(text.into())], ..Self::default() }
    }

    /// What the model reads of it: its texts, one after the other, and a word for each blob.
    pub fn to_text(&self) -> String {
        let parts = self.content.iter().map(|part| match part {
            Content::Text(text) => text.clone(),
            Content::Blob { media_type, data } => format!("({media_type}, {} bytes)", data.len()),
        });
        parts.collect::<Vec<_>>().join("\n")
    }

    /// Bytes it holds, the structured part as JSON text included.
    pub fn size_bytes(&self) -> usize {
        let structured = self.structured.as_ref().map_or(0, |value| value.to_string().len());
        let content = self.content.iter().map(|part| match part {
            Content::Text(text) => text.len(),
            Content::Blob { media_type, data } => media_type.len() + data.len(),
        });
        structured + content.sum::<usize>()
    }
}

/// Why a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The arguments do not fit.
    InvalidArguments,
    /// The thing named does not exist.
    NotFound,
    /// A capability was refused.
    Denied,
    /// The world is not as the call expects it.
    Conflict,
    /// Something needed is not there at the moment.
    Unavailable,
    /// The call was cancelled, or ran out of time.
    Cancelled,
    /// A fault of the tool.
    Internal,
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidArguments => "invalid-arguments",
            Self::NotFound => "not-found",
            Self::Denied => "denied",
            Self::Conflict => "conflict",
            Self::Unavailable => "unavailable",
            Self::Cancelled => "cancelled",
            Self::Internal => "internal",
        })
    }
}

/// Something the host did not let a call do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// The capability: `files`, `process`, `git`, `http`, `network`.
    pub capability: String,
    /// What was asked for, such as "write `notes.txt`".
    pub action: String,
    /// Why not, naming the tool and its class.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} was refused: {}", self.capability, self.action, self.reason)
    }
}

/// A failure that the tool itself reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolFailure {
    /// What kind.
    pub kind: FailureKind,
    /// What failed, the value, and the next step, as the model reads it.
    pub message: String,
    /// What is known of the effect.
    pub effect: EffectState,
    /// What the host had refused by then, oldest first.
    #[serde(default)]
    pub refusals: Vec<Refusal>,
}

/// What a probe found out about an earlier attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The effect is there; the output to record for it.
    Landed(Output),
    /// The effect is not there, and cannot come any more.
    NotLanded,
    /// Some of it is there; says what.
    Partial(String),
    /// It cannot be told; says why.
    Undecidable(String),
}
