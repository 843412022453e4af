//! Calls of real components through the engine, one theme a file.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod classes;
mod files;
mod git;
mod load;
mod processes;
mod support;
