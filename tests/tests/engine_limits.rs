//! Guests that misbehave: each call ends with its reason, changes nothing it may not, and disturbs nobody.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use deed::engine::{
    Abort, AbortReason, CallContext, CallEnd, CallObserver, CallRequest, CancelToken, Content, EffectClass,
    Engine, EngineConfig, Grants, Limits, LogLevel, Output, Plugin,
};
use deed_tests::guests::MISBEHAVE;
use serde_json::{Value, json};

const CLOCK_MS: u64 = 1_767_323_045_000;

fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let cache_dir = Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled"));
        Engine::new(EngineConfig { cache_dir, ..EngineConfig::default() }).unwrap()
    })
}

fn misbehave() -> Plugin {
    engine().load("misbehave", MISBEHAVE).unwrap()
}

/// Keeps what a call tells.
#[derive(Default)]
struct Recorder {
    lines: Mutex<Vec<String>>,
    receipts: Mutex<Vec<Vec<u8>>>,
    refuse_receipts: bool,
    /// Cancelled by the call's first call of the host.
    cancels: Option<CancelToken>,
}

impl CallObserver for Recorder {
    fn log(&self, _: LogLevel, message: &str) {
        self.lines.lock().unwrap().push(message.to_owned());
    }

    fn progress(&self, _: u64, _: Option<u64>, _: &str) {}

    fn awaits_host_call(&self) -> bool {
        self.cancels.is_some()
    }

    fn first_host_call(&self) {
        if let Some(token) = &self.cancels {
            token.cancel();
        }
    }

    fn checkpoint(&self, receipt: &[u8]) -> Result<(), String> {
        if self.refuse_receipts {
            return Err("the disk is full".to_owned());
        }
        self.receipts.lock().unwrap().push(receipt.to_vec());
        Ok(())
    }
}

/// One call, to be refined and run.
struct Call<'a> {
    tool: &'a str,
    args: Value,
    workspace: &'a Path,
    class: EffectClass,
    attempt: u32,
    receipt: Option<&'a [u8]>,
    seed: u8,
    timeout: Duration,
    limits: Limits,
    cancel: CancelToken,
    observer: Arc<Recorder>,
}

impl<'a> Call<'a> {
    fn new(tool: &'a str, args: Value, workspace: &'a Path) -> Self {
        Self {
            tool,
            args,
            workspace,
            class: misbehave().tool(tool).unwrap().effect,
            attempt: 1,
            receipt: None,
            seed: 7,
            timeout: Duration::from_mins(1),
            limits: Limits::default(),
            cancel: CancelToken::new(),
            observer: Arc::default(),
        }
    }

    fn run(&self) -> CallEnd {
        let observer: Arc<dyn CallObserver> = self.observer.clone();
        engine().invoke(
            &misbehave(),
            &CallRequest {
                tool: self.tool,
                args: &self.args.to_string(),
                grants: &Grants::workspace(self.class, self.workspace),
                context: CallContext {
                    idempotency_key: "0123456789abcdef",
                    attempt: self.attempt,
                    session: "",
                    receipt: self.receipt,
                },
                seed: [self.seed; 32],
                clock_ms: CLOCK_MS,
                timeout: self.timeout,
                limits: &self.limits,
                observer: &observer,
                cancel: &self.cancel,
                stage: None,
                lock: None,
            },
        )
    }

    fn output(&self) -> Output {
        match self.run() {
            CallEnd::Completed(output) => output,
            other => panic!("expected a result: {other:?}"),
        }
    }

    fn abort(&self) -> Abort {
        match self.run() {
            CallEnd::Aborted(abort) => abort,
            other => panic!("expected an abort: {other:?}"),
        }
    }
}

fn text(output: &Output) -> &str {
    match &*output.content {
        [Content::Text(text)] => text,
        other => panic!("expected one text: {other:?}"),
    }
}

/// The operator was told of one refusal, in these words. The tool may have swallowed it.
fn assert_refused(call: &Call<'_>, words: &[&str]) {
    let lines = call.observer.lines.lock().unwrap();
    assert!(lines.iter().any(|line| words.iter().all(|word| line.contains(word))), "{words:?}: {lines:?}");
}

/// The neighbour that every one of them is given: a call that must go on as if it were alone.
fn beside_a_neighbour(call: &Call<'_>, check: impl FnOnce(Abort)) {
    std::thread::scope(|scope| {
        let neighbour = scope.spawn(|| {
            let workspace = tempfile::tempdir().unwrap();
            Call::new("clock", json!({}), workspace.path()).output()
        });
        check(call.abort());
        neighbour.join().unwrap();
    });
}

