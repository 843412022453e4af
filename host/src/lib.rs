//! The host.
pub mod capability;
pub mod engine;
