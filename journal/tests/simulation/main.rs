//! The journal on a disk that fails: crash images, errors of the disk, damage, and a disk that lies.
//!
//! The fault model is written down in `src/fault.rs`. A failure prints the seed and the command that brings it back.
//! `DEED_FUZZ_SEED` and `DEED_FUZZ_COUNT` choose the seeds; `make fuzz` runs many.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fmt::Arguments;
use std::io::Write as _;

mod controls;
mod disk_errors;
mod generate;
mod model;
mod random_sequences;
mod simulate;
mod sweep;
mod torn_store;
mod upkeep;

/// Say what was looked at, also when the test passes: only the print macros are held back then.
fn report(line: Arguments<'_>) {
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
}