#[test]
fn an_endless_loop_ends_when_its_time_is_up() {
    let workspace = tempfile::tempdir().unwrap();
    let mut call = Call::new("spin", json!({}), workspace.path());
    call.timeout = Duration::from_millis(100);
    beside_a_neighbour(&call, |abort| {
        assert_eq!(abort.reason, AbortReason::Timeout);
        assert!(abort.message.contains("`spin`") && abort.message.contains("100 ms"), "{abort}");
        assert!(!abort.may_have_effect);
    });
}

#[test]
fn a_host_call_that_blocks_ends_when_its_time_is_up() {
    let workspace = tempfile::tempdir().unwrap();
    let mut call = Call::new("hangs_in_host_call", json!({"duration_ms": 3_600_000}), workspace.path());
    call.timeout = Duration::from_millis(100);
    beside_a_neighbour(&call, |abort| assert_eq!(abort.reason, AbortReason::Timeout));
}

#[test]
fn a_sleep_takes_its_time_on_the_calls_own_clock_and_ends() {
    let workspace = tempfile::tempdir().unwrap();
    let call = Call::new("hangs_in_host_call", json!({"duration_ms": 20}), workspace.path());
    assert_eq!(text(&call.output()), "slept");
}

/// The first one is no proof for the others: an engine lives on, and so do its timers and its threads.
#[test]
fn every_call_of_an_engine_is_cancelled_and_ends_after_its_grace() {
    let workspace = tempfile::tempdir().unwrap();
    // One asks the host again and again and does not listen, the other one sleeps in a call of the host.
    let calls = [("pester", json!({})), ("wait_for", json!({ "path": "never" }))];
    for (tool, args) in calls.iter().cycle().take(4) {
        let mut call = Call::new(tool, args.clone(), workspace.path());
        call.limits.cancel_grace = Duration::from_millis(10);
        call.observer = Arc::new(Recorder { cancels: Some(call.cancel.clone()), ..Recorder::default() });
        beside_a_neighbour(&call, |abort| {
            assert_eq!(abort.reason, AbortReason::Cancelled, "{abort}");
            assert!(abort.message.contains("within 10 ms (`cancel_grace_ms`)"), "{abort}");
        });
    }
}

#[test]
fn one_cancel_ends_all_calls_under_way_and_none_begins_after_it() {
    let workspace = tempfile::tempdir().unwrap();
    let cancel = CancelToken::new();
    let waiting = || {
        let mut call = Call::new("wait_for", json!({ "path": "never" }), workspace.path());
        call.limits.cancel_grace = Duration::from_millis(10);
        call.cancel = cancel.clone();
        call
    };
    let mut last = waiting();
    last.observer = Arc::new(Recorder { cancels: Some(cancel.clone()), ..Recorder::default() });
    let calls = [waiting(), waiting(), last];
    std::thread::scope(|scope| {
        for call in &calls {
            scope.spawn(|| assert_eq!(call.abort().reason, AbortReason::Cancelled));
        }
    });
    let abort = waiting().abort();
    assert_eq!(abort.reason, AbortReason::Cancelled);
    assert!(abort.message.contains("was cancelled before it began"), "{abort}");
}

#[test]
fn a_memory_bomb_ends_at_the_limit() {
    let workspace = tempfile::tempdir().unwrap();
    let call = Call::new("hog", json!({}), workspace.path());
    beside_a_neighbour(&call, |abort| {
        assert_eq!(abort.reason, AbortReason::Memory);
        assert!(abort.message.contains("it may take 256.00 MiB (`memory_bytes`)"), "{abort}");
    });
}

#[test]
fn a_stack_overflow_is_called_one() {
    let workspace = tempfile::tempdir().unwrap();
    let call = Call::new("recurse", json!({}), workspace.path());
    beside_a_neighbour(&call, |abort| assert_eq!(abort.reason, AbortReason::Stack, "{abort}"));
}

#[test]
fn a_flood_of_output_ends_at_the_limit() {
    let workspace = tempfile::tempdir().unwrap();
    let call = Call::new("flood", json!({}), workspace.path());
    beside_a_neighbour(&call, |abort| {
        assert_eq!(abort.reason, AbortReason::OutputLimit);
        assert!(
            abort.message.contains("more than 16.00 MiB") && abort.message.contains("(`stdio_bytes`)"),
            "{abort}"
        );
    });
}

#[test]
fn a_result_beyond_the_limit_is_not_taken() {
    let workspace = tempfile::tempdir().unwrap();
    let allowed = Limits::default().output_bytes;
    let fits = Call::new("big_result", json!({"size_bytes": allowed}), workspace.path());
    assert_eq!(text(&fits.output()).len(), allowed);
    // The larger one is not even copied out of the guest.
    for (size, reason) in [(allowed + 1, AbortReason::OutputLimit), (100_000_000, AbortReason::ResourceLimit)]
    {
        let call = Call::new("big_result", json!({"size_bytes": size}), workspace.path());
        beside_a_neighbour(&call, |abort| assert_eq!(abort.reason, reason, "{abort}"));
    }
}

