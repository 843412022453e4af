//! What to make of a call's end: a result, a failure, or an abort with its reason.

use std::fmt::Write as _;
use std::fs::File;

use wasmtime::component::ResourceTableError;
use wasmtime::{PoolConcurrencyLimitError, Trap};
use wasmtime_wasi::I32Exit;

use super::bindings::NotJson;
use super::bindings::deed::tool::types as wit;
use super::limits::{LimitReached, STDERR_LINES_SHOWN};
use super::request::{Abort, AbortReason, CallRequest, LogLevel};
use super::state::Traces;
use super::types::{Output, ToolFailure};

/// A fault at or above this address is one below the memory's start: a Rust guest's stack grows down to address 0, and
/// its overflow wraps around the 32-bit address. No memory reaches this far under the limits of a call.
const WRAPPED: u64 = 0xF000_0000;

/// How a call's future ended.
pub(super) enum Raw<T> {
    Returned(T),
    Trapped(wasmtime::Error),
    OutOfTime,
    Cancelled,
}

/// What the component returned, or why it did not. Its last words, and what was refused to it, go to the observer either
/// way: a tool may well have swallowed the refusal.
pub(super) fn returned<T>(request: &CallRequest<'_>, traces: &Traces, raw: Raw<T>) -> Result<T, Abort> {
    let end = match raw {
        Raw::Returned(value) => Ok(value),
        Raw::Trapped(error) => {
            let (reason, message) = classify(&error);
            Err((reason, message))
        }
        Raw::OutOfTime => {
            let limit_ms = request.timeout.as_millis();
            Err((AbortReason::Timeout, format!("ran out of time after {limit_ms} ms")))
        }
        Raw::Cancelled => {
            let grace_ms = request.limits.cancel_grace.as_millis();
            Err((
                AbortReason::Cancelled,
                format!("was cancelled, and did not stop by itself within {grace_ms} ms"),
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
) -> Result<Output, Abort> {
    let tool = request.tool;
    let size = size_bytes(&output);
    let allowed = request.limits.output_bytes;
    if size > allowed {
        let message = format!("`{tool}` returned {size} bytes; at most {allowed} are taken");
        return Err(abort(AbortReason::OutputLimit, &message, traces));
    }
    output.try_into().map_err(|error: NotJson| {
        let message = format!("`{tool}` returned what the interface does not allow: {error}");
        abort(AbortReason::InvalidOutput, &message, traces)
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

/// The tool's own failure, with what the host had refused.
pub(super) fn failure(error: wit::Error, traces: &Traces) -> ToolFailure {
    ToolFailure { refusals: traces.gate.refusals(), ..error.into() }
}

/// An abort with the last lines of standard error.
pub(super) fn abort(reason: AbortReason, message: &str, traces: &Traces) -> Abort {
    let mut message = message.to_owned();
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
fn classify(error: &wasmtime::Error) -> (AbortReason, String) {
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
        return (AbortReason::ResourceLimit, "holds more open handles than it may".to_owned());
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::StackOverflow) => (AbortReason::Stack, "overflowed its stack".to_owned()),
        Some(Trap::MemoryOutOfBounds) if faulted_below_start(error) => {
            (AbortReason::Stack, "overflowed its stack (it grew below the start of its memory)".to_owned())
        }
        Some(Trap::UnreachableCodeReached) => {
            (AbortReason::Trap, "panicked or gave up (`unreachable`)".to_owned())
        }
        Some(trap) => (AbortReason::Trap, format!("trapped: {trap}")),
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

/// An end that is no trap of the component: no room for another instance, or a bound of a host call. wasmtime has no
/// public type for the latter.
fn host_reason(error: &wasmtime::Error) -> AbortReason {
    if error.is::<PoolConcurrencyLimitError>() {
        AbortReason::Host
    } else if error.root_cause().to_string().contains("fuel") {
        AbortReason::ResourceLimit
    } else {
        AbortReason::Trap
    }
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
