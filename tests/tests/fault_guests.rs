//! Guests that loop, hoard, recurse, flood and panic, a hundred times in a row and all at once: each call ends as a journaled
//! failure with its reason, a neighbour's calls go on, and nothing grows.
//!
//! Fault model: each guest does the one thing it is bad at, for ever or far beyond its limit. `DEED_FAULT_ROUNDS` chooses
//! another number of rounds. How long the neighbour waited is printed (`--nocapture`), with the machine's load, and not judged:
//! on a machine that is busy with other things it says nothing.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use deed::boundary::Unarmed;
use deed::engine::{
    CallContext, CallEnd, CallObserver, CallRequest, CancelToken, EffectClass, Engine, EngineConfig, Grants,
    Limits, NoObserver, Plugin,
};
use deed::mission::Spec;
use deed::runner::{Host, OnUnknown, RunOptions, Runner};
use deed::sources::{SystemClock, SystemEntropy};
use deed::toolbox::{PluginSource, Toolbox};
use deed::watch::{Absent, Unwatched};
use deed_journal::{EffectState, Idle, Journal, Options, RunStatus, StepResult};
use deed_tests::guests::MISBEHAVE;
use deed_tests::{Envelope, Message, Sandbox};
use serde_json::{Value, json};

/// Each guest, and the reasons that its end may have. Under load, time may be up before another limit is reached.
const FAULTS: [(&str, &[&str]); 8] = [
    ("spin", &["timeout"]),
    ("hog", &["memory", "timeout"]),
    ("recurse", &["stack", "timeout"]),
    ("flood", &["output-limit", "timeout"]),
    ("pester", &["timeout"]),
    ("panic", &["trap", "timeout"]),
    ("log_flood", &["resource-limit", "timeout"]),
    ("progress_flood", &["timeout"]),
];

/// How long each may take: more than any of them needs to reach its limit on a machine that is not busy.
const TIMEOUT_MS: u64 = 200;

/// How long the neighbour may take, who is to end by itself.
const PATIENCE: Duration = Duration::from_mins(1);

/// Rounds before anything is measured: the first ones fill pools and caches.
const WARM_UP: usize = 10;

/// What may grow in all the rounds: half of what one guest that is not let go of would keep.
const GROWTH_BYTES: u64 = 32 << 20;

/// Memory that `hog` may take. The default would only take longer to fill.
const HOG_BYTES: u64 = 64 << 20;

fn args(tool: &str) -> Value {
    if tool == "panic" { json!({ "message": "the sky fell" }) } else { json!({}) }
}

/// A call of the neighbour's.
fn call_clock(engine: &Engine, plugin: &Plugin, workspace: &Path) -> CallEnd {
    let observer: Arc<dyn CallObserver> = Arc::new(NoObserver);
    engine.invoke(
        plugin,
        &CallRequest {
            tool: "clock",
            args: "{}",
            grants: &Grants::workspace(EffectClass::Pure, workspace),
            context: CallContext { idempotency_key: "k", attempt: 1, session: "", receipt: None },
            seed: [7; 32],
            clock_ms: 0,
            timeout: PATIENCE,
            limits: &Limits::default(),
            observer: &observer,
            cancel: &CancelToken::new(),
            stage: None,
            lock: None,
        },
    )
}

/// Whose runs fail in every way.
fn host(engine: &Arc<Engine>, journal: &Path) -> Host {
    let source = PluginSource::new("misbehave", MISBEHAVE);
    let options = Options { entropy: Arc::new(SystemEntropy), boot: None, idle: Idle::Timer };
    Host {
        journal: Arc::new(Journal::open(journal, options).unwrap()),
        toolbox: Toolbox::load(Arc::clone(engine), &[source]),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        boundaries: Arc::new(Unarmed),
        watcher: Arc::new(Unwatched),
        config_dir: None,
        beside: None,
        locks_dir: None,
        on_unknown: OnUnknown::Ask,
        owner: Arc::new(Absent),
        limits: Limits::default(),
        cancel: CancelToken::new(),
        stop: Arc::default(),
    }
}

/// Bytes of memory and open files of this process.
fn used() -> (u64, usize) {
    let pages: u64 =
        fs::read_to_string("/proc/self/statm").unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    (pages * rustix::param::page_size() as u64, fs::read_dir("/proc/self/fd").unwrap().count())
}

