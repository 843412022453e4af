//! One engine for all tests, and calls that say only what matters to a test.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use deed::engine::{
    CallContext, CallEnd, CallObserver, CallRequest, CancelToken, Content, EffectClass, Engine, EngineConfig,
    Grants, Limits, LogLevel, Output, Plugin, ToolFailure,
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
    ENGINE.get_or_init(|| {
        let cache_dir = Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled"));
        Engine::new(EngineConfig { cache_dir, ..EngineConfig::default() }).unwrap()
    })
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
            key: "0123456789abcdef",
            attempt: 1,
            timeout: PATIENCE,
            cancel: CancelToken::new(),
            observer: Arc::new(Recorder::default()),
        }
    }

    pub fn run(self) -> CallEnd {
        let plugin = plugin(self.plugin);
        let args = self.args.to_string();
        let mut grants = Grants::workspace(self.class, self.workspace);
        grants.granted.network = if self.network { Network::Open } else { Network::Closed };
        engine().invoke(
            &plugin,
            &CallRequest {
                tool: self.tool,
                args: &args,
                grants: &grants,
                context: CallContext {
                    idempotency_key: self.key,
                    attempt: self.attempt,
                    session: "",
                    receipt: None,
                },
                seed: [7; 32],
                clock_ms: CLOCK_MS,
                timeout: self.timeout,
                limits: &Limits::default(),
                observer: &self.observer,
                cancel: &self.cancel,
            },
        )
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
}

impl CallObserver for Recorder {
    fn log(&self, _: LogLevel, message: &str) {
        self.lines.lock().unwrap().push(message.to_owned());
    }

    fn progress(&self, _: u64, _: Option<u64>, _: &str) {}

    fn checkpoint(&self, _: &[u8]) -> Result<(), String> {
        Ok(())
    }
}
