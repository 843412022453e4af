//! What a new version of a plugin claims beyond the installed one.

use std::collections::{BTreeMap, BTreeSet};

use deed_journal::EffectClass;
use serde::Serialize;

use super::inspect::Inspection;
use super::needs::Need;

/// What a version of a plugin claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    /// The classes of its tools.
    pub tools: BTreeMap<String, EffectClass>,
    /// What its imports come to.
    pub needs: BTreeSet<Need>,
}

impl From<&Inspection> for Claims {
    fn from(inspection: &Inspection) -> Self {
        let tools = inspection.tools.iter().map(|tool| (tool.name.clone(), tool.effect));
        Self { tools: tools.collect(), needs: inspection.needs.clone() }
    }
}

/// Something that a version claims and the one before did not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Further {
    /// A tool is riskier.
    #[error("`{tool}` is {new}, and was {old}")]
    RiskierClass {
        /// The tool.
        tool: String,
        /// Its class so far.
        old: EffectClass,
        /// Its class now.
        new: EffectClass,
    },
    /// A tool that changes something is new: no rule of a policy speaks of it.
    #[error("`{tool}` is new, and {class}")]
    NewTool {
        /// The tool.
        tool: String,
        /// Its class.
        class: EffectClass,
    },
    /// It needs what it did not.
    #[error("it needs `{need}`, and did not")]
    MoreNeeds {
        /// What.
        need: Need,
    },
    /// Nobody can tell what the version before claimed.
    #[error("the installed version cannot be read, so nobody can tell what it claimed: {reason}")]
    Unreadable {
        /// Why.
        reason: String,
    },
}

/// What `new` claims and `old` did not. Sockets do not count: no tool gets them.
pub fn further(old: &Claims, new: &Claims) -> Vec<Further> {
    let tools = new.tools.iter().filter_map(|(tool, class)| match old.tools.get(tool) {
        Some(before) if class > before => {
            Some(Further::RiskierClass { tool: tool.clone(), old: *before, new: *class })
        }
        None if class.is_effectful() => Some(Further::NewTool { tool: tool.clone(), class: *class }),
        _ => None,
    });
    let needs = new.needs.difference(&old.needs).filter(|need| **need != Need::Sockets);
    tools.chain(needs.map(|need| Further::MoreNeeds { need: *need })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(tools: &[(&str, EffectClass)], needs: &[Need]) -> Claims {
        let tools = tools.iter().map(|(name, class)| ((*name).to_owned(), *class));
        Claims { tools: tools.collect(), needs: needs.iter().copied().collect() }
    }

    #[test]
    fn what_is_riskier_or_needs_more_is_named_and_nothing_else() {
        use EffectClass::{Idempotent, NonIdempotent, Pure};
        let old = claims(&[("a", Pure), ("b", NonIdempotent), ("c", Pure)], &[Need::Files]);
        assert_eq!(further(&old, &old), []);
        let less = claims(&[("b", Idempotent), ("d", Pure)], &[Need::Sockets]);
        assert_eq!(further(&old, &less), []);
        let more = claims(
            &[("a", Idempotent), ("b", NonIdempotent), ("e", Idempotent)],
            &[Need::Files, Need::Hosts],
        );
        let said: Vec<_> = further(&old, &more).iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "`a` is idempotent, and was pure",
                "`e` is new, and idempotent",
                "it needs `hosts`, and did not"
            ]
        );
    }
}
