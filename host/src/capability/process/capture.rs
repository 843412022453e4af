//! One output stream of a command: the beginning is kept, the rest is read and counted.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes read at once: a pipe's own size.
const READ_BYTES: usize = 64 << 10;

/// What was captured of a stream.
#[derive(Debug, Default)]
pub(crate) struct Captured {
    pub(crate) data: Vec<u8>,
    /// Bytes that came after the limit.
    pub(crate) cut_bytes: u64,
}

/// Shared between who reads and who takes: so what came so far is there even when the reading is given up.
#[derive(Clone, Default)]
pub(super) struct Capture(Arc<Mutex<Captured>>);

impl Capture {
    /// Read `stream` to its end, and keep the first `limit_bytes`.
    pub(super) async fn read(&self, mut stream: impl AsyncRead + Unpin, limit_bytes: usize) {
        let mut buffer = vec![0; READ_BYTES];
        // An error of a pipe means that nobody will write to it again, as its end does.
        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
            let mut captured = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let kept = read.min(limit_bytes.saturating_sub(captured.data.len()));
            captured.data.extend_from_slice(&buffer[..kept]);
            captured.cut_bytes += (read - kept) as u64;
        }
    }

    /// What came so far.
    pub(super) fn take(&self) -> Captured {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
