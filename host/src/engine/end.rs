//! What to make of a call's end: a result, a failure, or an abort with its reason.

use std::fmt::Write as _;
use std::fs::File;
use std::io;

use indicatif::BinaryBytes;
use wasmtime::component::ResourceTableError;
use wasmtime::{PoolConcurrencyLimitError, Trap};
use wasmtime_wasi::I32Exit;

use super::bindings::NotJson;
use super::bindings::deed::tool::types as wit;
use super::bindings::probing::exports::deed::tool::reconcile;
use super::limits::{LimitReached, Limits, MESSAGE_BYTES, OUTPUT_JSON_BYTES, STDERR_LINES_SHOWN, shortened};
use super::request::{Abort, AbortReason, CallEnd, CallRequest, LogLevel};
use super::setting::Limit;
use super::state::Traces;
use super::types::{EffectState, FailureKind, Output, ToolFailure, Verdict};

/// A fault at or above this address is one below the memory's start: a Rust guest's stack grows down to address 0, and
/// its overflow wraps around the 32-bit address. No memory reaches this far under the limits of a call.
const WRAPPED: u64 = 0xF000_0000;

/// How a call's future ended.
pub(super) enum Raw<T> {
    Returned(T),
    Trapped {
        error: wasmtime::Error,
        /// How large its stack was.
        stack_bytes: usize,
    },
    OutOfTime,
    Cancelled,
    /// It was cancelled while it waited for an instance, or before.
    NeverBegun,
}

/// What the component returned, or why it did not. Its last words, and what was refused to it, go to the observer either
/// way: a tool may well have swallowed the refusal.
pub(super) fn returned<T>(request: &CallRequest<'_>, traces: &Traces, raw: Raw<T>) -> Result<T, Abort> {
    let end = match raw {
        Raw::Returned(value) => Ok(value),
        Raw::Trapped { error, stack_bytes } => Err(classify(&error, request.limits, stack_bytes)),
        Raw::NeverBegun => Err((AbortReason::Cancelled, "was cancelled before it began".to_owned())),
        Raw::OutOfTime => {
            let limit_ms = request.timeout.as_millis();
            Err((AbortReason::Timeout, format!("ran out of time after {limit_ms} ms ({})", Limit::Time)))
        }
        Raw::Cancelled => {
            let grace_ms = request.limits.cancel_grace.as_millis();
            Err((
                AbortReason::Cancelled,
                format!(
                    "was cancelled, and did not stop by itself within {grace_ms} ms ({})",
                    Limit::CancelGrace
                ),
            ))
        }
    };
    for (level, text) in
        [(LogLevel::Debug, traces.stdio.stdout_tail()), (LogLevel::Warn, traces.stdio.stderr_tail())]
    {
        for line in last_lines(&text) {
            request.observer.log(level, line);
        }
    }
    for refusal in traces.gate.refusals() {
        request.observer.log(LogLevel::Warn, &refusal.to_string());
    }
    end.map_err(|(reason, message)| abort(reason, &format!("`{}` {message}", request.tool), traces))
}

/// A result within its bounds, in plain types.
pub(super) fn accept(
    request: &CallRequest<'_>,
    traces: &Traces,
    output: wit::Output,
) -> Result<Output, CallEnd> {
    let tool = request.tool;
    let size = size_bytes(&output);
    let allowed = request.limits.output_bytes;
    if size > allowed {
        let message =
            format!("`{tool}` returned {size} bytes; at most {allowed} are taken ({})", Limit::Output);
        return Err(not_taken(AbortReason::OutputLimit, &message, traces));
    }
    let output: Output = output.try_into().map_err(|error: NotJson| {
        let message = format!("`{tool}` returned what the interface does not allow: {error}");
        not_taken(AbortReason::InvalidOutput, &message, traces)
    })?;
    let size = json_bytes(&output);
    if size > OUTPUT_JSON_BYTES {
        let message = format!(
            "`{tool}` returned what takes {size} bytes as JSON; at most {OUTPUT_JSON_BYTES} are recorded"
        );
        return Err(not_taken(AbortReason::OutputLimit, &message, traces));
    }
    Ok(output)
}

/// The end of a call whose result cannot be taken. The tool came to its end, so what it did is done.
fn not_taken(reason: AbortReason, message: &str, traces: &Traces) -> CallEnd {
    if !traces.gate.may_have_effect() {
        return CallEnd::Aborted(abort(reason, message, traces));
    }
    CallEnd::Failed(ToolFailure {
        kind: FailureKind::Internal,
        message: format!(
            "{message}; the tool had come to its end: what it does is done, and only its result is lost"
        ),
        effect: EffectState::Applied,
        refusals: traces.gate.refusals(),
    })
}

/// Bytes of `output` as JSON text, without keeping the text.
fn json_bytes(output: &Output) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, output)
        .expect("an output has text keys only, and counting cannot fail");
    count.0
}

/// What a probe found out, within the bounds of a result.
pub(super) fn accept_verdict(
    request: &CallRequest<'_>,
    traces: &Traces,
    verdict: reconcile::Verdict,
) -> Result<Verdict, CallEnd> {
    Ok(match verdict {
        reconcile::Verdict::Landed(output) => Verdict::Landed(accept(request, traces, output)?),
        reconcile::Verdict::NotLanded => Verdict::NotLanded,
        reconcile::Verdict::Partial(what) => Verdict::Partial(shortened(what, MESSAGE_BYTES)),
        reconcile::Verdict::Undecidable(why) => Verdict::Undecidable(shortened(why, MESSAGE_BYTES)),
    })
}

