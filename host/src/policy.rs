//! Policy: what a call needs before it may run, and what it may reach.

use std::collections::BTreeMap;
use std::fmt;

use deed_journal::EffectClass;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use url::Url;

use crate::grants::{Grant, Granted};
use crate::mission::{Network, Spec};

/// What a matching call needs. In order of strictness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
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
    /// Arguments that must fit these patterns, such as `src/**` for a path. They are compared as they stand and again
    /// with `.` and `..` resolved and URLs in their usual form: a rule that allows must match both, one that asks or denies need only match one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub glob: BTreeMap<String, String>,
    /// What a matching call needs.
    pub decision: Decision,
    /// The class a matching call is held to, if that is riskier than its own. Default: its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ClassName>")]
    pub effect: Option<EffectClass>,
    /// Whether what a matching call does to the workspace is held back until its outcome is recorded. The first matching rule
    /// that says it decides, whatever comes before it. Default: `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contain: Option<Contain>,
}

/// Whether what a call does to the workspace is held back until its outcome is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Contain {
    /// That of every effectful call is; one that cannot be contained is refused.
    Always,
    /// That of non-idempotent calls is, which reach nothing but the workspace, where the machine can do it.
    #[default]
    Auto,
    /// None is.
    Never,
}

/// An effect class, as policies name it.
#[derive(JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[expect(dead_code, reason = "describes a class of the journal's, which knows no schemas")]
pub(crate) enum ClassName {
    Pure,
    Idempotent,
    NonIdempotent,
}

impl Rule {
    fn matches(&self, tool: &str, args: &Value) -> bool {
        let strict = self.decision == Decision::Allow;
        (self.tool == "*" || self.tool == tool)
            && self.args.iter().all(|(name, value)| args.get(name) == Some(value))
            && self.glob.iter().all(|(name, pattern)| {
                let Some(Value::String(text)) = args.get(name) else { return false };
                let as_it_stands = fast_glob::glob_match(pattern, text);
                let resolved = fast_glob::glob_match(pattern, resolved(text));
                if strict { as_it_stands && resolved } else { as_it_stands || resolved }
            })
    }
}

/// `text`, as a path or a URL, without `.`, `..` and doubled slashes; what leads out of its root stays there.
fn resolved(text: &str) -> String {
    if let Some(url) = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https")) {
        return unescaped(url.as_str());
    }
    let mut parts = Vec::new();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// A URL without the escapes of what needs none (RFC 3986, 2.3): to a server they are the same.
fn unescaped(url: &str) -> String {
    let mut text = String::with_capacity(url.len());
    let mut rest = url;
    while let Some((before, after)) = rest.split_once('%') {
        text.push_str(before);
        let escaped = after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()).map(char::from);
        let plain = escaped.filter(|c| c.is_ascii_alphanumeric() || "-._~".contains(*c));
        text.push(plain.unwrap_or('%'));
        rest = if plain.is_some() { &after[2..] } else { after };
    }
    text + rest
}

/// A rule, and where it is written.
#[derive(Debug, Clone, PartialEq)]
pub struct SourcedRule {
    /// The rule.
    pub rule: Rule,
    /// `mission`, or the path of a `deed.toml`.
    pub source: String,
}

/// The rule as its owner would write it, and where it is written.
impl fmt::Display for SourcedRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = serde_json::to_string(&self.rule).map_err(|_| fmt::Error)?;
        write!(f, "{rule} ({})", self.source)
    }
}

/// What the operator says for every run: the `deed.toml` of the workspace, then the user's.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Operator {
    /// Rules, in order.
    pub rules: Vec<SourcedRule>,
    /// Grants, in order.
    pub grants: Vec<Grant>,
    /// Milliseconds after which a question that is no matter of an unknown outcome expires; never when none.
    pub answer_within_ms: Option<u64>,
}

/// The policy in force for a turn: recorded as a step, so that a resumed run decides as the first process did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The rules, in order.
    pub rules: Vec<Rule>,
    /// Where each of them is written.
    #[serde(default)]
    pub sources: Vec<String>,
    /// Whether commands reach the network, where no grant says it.
    pub network: Network,
    /// The grants, in order.
    #[serde(default)]
    pub grants: Vec<Grant>,
    /// Milliseconds after which a question expires.
    #[serde(default)]
    pub answer_within_ms: Option<u64>,
}

impl Snapshot {
    /// What `spec` says, and then the operator.
    pub fn of(spec: &Spec, operator: &Operator) -> Self {
        let mission = spec.policy().iter().map(|rule| (rule.clone(), "mission".to_owned()));
        let own = operator.rules.iter().map(|SourcedRule { rule, source }| (rule.clone(), source.clone()));
        let (rules, sources) = mission.chain(own).unzip();
        Self {
            rules,
            sources,
            network: spec.network(),
            grants: spec.grants().iter().chain(&operator.grants).cloned().collect(),
            answer_within_ms: spec.answer_within_ms().or(operator.answer_within_ms),
        }
    }

    /// The rule that decides a call; without one it is allowed.
    pub fn decide(&self, tool: &str, args: &Value) -> Option<SourcedRule> {
        let index = self.rules.iter().position(|rule| rule.matches(tool, args))?;
        // Policies recorded before there were other sources name none.
        let source = self.sources.get(index).cloned().unwrap_or_else(|| "mission".to_owned());
        Some(SourcedRule { rule: self.rules[index].clone(), source })
    }

