//! What is said of a tool when all of its cases are known.

use std::collections::BTreeMap;

use deed_journal::{EffectClass, Step};

use super::difference::{Verdict, compare};
use super::judge::{Finding, FindingKind, briefs, one_line, two_answers};
use super::report::{OWN_STEPS, ToolReport};
use super::snapshot::is_tool;
use super::sweep::Tried;
use super::tester::Reference;
use super::tools::ToolRow;
use super::trace::TraceLine;
use crate::boundary::Boundary;

/// Everything that was found, by tool, and each tool's part in the run.
pub(super) fn summarise(
    reference: &Reference,
    tools: &BTreeMap<String, ToolRow>,
    tried: &[Tried],
) -> (Vec<ToolReport>, Vec<Finding>) {
    let mut found: Vec<Finding> = Vec::new();
    for it in tried {
        let tool = it.report.row();
        found.extend(it.findings.iter().map(|(kind, message)| Finding {
            tool: tool.to_owned(),
            kind: *kind,
            message: message.clone(),
            cases: vec![it.report.case],
        }));
    }
    let calls = calls(reference);
    found.extend(unsteady(reference, tools));
    found.extend(left_behind(reference, tried));
    for (name, steps) in &calls {
        let Some(tool) = tools.get(*name) else { continue };
        let of_tool = Of { name, tool, steps, tried };
        found.extend(of_tool.world());
        found.extend(of_tool.questions());
    }
    // Of a tool that was left out nothing is said.
    found.retain(|finding| {
        tried.iter().any(|it| it.report.row() == finding.tool) || finding.tool == OWN_STEPS
    });
    let found = super::report::merge(found);
    let accused = super::report::accused(&found);
    let reports = calls.iter().filter_map(|(name, steps)| {
        let tool = tools.get(*name)?;
        let mut called: Vec<EffectClass> = Vec::new();
        for step in steps {
            if !called.contains(&step.planned.effect) {
                called.push(step.planned.effect);
            }
        }
        Some(ToolReport {
            name: (*name).to_owned(),
            plugin: tool.plugin.clone(),
            digest: tool.digest,
            declared: tool.effect,
            called,
            contained: steps.iter().any(|step| step.planned.contained),
            probes: tool.probes,
            calls: steps.len(),
            holds: !accused.contains(name),
        })
    });
    (reports.collect(), found)
}

/// The calls of each tool, in the order in which tools come first.
fn calls(reference: &Reference) -> Vec<(&str, Vec<&Step>)> {
    let mut calls: Vec<(&str, Vec<&Step>)> = Vec::new();
    for step in reference.snapshot.steps.iter().filter(|step| is_tool(step)) {
        match calls.iter_mut().find(|(name, _)| *name == step.planned.name) {
            Some((_, steps)) => steps.push(step),
            None => calls.push((&step.planned.name, vec![step])),
        }
    }
    calls
}

/// What is another in every undisturbed run.
fn unsteady(reference: &Reference, tools: &BTreeMap<String, ToolRow>) -> Vec<Finding> {
    let of = |it: &super::tester::Unsteady| {
        let step = it.seq.and_then(|seq| reference.snapshot.step(seq)).filter(|step| is_tool(step));
        let Some(step) = step else {
            let message = format!(
                "differs between two undisturbed runs, so it is not compared: {}",
                it.difference.brief()
            );
            return Finding {
                tool: OWN_STEPS.to_owned(),
                kind: FindingKind::Note,
                message,
                cases: Vec::new(),
            };
        };
        let name = step.planned.name.clone();
        let text = |side: &Option<String>| told(side.as_deref().unwrap_or_default());
        let answers = two_answers(&text(&it.difference.expected), &text(&it.difference.found));
        let is_pure = tools.get(&name).is_some_and(|tool| tool.effect == EffectClass::Pure);
        if is_pure {
            let message = format!("declared `pure`, {answers}, also where nobody is killed");
            Finding { tool: name, kind: FindingKind::Answers, message, cases: Vec::new() }
        } else {
            let message = format!("its result is not compared: it {answers}, also where nobody is killed");
            Finding { tool: name, kind: FindingKind::Note, message, cases: Vec::new() }
        }
    };
    reference.unsteady.iter().map(of).collect()
}

