//! Guests that only tests use, built by the build script.

/// The component of `tests/guests/claims`: tools that are not what they claim to be.
pub const CLAIMS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/claims.wasm"));
/// The component of `tests/guests/bold`: [`GREET`] as a later version that claims more.
pub const BOLD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bold.wasm"));

/// The component of `tests/guests/forbidden`: tools that try what they may not, one for each class.
pub const FORBIDDEN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/forbidden.wasm"));

/// The component of `tests/guests/foreign`: plain functions, whose author knows nothing of deed.
pub const FOREIGN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/foreign.wasm"));
/// The WIT of [`FOREIGN`].
pub const FOREIGN_WIT: &str = include_str!("../guests/foreign/wit/calculator.wit");

/// The component of `tests/guests/greet`: the first plugin of `README.md`.
pub const GREET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/greet.wasm"));

/// The component of `tests/guests/misbehave`: tools that misbehave, each in one way.
pub const MISBEHAVE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/misbehave.wasm"));

/// The component of `tests/guests/probes`: tools with a probe that answers as it is told, and without one.
pub const PROBES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/probes.wasm"));

/// [`PROBES`] as another version of it: its results end with `version-two` in place of `version-one`.
pub fn other_probes() -> Vec<u8> {
    const OLD: &[u8] = b"version-one";
    let mut bytes = PROBES.to_vec();
    let at = bytes.windows(OLD.len()).position(|window| window == OLD).expect("its version is in it");
    bytes[at..at + OLD.len()].copy_from_slice(b"version-two");
    bytes
}
