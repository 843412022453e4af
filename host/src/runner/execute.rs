//! One attempt of a plugin's call, or the question about one.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use deed_journal::{
    Digest, Durability, EffectClass, IdempotencyKey, Journal, Listing, Op, Position, ReadError, Receipt, Run,
    RunId, Step, StepEvent,
};

use super::{Host, RunError};
use crate::boundary::{Boundaries, Boundary, KillPoint};
use crate::engine::{
    CallContext, CallEnd, CallObserver, CallRequest, CancelToken, Engine, Grants, Limit, Limits, LogLevel,
    Plugin, Verdict,
};
use crate::grants::Granted;
use crate::stage::Mounted;
use crate::watch::Watcher;

/// What a call may take when its tool does not say: a build or a test suite of a mid-sized project.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(2);

/// What a probe may take: it looks at one thing, at most beyond a slow network.
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);

/// What is fixed of a step's call before it is made.
pub(super) struct Request<'a> {
    pub(super) step: &'a Step,
    /// The component that the step is bound to.
    pub(super) plugin: Plugin,
    pub(super) granted: Granted,
    pub(super) attempt: u32,
    pub(super) clock_ms: u64,
}

/// Everything one attempt needs, so that it can run on any thread.
pub(super) struct Execution<'h> {
    engine: &'h Engine,
    plugin: Plugin,
    limits: Limits,
    cancel: &'h CancelToken,
    step: Step,
    attempt: u32,
    key: IdempotencyKey,
    key_text: String,
    session: String,
    grants: Grants,
    clock_ms: u64,
    timeout: Duration,
    /// Where it runs when it is contained.
    stage: Option<Arc<Mounted>>,
    /// Held by every process that it starts. A pure call starts none.
    lock: Option<PathBuf>,
    observer: Arc<StepObserver>,
}

impl<'h> Execution<'h> {
    pub(super) fn new(host: &'h Host, run: &Run, request: Request<'_>) -> Self {
        let Request { step, plugin, granted, attempt, clock_ms } = request;
        let told_ms = plugin.tool(&step.planned.name).and_then(|tool| tool.timeout_ms).map(u64::from);
        let timeout =
            granted.limits.get(Limit::Time).or(told_ms).map_or(DEFAULT_TIMEOUT, Duration::from_millis);
        let limits = host.limits.clone().with(&granted.limits);
        let key = host.journal.key(run, step.seq);
        let observer = StepObserver {
            journal: Arc::clone(&host.journal),
            watcher: Arc::clone(&host.watcher),
            boundaries: Arc::clone(&host.boundaries),
            run: run.id,
            seq: step.seq,
            attempt,
            receipts: Some(AtomicU32::new(0)),
        };
        Self {
            engine: host.toolbox.engine(),
            plugin,
            limits,
            cancel: &host.cancel,
            attempt,
            key,
            key_text: key.to_string(),
            session: run.session.to_string(),
            grants: grants(run, step.planned.effect, granted),
            clock_ms,
            timeout,
            stage: None,
            lock: host
                .beside
                .as_ref()
                .filter(|_| step.planned.effect.is_effectful())
                .map(|beside| beside.call_lock(run.id, step.seq, attempt)),
            observer: Arc::new(observer),
            step: step.clone(),
        }
    }

    /// The same, contained.
    pub(super) fn on(self, mounted: Arc<Mounted>) -> Self {
        Self { stage: Some(mounted), ..self }
    }

    /// The step's number.
    pub(super) fn seq(&self) -> u64 {
        self.step.seq
    }

    /// Run it, on this thread.
    pub(super) fn run(&self) -> CallEnd {
        let observer: Arc<dyn CallObserver> = Arc::clone(&self.observer) as _;
        let args = self.step.planned.args.to_string();
        let end = self.engine.invoke(&self.plugin, &self.request(&args, &observer, self.timeout));
        self.observer.watcher.executed(self.step.seq, self.attempt, &end);
        end
    }

    /// Ask the tool whether this attempt landed.
    pub(super) fn probe(&self) -> Result<Verdict, CallEnd> {
        // A probe changes nothing, a receipt included.
        let observer: Arc<dyn CallObserver> = Arc::new(self.observer.without_receipts());
        let args = self.step.planned.args.to_string();
        let timeout = self.timeout.min(PROBE_TIMEOUT);
        self.engine.probe(&self.plugin, &self.request(&args, &observer, timeout))
    }