/// A batch of every fault. They are pure, so the runner has them all run at the same time.
fn round(host: &Host, workspace: &Path) {
    let calls: Vec<_> = FAULTS.iter().map(|(tool, _)| json!({ "tool": tool, "input": args(tool) })).collect();
    let grants = json!([
        { "tool": "hog", "memory_bytes": HOG_BYTES },
        { "tool": "*", "timeout_ms": TIMEOUT_MS },
    ]);
    let batch = json!({ "objective": "Fail in every way", "calls": calls, "grants": grants });
    let spec: Spec = serde_json::from_value(json!({ "batch": batch })).unwrap();
    let run = host.create_run(&RunOptions { spec, workspace: workspace.to_owned() }).unwrap();
    assert_eq!(Runner::load(host, run).unwrap().drive().unwrap().status, RunStatus::Partial);
    let steps = host.journal.read().steps(run).unwrap();
    for (tool, reasons) in FAULTS {
        let step = steps.iter().find(|step| step.planned.name == tool).unwrap();
        let Some(StepResult::Failed { error }) = step.outcome.as_ref().map(|outcome| &outcome.result) else {
            panic!("`{tool}` was to fail: {step:?}");
        };
        assert!(reasons.contains(&error.kind.as_str()), "{tool}: {error:?}");
        assert_eq!(error.effect, EffectState::NotApplied, "{tool}: {error:?}");
    }
}

#[test]
fn c15_a_hundred_rounds_of_faults_leave_a_neighbour_alone_and_nothing_behind() {
    let rounds = std::env::var("DEED_FAULT_ROUNDS").map_or(100, |rounds| rounds.parse().unwrap());
    let cache_dir = Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled"));
    let engine = Arc::new(Engine::new(EngineConfig { cache_dir, ..EngineConfig::default() }).unwrap());
    let plugin = engine.load("misbehave", MISBEHAVE).unwrap();
    let (workspace, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let host = host(&engine, &state.path().join("journal.redb"));
    let over = AtomicBool::new(false);
    let waited = std::thread::scope(|scope| {
        let neighbour = scope.spawn(|| {
            let mut waited = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let end = call_clock(&engine, &plugin, workspace.path());
                assert!(matches!(end, CallEnd::Completed(_)), "{end:?}");
                waited.push(begun.elapsed());
            }
            waited
        });
        for _ in 0..WARM_UP {
            round(&host, workspace.path());
        }
        let (memory, files) = used();
        for _ in 0..rounds {
            round(&host, workspace.path());
        }
        let (memory_after, files_after) = used();
        over.store(true, Ordering::Relaxed);
        let grown = memory_after.saturating_sub(memory);
        assert!(grown <= GROWTH_BYTES, "{grown} bytes were kept");
        // The neighbour may have its workspace open at one instant and not at the other.
        assert!(files_after <= files + 2, "{files} files were open, and then {files_after}");
        neighbour.join().unwrap()
    });
    let mut waited = waited;
    waited.sort();
    let at = |part: usize| waited[(waited.len() - 1) * part / 100];
    println!(
        "{} calls of the neighbour: p50 {:?}, p99 {:?}, longest {:?}; load {}",
        waited.len(),
        at(50),
        at(99),
        at(100),
        fs::read_to_string("/proc/loadavg").unwrap().trim()
    );
    assert!(waited.len() > rounds, "the neighbour got on");
    assert_eq!(workspace.path().read_dir().unwrap().count(), 0);
}

#[test]
fn c15_each_fault_of_a_batch_is_a_journaled_failure_and_its_neighbours_work() {
    let mut calls: Vec<_> =
        FAULTS.iter().map(|(tool, _)| json!({ "tool": tool, "input": args(tool) })).collect();
    calls.push(json!({ "tool": "read_file", "input": { "path": "a.txt" } }));
    let sandbox =
        Sandbox::with(&json!({ "objective": "Fail in every way", "calls": calls }), &[("a.txt", "alpha\n")]);
    sandbox.install("misbehave", MISBEHAVE);
    let ended: Envelope = sandbox.run(None).run().expect_code(3).json();
    let steps = sandbox.steps(&ended.run);
    for (tool, _) in FAULTS {
        let step = steps.iter().find(|step| step.name == tool).unwrap();
        assert_eq!(step.status, "failed", "{step:?}");
    }
    let transcript: Vec<Message> = sandbox.deed(["transcript", &ended.run]).run().expect_code(0).json();
    let results: Vec<_> = transcript.into_iter().filter_map(|message| message.result).collect();
    assert_eq!(results.len(), FAULTS.len() + 1);
    assert!(results.iter().any(|result| !result.ok && result.text.contains("the sky fell")), "{results:?}");
    let read = results.last().unwrap();
    assert!(read.ok && read.text.contains("alpha"), "{read:?}");
}
