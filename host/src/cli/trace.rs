//! What a process that is crash-tested does for its tester: it dies where it is told to, and writes down what it does.

use std::sync::Arc;

use deed::boundary::{Boundaries, KillPoint};
use deed::crash_test::{ExecutedEnd, Trace, TraceLine};
use deed::engine::{CallEnd, LogLevel};
use deed::watch::Watcher;
use deed_journal::StepKind;

/// Send SIGKILL to this process.
pub(super) fn die() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    // The signal ends every thread; none of them goes on from here.
    loop {
        std::thread::park();
    }
}

/// Kills its own process at one point.
pub(super) struct KillSelf(pub(super) KillPoint);

impl Boundaries for KillSelf {
    fn armed(&self) -> Option<KillPoint> {
        Some(self.0)
    }

    fn reached(&self, point: KillPoint) {
        if point == self.0 {
            die();
        }
    }
}

/// Writes down every point.
pub(super) struct TracedPoints(pub(super) Trace);

impl Boundaries for TracedPoints {
    fn armed(&self) -> Option<KillPoint> {
        None
    }

    fn reached(&self, _: KillPoint) {}

    fn watches(&self) -> bool {
        true
    }

    fn crossed(&self, point: KillPoint) {
        write(&self.0, &TraceLine::Crossed(point.to_string()));
    }
}

/// Writes down how calls end, and passes everything on.
pub(super) struct TracedWatcher {
    pub(super) inner: Arc<dyn Watcher>,
    pub(super) trace: Trace,
}

impl Watcher for TracedWatcher {
    fn step(&self, turn: u64, seq: u64, kind: StepKind, name: &str) {
        self.inner.step(turn, seq, kind, name);
    }

    fn progress(&self, seq: u64, done: u64, total: Option<u64>, message: &str) {
        self.inner.progress(seq, done, total, message);
    }

    fn log(&self, seq: u64, level: LogLevel, message: &str) {
        self.inner.log(seq, level, message);
    }

    fn left_behind(&self, seq: u64, program: &str) {
        write(&self.trace, &TraceLine::LeftBehind { seq, program: program.to_owned() });
        self.inner.left_behind(seq, program);
    }

    fn executed(&self, seq: u64, attempt: u32, end: &CallEnd) {
        write(&self.trace, &TraceLine::Executed { seq, attempt, end: ExecutedEnd::of(end) });
        self.inner.executed(seq, attempt, end);
    }
}

/// A tester whose trace cannot be written finds out: what it waits for is missing.
pub(super) fn write(trace: &Trace, line: &TraceLine) {
    if let Err(error) = trace.write(line) {
        eprintln!("warning: failed to write the trace: {error}");
    }
}
