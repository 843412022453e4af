//! What the journal does, on a real file: commits, sessions, growth, and a store of the first format.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod commits;
mod fixture;
mod growth;
mod sessions;
mod support;
