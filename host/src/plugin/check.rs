//! Whether a component is a plugin, and whether it is one that a model, an owner and a crash can rely on.
//!
//! Loading stops at the first thing that is wrong. A check goes through all of it, and holds a plugin to more: words for
//! models, schemas that are some, answers that are the same twice.

use std::collections::BTreeSet;

use deed_journal::{Digest, EffectClass};
use serde::Serialize;
use serde_json::Value;

use super::needs::Need;
use super::sample::sample;
use crate::engine::{Askable, Described, Engine, LoadError, ToolDescriptor, UnfitFunction, faults_together};
use crate::host_tools::{HOST_PLUGIN, HostTool};

/// What a check found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Of the component's bytes.
    pub digest: Digest,
    /// How many those are.
    pub size_bytes: usize,
    /// Everything that was looked at.
    pub findings: Vec<Finding>,
    /// Its tools, as far as they could be read.
    pub tools: Vec<ToolDescriptor>,
    /// What its imports come to.
    pub needs: BTreeSet<Need>,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it comes to.
    pub level: Level,
    /// What was looked at: `component`, `imports`, `exports`, `describe`, or a tool in backticks.
    pub subject: String,
    /// What was found, and what was expected.
    pub message: String,
}

/// What a finding comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// It works, and probably not as it was meant.
    Warning,
    /// It does not work, or not reliably.
    Error,
}

impl Report {
    /// Whether nothing is wrong. Warnings are no faults.
    pub fn passed(&self) -> bool {
        self.findings.iter().all(|finding| finding.level != Level::Error)
    }
}

/// Check a component; `name` is what messages call it.
pub fn check(engine: &Engine, name: &str, bytes: &[u8]) -> Report {
    let mut report = Report {
        digest: Digest::of(bytes),
        size_bytes: bytes.len(),
        findings: Vec::new(),
        tools: Vec::new(),
        needs: BTreeSet::new(),
    };
    let examined = match engine.examine(name, bytes) {
        Ok(examined) => examined,
        Err(error) => {
            report.error("component", reason(&error));
            return report;
        }
    };
    report.say(Level::Ok, "component", "it compiles");
    let missing = examined.missing_imports();
    for import in &missing {
        report.error("imports", format!("`{import}` is nothing that the host offers"));
    }
    report.needs = Need::of_imports(examined.imports().iter().map(|import| &*import.name));
    if missing.is_empty() {
        let count = examined.imports().len();
        report.say(Level::Ok, "imports", format!("all {count} are offered"));
    } else {
        return report;
    }
    let askable = match examined.ask() {
        Ok(askable) => askable,
        Err(error @ (LoadError::MissingExport { .. } | LoadError::NoTools { .. })) => {
            report.error("exports", reason(&error));
            return report;
        }
        Err(error) => {
            report.error("imports", reason(&error));
            return report;
        }
    };
    if askable.is_foreign() {
        report.say(
            Level::Ok,
            "exports",
            "plain functions: each is a tool, non-idempotent unless `deed plugin add --effect` gives it another class",
        );
    } else {
        let probes = if askable.exports_probe() { "the tools, and a probe" } else { "the tools" };
        report.say(Level::Ok, "exports", probes);
    }
    for UnfitFunction { name, reason } in askable.unfit_functions() {
        report.say(Level::Warning, "exports", format!("`{name}` is no tool: {reason}"));
    }
    let Some(described) = describe(&askable, &mut report) else { return report };
    for (tool, fault) in faults_together(&described) {
        report.error(if tool.is_empty() { "describe".to_owned() } else { format!("`{tool}`") }, fault);
    }
    for tool in &described {
        check_tool(&askable, tool, &mut report);
    }
    check_needs(&mut report);
    report
}

