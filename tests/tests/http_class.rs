//! What a class lets a call send, and what is known of it afterwards, whatever the tool makes of it. Through the engine,
//! with a guest that misbehaves and with the standard plugin; every server is a real one on the loopback interface.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use deed::engine::{
    AbortReason, CallContext, CallEnd, CallObserver, CallRequest, CancelToken, EffectClass, EffectState,
    Engine, EngineConfig, Grants, Limits, NoObserver, Plugin, ToolFailure, Verdict,
};
use deed::grants::{HostGrant, KnownHost};
use deed::standard::standard_plugins;
use deed_tests::guests::MISBEHAVE;
use deed_tests::receiver::{Reaction, Receiver};
use serde_json::{Value, json};

const KEY: &str = "0123456789abcdef0123456789abcdef";

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

fn http() -> Plugin {
    let (_, bytes) = standard_plugins().into_iter().find(|(name, _)| *name == "http").unwrap();
    engine().load("http", bytes).unwrap()
}

/// One call, with a grant for one server.
struct Call<'a> {
    plugin: Plugin,
    tool: &'a str,
    args: Value,
    origin: String,
    honours_key: bool,
    timeout: Duration,
}

impl<'a> Call<'a> {
    fn new(plugin: Plugin, tool: &'a str, args: Value, origin: String) -> Self {
        Self { plugin, tool, args, origin, honours_key: false, timeout: Duration::from_mins(1) }
    }