#[test]
fn a_panic_ends_with_its_message_which_is_logged_as_well() {
    let workspace = tempfile::tempdir().unwrap();
    let call = Call::new("panic", json!({"message": "the sky fell"}), workspace.path());
    beside_a_neighbour(&call, |abort| {
        assert_eq!(abort.reason, AbortReason::Trap);
        assert!(abort.message.contains("the sky fell"), "{abort}");
        assert!(!abort.may_have_effect);
    });
    let lines = call.observer.lines.lock().unwrap();
    assert!(lines.iter().any(|line| line.contains("the sky fell")), "{lines:?}");
}

#[test]
fn a_trap_after_a_write_may_have_had_an_effect() {
    let workspace = tempfile::tempdir().unwrap();
    let call = Call::new("trap_after_write", json!({"path": "a", "content": "x"}), workspace.path());
    let abort = call.abort();
    assert_eq!(abort.reason, AbortReason::Trap);
    assert!(abort.may_have_effect);
    assert_eq!(fs::read_to_string(workspace.path().join("a")).unwrap(), "x");
}

#[test]
fn a_pure_tool_that_writes_is_refused_and_nothing_is_there() {
    let workspace = tempfile::tempdir().unwrap();
    let call = Call::new("write_pure", json!({"path": "a"}), workspace.path());
    assert_ne!(text(&call.output()), "wrote");
    assert_eq!(workspace.path().read_dir().unwrap().count(), 0);
    assert_refused(&call, &["files", "`a`", "`write_pure`", "`pure`"]);
}

#[test]
fn nothing_outside_the_workspace_can_be_read() {
    let place = tempfile::tempdir().unwrap();
    let workspace = place.path().join("workspace");
    fs::create_dir(&workspace).unwrap();
    fs::write(place.path().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink("../secret", workspace.join("relative")).unwrap();
    std::os::unix::fs::symlink(place.path().join("secret"), workspace.join("absolute")).unwrap();
    for path in ["../secret", "/../secret", "relative", "absolute", "/etc/passwd", "/proc/self/environ"] {
        let call = Call::new("escape", json!({"path": path}), &workspace);
        let answer = call.output();
        assert!(text(&answer).starts_with("refused:"), "{path}: {}", text(&answer));
    }
}

#[test]
fn a_tool_sees_no_environment_and_no_arguments() {
    let workspace = tempfile::tempdir().unwrap();
    let seen = Call::new("environment", json!({}), workspace.path()).output().structured.unwrap();
    assert_eq!(seen, json!({"variables": [], "arguments": []}));
}

#[test]
fn the_network_is_closed_by_address_and_by_name() {
    let workspace = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for address in [format!("127.0.0.1:{port}"), format!("localhost:{port}")] {
        let call = Call::new("connect", json!({"address": address}), workspace.path());
        assert_ne!(text(&call.output()), "connected", "{address}");
        assert_refused(&call, &["network", "`connect`"]);
    }
}

#[test]
fn two_attempts_read_the_same_clock_and_the_same_randomness() {
    let workspace = tempfile::tempdir().unwrap();
    let mut call = Call::new("clock", json!({}), workspace.path());
    let first = call.output().structured.unwrap();
    call.attempt = 2;
    let second = call.output().structured.unwrap();
    assert_eq!(first, second);
    assert_eq!(first["first_ns"].as_u64().unwrap() / 1_000_000, CLOCK_MS);
    assert!(first["second_ns"].as_u64() > first["first_ns"].as_u64(), "the clock stands still: {first}");
    call.seed = 8;
    assert_ne!(call.output().structured.unwrap()["random"], first["random"]);
}

#[test]
fn a_receipt_is_saved_and_comes_back() {
    let workspace = tempfile::tempdir().unwrap();
    let mut call = Call::new("checkpointed", json!({}), workspace.path());
    assert_eq!(text(&call.output()), "attempt 1 saved step-1");
    let receipt = call.observer.receipts.lock().unwrap()[0].clone();
    call.attempt = 2;
    call.receipt = Some(&receipt);
    assert_eq!(text(&call.output()), "attempt 2 found step-1");
}

#[test]
fn a_receipt_that_cannot_be_saved_is_the_tools_to_handle() {
    let workspace = tempfile::tempdir().unwrap();
    let mut call = Call::new("checkpointed", json!({}), workspace.path());
    call.observer = Arc::new(Recorder { refuse_receipts: true, ..Recorder::default() });
    let end = call.run();
    assert!(
        matches!(&end, CallEnd::Failed(failure) if failure.message.contains("the disk is full")),
        "{end:?}"
    );
}
