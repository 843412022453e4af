//! The machine's clock and randomness, and fixed ones for crash tests that compare bytes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use deed_journal::{Clock, Entropy};

/// The machine's wall clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

/// The machine's randomness.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("an operating system that runs processes hands out randomness");
    }
}

/// A clock that stands still at 2026-01-01T00:00:00Z: a killed and resumed run reads what an uninterrupted one reads.
#[derive(Debug, Clone, Copy, Default)]
pub struct FixedClock;

impl Clock for FixedClock {
    fn now_ms(&self) -> u64 {
        1_767_225_600_000
    }
}

/// Randomness from a seed. Two sources of one seed and stream give the same bytes.
#[derive(Debug)]
pub struct SeededEntropy {
    key: [u8; 32],
    drawn: AtomicU64,
}

impl SeededEntropy {
    /// A source; another `stream` of the same seed gives other bytes.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut material = seed.to_be_bytes().to_vec();
        material.extend_from_slice(&stream.to_be_bytes());
        Self {
            key: blake3::derive_key("deed 2026 deterministic ids v1", &material),
            drawn: AtomicU64::new(0),
        }
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        let number = self.drawn.fetch_add(1, Ordering::Relaxed);
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&number.to_be_bytes()).finalize_xof().fill(bytes);
    }
}
