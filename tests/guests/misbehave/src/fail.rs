//! Tools that end abnormally.

use std::fs::OpenOptions;
use std::io::Write;

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
    /// The first attempt that does not trap; each does if left out.
    sound_attempt: Option<u32>,
}

impl Tool for TrapAfterWrite {
    const NAME: &str = "trap_after_write";
    const EFFECT: Effect = Effect::Idempotent;

    fn run(self, call: &Call) -> Result<Output> {
        std::fs::write(&self.path, &self.content)?;
        if self.sound_attempt.is_some_and(|sound| call.attempt() >= sound) {
            return Ok(Output::text("wrote"));
        }
        trap()
    }
}

/// Appends lines to a file, then traps. It has changed nothing when there are none.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct AppendThenTrap {
    path: String,
    lines: usize,
}

impl Tool for AppendThenTrap {
    const NAME: &str = "append_then_trap";
    const EFFECT: Effect = Effect::NonIdempotent;

    fn run(self, _: &Call) -> Result<Output> {
        if self.lines > 0 {
            let mut file = OpenOptions::new().create(true).append(true).open(&self.path)?;
            file.write_all("tick\n".repeat(self.lines).as_bytes())?;
        }
        trap()
    }
}

/// Tells how far it is, writes a file, and traps on its first attempt.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ProgressThenTrap {
    path: String,
    /// What it says on the way.
    progress: String,
}

impl Tool for ProgressThenTrap {
    const NAME: &str = "progress_then_trap";
    const EFFECT: Effect = Effect::Idempotent;

    fn run(self, call: &Call) -> Result<Output> {
        call.progress(1, Some(2), &self.progress);
        call.info(&self.progress);
        std::fs::write(&self.path, "beta\n")?;
        if call.attempt() == 1 {
            trap()
        }
        Ok(Output::text("wrote"))
    }
}

/// Ends at once and without a word, unlike a panic.
fn trap() -> ! {
    #[cfg(target_arch = "wasm32")]
    core::arch::wasm32::unreachable();
    #[cfg(not(target_arch = "wasm32"))]
    std::process::abort();
}
