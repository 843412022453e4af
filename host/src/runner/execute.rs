//! One attempt of a plugin's call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use deed_journal::{
    Durability, EffectClass, IdempotencyKey, Journal, Op, Receipt, Run, RunId, Step, StepEvent,
};

use super::{Host, RunError};
use crate::boundary::{Boundaries, Boundary, KillPoint};
use crate::engine::{
    CallContext, CallEnd, CallObserver, CallRequest, CancelToken, Engine, Grants, Limits, LogLevel, Plugin,
};
use crate::grants::Granted;
use crate::toolbox::Tool;
use crate::watch::Watcher;

/// What a call may take when its tool does not say: a build or a test suite of a mid-sized project.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(2);

/// Everything one attempt needs.
pub(super) struct Execution<'h> {
    engine: &'h Engine,
    plugin: &'h Plugin,
    limits: Limits,
    cancel: &'h CancelToken,
    step: Step,
    attempt: u32,
    key: IdempotencyKey,
    session: String,
    grants: Grants,
    clock_ms: u64,
    timeout: Duration,
    observer: Arc<dyn CallObserver>,
}

impl<'h> Execution<'h> {
    pub(super) fn new(
        host: &'h Host,
        run: &Run,
        granted: Granted,
        step: &Step,
        attempt: u32,
        clock_ms: u64,
    ) -> Result<Self, RunError> {
        let (tool, plugin) = find_component(host, run, step)?;
        let mut limits = host.limits.clone();
        if let Some(bytes) = granted.memory_bytes {
            limits.memory_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        }
        let observer = StepObserver {
            journal: Arc::clone(&host.journal),
            watcher: Arc::clone(&host.watcher),
            boundaries: Arc::clone(&host.boundaries),
            run: run.id,
            seq: step.seq,
            attempt,
            receipts: AtomicU32::new(0),
        };
        Ok(Self {
            engine: host.toolbox.engine(),
            plugin,
            limits,
            cancel: &host.cancel,
            attempt,
            key: host.journal.key(run, step.seq),
            session: run.session.to_string(),
            timeout: granted
                .timeout_ms
                .map(Duration::from_millis)
                .or(tool.descriptor.timeout_ms.map(|ms| Duration::from_millis(u64::from(ms))))
                .unwrap_or(DEFAULT_TIMEOUT),
            grants: grants(run, step.planned.effect, granted),
            clock_ms,
            observer: Arc::new(observer),
            step: step.clone(),
        })
    }

    /// The step's number.
    pub(super) fn seq(&self) -> u64 {
        self.step.seq
    }

    /// Run it, on this thread.
    pub(super) fn run(&self) -> CallEnd {
        self.engine.invoke(
            self.plugin,
            &CallRequest {
                tool: &self.step.planned.name,
                args: &self.step.planned.args.to_string(),
                grants: &self.grants,
                context: CallContext {
                    idempotency_key: &self.key.to_string(),
                    attempt: self.attempt,
                    session: &self.session,
                    receipt: self.step.receipt.as_deref(),
                },
                seed: self.key.seed(),
                clock_ms: self.clock_ms,
                timeout: self.timeout,
                limits: &self.limits,
                observer: &self.observer,
                cancel: self.cancel,
            },
        )
    }
}

/// The tool of a step, on the component that the step is bound to.
pub(super) fn find_component<'h>(
    host: &'h Host,
    run: &Run,
    step: &Step,
) -> Result<(&'h Tool, &'h Plugin), RunError> {
    let toolbox = &host.toolbox;
    let tool = toolbox.tools().find(|tool| tool.descriptor.name == step.planned.name);
    let found = tool.and_then(|tool| Some((tool, toolbox.plugin(tool)?)));
    found.filter(|(_, plugin)| Some(plugin.digest()) == step.planned.component).ok_or_else(|| {
        RunError::ComponentGone {
            run: run.id,
            seq: step.seq,
            tool: step.planned.name.clone(),
            recorded: step.planned.component.map_or_else(String::new, |digest| digest.to_string()),
        }
    })
}

fn grants(run: &Run, class: EffectClass, granted: Granted) -> Grants {
    let grants = match &run.workspace {
        Some(directory) => Grants::workspace(class, directory),
        None => Grants { class, ..Grants::nothing() },
    };
    Grants { granted, ..grants }
}

/// Takes what a call tells while it runs.
struct StepObserver {
    journal: Arc<Journal>,
    watcher: Arc<dyn Watcher>,
    boundaries: Arc<dyn Boundaries>,
    run: RunId,
    seq: u64,
    attempt: u32,
    receipts: AtomicU32,
}

impl CallObserver for StepObserver {
    fn log(&self, level: LogLevel, message: &str) {
        self.watcher.log(self.seq, level, message);
    }

    fn progress(&self, done: u64, total: Option<u64>, message: &str) {
        self.watcher.progress(self.seq, done, total, message);
    }

    fn checkpoint(&self, receipt: &[u8]) -> Result<(), String> {
        let event = StepEvent::Receipt(Receipt {
            attempt: self.attempt,
            number: self.receipts.fetch_add(1, Ordering::Relaxed),
            bytes: receipt.to_vec(),
        });
        let op = Op::Step { run: self.run, seq: self.seq, event };
        self.journal.commit(vec![op], Durability::Durable).map_err(|error| error.to_string())?;
        let point = KillPoint { seq: self.seq, boundary: Boundary::AfterReceipt };
        if self.boundaries.armed() == Some(point) {
            self.boundaries.reached(point);
        }
        Ok(())
    }
}
