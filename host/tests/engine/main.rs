//! Calls of real components through the engine, one theme a file.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod classes;
mod files;
mod git;
#[path = "../../../tests/src/git_server.rs"]
mod git_server;
mod load;
mod processes;
mod push;
mod support;
