//! What a call costs: a fresh instance, a small pure tool, and its end. The aim is below 100 µs.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use deed::engine::{
    CallContext, CallEnd, CallObserver, CallRequest, CancelToken, EffectClass, Engine, EngineConfig, Grants,
    Limits, NoObserver, Plugin,
};
use deed::standard::standard_plugins;

struct Bench {
    engine: Engine,
    plugin: Plugin,
    workspace: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let engine = Engine::new(EngineConfig::default()).expect("the engine works here");
        let (name, bytes) = standard_plugins()[0];
        let plugin = engine.load(name, bytes).expect("a standard plugin loads");
        let workspace = tempfile::tempdir().expect("a directory can be made");
        std::fs::write(workspace.path().join("a.txt"), "hello\n").expect("a file can be written");
        Self { engine, plugin, workspace }
    }

    fn call(&self, tool: &str, args: &str, class: EffectClass) -> CallEnd {
        let observer: Arc<dyn CallObserver> = Arc::new(NoObserver);
        self.engine.invoke(
            &self.plugin,
            &CallRequest {
                tool,
                args,
                grants: &Grants::workspace(class, self.workspace.path()),
                context: CallContext { idempotency_key: "k", attempt: 1, session: "", receipt: None },
                seed: [7; 32],
                clock_ms: 1_767_323_045_000,
                timeout: Duration::from_secs(10),
                limits: &Limits::default(),
                observer: &observer,
                cancel: &CancelToken::new(),
                stage: None,
                lock: None,
            },
        )
    }
}

fn calls(criterion: &mut Criterion) {
    let bench = Bench::new();
    // The tool refuses the arguments at once: what is left is the cost of a call.
    criterion.bench_function("call/nothing", |bencher| {
        bencher.iter(|| black_box(bench.call("read_file", "{}", EffectClass::Pure)));
    });
    criterion.bench_function("call/read_file", |bencher| {
        bencher.iter(|| {
            let end = bench.call("read_file", r#"{"path":"a.txt"}"#, EffectClass::Pure);
            assert!(matches!(end, CallEnd::Completed(_)), "{end:?}");
        });
    });
    criterion.bench_function("call/write_file", |bencher| {
        bencher.iter(|| {
            let end = bench.call("write_file", r#"{"path":"b.txt","content":"x"}"#, EffectClass::Idempotent);
            assert!(matches!(end, CallEnd::Completed(_)), "{end:?}");
        });
    });
}

/// A warm `deed call` of one pure tool, the whole process: start, plugins from the cache, journal opened, written and
/// closed.
fn process(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let workspace = dir.path().join("workspace");
    std::fs::create_dir(&workspace).expect("a fresh directory");
    std::fs::write(workspace.join("a.txt"), "alpha\n").expect("a fresh file");
    let call = || {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_deed"))
            .args(["call", "read_file", r#"{"path":"a.txt"}"#, "--workspace"])
            .arg(&workspace)
            .arg("--journal")
            .arg(dir.path().join("journal.redb"))
            .env("XDG_CACHE_HOME", dir.path().join("cache"))
            .output()
            .expect("the binary starts");
        assert!(output.status.success(), "{output:?}");
    };
    call();
    let mut group = criterion.benchmark_group("process");
    group.sample_size(30);
    group.bench_function("deed_call_read_file", |bencher| bencher.iter(call));
    group.finish();
}

criterion_group!(benches, calls, process);
criterion_main!(benches);