/// An error in its own words, without the name of what is checked, which everybody knows.
fn reason(error: &LoadError) -> String {
    let text = error.to_string();
    let reason = text.split_once("`: ").map_or(&*text, |(_, reason)| reason);
    // The engine shows the bytes that it did not expect one below the other.
    reason.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What the component says of its tools, if that is the same twice.
fn describe(askable: &Askable<'_>, report: &mut Report) -> Option<Vec<Described>> {
    match (askable.describe(0), askable.describe(1)) {
        (Ok(first), Ok(second)) => {
            if first == second {
                report.say(Level::Ok, "describe", "the same at another time, with other randomness");
            } else {
                let message = "it answers differently at another time or with other randomness; a step that is taken on after a crash would meet other tools";
                report.error("describe", message);
            }
            Some(first)
        }
        (Err(abort), _) | (_, Err(abort)) => {
            report.error("describe", abort.to_string());
            None
        }
    }
}

fn check_tool(askable: &Askable<'_>, tool: &Described, report: &mut Report) {
    let subject = format!("`{}`", tool.name);
    let before = report.findings.len();
    let descriptor = match tool.check() {
        Ok(descriptor) => descriptor,
        Err(faults) => {
            for fault in faults {
                report.error(&subject, fault);
            }
            return;
        }
    };
    if tool.description.trim().is_empty() {
        report.error(&subject, "it has no description, and models choose by that");
    }
    if tool.title.trim().is_empty() {
        report.say(Level::Warning, &subject, "it has no title; people see its name in its place");
    }
    if tool.timeout_ms == Some(0) {
        report.error(
            &subject,
            "its `timeout-ms` is 0: every call would be out of time; expected none, or more",
        );
    }
    check_schemas(&descriptor, &subject, report);
    check_traits(askable, &descriptor, &subject, report);
    if let Some(owner) = taken(&tool.name) {
        report.error(
            &subject,
            format!("the name is that of a tool of `{owner}`, which comes with deed; expected another"),
        );
    }
    if tool.traits.refines {
        check_refine(askable, &descriptor, &subject, report);
    }
    if report.findings.len() == before {
        report.say(Level::Ok, &subject, descriptor.effect.to_string());
    }
    report.tools.push(descriptor);
}

/// Whose tool has this name already, of what is always there.
fn taken(name: &str) -> Option<&'static str> {
    HostTool::ALL.iter().any(|tool| tool.name() == name).then_some(HOST_PLUGIN)
}

fn check_schemas(tool: &ToolDescriptor, subject: &str, report: &mut Report) {
    let schemas = [("input", Some(&tool.input_schema)), ("output", tool.output_schema.as_ref())];
    for (what, schema) in schemas.into_iter().filter_map(|(what, schema)| Some((what, schema?))) {
        if let Err(error) = jsonschema::validator_for(schema) {
            report.error(subject, format!("{what} schema: it is no JSON Schema: {error}"));
        }
    }
    let fields = tool.input_schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    for (field, schema) in fields {
        let says = ["description", "$ref", "title"].iter().any(|word| schema.get(word).is_some());
        if !says {
            report.say(Level::Warning, subject, format!("its argument `{field}` has no description"));
        }
    }
}

fn check_traits(askable: &Askable<'_>, tool: &ToolDescriptor, subject: &str, report: &mut Report) {
    let is_pure = tool.effect == EffectClass::Pure;
    if tool.traits.probes && !askable.exports_probe() {
        report.error(
            subject,
            "it says that it probes, and the component does not export `deed:tool/reconcile@0.1.0`",
        );
    }
    for (has, name, why) in [
        (tool.traits.probes, "probes", "a pure call is run again and never probed"),
        (tool.traits.refines, "refines", "nothing is less than pure"),
        (tool.traits.destructive, "destructive", "a pure call changes nothing"),
    ] {
        if is_pure && has {
            report.say(Level::Warning, subject, format!("it is pure and has the trait `{name}`: {why}"));
        }
    }
}

/// Ask it twice about one call that is made up.
fn check_refine(askable: &Askable<'_>, tool: &ToolDescriptor, subject: &str, report: &mut Report) {
    let args = sample(&tool.input_schema).to_string();
    match (askable.refine(&tool.name, &args, 0), askable.refine(&tool.name, &args, 1)) {
        (Ok(first), Ok(second)) if first != second => {
            let message = format!(
                "its `refine` answers differently at another time or with other randomness, about {args}"
            );
            report.error(subject, message);
        }
        (Ok(Ok(plan)), Ok(_)) if plan.effect > tool.effect => {
            let (planned, declared) = (plan.effect, tool.effect);
            let message = format!(
                "its `refine` makes a call {planned} that it declares as {declared}, about {args}: declare the worst case, the host does not take more from `refine`"
            );
            report.error(subject, message);
        }
        (Ok(_), Ok(_)) => {}
        (Err(abort), _) | (_, Err(abort)) => {
            report.error(subject, format!("its `refine`, about {args}: {abort}"));
        }
    }
}

/// Compare what the component imports with what its tools' classes let them have.
fn check_needs(report: &mut Report) {
    if report.tools.is_empty() {
        return;
    }
    for need in report.needs.clone() {
        if need == Need::Sockets || report.tools.iter().any(|tool| need.fits(tool.effect)) {
            // That of sockets is no fault: the standard libraries of many languages import them, used or not.
            continue;
        }
        let message =
            format!("it imports what takes `{need}`, and all its tools are pure, which never get it");
        report.error("imports", message);
    }
}

impl Report {
    fn say(&mut self, level: Level, subject: impl Into<String>, message: impl Into<String>) {
        self.findings.push(Finding { level, subject: subject.into(), message: message.into() });
    }

    fn error(&mut self, subject: impl Into<String>, message: impl Into<String>) {
        self.say(Level::Error, subject, message);
    }
}
