//! One engine for all tests, and calls that say only what matters to a test.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use deed::engine::{
    CallContext, CallEnd, CallObserver, CallRequest, CancelToken, Content, EffectClass, Engine, EngineConfig,
    Grants, Limits, LogLevel, Output, Plugin, ToolFailure, Verdict,
};
use deed::mission::Network;
use deed::standard::standard_plugins;
use serde_json::Value;

/// 2026-01-02T03:04:05Z: no test depends on the real date.
pub const CLOCK_MS: u64 = 1_767_323_045_000;

/// Far more than any call needs; only what would hang runs into it.
const PATIENCE: Duration = Duration::from_mins(1);

/// The engine all tests share, with a cache that outlives them, so that only the first run compiles.
pub fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| Engine::new(config()).unwrap())
}

/// How it is set up.
pub fn config() -> EngineConfig {
    let cache_dir = Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled"));
    EngineConfig { cache_dir, ..EngineConfig::default() }
}

/// The bytes of a standard plugin.
pub fn component(name: &str) -> &'static [u8] {
    standard_plugins().iter().find(|(plugin, _)| *plugin == name).unwrap().1
}

/// A standard plugin.
pub fn plugin(name: &str) -> Plugin {
    engine().load(name, component(name)).unwrap()
}

/// One call, to be refined and run.
pub struct Call<'a> {
    pub plugin: &'a str,
    pub tool: &'a str,
    pub args: Value,
    pub workspace: &'a Path,
    pub class: EffectClass,
    /// Whether commands reach the network.
    pub network: bool,
    /// The remotes it is granted.
    pub remotes: Vec<String>,
    /// What an earlier attempt saved.
    pub receipt: Option<Vec<u8>>,
    pub lock: Option<&'a Path>,
    pub key: &'a str,
    pub attempt: u32,
    pub timeout: Duration,
    pub cancel: CancelToken,
    pub observer: Arc<dyn CallObserver>,
}

impl<'a> Call<'a> {
    /// A first attempt, as the class that the tool declares.
    pub fn new(plugin: &'a str, tool: &'a str, args: Value, workspace: &'a Path) -> Self {
        let class = self::plugin(plugin).tool(tool).unwrap().effect;
        Self {
            plugin,
            tool,
            args,
            workspace,
            class,
            network: false,
            remotes: Vec::new(),
            receipt: None,
            lock: None,
            key: "0123456789abcdef",
            attempt: 1,
            timeout: PATIENCE,
            cancel: CancelToken::new(),
            observer: Arc::new(Recorder::default()),
        }
    }

    pub fn run(self) -> CallEnd {
        self.run_on(engine())
    }

    pub fn run_on(self, engine: &Engine) -> CallEnd {
        let plugin = engine.load(self.plugin, component(self.plugin)).unwrap();
        self.with_request(|request| engine.invoke(&plugin, request))
    }

    /// Ask the tool's probe about it.
    pub fn probe(self) -> Result<Verdict, CallEnd> {
        let plugin = plugin(self.plugin);
        self.with_request(|request| engine().probe(&plugin, request))
    }

    fn with_request<T>(self, body: impl FnOnce(&CallRequest<'_>) -> T) -> T {
        let mut grants = Grants::workspace(self.class, self.workspace);
        grants.granted.network = if self.network { Network::Open } else { Network::Closed };
        grants.granted.remotes = self.remotes;
        body(&CallRequest {
            tool: self.tool,
            args: &self.args.to_string(),
            grants: &grants,
            context: CallContext {
                idempotency_key: self.key,
                attempt: self.attempt,
                session: "",
                receipt: self.receipt.as_deref(),
            },
            seed: [7; 32],
            clock_ms: CLOCK_MS,
            timeout: self.timeout,
            limits: &Limits::default(),
            observer: &self.observer,
            cancel: &self.cancel,
            stage: None,
            lock: self.lock,
        })
    }

    /// The result of a call that must succeed.
    pub fn output(self) -> Output {
        match self.run() {
            CallEnd::Completed(output) => output,
            other => panic!("expected a result: {other:?}"),
        }
    }

    /// The failure of a call that must fail by the tool's own word.
    pub fn failure(self) -> ToolFailure {
        match self.run() {
            CallEnd::Failed(failure) => failure,
            other => panic!("expected a failure: {other:?}"),
        }
    }
}

/// The text of a result.
pub fn text(output: &Output) -> String {
    let texts = output.content.iter().map(|part| match part {
        Content::Text(text) => text.as_str(),
        Content::Blob { .. } => "",
    });
    texts.collect()
}

/// Keeps what a call tells.
#[derive(Default)]
pub struct Recorder {
    pub lines: Mutex<Vec<String>>,
    receipt: Mutex<Option<Vec<u8>>>,
}

impl Recorder {
    /// The newest receipt.
    pub fn receipt(&self) -> Option<Vec<u8>> {
        self.receipt.lock().unwrap().clone()
    }
}

impl CallObserver for Recorder {
    fn log(&self, _: LogLevel, message: &str) {
        self.lines.lock().unwrap().push(message.to_owned());
    }

    fn progress(&self, _: u64, _: Option<u64>, _: &str) {}

    fn checkpoint(&self, receipt: &[u8]) -> Result<(), String> {
        *self.receipt.lock().unwrap() = Some(receipt.to_vec());
        Ok(())
    }
}

/// Does something when a receipt is saved.
pub struct OnReceipt<F>(pub F);

impl<F: Fn(&[u8]) + Send + Sync> CallObserver for OnReceipt<F> {
    fn log(&self, _: LogLevel, _: &str) {}

    fn progress(&self, _: u64, _: Option<u64>, _: &str) {}

    fn checkpoint(&self, receipt: &[u8]) -> Result<(), String> {
        (self.0)(receipt);
        Ok(())
    }
}
