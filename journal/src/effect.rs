//! The effect class: what running a call again, or losing track of it, may do to the world.

use serde::{Deserialize, Serialize};

/// How a call may be treated after a crash. Ordered from the safest to the riskiest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EffectClass {
    /// Changes nothing: run again.
    Pure,
    /// Run twice with one key equals run once: run again with the same key.
    Idempotent,
    /// Each run may change the world again: never run again blindly.
    NonIdempotent,
}

impl EffectClass {
    /// Whether a call of this class may change the world at all.
    pub const fn is_effectful(self) -> bool {
        !matches!(self, Self::Pure)
    }

    /// The class as it is written everywhere: `pure`, `idempotent`, `non-idempotent`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pure => "pure",
            Self::Idempotent => "idempotent",
            Self::NonIdempotent => "non-idempotent",
        }
    }
}

impl std::fmt::Display for EffectClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
