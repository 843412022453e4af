//! Tools that end abnormally.

use deed_sdk::prelude::*;

/// Panics with the message given.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Panic {
    message: String,
}

impl Tool for Panic {
    const NAME: &str = "panic";
    const EFFECT: Effect = Effect::Pure;

    fn run(self, _: &Call) -> Result<Output> {
        panic!("{}", self.message)
    }
}

/// Writes a file, then traps.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct TrapAfterWrite {
    path: String,
    content: String,
}

impl Tool for TrapAfterWrite {
    const NAME: &str = "trap_after_write";
    const EFFECT: Effect = Effect::Idempotent;

    fn run(self, _: &Call) -> Result<Output> {
        std::fs::write(&self.path, &self.content)?;
        trap()
    }
}

/// Ends at once and without a word, unlike a panic.
fn trap() -> ! {
    #[cfg(target_arch = "wasm32")]
    core::arch::wasm32::unreachable();
    #[cfg(not(target_arch = "wasm32"))]
    std::process::abort();
}
