//! One call: what it is given, what watches it, and how it ends.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::limits::Limits;
use super::types::{EffectClass, Output, Refusal, ToolFailure};
use crate::grants::Granted;
use crate::stage::Mounted;

/// How much a log line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// For the tool's author.
    Debug,
    /// For whoever watches.
    Info,
    /// Worth a look.
    Warn,
    /// Something failed.
    Error,
}

/// What a call tells its host while it runs. Called on the call's own thread; the call stands still meanwhile.
pub trait CallObserver: Send + Sync {
    /// A line for the operator.
    fn log(&self, level: LogLevel, message: &str);

    /// How far the call is; `total` is none when unknown.
    fn progress(&self, done: u64, total: Option<u64>, message: &str);

    /// Whether [`first_host_call`](Self::first_host_call) is to be told. It costs some nanoseconds a host call.
    fn awaits_host_call(&self) -> bool {
        false
    }

    /// The component runs, and calls the host for the first time.
    fn first_host_call(&self) {}

    /// When the command `program` ended, others that it had started still ran. They were ended with it.
    fn left_behind(&self, program: &str) {
        let _ = program;
    }

    /// Make `receipt` durable before returning. The error goes to the tool: why nothing was saved.
    fn checkpoint(&self, receipt: &[u8]) -> Result<(), String>;
}

/// Watches nothing and saves nothing: for `describe`, `refine` and probes.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl CallObserver for NoObserver {
    fn log(&self, _: LogLevel, _: &str) {}
    fn progress(&self, _: u64, _: Option<u64>, _: &str) {}
    fn checkpoint(&self, _: &[u8]) -> Result<(), String> {
        Err("this call keeps no receipt".to_owned())
    }
}

/// Asks calls to stop. Clones are the same token; it never goes back.
#[derive(Clone, Default)]
pub struct CancelToken(Arc<CancelState>);

#[derive(Default)]
struct CancelState {
    cancelled: AtomicBool,
    wake: Notify,
}

impl CancelToken {
    /// A token that nobody cancelled yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ask every call that holds this token to stop.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::SeqCst);
        self.0.wake.notify_waiters();
    }

    /// Whether somebody asked.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::SeqCst)
    }

    /// Wait until somebody asks.
    pub(crate) async fn cancelled(&self) {
        let wake = self.0.wake.notified();
        tokio::pin!(wake);
        // Registered before the flag is read, so that a `cancel` in between is not missed.
        wake.as_mut().enable();
        if !self.is_cancelled() {
            wake.await;
        }
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CancelToken").field(&self.is_cancelled()).finish()
    }
}

/// What one call may reach. Everything that is not named here is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grants {
    /// The class the call is held to. A pure call gets the workspace read-only, and neither processes nor git writes nor
    /// the network.
    pub class: EffectClass,
    /// It is a probe: held to `pure`, but for looking at what a call of the tool could reach.
    pub probe: bool,
    /// The directory the tool sees as `/`; no files at all when none.
    pub workspace: Option<PathBuf>,
    /// Whether commands may be run by an effectful call.
    pub processes: bool,
    /// What the operator lets the tool reach. WASI sockets stay closed whatever this says.
    pub granted: Granted,
}

impl Grants {
    /// Nothing at all: for `describe` and `refine`.
    pub const fn nothing() -> Self {
        Self {
            class: EffectClass::Pure,
            probe: false,
            workspace: None,
            processes: false,
            granted: Granted::nothing(),
        }
    }

    /// The workspace, for a call of `class`: read-only when pure. An effectful call may run commands there.
    pub fn workspace(class: EffectClass, directory: impl Into<PathBuf>) -> Self {
        Self {
            class,
            probe: false,
            workspace: Some(directory.into()),
            processes: class.is_effectful(),
            granted: Granted::default(),
        }
    }

    /// What a probe of a call with these may reach.
    #[must_use]
    pub fn for_probe(&self) -> Self {
        Self { class: EffectClass::Pure, probe: true, processes: false, ..self.clone() }
    }
}

/// What the call is told about itself.
#[derive(Debug, Clone, Copy)]
pub struct CallContext<'a> {
    /// The same for every attempt of a step and for no other step.
    pub idempotency_key: &'a str,
    /// 1 for the first execution, +1 for every further one.
    pub attempt: u32,
    /// The session the call belongs to, in hexadecimal.
    pub session: &'a str,
    /// What an earlier attempt saved by `checkpoint`, the newest.
    pub receipt: Option<&'a [u8]>,
}

/// One call.
#[derive(Clone, Copy)]
pub struct CallRequest<'a> {
    /// A tool of the plugin.
    pub tool: &'a str,
    /// JSON text that fits the tool's input schema; the caller has checked that.
    pub args: &'a str,
    /// What it may reach.
    pub grants: &'a Grants,
    /// What it is told about itself.
    pub context: CallContext<'a>,
    /// Recorded with the intent: the source of all randomness the call sees.
    pub seed: [u8; 32],
    /// Recorded with the intent: the wall clock at the call's first reading, in milliseconds since 1970.
    pub clock_ms: u64,
    /// What the call may take in all, host calls included, not counting the wait for a free instance.
    pub timeout: Duration,
    /// What it may use up.
    pub limits: &'a Limits,
    /// What watches it. Shared, since the engine keeps it for as long as the instance lives.
    pub observer: &'a Arc<dyn CallObserver>,
    /// Asks it to stop.
    pub cancel: &'a CancelToken,
    /// Where the call runs when it is contained: in place of the workspace's own files. Whatever it does there is no effect until
    /// the caller publishes it, so it is never in doubt.
    pub stage: Option<&'a Arc<Mounted>>,
    /// A file that is locked (`flock`, exclusive) from the call's first command until the last process that a command of
    /// it started has ended, also when this process is killed. Created with the first command, for its owner alone; when
    /// it cannot be locked at once, the command is refused. No lock when none.
    pub lock: Option<&'a Path>,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub enum CallEnd {
    /// The tool returned a result.
    Completed(Output),
    /// The tool returned an error.
    Failed(ToolFailure),
    /// The call did not come to its end.
    Aborted(Abort),
}

/// A call that did not come to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Abort {
    /// What ended it.
    pub reason: AbortReason,
    /// What happened, with the last lines the tool wrote to its standard error (a panic's text is there).
    pub message: String,
    /// It had begun something that may have changed the world. `false` is certain: nothing changed.
    pub may_have_effect: bool,
    /// What the host had refused by then, oldest first.
    #[serde(default)]
    pub refusals: Vec<Refusal>,
}

/// What ended a call before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AbortReason {
    /// The component trapped: a panic, an `unreachable`, a division by zero, an exit.
    Trap,
    /// It ran out of time.
    Timeout,
    /// It was cancelled, and did not stop by itself.
    Cancelled,
    /// It asked for more memory or table space than it may have.
    Memory,
    /// Its stack overflowed.
    Stack,
    /// It wrote or returned more than it may.
    OutputLimit,
    /// It used up another limit, such as open handles or the size of one host call.
    ResourceLimit,
    /// It returned what the interface does not allow, such as a structured result that is no JSON.
    InvalidOutput,
    /// The host failed: the workspace could not be opened, files could not be synced, no instance to be had.
    Host,
}

impl fmt::Display for AbortReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Trap => "trap",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Memory => "memory",
            Self::Stack => "stack",
            Self::OutputLimit => "output-limit",
            Self::ResourceLimit => "resource-limit",
            Self::InvalidOutput => "invalid-output",
            Self::Host => "host",
        })
    }
}
