//! Tools that are not what they claim to be, each in one way: what `deed crash-test` has to find.

mod idempotent;
mod pure;
mod settle;

use std::fs::OpenOptions;
use std::io::Write;

use deed_sdk::prelude::*;

fn append(path: &str, line: &str) -> Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(format!("{line}\n").as_bytes())?;
    Ok(())
}

/// Whether a file has a line.
fn has(path: &str, line: &str) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| text.lines().any(|found| found == line))
}

deed_sdk::export!(
    idempotent::Appends,
    idempotent::IgnoresReceipt,
    idempotent::FirstAttemptOnly,
    idempotent::LeavesChild,
    pure::Moody,
    settle::HonestProbe,
    settle::LyingProbe,
    settle::TrappingProbe,
    settle::NoProbe,
);
