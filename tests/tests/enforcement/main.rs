//! What a class, a grant and the operator's word keep a tool from: through the engine for every act and class, and as whole
//! processes, where what was refused is read by those who have to act on it.
//!
//! "Killed" is SIGKILL of a real process, as in `kills.rs`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod engine;
mod grants;
mod policy;
mod scenarios;
mod system;
mod table;
