//! What a call costs: a fresh instance, the tool, and its end. The aims, beside what syncing takes: 70 µs for a small tool in
//! Rust, 2 ms in JavaScript, 4 ms in Python.
//!
//! Components of other languages are measured where they are given. Make them from the templates, and name them, separated by
//! colons; their first tool is called with `{"name":"you"}`:
//!
//! ```text
//! deed plugin new py-greeter --lang python && deed plugin build py-greeter
//! DEED_BENCH_COMPONENTS=$PWD/py-greeter/py-greeter.wasm cargo bench --workspace --bench call
//! ```
//!
//! The workspace is in `/dev/shm`, where a sync costs nothing.

use std::hint::black_box;
use std::path::Path;
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

/// Names components to measure as well.
const COMPONENTS: &str = "DEED_BENCH_COMPONENTS";

impl Bench {
    fn new(name: &str, bytes: &[u8]) -> Self {
        // An interpreter takes half a minute to compile, once.
        let cache_dir = Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled"));
        let engine = Engine::new(EngineConfig { cache_dir, ..EngineConfig::default() });
        let engine = engine.expect("the engine works here");
        let plugin = engine.load(name, bytes).expect("a plugin loads");
        let workspace = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let workspace = workspace.expect("a directory can be made");
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
    let (name, bytes) = standard_plugins()[0];
    let bench = Bench::new(name, bytes);
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

/// Components that were given, each by its first tool.
fn given(criterion: &mut Criterion) {
    let named = std::env::var_os(COMPONENTS).unwrap_or_default();
    for path in std::env::split_paths(&named) {
        let name = path.file_stem().expect("it is a file").to_string_lossy().into_owned();
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("`{}`: {error}", path.display()));
        let bench = Bench::new(&name, &bytes);
        let tool = bench.plugin.tools()[0].clone();
        criterion.bench_function(&format!("call/{name}"), |bencher| {
            bencher.iter(|| {
                let end = bench.call(&tool.name, r#"{"name":"you"}"#, tool.effect);
                assert!(matches!(end, CallEnd::Completed(_)), "{end:?}");
            });
        });
    }
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

criterion_group!(benches, calls, given, process);
criterion_main!(benches);
