//! `wasi:random`, served from the step's recorded seed.

use std::convert::Infallible;

use blake3::OutputReader;
use wasmtime_wasi::WasiCtxBuilder;

/// Endless bytes that depend on a seed and a purpose only: BLAKE3 in its extended output mode.
struct SeededRandom(OutputReader);

impl SeededRandom {
    fn new(purpose: &str, seed: &[u8; 32]) -> Self {
        Self(blake3::Hasher::new_derive_key(purpose).update(seed).finalize_xof())
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.fill(&mut bytes);
        bytes
    }
}

impl rand_core::TryRng for SeededRandom {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(u32::from_le_bytes(self.array()))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(u64::from_le_bytes(self.array()))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.0.fill(bytes);
        Ok(())
    }
}

/// Serve every source of randomness from `seed`, each its own sequence, equal on every attempt. The contexts are part of
/// what a recorded step means: they never change.
pub(crate) fn configure(wasi: &mut WasiCtxBuilder, seed: &[u8; 32]) {
    let mut hash_seed = SeededRandom::new("deed guest random v1 insecure-seed", seed);
    wasi.secure_random(SeededRandom::new("deed guest random v1 secure", seed))
        .insecure_random(SeededRandom::new("deed guest random v1 insecure", seed))
        .insecure_random_seed(u128::from_le_bytes(hash_seed.array()));
}
