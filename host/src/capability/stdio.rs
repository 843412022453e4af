//! A call's standard output and error: counted, ended when too much, and the end of each kept for diagnosis.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::WasiCtxBuilder;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

use crate::engine::limits::{LimitReached, STDIO_TAIL_BYTES};

/// Bytes a guest may write at once; what wasmtime's own streams allow.
const PERMIT_BYTES: usize = 64 << 10;

/// The two streams of one call.
#[derive(Clone)]
pub(crate) struct StdioCtx {
    stdout: Stream,
    stderr: Stream,
}

impl StdioCtx {
    /// Streams that together take `allowed` bytes.
    pub(crate) fn new(allowed: u64) -> Self {
        let budget = Arc::new(Budget { allowed, used: AtomicU64::new(0) });
        Self { stdout: Stream::new(&budget), stderr: Stream::new(&budget) }
    }

    /// Make these the guest's.
    pub(crate) fn configure(&self, wasi: &mut WasiCtxBuilder) {
        wasi.stdout(self.stdout.clone()).stderr(self.stderr.clone());
    }

    /// The last lines written to standard error, as text.
    pub(crate) fn stderr_tail(&self) -> String {
        self.stderr.text()
    }

    /// The last lines written to standard output, as text.
    pub(crate) fn stdout_tail(&self) -> String {
        self.stdout.text()
    }
}

struct Budget {
    allowed: u64,
    used: AtomicU64,
}

#[derive(Clone)]
struct Stream {
    tail: Arc<Mutex<VecDeque<u8>>>,
    budget: Arc<Budget>,
}

impl Stream {
    fn new(budget: &Arc<Budget>) -> Self {
        Self { tail: Arc::default(), budget: Arc::clone(budget) }
    }

    fn take(&self, bytes: &[u8]) -> Result<(), LimitReached> {
        // A panic while the tail was locked leaves bytes that are still good for diagnosis.
        let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = &bytes[bytes.len().saturating_sub(STDIO_TAIL_BYTES)..];
        let surplus = (tail.len() + kept.len()).saturating_sub(STDIO_TAIL_BYTES);
        tail.drain(..surplus);
        tail.extend(kept);
        let written = bytes.len() as u64;
        let used = self.budget.used.fetch_add(written, Ordering::Relaxed) + written;
        let allowed = self.budget.allowed;
        if used > allowed {
            return Err(LimitReached::Stdio { allowed });
        }
        Ok(())
    }

    fn text(&self) -> String {
        let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(tail.make_contiguous()).into_owned()
    }
}

impl IsTerminal for Stream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Stream {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Stream {
    async fn ready(&mut self) {}
}

impl OutputStream for Stream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.take(&bytes).map_err(|limit| StreamError::Trap(limit.into()))
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(PERMIT_BYTES)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.take(bytes).map(|()| bytes.len()).map_err(io::Error::other))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
