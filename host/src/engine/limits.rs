//! What a call may use up, and why that much.

use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::time::Duration;

use indicatif::BinaryBytes;
use wasmtime::ResourceLimiter;

use super::setting::{Limit, Settings};

/// Linear memory of one call, all its memories together. Four times what the largest standard tool needs to search a
/// file of [`HOSTCALL_BYTES`] (content, lines, result), and small enough that eight parallel calls fit in 2 GiB.
pub const MEMORY_BYTES: usize = 256 << 20;

/// Elements of all tables of one call together. A table entry is 8 bytes of host memory, so this is 800 KiB; the largest
/// table seen in a Rust component has about 3,000.
pub const TABLE_ELEMENTS: usize = 100_000;

/// The most that [`TABLE_ELEMENTS`] may be set to, and what the pool reserves (not uses) for each table: 8 MiB of address
/// space.
pub const TABLE_ELEMENTS_MOST: usize = 1_000_000;

/// Stack of the compiled code. Twice wasmtime's default: recursive descent over nested JSON in a debug build needs it.
/// A guest's own stack (1 MiB in a Rust component) is in its linear memory and ends first in most programs.
pub const WASM_STACK_BYTES: usize = 1 << 20;

/// What [`WASM_STACK_BYTES`] may be set to. Below, a host call that takes a path does not fit; above, the pool's address
/// space would be mostly stacks.
pub const WASM_STACK_RANGE: RangeInclusive<u64> = 64 << 10..=64 << 20;

/// What a call's stack has beyond [`WASM_STACK_BYTES`], for host functions, of which git and the directory walk are the
/// deepest. Only touched pages cost memory.
pub const HOST_STACK_BYTES: usize = 1 << 20;

/// Bytes one host call may move out of the guest. The largest is a file given to `workspace.replace`; 64 MiB is far
/// beyond any file a model writes, and a quarter of [`MEMORY_BYTES`], which holds it more than once.
pub const HOSTCALL_BYTES: usize = 64 << 20;

/// Handles (files, streams, pollables) a call may hold at once. A walk that keeps one directory and its listing open per
/// level reaches a depth of 100 with it, and three calls at their limit stay below the usual 1,024 open files.
pub const HANDLES: usize = 256;

/// Bytes of a result, structured part and content together. A model's context of a million tokens is about 4 MiB of
/// text; more cannot be read by anyone. An image in it fits as well.
pub const OUTPUT_BYTES: usize = 4 << 20;

/// Bytes of a result as JSON text, the form in which it is recorded: a control character takes six bytes there, a byte of
/// a blob two. Twice [`OUTPUT_BYTES`], so that only what no model reads anyway is cut off; half of what one record of the
/// journal may hold.
pub const OUTPUT_JSON_BYTES: usize = 8 << 20;

/// Levels of a structured result. JSON readers stop at 128 levels, and the record of a step wraps some of its own around.
pub const OUTPUT_DEPTH: usize = 100;

/// Bytes of an error's message, a verdict's or a plan's text; the rest is cut. Several screens, a backtrace included.
pub const MESSAGE_BYTES: usize = 16 << 10;

/// Bytes of the name (a path, a program) that a refusal repeats. A hundred refusals, escaped, stay below 1 MiB with it.
pub const REFUSED_NAME_BYTES: usize = 1 << 10;

/// Bytes a call may write to its standard output and error together before it is ended. They are diagnostics, not the
/// result; 16 MiB is what a verbose build prints in minutes.
pub const STDIO_BYTES: u64 = 16 << 20;

/// Bytes kept of the end of each of the two streams. A panic with a backtrace is some KiB.
pub const STDIO_TAIL_BYTES: usize = 16 << 10;

/// Lines of standard error that an abort's message repeats: a panic's text and its note, and some lines before it.
pub const STDERR_LINES_SHOWN: usize = 12;

/// Bytes of one log or progress line; the rest is cut. Four screens.
pub const LOG_LINE_BYTES: usize = 8 << 10;

/// Log and progress lines of one call that reach the observer; further ones are counted and dropped. At one line per
/// millisecond this is ten seconds of flood, and with [`LOG_LINE_BYTES`] at most 80 MiB over the call's whole life.
pub const LOG_LINES: u32 = 10_000;

/// Bytes of a receipt. It commits to the journal before `checkpoint` returns, so it is a note and not a payload.
pub const RECEIPT_BYTES: usize = 64 << 10;

/// How long a cancelled call may go on, so that it can stop by itself and say what it did.
pub const CANCEL_GRACE: Duration = Duration::from_secs(2);

/// How long a request may take to reach its server, TLS included. Name servers and first packets are tried again after
/// some seconds each; what has not answered by then is not there.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Time limit of `describe` and `refine`, which only compute: thousands of times what they need in a debug build.
pub const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a running guest looks whether its time is up. A timeout or a cancel is late by at most this; each look
/// costs some microseconds, so 10 ms is below a thousandth.
pub const EPOCH_TICK: Duration = Duration::from_millis(10);

