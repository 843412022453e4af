//! Policy: what a call needs before it may run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::mission::{Network, Spec};

/// What a matching call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// Nothing.
    Allow,
    /// The owner's approval, once per call.
    Ask,
    /// It may not run.
    Deny,
}

/// One rule. The first that matches a call decides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The tool's name, or `*` for every tool.
    pub tool: String,
    /// Arguments that must have exactly these values. Default: any.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub args: Map<String, Value>,
    /// What a matching call needs.
    pub decision: Decision,
}

impl Rule {
    fn matches(&self, tool: &str, args: &Value) -> bool {
        (self.tool == "*" || self.tool == tool)
            && self.args.iter().all(|(name, value)| args.get(name) == Some(value))
    }
}

/// The policy in force for a turn: recorded as a step, so that a resumed run decides as the first process did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The rules, in order.
    pub rules: Vec<Rule>,
    /// Whether commands reach the network.
    pub network: Network,
}

impl Snapshot {
    /// What `spec` says.
    pub fn of(spec: &Spec) -> Self {
        Self { rules: spec.policy().to_vec(), network: spec.network() }
    }

    /// What a call needs, and the rule that says so. Without a matching rule it is allowed.
    pub fn decide(&self, tool: &str, args: &Value) -> (Decision, Option<&Rule>) {
        let rule = self.rules.iter().find(|rule| rule.matches(tool, args));
        (rule.map_or(Decision::Allow, |rule| rule.decision), rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_matching_rule_decides_and_none_allows() {
        let rules: Vec<Rule> = serde_json::from_value(json!([
            { "tool": "shell", "args": { "command": "make" }, "decision": "allow" },
            { "tool": "shell", "decision": "ask" },
            { "tool": "*", "args": { "path": "secret" }, "decision": "deny" },
        ]))
        .unwrap();
        let snapshot = Snapshot { rules, network: Network::Closed };
        let decide = |tool, args| snapshot.decide(tool, &args).0;
        assert_eq!(decide("shell", json!({ "command": "make" })), Decision::Allow);
        assert_eq!(decide("shell", json!({ "command": "make clean" })), Decision::Ask);
        assert_eq!(decide("read_file", json!({ "path": "secret" })), Decision::Deny);
        assert_eq!(decide("read_file", json!({ "path": "open" })), Decision::Allow);
    }
}