    fn with<T>(&self, body: impl FnOnce(&CallRequest<'_>) -> T) -> T {
        let class = self.plugin.tool(self.tool).unwrap().effect;
        let mut grants = Grants { class, ..Grants::nothing() };
        let origin = self.origin.parse().unwrap();
        grants.granted.hosts.push(HostGrant::Known(KnownHost { origin, honours_key: self.honours_key }));
        let observer: Arc<dyn CallObserver> = Arc::new(NoObserver);
        body(&CallRequest {
            tool: self.tool,
            args: &self.args.to_string(),
            grants: &grants,
            context: CallContext { idempotency_key: KEY, attempt: 1, session: "", receipt: None },
            seed: [7; 32],
            clock_ms: 1_767_323_045_000,
            timeout: self.timeout,
            limits: &Limits::default(),
            observer: &observer,
            cancel: &CancelToken::new(),
            stage: None,
            lock: None,
        })
    }

    fn run(&self) -> CallEnd {
        self.with(|request| engine().invoke(&self.plugin, request))
    }

    fn probe(&self) -> Result<Verdict, CallEnd> {
        self.with(|request| engine().probe(&self.plugin, request))
    }

    fn failure(&self) -> ToolFailure {
        failure(self.run())
    }
}

fn failure(end: CallEnd) -> ToolFailure {
    match end {
        CallEnd::Failed(failure) => failure,
        other => panic!("expected a failure: {other:?}"),
    }
}

#[test]
fn a_pure_call_asks_nobody_though_it_is_granted() {
    let receiver = Receiver::appending();
    let call = Call::new(misbehave(), "fetch_pure", json!({ "url": receiver.url("/") }), receiver.origin());
    let failure = call.failure();
    let refusal = failure.refusals[0].to_string();
    let expected = format!(
        r#"http: to send GET to `{}` was refused: `fetch_pure`, called as `pure`, reaches no network; a tool that does is at least `idempotent`; this rule, first under `policy`, would raise its class and ask: {{"decision":"ask","effect":"non-idempotent","tool":"fetch_pure"}}"#,
        receiver.origin()
    );
    assert_eq!((refusal, failure.effect), (expected, EffectState::NotApplied));
    assert_eq!(receiver.received(), []);
}

#[test]
fn an_idempotent_call_sends_only_to_a_server_that_honours_the_key_and_the_key_is_the_hosts() {
    let receiver = Receiver::honouring();
    let args = json!({ "url": receiver.url("/") });
    let mut call = Call::new(misbehave(), "post_twice", args, receiver.origin());
    let refusal = call.failure().refusals[0].to_string();
    let line = format!(
        r#"{{"hosts":[{{"honours_key":true,"origin":"{}"}}],"tool":"post_twice"}}"#,
        receiver.origin()
    );
    for named in ["`post_twice`, called as `idempotent`", "GET and HEAD"] {
        assert!(refusal.contains(named), "{refusal}");
    }
    let shown: Value = serde_json::from_str(refusal.rsplit_once("would allow it: ").unwrap().1).unwrap();
    assert_eq!(shown, serde_json::from_str::<Value>(&line).unwrap());
    assert_eq!(receiver.received(), []);

    call.honours_key = true;
    let CallEnd::Completed(output) = call.run() else { panic!("it is allowed now") };
    assert_eq!(output.to_text(), "201 201");
    let keys: Vec<_> =
        receiver.received().iter().map(|sent| sent.header("idempotency-key").map(str::to_owned)).collect();
    assert_eq!(keys, [Some(KEY.to_owned()), Some(KEY.to_owned())], "not the one of the tool's own making");
    assert_eq!(receiver.effects().len(), 1);
}

#[test]
fn a_probe_looks_and_sends_nothing() {
    let receiver = Receiver::appending();
    let probe = |probe_sends: bool| {
        let args = json!({ "url": receiver.url("/"), "probe_sends": probe_sends });
        let mut call = Call::new(misbehave(), "post_twice", args, receiver.origin());
        call.honours_key = true;
        call.probe()
    };
    assert_eq!(probe(false), Ok(Verdict::Undecidable("status 200".to_owned())));
    let failure = failure(probe(true).unwrap_err());
    assert!(
        failure.refusals[0].to_string().contains("`post_twice`, asked by its probe, may change nothing"),
        "{failure:?}"
    );
    assert_eq!((receiver.received().len(), receiver.effects().len()), (1, 0));
}

#[test]
fn a_tool_that_says_nothing_happened_is_not_believed_when_something_left() {
    let receiver = Receiver::scripted(false, |_, _| Reaction::Break);
    let call = Call::new(misbehave(), "shrug", json!({ "url": receiver.url("/") }), receiver.origin());
    let failure = call.failure();
    assert_eq!((failure.effect, receiver.effects().len()), (EffectState::Unknown, 1), "{failure:?}");

    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let call = Call::new(
        misbehave(),
        "shrug",
        json!({ "url": format!("http://{free}/") }),
        format!("http://{free}"),
    );
    assert_eq!(call.failure().effect, EffectState::NotApplied);
}

#[test]
fn out_of_time_it_is_known_whether_something_left() {
    let silent = Receiver::scripted(false, |_, _| Reaction::Silence);
    // Takes connections, and never says a word: there is no agreement on TLS, and nothing is sent before that.
    let deaf = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let encrypted = format!("https://{}", deaf.local_addr().unwrap());
    for (origin, left) in [(silent.origin(), true), (encrypted, false)] {
        let args = json!({ "method": "POST", "url": origin, "body": "a" });
        let mut call = Call::new(http(), "http_send", args, origin.clone());
        call.timeout = Duration::from_millis(500);
        match call.run() {
            CallEnd::Aborted(abort) => {
                assert_eq!((abort.reason, abort.may_have_effect), (AbortReason::Timeout, left), "{origin}");
            }
            // The time of the request and that of the call end together.
            CallEnd::Failed(failure) => {
                assert_eq!(failure.effect == EffectState::Unknown, left, "{origin}: {failure:?}");
            }
            CallEnd::Completed(output) => panic!("{origin} answered: {output:?}"),
        }
    }
    assert_eq!(silent.effects().len(), 1);
}

#[test]
fn sending_is_planned_as_idempotent_and_names_the_server_that_must_make_it_so() {
    let args = json!({ "method": "PUT", "url": "https://a.test/x" });
    let plan = engine().refine(&http(), "http_send", &args.to_string()).unwrap();
    assert_eq!((plan.effect, plan.target.as_deref()), (EffectClass::Idempotent, Some("https://a.test/x")));
    assert_eq!(plan.summary, "PUT https://a.test/x");
    assert_eq!(engine().refine(&http(), "http_get", r#"{"url":"https://a.test/"}"#), None);
}
