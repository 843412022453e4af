//! The policy hook of every capability: what a call of one class may do, and what it did.

use std::fmt::Write as _;
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

/// The file through which an operator speaks. A tool that could write one would grant itself what it likes.
const OPERATOR_FILE: &str = crate::operator::FILE_NAME;

const OPERATORS: &str = "may not touch the operator's `deed.toml`, whatever it is granted";
const WHATEVER: &str = "whatever it is granted";

/// Something a call asks for that its class or its grants may forbid.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Action<'a> {
    /// See what is in the workspace.
    Read(&'a str),
    /// Follow a path that leads out of the workspace.
    Leave(&'a str),
    /// Write the operator's file under another name that it has.
    WriteAlias(&'a str),
    /// Create a file through a symbolic link.
    CreateThroughLink(&'a str),
    /// Change a file of which there is only a handle.
    WriteOpen,
    /// Change a file by plain WASI: not synced by itself.
    Write(&'a str),
    /// `deed:workspace` `replace`: durable before it returns.
    Replace(&'a str),
    /// Run a program.
    Execute(&'a str),
    /// Make a commit: durable before it returns.
    Commit,
    /// Open a socket at an address of this machine.
    Listen,
    /// Reach an address, or look up a name.
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
            Self::Read(_)
            | Self::Leave(_)
            | Self::WriteAlias(_)
            | Self::CreateThroughLink(_)
            | Self::WriteOpen
            | Self::Write(_)
            | Self::Replace(_) => "files",
            Self::Execute(_) => "process",
            Self::Commit | Self::ListRemote(_) | Self::Push(_) => "git",
            Self::Listen | Self::Connect(_) => "network",
            Self::Request { .. } => "http",
        }
    }

    fn describe(self) -> String {
        let (verb, name) = match self {
            Self::WriteOpen => return "to write an open file".to_owned(),
            Self::Read(path) => ("read", path),
            Self::Leave(path) => ("follow", path),
            Self::CreateThroughLink(path) => ("create a file through", path),
            Self::Write(path) | Self::WriteAlias(path) => ("write", path),
            Self::Replace(path) => ("replace", path),
            Self::Execute(program) => ("run", program),
            Self::Commit => return "to commit".to_owned(),
            Self::Listen => return "to open a socket".to_owned(),
            Self::Connect(address) => ("reach", address),
            Self::Request { method, origin, .. } => return format!("to send {method} to `{origin}`"),
            Self::ListRemote(remote) => ("list", remote),
            Self::Push(remote) => ("push to", remote),
        };
        format!("to {verb} `{}`", shortened(name.to_owned(), REFUSED_NAME_BYTES))
    }

    /// Whether it may change the world.
    fn changes(self) -> bool {
        !matches!(
            self,
            Self::Read(_) | Self::Leave(_) | Self::Request { safe: true, .. } | Self::ListRemote(_)
        )
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
        if matches!(action, Action::WriteOpen | Action::Write(_) | Action::Execute(_)) {
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
                // First: of each field, the first grant that names it decides.
                let _ = write!(reason, "; this line, first under `grants`, would allow it: {grant}");
            }
            Some(Refusal { capability: action.capability().to_owned(), action: action.describe(), reason })
        };
        // The line takes the place of the earlier ones, and must not take away what they grant.
        let hosts =
            |new: Value| -> Value { granted.hosts.iter().map(|host| json!(host)).chain([new]).collect() };
        // What no grant can change comes first.
        if let Action::Listen | Action::Connect(_) = action {
            return refused(
                format!("gets no sockets, {WHATEVER}: servers are reached by HTTP, through the host"),
                None,
            );
        }
        let pure = !class.is_effectful();
        if action.changes() && pure {
            let what = if *probe {
                "may change nothing: a probe only looks"
            } else {
                "may change nothing; a tool that does declares `idempotent` or `non-idempotent`"
            };
            return refused(what.to_owned(), None);
        }
        match action {
            Action::Read(_) => (granted.files < Files::Read)
                .then(|| refused("is granted no files".to_owned(), Some(json!({ "files": "read" }))))
                .flatten(),
            Action::Leave(_) => refused(format!("may not leave the workspace, {WHATEVER}"), None),
            Action::CreateThroughLink(_) => refused(
                "may create no file through a symbolic link: name the file that it leads to".to_owned(),
                None,
            ),
            Action::WriteAlias(_) => refused(format!("{OPERATORS}; this is another name of it"), None),
            Action::Write(path) | Action::Replace(path) if is_operators(path) => {
                refused(OPERATORS.to_owned(), None)
            }
            // A commit is below `.git`, which is in the workspace.
            Action::WriteOpen | Action::Write(_) | Action::Replace(_) | Action::Commit => (granted.files
                < Files::Write)
                .then(|| refused("is granted no writing".to_owned(), Some(json!({ "files": "write" }))))
                .flatten(),
            Action::Execute(program) => {
                if !processes {
                    return refused("has no workspace to run commands in".to_owned(), None);
                }
                let named =
                    granted.commands.as_ref().is_none_or(|names| names.iter().any(|name| name == program));
                let (mut whys, mut grant) = (Vec::new(), json!({}));
                // What a command does to files, nobody here sees. So it needs all that a tool can have of them.
                if granted.files < Files::Write {
                    whys.push("is granted no writing, which a command can do");
                    grant["files"] = json!("write");
                }
                if !named {
                    whys.push("is granted other commands only");
                    let program = shortened(program.to_owned(), REFUSED_NAME_BYTES);
                    grant["commands"] = granted.commands.iter().flatten().cloned().chain([program]).collect();
                }
                if whys.is_empty() { None } else { refused(whys.join(", and "), Some(grant)) }
            }
            Action::Listen | Action::Connect(_) => unreachable!("refused above"),
            Action::Request { safe, origin, .. } => {
                if pure && !probe {
                    return refused(
                        "reaches no network; a tool that does is at least `idempotent`".to_owned(),
                        None,
                    );
                }
                let Some(host) = granted.host(origin) else {
                    let grant = json!({ "hosts": hosts(json!(origin)) });
                    return refused("is not granted this server".to_owned(), Some(grant));
                };
                if safe || *class == EffectClass::NonIdempotent || host.honours_key() {
                    return None;
                }
                let known = json!({ "origin": origin, "honours_key": true });
                let grant = json!({ "hosts": hosts(known) });
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
                let grant = || {
                    let remote = shortened(remote.to_owned(), REFUSED_NAME_BYTES);
                    let remotes: Vec<_> = granted.remotes.iter().cloned().chain([remote]).collect();
                    json!({ "remotes": remotes })
                };
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

/// Whether the path ends in the operator's file, in whatever directory: seen from a handle, any may be the workspace,
/// and each may be that of another run. A directory may tell no upper case from lower case.
pub(crate) fn is_operators(path: &str) -> bool {
    let mut parts = path.split('/').rev().filter(|part| !matches!(*part, "" | "."));
    parts.next().is_some_and(|name| name.eq_ignore_ascii_case(OPERATOR_FILE))
}
