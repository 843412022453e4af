//! Ends of calls that no well-behaved tool has.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::capability::stdio::StdioCtx;
use crate::capability::{Action, Gate};
use crate::engine::limits::{OUTPUT_BYTES, OUTPUT_DEPTH, REFUSED_NAME_BYTES};
use crate::engine::request::{CallContext, CallObserver, CancelToken, Grants, NoObserver};
use crate::engine::types::EffectClass;
use crate::engine::{Content, Limits};

/// The traces of a call that made an effectful host call, or of one that made none.
fn traces(effectful: bool) -> Traces {
    let gate = Gate::new("test", &Grants::workspace(EffectClass::NonIdempotent, "/"));
    if effectful {
        gate.admit(Action::Write("a")).unwrap();
    }
    Traces { gate, stdio: StdioCtx::new(0) }
}

fn taken(traces: &Traces, output: wit::Output) -> Result<Output, CallEnd> {
    let observer: Arc<dyn CallObserver> = Arc::new(NoObserver);
    let request = CallRequest {
        tool: "test",
        args: "{}",
        grants: &Grants::nothing(),
        context: CallContext { idempotency_key: "", attempt: 1, session: "", receipt: None },
        seed: [0; 32],
        clock_ms: 0,
        timeout: Duration::ZERO,
        limits: &Limits::default(),
        observer: &observer,
        cancel: &CancelToken::new(),
        stage: None,
        lock: None,
    };
    accept(&request, traces, output)
}

fn text(text: String) -> wit::Output {
    wit::Output { structured: None, content: vec![wit::Content::Text(text)], landed_before: false }
}

fn error(message: String, effect: wit::EffectState) -> wit::Error {
    wit::Error { kind: wit::ErrorKind::Internal, message, effect }
}

/// A result of 4 MiB of control characters is 24 MiB in the journal, which takes 16: the outcome of a call that happened
/// could not be recorded. So the recorded form is what counts.
#[test]
fn a_result_counts_as_it_is_recorded() {
    let control = || text("\u{1}".repeat(OUTPUT_BYTES));
    let Err(CallEnd::Aborted(end)) = taken(&traces(false), control()) else { panic!("it was taken") };
    assert_eq!((end.reason, end.may_have_effect), (AbortReason::OutputLimit, false));
    assert!(end.message.contains(&OUTPUT_JSON_BYTES.to_string()), "{end}");

    let plain = "x".repeat(OUTPUT_BYTES);
    let output = taken(&traces(false), text(plain.clone())).unwrap();
    assert_eq!(output.content, [Content::Text(plain)]);
}

/// A tool that returned has done what it does, whatever it returned. An end that left this open would have it run again.
#[test]
fn a_result_that_cannot_be_taken_leaves_no_doubt_about_the_effect() {
    let no_json = wit::Output { structured: Some("{".to_owned()), ..text(String::new()) };
    let too_large = [OUTPUT_BYTES, OUTPUT_BYTES + 1].map(|size| text("\u{1}".repeat(size)));
    for output in too_large.into_iter().chain([no_json]) {
        let Err(CallEnd::Failed(failure)) = taken(&traces(true), output) else { panic!("it was taken") };
        assert_eq!((failure.kind, failure.effect), (FailureKind::Internal, EffectState::Applied));
        assert!(failure.message.contains("`test` returned"), "{}", failure.message);
    }
}

/// Readers of JSON stop at 128 levels: a deeper record could be written, and never read again.
#[test]
fn a_structured_result_is_nested_only_so_deep_that_its_record_can_be_read() {
    let nested = |levels: usize| wit::Output {
        structured: Some("[".repeat(levels) + &"]".repeat(levels)),
        content: Vec::new(),
        landed_before: false,
    };
    assert!(taken(&traces(false), nested(OUTPUT_DEPTH)).is_ok());
    let Err(CallEnd::Aborted(end)) = taken(&traces(false), nested(OUTPUT_DEPTH + 1)) else { panic!() };
    assert_eq!(end.reason, AbortReason::InvalidOutput);
}

#[test]
fn a_tools_own_message_is_cut_and_says_so() {
    let told = failure(error("ä".repeat(MESSAGE_BYTES), wit::EffectState::Applied), &traces(true));
    assert_eq!(told.message.len(), MESSAGE_BYTES + format!("… ({MESSAGE_BYTES} bytes cut)").len());
    assert!(told.message.ends_with(&format!("ä… ({MESSAGE_BYTES} bytes cut)")));
    let told = failure(error("short".to_owned(), wit::EffectState::Applied), &traces(true));
    assert_eq!(told.message, "short");
}

#[test]
fn a_refusal_repeats_only_the_start_of_a_long_name() {
    let gate = Gate::new("test", &Grants::workspace(EffectClass::Pure, "/"));
    let told = gate.admit(Action::Replace(&"x".repeat(1 << 20))).unwrap_err();
    assert!(told.len() < 2 * REFUSED_NAME_BYTES && told.contains("bytes cut"), "{} bytes", told.len());
    assert_eq!(gate.refusals()[0].to_string(), told);
}

/// A tool's `unknown` holds a run up until the owner has answered. Without an effectful host call there is nothing to ask.
#[test]
fn doubt_counts_only_where_something_was_begun() {
    let effect = |told, begun| failure(error(String::new(), told), &traces(begun)).effect;
    assert_eq!(effect(wit::EffectState::Unknown, false), EffectState::NotApplied);
    assert_eq!(effect(wit::EffectState::Unknown, true), EffectState::Unknown);
    assert_eq!(effect(wit::EffectState::Applied, true), EffectState::Applied);
    assert_eq!(effect(wit::EffectState::NotApplied, true), EffectState::NotApplied);
}
