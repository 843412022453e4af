//! Guests that only tests use, built by the build script.

/// The component of `tests/guests/greet`: the first plugin of `README.md`.
pub const GREET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/greet.wasm"));

/// The component of `tests/guests/misbehave`: tools that misbehave, each in one way.
pub const MISBEHAVE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/misbehave.wasm"));