/// The text of a tool's message.
fn told(message: &str) -> String {
    let value: Option<serde_json::Value> = serde_json::from_str(message).ok();
    let text = value.as_ref().and_then(|value| value["result"]["text"].as_str());
    one_line(text.unwrap_or(message))
}

fn left_behind(reference: &Reference, tried: &[Tried]) -> Vec<Finding> {
    let lines = reference.trace.iter().map(|line| (None, line));
    let of_cases = tried.iter().flat_map(|it| it.trace.iter().map(|line| (Some(it.report.case), line)));
    let found = lines.chain(of_cases).filter_map(|(case, line)| {
        let TraceLine::LeftBehind { seq, program } = line else { return None };
        let step = reference.snapshot.step(*seq)?;
        let message = format!(
            "leaves processes behind: when `{program}` ended, others that it had started still ran, and were ended with it"
        );
        let tool = step.planned.name.clone();
        let cases = case.into_iter().filter(|case| case.seq() == Some(*seq)).collect();
        Some(Finding { tool, kind: FindingKind::LeavesProcess, message, cases })
    });
    found.collect()
}

/// A tool, its calls and all cases.
struct Of<'a> {
    name: &'a str,
    tool: &'a ToolRow,
    steps: &'a [&'a Step],
    tried: &'a [Tried],
}

impl Of<'_> {
    fn finding(&self, kind: FindingKind, message: String) -> Finding {
        Finding { tool: self.name.to_owned(), kind, message, cases: Vec::new() }
    }

    fn at(&self, seq: u64, boundary: Boundary) -> Option<&Tried> {
        let mut at = self.tried.iter().filter(|it| it.report.seq == Some(seq));
        at.find(|it| it.report.boundary == Some(boundary) && it.report.case.second().is_none())
    }

    /// The world before each call and after it has executed.
    fn world(&self) -> Option<Finding> {
        let mut same = 0;
        for step in self.steps {
            let before = self.at(step.seq, Boundary::BeforeIntent)?.at_kill.as_ref()?;
            let after = self.at(step.seq, Boundary::AfterExec)?;
            let differences = compare(&before.parts, &after.at_kill.as_ref()?.parts);
            if !differences.is_empty() && self.tool.effect == EffectClass::Pure {
                let message = format!("declared `pure`, and changes something: {}", briefs(&differences));
                let case = after.report.case;
                return Some(Finding {
                    cases: vec![case],
                    ..self.finding(FindingKind::ChangesWorld, message)
                });
            }
            same += usize::from(differences.is_empty());
        }
        let is_candidate = self.tool.effect != EffectClass::Pure && !self.tool.open_world;
        (is_candidate && same == self.steps.len() && same > 1).then(|| {
            let message = format!(
                "declared `{}`, and none of its {same} calls changed anything that was looked at: `pure` would be cheaper, if that is all it does; else add an observer",
                self.tool.effect
            );
            self.finding(FindingKind::Suggestion, message)
        })
    }

    /// At how many points the owner is asked, and what would spare it.
    fn questions(&self) -> Vec<Finding> {
        let cases = || self.tried.iter().filter(|it| it.report.tool.as_deref() == Some(self.name));
        let asked = cases().filter(|it| it.report.verdict == Verdict::Asked).count();
        if asked == 0 || self.tool.effect != EffectClass::NonIdempotent {
            return Vec::new();
        }
        let probe = if self.tool.probes { "its probe could not tell" } else { "no probe" };
        let note = format!(
            "declared `non-idempotent`, {probe}: {asked} of {} points end with a question",
            cases().count()
        );
        let mut found = vec![self.finding(FindingKind::Note, note)];
        if !self.tool.probes {
            let message = "a probe that looks for the effect would spare the owner the question".to_owned();
            found.push(self.finding(FindingKind::Suggestion, message));
        }
        found
    }
}
