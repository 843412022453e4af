//! The policy hook of every capability: what a call of one class may do, and what it did.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::engine::limits::{REFUSED_NAME_BYTES, shortened};
use crate::engine::request::Grants;
use crate::engine::types::{EffectClass, Refusal};
use crate::grants::{Files, HostGrant};
use crate::origin::Origin;

/// Refusals kept of one call. A tool that goes on after a hundred of them only repeats itself.
const REFUSALS: usize = 100;

/// The name of the file through which an operator speaks. A tool that could write one would grant itself what it likes.
const OPERATOR_FILE: &str = "deed.toml";

/// Something a call asks for that its class or its grants may forbid.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Action<'a> {
    /// Change a file by plain WASI: not synced by itself.
    Write(&'a str),
    /// `deed:workspace` `replace`: durable before it returns.
    Replace(&'a str),
    /// Run a program.
    Execute(&'a str),
    /// Make a commit: durable before it returns.
    Commit,
    /// Open a socket, or look up a name.
    Connect(&'a str),
    /// Send an HTTP request.
    Request {
        /// It asks for nothing to be changed: GET and HEAD.
        safe: bool,
        /// `GET`, `POST`, …
        method: &'a str,
        /// Where it goes.
        origin: &'a Origin,
    },
    /// Ask a git remote for its branches.
    ListRemote(&'a str),
    /// Push to a git remote.
    Push(&'a str),
}

impl Action<'_> {
    fn capability(self) -> &'static str {
        match self {
            Self::Write(_) | Self::Replace(_) => "files",
            Self::Execute(_) => "process",
            Self::Commit | Self::ListRemote(_) | Self::Push(_) => "git",
            Self::Connect(_) => "network",
            Self::Request { .. } => "http",
        }
    }

    fn describe(self) -> String {
        let (verb, name) = match self {
            Self::Write(path) => ("write", path),
            Self::Replace(path) => ("replace", path),
            Self::Execute(program) => ("run", program),
            Self::Commit => return "to commit".to_owned(),
            Self::Connect(address) => ("reach", address),
            Self::Request { method, origin, .. } => return format!("to send {method} to `{origin}`"),
            Self::ListRemote(remote) => ("list", remote),
            Self::Push(remote) => ("push to", remote),
        };
        format!("to {verb} `{}`", shortened(name.to_owned(), REFUSED_NAME_BYTES))
    }

    /// Whether it may change the world.
    fn changes(self) -> bool {
        !matches!(self, Self::Request { safe: true, .. } | Self::ListRemote(_))
    }
}

/// Decides for one call, and remembers what it decided. Clones share the memory.
#[derive(Clone)]
pub(crate) struct Gate(Arc<State>);

struct State {
    tool: String,
    grants: Grants,
    /// Something that may change the world was begun.
    begun: AtomicBool,
    /// Something was changed that did not sync itself.
    unsynced: AtomicBool,
    /// An action failed, and what came of it must be settled before the run goes on.
    in_doubt: AtomicBool,
    refusals: Mutex<Vec<Refusal>>,
}

impl Gate {
    pub(crate) fn new(tool: &str, grants: &Grants) -> Self {
        Self(Arc::new(State {
            tool: tool.to_owned(),
            grants: grants.clone(),
            begun: AtomicBool::new(false),
            unsynced: AtomicBool::new(false),
            in_doubt: AtomicBool::new(false),
            refusals: Mutex::new(Vec::new()),
        }))
    }

    /// Admit `action`, which counts as begun from here on if it changes anything, or refuse it with the reason.
    pub(crate) fn admit(&self, action: Action<'_>) -> Result<(), String> {
        if let Some(refusal) = self.refusal(action) {
            return Err(self.refuse(refusal));
        }
        if action.changes() {
            self.0.begun.store(true, Ordering::Release);
        }
        if matches!(action, Action::Write(_) | Action::Execute(_)) {
            self.0.unsynced.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Why not, and what in a policy would allow it.
    fn refusal(&self, action: Action<'_>) -> Option<Refusal> {
        let State { tool, grants: Grants { class, probe, processes, granted, .. }, .. } = &*self.0;
        let refused = |why: String, grant: Option<Value>| {
            let called =
                if *probe { "asked by its probe".to_owned() } else { format!("called as `{class}`") };
            let mut reason = format!("`{tool}`, {called}, {why}");
            if let Some(mut grant) = grant {
                grant["tool"] = json!(tool);
                reason.push_str(&format!("; this line under `grants` would allow it: {grant}"));
            }
            Some(Refusal { capability: action.capability().to_owned(), action: action.describe(), reason })
        };
        // What no grant can change comes first.
        if let Action::Connect(_) = action {
            return refused("gets no sockets: only HTTP, through the host".to_owned(), None);
        }
        let pure = !class.is_effectful();
        if action.changes() && pure {
            let what = if *probe {
                "only looks"
            } else {
                "changes nothing; a tool that does declares another class"
            };
            return refused(what.to_owned(), None);
        }
        match action {
            Action::Write(path) | Action::Replace(path) => {
                if is_operators(path) {
                    return refused(
                        format!("may not touch `{OPERATOR_FILE}`, which is the operator's"),
                        None,
                    );
                }
                (granted.files < Files::Write)
                    .then(|| refused("is granted no writing".to_owned(), Some(json!({ "files": "write" }))))
                    .flatten()
            }
            Action::Execute(program) => {
                if !processes {
                    return refused("is granted no commands".to_owned(), None);
                }
                let named =
                    granted.commands.as_ref().is_none_or(|names| names.iter().any(|name| name == program));
                let grant = || json!({ "commands": [shortened(program.to_owned(), REFUSED_NAME_BYTES)] });
                (!named)
                    .then(|| refused("is granted other commands only".to_owned(), Some(grant())))
                    .flatten()
            }
            Action::Commit => None,
            Action::Connect(_) => unreachable!("refused above"),
            Action::Request { safe, origin, .. } => {
                if pure && !probe {
                    return refused(
                        "reaches no network; a tool that does is at least `idempotent`".to_owned(),
                        None,
                    );
                }
                let Some(host) = granted.host(origin) else {
                    let grant = json!({ "hosts": [origin] });
                    return refused("is not granted this server".to_owned(), Some(grant));
                };
                if safe || *class == EffectClass::NonIdempotent || host.honours_key() {
                    return None;
                }
                let grant = json!({ "hosts": [{ "origin": origin, "honours_key": true }] });
                refused(
                    "may only ask for what can be asked twice: GET and HEAD, or anything of a server that honours the key".to_owned(),
                    Some(grant),
                )
            }
            Action::ListRemote(remote) | Action::Push(remote) => {
                if pure && !probe {
                    return refused(
                        "reaches no network; a tool that does is at least `idempotent`".to_owned(),
                        None,
                    );
                }
                let named = granted.remotes.iter().any(|granted| granted == remote);
                let grant = || json!({ "remotes": [shortened(remote.to_owned(), REFUSED_NAME_BYTES)] });
                (!named).then(|| refused("is not granted this remote".to_owned(), Some(grant()))).flatten()
            }
        }
    }

    fn refuse(&self, refusal: Refusal) -> String {
        let message = refusal.to_string();
        // A panic while the list was locked leaves a list that is still whole.
        let mut refusals = self.0.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if refusals.len() < REFUSALS && refusals.last() != Some(&refusal) {
            refusals.push(refusal);
        }
        message
    }

    /// What the operator says of a server that a request goes to.
    pub(crate) fn host(&self, origin: &Origin) -> Option<&HostGrant> {
        self.0.grants.granted.host(origin)
    }

    /// Whether anything was begun that may have changed the world. `false` is certain.
    pub(crate) fn may_have_effect(&self) -> bool {
        self.0.begun.load(Ordering::Acquire)
    }

    /// Whether something was changed that is not known to be durable.
    pub(crate) fn is_unsynced(&self) -> bool {
        self.0.unsynced.load(Ordering::Acquire)
    }

    /// Leave open what came of an action, whatever the tool makes of its failure.
    pub(crate) fn doubt(&self) {
        self.0.in_doubt.store(true, Ordering::Release);
    }

    /// Whether an action was left open.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.0.in_doubt.load(Ordering::Acquire)
    }

    /// What was refused so far, oldest first.
    pub(crate) fn refusals(&self) -> Vec<Refusal> {
        self.0.refusals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Whether the path ends in the operator's file, in whatever directory: seen from a handle, any may be the workspace.
pub(crate) fn is_operators(path: &str) -> bool {
    path.trim_end_matches('/').rsplit('/').next() == Some(OPERATOR_FILE)
}