fn size_bytes(output: &wit::Output) -> usize {
    let structured = output.structured.as_ref().map_or(0, String::len);
    let content = output.content.iter().map(|part| match part {
        wit::Content::Text(text) => text.len(),
        wit::Content::Blob(blob) => blob.media_type.len() + blob.data.len(),
    });
    structured + content.sum::<usize>()
}

/// The tool's own failure, with what the host had refused. The host knows better than a tool that is in doubt although it
/// began nothing, and than one that is certain although a capability is not.
pub(super) fn failure(error: wit::Error, traces: &Traces) -> ToolFailure {
    let failure = ToolFailure::from(error);
    let effect = match failure.effect {
        EffectState::Unknown if !traces.gate.may_have_effect() => EffectState::NotApplied,
        EffectState::NotApplied if traces.gate.is_in_doubt() => EffectState::Unknown,
        told => told,
    };
    ToolFailure {
        message: shortened(failure.message, MESSAGE_BYTES),
        effect,
        refusals: traces.gate.refusals(),
        ..failure
    }
}

/// An abort with the last lines of standard error.
pub(super) fn abort(reason: AbortReason, message: &str, traces: &Traces) -> Abort {
    let mut message = shortened(message.to_owned(), MESSAGE_BYTES);
    let stderr = traces.stdio.stderr_tail();
    let lines = last_lines(&stderr);
    if !lines.is_empty() {
        let _ = write!(message, "; its last words:");
        for line in lines {
            let _ = write!(message, "\n  {line}");
        }
    }
    Abort {
        reason,
        message,
        may_have_effect: traces.gate.may_have_effect(),
        refusals: traces.gate.refusals(),
    }
}

fn last_lines(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(STDERR_LINES_SHOWN)..].to_vec()
}

/// Why a component trapped.
fn classify(error: &wasmtime::Error, limits: &Limits, stack_bytes: usize) -> (AbortReason, String) {
    if let Some(limit) = error.downcast_ref::<LimitReached>() {
        let reason = match limit {
            LimitReached::Memory { .. } | LimitReached::Table { .. } => AbortReason::Memory,
            LimitReached::Stdio { .. } => AbortReason::OutputLimit,
        };
        return (reason, limit.to_string());
    }
    if let Some(exit) = error.downcast_ref::<I32Exit>() {
        return (AbortReason::Trap, format!("exited with code {} instead of returning", exit.0));
    }
    if let Some(ResourceTableError::Full) = error.downcast_ref::<ResourceTableError>() {
        let allowed = limits.handles;
        let message = format!(
            "wanted more than {allowed} files, streams and other handles open at once ({})",
            Limit::Handles
        );
        return (AbortReason::ResourceLimit, message);
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::StackOverflow) => {
            let size = BinaryBytes(stack_bytes as u64);
            (AbortReason::Stack, format!("overflowed its stack of {size} (`stack_bytes` under `engine`)"))
        }
        Some(Trap::MemoryOutOfBounds) if faulted_below_start(error) => (
            AbortReason::Stack,
            "overflowed its stack, which is in its memory and as large as it was built with".to_owned(),
        ),
        Some(Trap::UnreachableCodeReached) => {
            (AbortReason::Trap, "panicked or gave up (`unreachable`)".to_owned())
        }
        Some(trap) => (AbortReason::Trap, format!("trapped: {trap}")),
        // wasmtime has no public type for a bound of a host call.
        None if error.root_cause().to_string().contains("fuel") => {
            let allowed = BinaryBytes(limits.host_call_bytes as u64);
            let message = format!("passed more than {allowed} to the host at once ({})", Limit::HostCall);
            (AbortReason::ResourceLimit, message)
        }
        None => (host_reason(error), format!("was ended: {}", error.root_cause())),
    }
}

/// wasmtime has no type for the address of a fault; it is the outermost context of the error that tells it.
fn faulted_below_start(error: &wasmtime::Error) -> bool {
    error.chain().any(|cause| {
        let text = cause.to_string();
        text.split_once("at wasm address 0x")
            .and_then(|(_, rest)| rest.split_whitespace().next())
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .is_some_and(|address| address >= WRAPPED)
    })
}

/// An end that is no trap of the component.
fn host_reason(error: &wasmtime::Error) -> AbortReason {
    if error.is::<PoolConcurrencyLimitError>() { AbortReason::Host } else { AbortReason::Trap }
}

/// Make durable what an effectful call changed by other means than those that sync by themselves (plain WASI, commands).
/// Costs one sync of the workspace's file system, and only when there was such a change.
pub(super) fn sync(request: &CallRequest<'_>, traces: &Traces) -> Result<(), Abort> {
    let Some(workspace) = request.grants.workspace.as_ref().filter(|_| traces.gate.is_unsynced()) else {
        return Ok(());
    };
    let synced = File::open(workspace).and_then(|directory| Ok(rustix::fs::syncfs(directory)?));
    synced.map_err(|error| {
        let message = format!("sync what `{}` changed in `{}`: {error}", request.tool, workspace.display());
        abort(AbortReason::Host, &message, traces)
    })
}

#[cfg(test)]
mod tests;