    fn request<'a>(
        &'a self,
        args: &'a str,
        observer: &'a Arc<dyn CallObserver>,
        timeout: Duration,
    ) -> CallRequest<'a> {
        CallRequest {
            tool: &self.step.planned.name,
            args,
            grants: &self.grants,
            context: CallContext {
                idempotency_key: &self.key_text,
                attempt: self.attempt,
                session: &self.session,
                receipt: self.step.receipt.as_deref(),
            },
            seed: self.key.seed(),
            clock_ms: self.clock_ms,
            timeout,
            limits: &self.limits,
            observer,
            cancel: self.cancel,
            stage: self.stage.as_ref(),
            lock: self.lock.as_deref(),
        }
    }
}

impl Host {
    /// Keep a component for as long as a step that is bound to it is not settled.
    pub(super) fn keep(&self, digest: Digest) -> Result<(), RunError> {
        let (Some(beside), Some(bytes)) = (&self.beside, self.toolbox.component_bytes(digest)) else {
            return Ok(());
        };
        beside.keep(digest, bytes).map_err(|source| RunError::Keep { component: digest, source })
    }

    /// Drop what was kept for steps that are settled. What is installed stays: the next run needs it. Nothing is dropped
    /// while a record cannot be read, and nothing of this is a reason for a run to fail.
    pub fn drop_settled(&self) {
        let Some(beside) = &self.beside else { return };
        let Ok((open, needed)) = self.open_and_needed() else { return };
        // What cannot be dropped today can be tomorrow.
        let _ = beside.drop_others(&needed);
        let _ = beside.forget_other_runs(&open);
    }

    /// The runs that have not ended, and the components that some step may still run on.
    fn open_and_needed(&self) -> Result<(BTreeSet<RunId>, BTreeSet<Digest>), ReadError> {
        let reader = self.journal.read();
        let Listing { items: runs, unreadable } = reader.open_runs()?;
        if let Some(error) = unreadable.into_iter().next() {
            return Err(error);
        }
        let mut needed: BTreeSet<_> =
            self.toolbox.tools().filter_map(|tool| self.toolbox.component(tool)).collect();
        for run in &runs {
            let Position::Batch { first, last, .. } = run.position else { continue };
            for seq in first..=last {
                let step = reader.step(run.id, seq)?;
                needed.extend(
                    step.filter(|step| step.outcome.is_none()).and_then(|step| step.planned.component),
                );
            }
        }
        Ok((runs.iter().map(|run| run.id).collect(), needed))
    }

    /// The component `digest`: the installed one, or one that was kept for the steps that are bound to it.
    pub(super) fn component(&self, digest: Digest, tool: &str) -> Option<Plugin> {
        if let Some(plugin) = self.toolbox.installed(digest) {
            // One that this engine does not take any more is as good as gone.
            return self.toolbox.engine().prepare(plugin).is_ok().then(|| plugin.clone());
        }
        self.beside.as_ref()?.load(digest, self.toolbox.engine(), tool)
    }
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
    /// Receipts so far; none when it may keep none.
    receipts: Option<AtomicU32>,
}

impl StepObserver {
    fn without_receipts(&self) -> Self {
        Self {
            journal: Arc::clone(&self.journal),
            watcher: Arc::clone(&self.watcher),
            boundaries: Arc::clone(&self.boundaries),
            receipts: None,
            ..*self
        }
    }

    fn point(&self, boundary: Boundary) -> KillPoint {
        KillPoint { seq: self.seq, boundary }
    }

    fn reached(&self, boundary: Boundary) {
        let point = self.point(boundary);
        if self.boundaries.armed() == Some(point) {
            self.boundaries.reached(point);
        } else {
            self.boundaries.crossed(point);
        }
    }
}

impl CallObserver for StepObserver {
    fn log(&self, level: LogLevel, message: &str) {
        self.watcher.log(self.seq, level, message);
    }

    fn progress(&self, done: u64, total: Option<u64>, message: &str) {
        self.watcher.progress(self.seq, done, total, message);
    }

    fn awaits_host_call(&self) -> bool {
        self.boundaries.watches() || self.boundaries.armed() == Some(self.point(Boundary::MidExec))
    }

    fn first_host_call(&self) {
        self.reached(Boundary::MidExec);
    }

    fn left_behind(&self, program: &str) {
        self.watcher.left_behind(self.seq, program);
    }

    fn checkpoint(&self, receipt: &[u8]) -> Result<(), String> {
        let Some(receipts) = &self.receipts else { return Err("a probe keeps no receipt".to_owned()) };
        let event = StepEvent::Receipt(Receipt {
            attempt: self.attempt,
            number: receipts.fetch_add(1, Ordering::Relaxed),
            bytes: receipt.to_vec(),
        });
        let op = Op::Step { run: self.run, seq: self.seq, event };
        self.journal.commit(vec![op], Durability::Durable).map_err(|error| error.to_string())?;
        self.reached(Boundary::AfterReceipt);
        Ok(())
    }
}
