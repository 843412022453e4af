//! The host.

pub mod boundary;
pub mod capability;
pub mod engine;
pub mod host_tools;
pub mod mission;
pub mod model;
pub mod policy;
pub mod runner;
pub mod sources;
pub mod standard;
pub mod toolbox;
pub mod watch;
mod workspace;
