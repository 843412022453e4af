//! What containment adds to a command that changes one small file: beside the same call uncontained, in a workspace of ten
//! files and in one of a hundred thousand. The aims: less than 2 ms, and at most half as much again in the large one.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use deed::beside::Beside;
use deed::boundary::Unarmed;
use deed::engine::{CancelToken, Engine, EngineConfig, Limits};
use deed::journal::{Idle, Journal, Options, RunStatus};
use deed::mission::{Call, Network};
use deed::runner::{CallOptions, Host, OnUnknown, Runner};
use deed::sources::{SystemClock, SystemEntropy};
use deed::standard::standard_plugins;
use deed::toolbox::{PluginSource, Toolbox};
use deed::watch::{Absent, Unwatched};
use serde_json::json;

/// Files in a directory of a workspace.
const IN_DIRECTORY: usize = 1000;

struct Bench {
    host: Host,
    workspace: PathBuf,
    _directory: tempfile::TempDir,
}

impl Bench {
    fn new(engine: &Arc<Engine>, files: usize, contain: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let root = directory.path().canonicalize().expect("it is there");
        let workspace = root.join("workspace");
        for number in 0..files {
            let inner = workspace.join((number / IN_DIRECTORY).to_string());
            if number % IN_DIRECTORY == 0 {
                fs::create_dir_all(&inner).expect("a directory can be made");
            }
            fs::write(inner.join(number.to_string()), "some text\n").expect("a file can be written");
        }
        let rule = format!("[[policy]]\ntool = \"*\"\ndecision = \"allow\"\ncontain = \"{contain}\"\n");
        fs::write(root.join("deed.toml"), rule).expect("a file can be written");
        let host = host(engine, &root);
        Self { host, workspace, _directory: directory }
    }

    fn call(&self) {
        let command = json!({ "command": "echo tick >> log" });
        let options = CallOptions {
            call: Call { tool: "shell".into(), input: command },
            workspace: self.workspace.clone(),
            key: None,
            network: Network::Closed,
        };
        let created = self.host.create_call(&options).expect("it can be made");
        let envelope = Runner::load(&self.host, created.run).and_then(Runner::drive).expect("it runs");
        assert_eq!(envelope.status, RunStatus::Done);
    }
}

fn host(engine: &Arc<Engine>, root: &Path) -> Host {
    let shell =
        standard_plugins().into_iter().find(|(name, _)| *name == "shell").expect("it comes with deed");
    let shell = PluginSource::new(shell.0, shell.1);
    let journal = root.join("journal.redb");
    let options = Options { entropy: Arc::new(SystemEntropy), boot: None, idle: Idle::Never };
    Host {
        journal: Arc::new(Journal::open(&journal, options).expect("a fresh journal opens")),
        toolbox: Toolbox::load(Arc::clone(engine), &[shell]),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        boundaries: Arc::new(Unarmed),
        watcher: Arc::new(Unwatched),
        config_dir: Some(root.to_owned()),
        beside: Some(Beside::new(&journal)),
        locks_dir: Some(root.join("locks")),
        on_unknown: OnUnknown::Ask,
        owner: Arc::new(Absent),
        limits: Limits::default(),
        cancel: CancelToken::new(),
        stop: Arc::default(),
    }
}

fn contained(criterion: &mut Criterion) {
    let engine = Arc::new(Engine::new(EngineConfig::default()).expect("the engine works here"));
    let mut group = criterion.benchmark_group("shell");
    for files in [10, 100_000] {
        for contain in ["never", "always"] {
            let bench = Bench::new(&engine, files, contain);
            bench.call();
            group.bench_function(BenchmarkId::new(contain, files), |bencher| bencher.iter(|| bench.call()));
        }
    }
    group.finish();
}

criterion_group!(benches, contained);
criterion_main!(benches);
