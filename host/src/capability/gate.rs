//! The policy hook of every capability: what a call of one class may do, and what it did.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::engine::limits::{REFUSED_NAME_BYTES, shortened};
use crate::engine::request::Grants;
use crate::engine::types::{EffectClass, Refusal};
use crate::grants::{Files, HostGrant, KnownHost};
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
    /// What the call does is held in a stage.
    contained: bool,
    /// Whether something that may change the world was begun: [`NOTHING`], [`BEGUN`] or [`OVER`].
    begun: AtomicU8,
    /// Something was changed that did not sync itself.
    unsynced: AtomicBool,
    /// Actions that failed or have not ended, and what came of them must be settled before the run goes on.
    in_doubt: AtomicUsize,
    refusals: Mutex<Vec<Refusal>>,
}

/// Nothing was begun, and something may be.
const NOTHING: u8 = 0;
/// Something was begun.
const BEGUN: u8 = 1;
/// Nothing was begun, and nothing will be: the call is over, and was judged.
const OVER: u8 = 2;

/// An action that has begun and has not ended. Dropped, it stays in doubt.
#[must_use]
pub(crate) struct Pending(Option<Gate>);

impl Pending {
    /// It is known what came of it.
    pub(crate) fn settle(self) {
        if let Some(gate) = self.0 {
            gate.0.in_doubt.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Gate {
    pub(crate) fn new(tool: &str, grants: &Grants) -> Self {
        Self::of(tool, grants, false)
    }

    /// Of a call that changes nothing but its stage: it never has an effect of its own.
    pub(crate) fn contained(tool: &str, grants: &Grants) -> Self {
        Self::of(tool, grants, true)
    }

    fn of(tool: &str, grants: &Grants, contained: bool) -> Self {
        Self(Arc::new(State {
            tool: tool.to_owned(),
            grants: grants.clone(),
            contained,
            begun: AtomicU8::new(NOTHING),
            unsynced: AtomicBool::new(false),
            in_doubt: AtomicUsize::new(0),
            refusals: Mutex::new(Vec::new()),
        }))
    }

    /// Admit `action`, which counts as begun from here on if it changes anything, or refuse it with the reason.
    pub(crate) fn admit(&self, action: Action<'_>) -> Result<(), String> {
        self.check(action)?;
        if action.changes() {
            self.0.begun.store(BEGUN, Ordering::Release);
        }
        if matches!(action, Action::WriteOpen | Action::Write(_) | Action::Execute(_)) {
            self.0.unsynced.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// As [`admit`](Self::admit), for an action that does not begin yet, such as a request that has no connection: it
    /// begins with [`begin`](Self::begin).
    pub(crate) fn check(&self, action: Action<'_>) -> Result<(), String> {
        match objection(&self.0.grants, action) {
            Some(Objection { why, grant }) => {
                Err(self.refuse(self.refused(action, &why, &self.remedy(action, grant))))
            }
            None => Ok(()),
        }
    }

    /// A checked action begins now, on whatever thread. None when the call is over: then it must not.
    pub(crate) fn begin(&self, action: Action<'_>) -> Option<Pending> {
        if !action.changes() {
            return Some(Pending(None));
        }
        let begun = self.0.begun.compare_exchange(NOTHING, BEGUN, Ordering::AcqRel, Ordering::Acquire);
        if begun == Err(OVER) {
            return None;
        }
        self.doubt();
        Some(Pending(Some(self.clone())))
    }

    /// Refuse `action` for a reason that no grant changes.
    pub(crate) fn refuse_for(&self, action: Action<'_>, why: &str) -> String {
        self.refuse(self.refused(action, why, ""))
    }

    fn refused(&self, action: Action<'_>, why: &str, remedy: &str) -> Refusal {
        let State { tool, grants: Grants { class, probe, .. }, .. } = &*self.0;
        let called = if *probe { "asked by its probe".to_owned() } else { format!("called as `{class}`") };
        let reason = format!("`{tool}`, {called}, {why}{remedy}");
        Refusal { capability: action.capability().to_owned(), action: action.describe(), reason }
    }

    /// The line of a policy that meets an objection to `action`, if one does. First: of each field the first grant that names
    /// it decides, and of a call the first rule that matches.
    fn remedy(&self, action: Action<'_>, grant: Option<Value>) -> String {
        let State { tool, grants, .. } = &*self.0;
        if let Some(mut grant) = grant {
            grant["tool"] = json!(tool);
            return format!("; this line, first under `grants`, would allow it: {grant}");
        }
        let raised = Grants {
            class: EffectClass::NonIdempotent,
            processes: grants.workspace.is_some(),
            ..grants.clone()
        };
        if grants.probe || objection(&raised, action).is_some() {
            return String::new();
        }
        // It asks: a tool that declares less than it does may do more than this.
        let rule = json!({ "tool": tool, "decision": "ask", "effect": raised.class });
        format!("; this rule, first under `policy`, would raise its class and ask: {rule}")
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

    /// Whether anything was begun that may have changed the world. Asked when the call is over: `false` is certain, since
    /// from here on nothing begins on other threads either.
    pub(crate) fn may_have_effect(&self) -> bool {
        let begun = self.0.begun.compare_exchange(NOTHING, OVER, Ordering::AcqRel, Ordering::Acquire);
        begun == Err(BEGUN) && !self.0.contained
    }

    /// Whether something was changed that is not known to be durable.
    pub(crate) fn is_unsynced(&self) -> bool {
        self.0.unsynced.load(Ordering::Acquire) && !self.0.contained
    }

    /// Leave open what came of an action, whatever the tool makes of its failure.
    pub(crate) fn doubt(&self) {
        self.0.in_doubt.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether an action was left open.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.0.in_doubt.load(Ordering::Acquire) > 0 && !self.0.contained
    }

    /// What was refused so far, oldest first.
    pub(crate) fn refusals(&self) -> Vec<Refusal> {
        self.0.refusals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What stands against an action.
struct Objection {
    why: String,
    /// What would have to be granted, but for the tool's name, if that alone would do.
    grant: Option<Value>,
}

impl Objection {
    /// One that no grant meets.
    fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), grant: None }
    }

    fn met_by(why: impl Into<String>, grant: Value) -> Self {
        Self { why: why.into(), grant: Some(grant) }
    }
}

/// What stands against `action` in a call with these grants.
fn objection(grants: &Grants, action: Action<'_>) -> Option<Objection> {
    let Grants { class, probe, processes, granted, .. } = grants;
    // What no grant can change comes first.
    if let Action::Listen | Action::Connect(_) = action {
        let why = format!("gets no sockets, {WHATEVER}: servers are reached by HTTP, through the host");
        return Some(Objection::new(why));
    }
    let pure = !class.is_effectful();
    if action.changes() && pure {
        return Some(Objection::new(if *probe {
            "may change nothing: a probe only looks"
        } else {
            "may change nothing; a tool that does declares `idempotent` or `non-idempotent`"
        }));
    }
    match action {
        Action::Read(_) => (granted.files < Files::Read)
            .then(|| Objection::met_by("is granted no files", json!({ "files": "read" }))),
        Action::Leave(_) => Some(Objection::new(format!("may not leave the workspace, {WHATEVER}"))),
        Action::CreateThroughLink(_) => {
            Some(Objection::new("may create no file through a symbolic link: name the file that it leads to"))
        }
        Action::WriteAlias(_) => Some(Objection::new(format!("{OPERATORS}; this is another name of it"))),
        Action::Write(path) | Action::Replace(path) if is_operators(path) => Some(Objection::new(OPERATORS)),
        // A commit is below `.git`, which is in the workspace.
        Action::WriteOpen | Action::Write(_) | Action::Replace(_) | Action::Commit => (granted.files
            < Files::Write)
            .then(|| Objection::met_by("is granted no writing", json!({ "files": "write" }))),
        Action::Execute(program) => {
            if !processes {
                return Some(Objection::new("has no workspace to run commands in"));
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
            (!whys.is_empty()).then(|| Objection::met_by(whys.join(", and "), grant))
        }
        Action::Listen | Action::Connect(_) => unreachable!("refused above"),
        Action::Request { .. } | Action::ListRemote(_) | Action::Push(_) if pure && !probe => {
            Some(Objection::new("reaches no network; a tool that does is at least `idempotent`"))
        }
        Action::Request { safe, origin, .. } => {
            let Some(host) = granted.host(origin) else {
                let mut hosts = granted.hosts.clone();
                hosts.push(HostGrant::Origin(origin.clone()));
                return Some(Objection::met_by("is not granted this server", json!({ "hosts": hosts })));
            };
            if safe || *class == EffectClass::NonIdempotent || host.honours_key() {
                return None;
            }
            let mut hosts = granted.hosts.clone();
            hosts.retain(|host| host.origin() != origin);
            hosts.push(HostGrant::Known(KnownHost { origin: origin.clone(), honours_key: true }));
            let why = "may only ask for what can be asked twice: GET and HEAD, or anything of a server that honours the key";
            Some(Objection::met_by(why, json!({ "hosts": hosts })))
        }
        Action::ListRemote(remote) | Action::Push(remote) => {
            (!granted.remotes.iter().any(|granted| granted == remote)).then(|| {
                let remote = shortened(remote.to_owned(), REFUSED_NAME_BYTES);
                let remotes: Vec<_> = granted.remotes.iter().cloned().chain([remote]).collect();
                Objection::met_by("is not granted this remote", json!({ "remotes": remotes }))
            })
        }
    }
}

/// Whether the path ends in the operator's file, in whatever directory: seen from a handle, any may be the workspace,
/// and each may be that of another run. A directory may tell no upper case from lower case.
pub(crate) fn is_operators(path: &str) -> bool {
    let mut parts = path.split('/').rev().filter(|part| !matches!(*part, "" | "."));
    parts.next().is_some_and(|name| name.eq_ignore_ascii_case(OPERATOR_FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> (Gate, Origin) {
        let mut grants = Grants { class: EffectClass::NonIdempotent, ..Grants::nothing() };
        let origin: Origin = "http://127.0.0.1:1".parse().unwrap();
        grants.granted.hosts.push(HostGrant::Origin(origin.clone()));
        (Gate::new("t", &grants), origin)
    }

    fn request(origin: &Origin, safe: bool) -> Action<'_> {
        Action::Request { safe, method: if safe { "GET" } else { "POST" }, origin }
    }

    #[test]
    fn a_checked_action_has_no_effect_until_it_begins_and_is_in_doubt_until_it_is_settled() {
        let (gate, origin) = gate();
        let post = request(&origin, false);
        gate.check(post).unwrap();
        assert!(!gate.is_in_doubt());
        let pending = gate.begin(post).unwrap();
        assert!(gate.is_in_doubt());
        pending.settle();
        assert!(!gate.is_in_doubt() && gate.may_have_effect());
        drop(gate.begin(post).unwrap());
        assert!(gate.is_in_doubt(), "nobody said what came of it");
    }

    #[test]
    fn nothing_begins_once_the_call_was_judged_to_have_done_nothing() {
        let (gate, origin) = gate();
        gate.begin(request(&origin, true)).unwrap().settle();
        assert!(!gate.may_have_effect(), "what is safe has none");
        assert!(gate.begin(request(&origin, false)).is_none());
        assert!(!gate.may_have_effect() && !gate.is_in_doubt());
    }
}
