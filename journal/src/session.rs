//! Sessions: transcripts, in the same store as the steps that produce them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{Digest, RunId, SessionId};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The host, before anything else.
    System,
    /// The owner.
    User,
    /// The model.
    Assistant,
    /// A tool, answering one call.
    Tool,
}

/// A tool call that the model asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Unique within the session.
    pub id: String,
    /// The tool's name.
    pub tool: String,
    /// The arguments.
    pub input: Value,
}

/// What came of a tool call, as the model sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The id of the call.
    pub call: String,
    /// The tool's name.
    pub tool: String,
    /// Whether it succeeded.
    pub ok: bool,
    /// The result, or the error.
    pub text: String,
}

/// What a message says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessageBody {
    /// Who speaks.
    pub role: Role,
    /// The text; of a tool message, what the tool answered.
    pub text: String,
    /// The tool calls of an assistant message, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCall>,
    /// The result that a tool message carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ToolResult>,
}

impl MessageBody {
    /// A message that is only text.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self { role, text: text.into(), calls: Vec::new(), result: None }
    }

    /// A tool's answer to one call.
    pub fn tool_result(result: ToolResult) -> Self {
        Self { role: Role::Tool, text: result.text.clone(), calls: Vec::new(), result: Some(result) }
    }
}

/// A message of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Its number within the session, from 1.
    pub id: u64,
    /// The message before it.
    pub parent: Option<u64>,
    /// What it says.
    #[serde(flatten)]
    pub body: MessageBody,
    /// Chained over the parent's hash, so that tampering and torn state are told apart.
    pub hash: Digest,
}

impl Message {
    /// The message that follows `parent`.
    pub(crate) fn after(parent: Option<&Head>, id: u64, body: MessageBody) -> Self {
        let parent_hash = parent.map(|head| head.hash);
        let hash = Self::chain(parent_hash.as_ref(), &body);
        Self { id, parent: parent.map(|head| head.message), body, hash }
    }

    /// The hash of a message with this body after the one with `parent`'s hash.
    pub(crate) fn chain(parent: Option<&Digest>, body: &MessageBody) -> Digest {
        let body = serde_json::to_value(body).expect("a message has text keys only");
        let mut chained = parent.map_or_else(Vec::new, |hash| hash.as_bytes().to_vec());
        chained.extend_from_slice(Digest::of_json(&body).as_bytes());
        Digest::of(&chained)
    }
}

/// Where a transcript ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The last message.
    pub message: u64,
    /// How many there are up to it.
    pub count: u64,
    /// Its hash.
    pub hash: Digest,
}

/// A session's head record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// The run that began it.
    pub run: RunId,
    /// When, milliseconds since the epoch.
    pub created_ms: u64,
    /// +1 with every change: what a writer names as its base.
    pub revision: u64,
    /// The end of `main`; none while it is empty.
    pub main: Option<Head>,
    /// The number that the next message gets.
    pub next_message: u64,
}

impl Session {
    /// An empty session.
    pub fn new(id: SessionId, run: RunId, created_ms: u64) -> Self {
        Self { id, run, created_ms, revision: 0, main: None, next_message: 1 }
    }

    /// Extend `main` by `bodies`, as an append does; returns the messages that the store then holds.
    pub fn extend(&mut self, bodies: &[MessageBody]) -> Vec<Message> {
        let mut messages = Vec::with_capacity(bodies.len());
        for body in bodies {
            let message = Message::after(self.main.as_ref(), self.next_message, body.clone());
            let count = self.main.as_ref().map_or(0, |head| head.count) + 1;
            self.main = Some(Head { message: message.id, count, hash: message.hash });
            self.next_message += 1;
            messages.push(message);
        }
        self.revision += 1;
        messages
    }
}

/// A writer's base is not what the store holds: nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "session {session} is at revision {stored} with {stored_count} messages, and the write was based on revision {base}; load it again"
)]
pub struct SnapshotConflict {
    /// Which session.
    pub session: SessionId,
    /// The revision the writer named.
    pub base: u64,
    /// The revision the store holds.
    pub stored: u64,
    /// Messages on the stored `main`.
    pub stored_count: u64,
}
