//! What the host gives to a call. One file per capability, each with the same five parts: a context (the state of one
//! call), its builder, a view (how the engine's store reaches the context), the policy hook (always a `Gate`), and
//! `add_to_linker`.
//!
//! A capability knows the workspace and the gate. It does not know the journal, the runner, or which tool is running
//! beyond its name.

pub(crate) mod clock;
pub(crate) mod filesystem;
mod gate;
pub(crate) mod git;
pub(crate) mod http;
pub(crate) mod network;
pub(crate) mod process;
pub(crate) mod random;
pub(crate) mod run;
pub(crate) mod stdio;
pub(crate) mod workspace;

pub(crate) use gate::{Action, Gate, is_operators};
pub use git::GitEnvironment;
pub use http::{Credential, CredentialError};
pub use process::CommandEnvironment;
pub(crate) use process::containment_is_possible;
