//! The policy hook of every capability: what a call of one class may do, and what it did.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::limits::{REFUSED_NAME_BYTES, shortened};
use crate::engine::types::{EffectClass, Refusal};

/// Refusals kept of one call. A tool that goes on after a hundred of them only repeats itself.
const REFUSALS: usize = 100;

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
    /// Open a connection, or look up a name.
    Connect(&'a str),
}

impl Action<'_> {
    fn capability(self) -> &'static str {
        match self {
            Self::Write(_) | Self::Replace(_) => "files",
            Self::Execute(_) => "process",
            Self::Commit => "git",
            Self::Connect(_) => "network",
        }
    }

    fn describe(self) -> String {
        let (verb, name) = match self {
            Self::Write(path) => ("write", path),
            Self::Replace(path) => ("replace", path),
            Self::Execute(program) => ("run", program),
            Self::Commit => return "to commit".to_owned(),
            Self::Connect(address) => ("reach", address),
        };
        format!("to {verb} `{}`", shortened(name.to_owned(), REFUSED_NAME_BYTES))
    }
}

/// Decides for one call, and remembers what it decided. Clones share the memory.
#[derive(Clone)]
pub(crate) struct Gate(Arc<State>);

struct State {
    tool: String,
    class: EffectClass,
    processes: bool,
    /// Something that may change the world was begun.
    begun: AtomicBool,
    /// Something was changed that did not sync itself.
    unsynced: AtomicBool,
    /// An action failed, and what came of it must be settled before the run goes on.
    in_doubt: AtomicBool,
    refusals: Mutex<Vec<Refusal>>,
}

impl Gate {
    pub(crate) fn new(tool: &str, class: EffectClass, processes: bool) -> Self {
        Self(Arc::new(State {
            tool: tool.to_owned(),
            class,
            processes,
            begun: AtomicBool::new(false),
            unsynced: AtomicBool::new(false),
            in_doubt: AtomicBool::new(false),
            refusals: Mutex::new(Vec::new()),
        }))
    }

    /// Admit `action`, which counts as begun from here on, or refuse it with the reason.
    pub(crate) fn admit(&self, action: Action<'_>) -> Result<(), String> {
        let State { tool, class, processes, .. } = &*self.0;
        if let Action::Connect(_) = action {
            let reason = format!("`{tool}` is granted no network");
            return Err(self.refuse(action, reason));
        }
        if !class.is_effectful() {
            let reason = format!("`{tool}` is called as `{class}`, which changes nothing");
            return Err(self.refuse(action, reason));
        }
        if matches!(action, Action::Execute(_)) && !processes {
            let reason = format!("`{tool}` ({class}) is granted no processes");
            return Err(self.refuse(action, reason));
        }
        self.0.begun.store(true, Ordering::Release);
        if matches!(action, Action::Write(_) | Action::Execute(_)) {
            self.0.unsynced.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn refuse(&self, action: Action<'_>, reason: String) -> String {
        let refusal =
            Refusal { capability: action.capability().to_owned(), action: action.describe(), reason };
        let message = refusal.to_string();
        // A panic while the list was locked leaves a list that is still whole.
        let mut refusals = self.0.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if refusals.len() < REFUSALS && refusals.last() != Some(&refusal) {
            refusals.push(refusal);
        }
        message
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