/// Calls that have an instance at once; further ones wait. Each reserves (not uses) 4 GiB of address space a memory,
/// and the runner starts far fewer.
pub const PARALLEL_CALLS: u32 = 64;

/// What [`PARALLEL_CALLS`] may be set to. A thousand of them reserve 4 TiB of the 128 that there are.
pub const PARALLEL_CALLS_RANGE: RangeInclusive<u64> = 1..=1_000;

/// Core instances, memories and tables of one component. The largest component of a Rust guest has 4 core instances,
/// 1 memory and 2 tables; one composed of several has a multiple of it.
pub const CORE_PARTS: u32 = 16;

/// `text`, or its first `limit_bytes` and how much is missing.
pub(crate) fn shortened(mut text: String, limit_bytes: usize) -> String {
    let kept = text.floor_char_boundary(limit_bytes);
    let cut = text.len() - kept;
    if cut > 0 {
        text.truncate(kept);
        let _ = write!(text, "… ({cut} bytes cut)");
    }
    text
}

/// What one call may use up; [`Limits::default`] is the constants above. How long it may take is a matter of each tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of linear memory; [`MEMORY_BYTES`] by default.
    pub memory_bytes: usize,
    /// Table elements; [`TABLE_ELEMENTS`] by default, [`TABLE_ELEMENTS_MOST`] at most.
    pub table_elements: usize,
    /// Bytes of a result; [`OUTPUT_BYTES`] by default.
    pub output_bytes: usize,
    /// Bytes written to standard output and error; [`STDIO_BYTES`] by default.
    pub stdio_bytes: u64,
    /// Log and progress lines that are passed on; [`LOG_LINES`] by default.
    pub log_lines: u32,
    /// What is open at once; [`HANDLES`] by default.
    pub handles: usize,
    /// Bytes that one host call may move; [`HOSTCALL_BYTES`] by default.
    pub host_call_bytes: usize,
    /// How long it may go on after a cancel; [`CANCEL_GRACE`] by default.
    pub cancel_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: MEMORY_BYTES,
            table_elements: TABLE_ELEMENTS,
            output_bytes: OUTPUT_BYTES,
            stdio_bytes: STDIO_BYTES,
            log_lines: LOG_LINES,
            handles: HANDLES,
            host_call_bytes: HOSTCALL_BYTES,
            cancel_grace: CANCEL_GRACE,
        }
    }
}

impl Limits {
    /// These, but for what was set.
    #[must_use]
    pub(crate) fn with(mut self, settings: &Settings) -> Self {
        // What a number is too large for is no limit.
        let size = |limit| settings.get(limit).map(|value| usize::try_from(value).unwrap_or(usize::MAX));
        let set = |place: &mut usize, limit| *place = size(limit).unwrap_or(*place);
        set(&mut self.memory_bytes, Limit::Memory);
        set(&mut self.table_elements, Limit::Table);
        set(&mut self.output_bytes, Limit::Output);
        set(&mut self.handles, Limit::Handles);
        set(&mut self.host_call_bytes, Limit::HostCall);
        self.stdio_bytes = settings.get(Limit::Stdio).unwrap_or(self.stdio_bytes);
        let lines = settings.get(Limit::LogLines).map(|lines| u32::try_from(lines).unwrap_or(u32::MAX));
        self.log_lines = lines.unwrap_or(self.log_lines);
        let grace = settings.get(Limit::CancelGrace).map(Duration::from_millis);
        self.cancel_grace = grace.unwrap_or(self.cancel_grace);
        self
    }
}

/// A limit that a call ran into, carried as the cause of its trap.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LimitReached {
    #[error(
        "wanted {} of memory; it may take {} ({})",
        BinaryBytes(*wanted as u64), BinaryBytes(*allowed as u64), Limit::Memory
    )]
    Memory { wanted: usize, allowed: usize },
    #[error("wanted {wanted} table elements; it may take {allowed} ({})", Limit::Table)]
    Table { wanted: usize, allowed: usize },
    #[error(
        "wrote more than {} to its standard output and error ({})",
        BinaryBytes(*allowed), Limit::Stdio
    )]
    Stdio { allowed: u64 },
}

/// Counts what all memories and tables of one call hold together.
pub(crate) struct Usage {
    memory_allowed: usize,
    memory_used: usize,
    table_allowed: usize,
    table_used: usize,
}

impl Usage {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            memory_allowed: limits.memory_bytes,
            memory_used: 0,
            table_allowed: limits.table_elements,
            table_used: 0,
        }
    }
}

impl ResourceLimiter for Usage {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let wanted = self.memory_used.saturating_add(desired.saturating_sub(current));
        if wanted > self.memory_allowed {
            let allowed = self.memory_allowed;
            return Err(LimitReached::Memory { wanted, allowed }.into());
        }
        self.memory_used = wanted;
        Ok(true)
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let wanted = self.table_used.saturating_add(desired.saturating_sub(current));
        if wanted > self.table_allowed {
            let allowed = self.table_allowed;
            return Err(LimitReached::Table { wanted, allowed }.into());
        }
        self.table_used = wanted;
        Ok(true)
    }
}
