//! Sessions: transcripts, in the same store as the steps that produce them.
//!
//! Messages form a tree: each names the one before it and carries a hash chained over that one's. `main` and the named
//! heads are ends of branches. A rewrite moves `main` to another branch; the messages it leaves stay, and the session's
//! log of rewrites says where the branch that was left ends.

use std::collections::BTreeMap;

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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The text; empty in a tool message, whose result has it.
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

    /// A tool's answer to one call. Its text is the result's alone: it is stored once.
    pub fn tool_result(result: ToolResult) -> Self {
        Self { role: Role::Tool, text: String::new(), calls: Vec::new(), result: Some(result) }
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
    /// The hash of a message with this body after the one with `parent`'s hash.
    ///
    /// # Panics
    /// Never: a message has text keys only, which is all that JSON asks.
    pub fn chain(parent: Option<&Digest>, body: &MessageBody) -> Digest {
        let body = serde_json::to_value(body).expect("a message has text keys only");
        let mut chained = parent.map_or_else(Vec::new, |hash| hash.as_bytes().to_vec());
        chained.extend_from_slice(Digest::of_json(&body).as_bytes());
        Digest::of(&chained)
    }
}

/// Where a branch ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The last message.
    pub message: u64,
    /// How many there are up to it.
    pub count: u64,
    /// Its hash.
    pub hash: Digest,
}

/// What a writer has loaded and bases its change on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// The session's revision then.
    pub revision: u64,
    /// The end of `main` then; none when it was empty.
    pub main: Option<Head>,
}

impl Base {
    /// Messages on `main` then.
    pub fn count(&self) -> u64 {
        self.main.map_or(0, |head| head.count)
    }
}

/// A turn in flight: set when it begins, cleared by whoever set it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Names the turn; a later one has another name.
    pub id: String,
    /// What `main` was when it began.
    pub base: Base,
    /// When, milliseconds since the epoch.
    pub begun_ms: u64,
}

/// Why `main` was rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RewriteKind {
    /// Its tail was cut off.
    Rewind,
    /// Its messages were replaced by fewer.
    Compact,
    /// Its messages were replaced by others.
    Edit,
    /// The partial tail of a turn that a crash cut short was cut off.
    Recover,
}

impl RewriteKind {
    /// The kind as it is written everywhere.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rewind => "rewind",
            Self::Compact => "compact",
            Self::Edit => "edit",
            Self::Recover => "recover",
        }
    }
}

/// One rewrite, as the session's log keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rewrite {
    /// Why.
    pub kind: RewriteKind,
    /// The revision it led to.
    pub revision: u64,
    /// The end of `main` before: what it cut off is reachable from here.
    pub before: Option<Head>,
    /// The end of `main` after.
    pub after: Option<Head>,
    /// When, milliseconds since the epoch.
    pub at_ms: u64,
}

/// A session's head record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// The run that began it; none for one that was imported or made by hand.
    pub run: Option<RunId>,
    /// When, milliseconds since the epoch.
    pub created_ms: u64,
    /// +1 with every change of `main`: what a writer names as its base.
    pub revision: u64,
    /// The end of `main`; none while it is empty.
    pub main: Option<Head>,
    /// The ends of other branches, by name.
    pub heads: BTreeMap<String, Head>,
    /// The number that the next message gets: one more than there are messages.
    pub next_message: u64,
    /// Rewrites so far.
    pub rewrites: u64,
    /// The turn in flight.
    pub turn: Option<Turn>,
}

impl Session {
    /// An empty session.
    pub fn new(id: SessionId, run: Option<RunId>, created_ms: u64) -> Self {
        Self {
            id,
            run,
            created_ms,
            revision: 0,
            main: None,
            heads: BTreeMap::new(),
            next_message: 1,
            rewrites: 0,
            turn: None,
        }
    }

    /// What a writer that has loaded this bases its change on.
    pub fn base(&self) -> Base {
        Base { revision: self.revision, main: self.main }
    }

    /// Extend `main` by `bodies`, as an append does; returns the messages that the store then holds.
    pub fn extend(&mut self, bodies: &[MessageBody]) -> Vec<Message> {
        let (messages, head) = self.branch(self.main, bodies);
        self.main = head;
        self.revision += 1;
        messages
    }

    /// Number and chain `bodies` after `from`; returns the messages and the end of the branch.
    pub(crate) fn branch(
        &mut self,
        from: Option<Head>,
        bodies: &[MessageBody],
    ) -> (Vec<Message>, Option<Head>) {
        let mut head = from;
        let mut messages = Vec::with_capacity(bodies.len());
        for body in bodies {
            let parent_hash = head.map(|head| head.hash);
            let hash = Message::chain(parent_hash.as_ref(), body);
            let id = self.next_message;
            messages.push(Message { id, parent: head.map(|head| head.message), body: body.clone(), hash });
            head = Some(Head { message: id, count: head.map_or(0, |head| head.count) + 1, hash });
            self.next_message += 1;
        }
        (messages, head)
    }
}

/// How a writer's base and the store differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConflictKind {
    /// The store already holds the writer's messages, and more.
    StalePrefix,
    /// Both went on from the writer's base, differently.
    Diverged,
    /// The writer's base was cut off.
    Rewound,
    /// The writer does not own the store any more. It may not write; its messages can be exported.
    Fenced,
}

impl ConflictKind {
    /// The kind as it is written everywhere.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::StalePrefix => "stale-prefix",
            Self::Diverged => "diverged",
            Self::Rewound => "rewound",
            Self::Fenced => "fenced",
        }
    }
}

/// A writer's base is not what the store holds: nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "snapshot conflict ({}): the change of session {session} is based on revision {base} and makes {count} messages; the store is at revision {stored} with {stored_count}; load it again, or keep yours as a head",
    kind.as_str()
)]
pub struct SnapshotConflict {
    /// Which session.
    pub session: SessionId,
    /// How the two differ.
    pub kind: ConflictKind,
    /// The revision the writer named.
    pub base: u64,
    /// Messages that `main` would have had.
    pub count: u64,
    /// The revision the store holds.
    pub stored: u64,
    /// Messages on the stored `main`.
    pub stored_count: u64,
}