    /// Whether a call is to be contained.
    pub fn contain(&self, tool: &str, args: &Value) -> Contain {
        let said = self.rules.iter().filter(|rule| rule.contain.is_some());
        said.into_iter()
            .find(|rule| rule.matches(tool, args))
            .and_then(|rule| rule.contain)
            .unwrap_or_default()
    }

    /// What a tool is granted.
    pub fn granted(&self, tool: &str) -> Granted {
        Granted::of(tool, &self.grants, self.network)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn snapshot(rules: Value) -> Snapshot {
        Snapshot {
            rules: serde_json::from_value(rules).unwrap(),
            sources: Vec::new(),
            network: Network::Closed,
            grants: Vec::new(),
            answer_within_ms: None,
        }
    }

    fn decide(snapshot: &Snapshot, tool: &str, args: &Value) -> Decision {
        snapshot.decide(tool, args).map_or(Decision::Allow, |found| found.rule.decision)
    }

    #[test]
    fn the_first_matching_rule_decides_and_none_allows() {
        let snapshot = snapshot(json!([
            { "tool": "shell", "args": { "command": "make" }, "decision": "allow" },
            { "tool": "shell", "decision": "ask" },
            { "tool": "*", "args": { "path": "secret" }, "decision": "deny" },
        ]));
        assert_eq!(decide(&snapshot, "shell", &json!({ "command": "make" })), Decision::Allow);
        assert_eq!(decide(&snapshot, "shell", &json!({ "command": "make clean" })), Decision::Ask);
        assert_eq!(decide(&snapshot, "read_file", &json!({ "path": "secret" })), Decision::Deny);
        assert_eq!(decide(&snapshot, "read_file", &json!({ "path": "open" })), Decision::Allow);
    }

    #[test]
    fn a_detour_neither_passes_an_allow_nor_escapes_a_deny() {
        let snapshot = snapshot(json!([
            { "tool": "*", "glob": { "path": "private/**" }, "decision": "deny" },
            { "tool": "write_file", "glob": { "path": "src/**" }, "decision": "allow" },
            { "tool": "write_file", "decision": "ask" },
        ]));
        let write = |path| decide(&snapshot, "write_file", &json!({ "path": path }));
        assert_eq!(write("src/a/b.rs"), Decision::Allow);
        assert_eq!(write("./src/a.rs"), Decision::Ask, "an allow is not stretched");
        assert_eq!(write("src/../Makefile"), Decision::Ask);
        assert_eq!(write("private/key"), Decision::Deny);
        assert_eq!(write("src/../private/key"), Decision::Deny);
        assert_eq!(write("/private//key"), Decision::Deny);
        assert_eq!(decide(&snapshot, "write_file", &json!({})), Decision::Ask);
    }

    #[test]
    fn a_pattern_fits_urls_too() {
        let snapshot = snapshot(json!([
            { "tool": "http_get", "glob": { "url": "https://a.test/public/**" }, "decision": "allow" },
            { "tool": "http_get", "decision": "ask" },
        ]));
        let get = |url| decide(&snapshot, "http_get", &json!({ "url": url }));
        assert_eq!(get("https://a.test/public/x"), Decision::Allow);
        assert_eq!(get("https://a.test/public/../private"), Decision::Ask);
        assert_eq!(get("http://a.test/public/x"), Decision::Ask);
        for detour in [
            "https://a.test/public/%2e%2e/private/b",
            "https://a.test/public/..\\private/c",
            "https://a.test/public/.\t./private/d",
        ] {
            assert_eq!(get(detour), Decision::Ask, "{detour}");
        }
    }

    #[test]
    fn a_denied_url_is_denied_however_it_is_written() {
        let snapshot = snapshot(json!([
            { "tool": "*", "glob": { "url": "https://a.test/private/**" }, "decision": "deny" },
        ]));
        for url in [
            "https://a.test/private/x",
            "HTTPS://A.test/private/x",
            "https://a.test:443/private/x",
            "https://a.test/%70rivate/x",
            "https://a.test/public/../private/x",
            "https://a.test/public/%2E%2E/private/x",
        ] {
            assert_eq!(decide(&snapshot, "http_get", &json!({ "url": url })), Decision::Deny, "{url}");
        }
        assert_eq!(
            decide(&snapshot, "http_get", &json!({ "url": "https://a.test/public" })),
            Decision::Allow
        );
    }

    #[test]
    fn a_rule_says_where_it_is_written() {
        let mission: Spec = serde_json::from_value(json!({ "batch": {
            "objective": "", "calls": [], "policy": [{ "tool": "a", "decision": "ask" }]
        } }))
        .unwrap();
        let rule = serde_json::from_value(json!({ "tool": "b", "decision": "deny" })).unwrap();
        let operator = Operator {
            rules: vec![SourcedRule { rule, source: "/home/o/deed.toml".to_owned() }],
            ..Operator::default()
        };
        let snapshot = Snapshot::of(&mission, &operator);
        let shown = |tool| snapshot.decide(tool, &json!({})).unwrap().to_string();
        assert_eq!(shown("a"), r#"{"tool":"a","decision":"ask"} (mission)"#);
        assert_eq!(shown("b"), r#"{"tool":"b","decision":"deny"} (/home/o/deed.toml)"#);
    }
}
