//! Tools that take more than they should: time, memory, stack, output.

use std::hint::black_box;
use std::io::Write;
use std::time::Duration;

use deed_sdk::prelude::*;

/// Loops for ever. It has not much time for that.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Spin {}

impl Tool for Spin {
    const NAME: &str = "spin";
    const EFFECT: Effect = Effect::Pure;
    const TIMEOUT_MS: Option<u32> = Some(100);

    fn run(self, _: &Call) -> Result<Output> {
        let mut turns = 0_u64;
        loop {
            turns = black_box(turns.wrapping_add(1));
        }
    }
}

/// Allocates for ever.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Hog {}

impl Tool for Hog {
    const NAME: &str = "hog";
    const EFFECT: Effect = Effect::Pure;

    fn run(self, _: &Call) -> Result<Output> {
        let mut hoard = Vec::new();
        loop {
            hoard.push(black_box(vec![1_u8; 1 << 20]));
        }
    }
}

/// Calls itself until the stack is used up.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Recurse {}

impl Tool for Recurse {
    const NAME: &str = "recurse";
    const EFFECT: Effect = Effect::Pure;

    fn run(self, _: &Call) -> Result<Output> {
        Ok(Output::text(deeper(0).to_string()))
    }
}

fn deeper(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    // Not a tail call, and never over: the sum is needed after the inner one returns.
    if black_box(depth) == u64::MAX { 0 } else { frame[0] + deeper(depth + 1) }
}

/// Writes 100 MB to the standard output.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Flood {}

impl Tool for Flood {
    const NAME: &str = "flood";
    const EFFECT: Effect = Effect::Pure;

    fn run(self, _: &Call) -> Result<Output> {
        let mut stdout = std::io::stdout().lock();
        let line = [b'x'; 1_000];
        for _ in 0..100_000 {
            stdout.write_all(&line)?;
        }
        stdout.flush()?;
        Ok(Output::text("flooded"))
    }
}

/// Returns a result of a given size.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct BigResult {
    size_bytes: usize,
}

impl Tool for BigResult {
    const NAME: &str = "big_result";
    const EFFECT: Effect = Effect::Pure;

    fn run(self, _: &Call) -> Result<Output> {
        Ok(Output::text("x".repeat(self.size_bytes)))
    }
}

/// Waits until a file is there, and looks again and again.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct WaitFor {
    path: String,
}

impl Tool for WaitFor {
    const NAME: &str = "wait_for";
    const EFFECT: Effect = Effect::Pure;

    fn run(self, call: &Call) -> Result<Output> {
        call.info("waiting");
        while !std::fs::exists(&self.path)? {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Output::text("it is there"))
    }
}

/// Sleeps in one host call.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Hang {
    duration_ms: u64,
}

impl Tool for Hang {
    const NAME: &str = "hangs_in_host_call";
    const EFFECT: Effect = Effect::Pure;

    fn run(self, call: &Call) -> Result<Output> {
        call.info("sleeps");
        std::thread::sleep(Duration::from_millis(self.duration_ms));
        call.info("slept");
        Ok(Output::text("slept"))
    }
}

/// Opens a file again and again, and keeps it open.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct OpenFiles {
    path: String,
    count: usize,
}

impl Tool for OpenFiles {
    const NAME: &str = "open_files";
    const EFFECT: Effect = Effect::Pure;

    fn run(self, _: &Call) -> Result<Output> {
        let files: std::io::Result<Vec<_>> =
            (0..self.count).map(|_| std::fs::File::open(&self.path)).collect();
        Ok(Output::text(format!("{} are open", files?.len())))
    }
}

/// Makes ten million small calls of the host.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Pester {}

impl Tool for Pester {
    const NAME: &str = "pester";
    const EFFECT: Effect = Effect::Pure;
    const TIMEOUT_MS: Option<u32> = Some(100);

    fn run(self, call: &Call) -> Result<Output> {
        let cancelled = (0..10_000_000).filter(|_| call.cancelled()).count();
        Ok(Output::text(cancelled.to_string()))
    }
}

/// Logs one line of 100 MB.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct LogFlood {}

impl Tool for LogFlood {
    const NAME: &str = "log_flood";
    const EFFECT: Effect = Effect::Pure;

    fn run(self, call: &Call) -> Result<Output> {
        call.info("x".repeat(100_000_000));
        Ok(Output::text("logged"))
    }
}

/// Tells how far it is, and never gets anywhere.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ProgressFlood {}

impl Tool for ProgressFlood {
    const NAME: &str = "progress_flood";
    const EFFECT: Effect = Effect::Pure;
    const TIMEOUT_MS: Option<u32> = Some(100);

    fn run(self, call: &Call) -> Result<Output> {
        for done in 0.. {
            call.progress(done, None, "still going");
        }
        Ok(Output::text("done"))
    }
}
