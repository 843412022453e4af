//! What the operator says of a component that does not speak for itself.

use std::collections::{BTreeMap, BTreeSet};

use super::functions::WitError;
use super::types::{EffectClass, ToolDescriptor};

/// Stands for every function that is not named.
pub const EVERY: &str = "*";

/// What the operator says of a component whose author knew nothing of deed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Foreign {
    /// The classes of its functions, by the tools' names, or of all others by [`EVERY`]. A function that nothing is said of
    /// is non-idempotent.
    pub effects: BTreeMap<String, EffectClass>,
    /// The imports that are stubs where the host does not offer them.
    pub stubs: Stubs,
    /// The WIT that describes it, as text.
    pub wit: Option<String>,
}

/// Imports that have nothing behind them: whoever calls one ends its call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stubs {
    /// These.
    Of(BTreeSet<String>),
    /// Whichever are missing: somebody agreed to that before.
    Every,
}

impl Default for Stubs {
    fn default() -> Self {
        Self::Of(BTreeSet::new())
    }
}

impl Stubs {
    /// Whether an import may be one.
    pub(super) fn cover(&self, import: &str) -> bool {
        match self {
            Self::Of(imports) => imports.contains(import),
            Self::Every => true,
        }
    }
}

/// What the operator says does not fit the component.
#[derive(Debug, thiserror::Error)]
pub enum ForeignError {
    /// A class for a tool that says it itself.
    #[error(
        "`effects` names `{tool}`, and the component describes its tools itself: a rule of `policy` makes a call riskier, and nothing makes it less"
    )]
    OwnClass {
        /// The tool.
        tool: String,
    },
    /// A class for nothing.
    #[error("`effects` names `{tool}`, and it has no such function: expected one of {}", known.join(", "))]
    UnknownTool {
        /// As it is named.
        tool: String,
        /// Those that it has.
        known: Vec<String>,
    },
    /// The WIT.
    #[error(transparent)]
    Wit(#[from] WitError),
}

impl Foreign {
    /// Give the tools their classes. Tools that are no functions have their own.
    pub(super) fn assign(
        &self,
        are_functions: bool,
        tools: &mut [ToolDescriptor],
    ) -> Result<(), ForeignError> {
        for (name, effect) in &self.effects {
            if !are_functions {
                return Err(ForeignError::OwnClass { tool: name.clone() });
            }
            if name == EVERY {
                let unnamed = tools.iter_mut().filter(|tool| !self.effects.contains_key(&tool.name));
                unnamed.for_each(|tool| tool.effect = *effect);
            } else if let Some(tool) = tools.iter_mut().find(|tool| tool.name == *name) {
                tool.effect = *effect;
            } else {
                let known = tools.iter().map(|tool| format!("`{}`", tool.name)).collect();
                return Err(ForeignError::UnknownTool { tool: name.clone(), known });
            }
        }
        Ok(())
    }
}
