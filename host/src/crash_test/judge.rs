//! What a case says about the tool that it is about.

use std::collections::{BTreeMap, BTreeSet};

use deed_journal::{EffectClass, ProbeVerdict, Step};
use serde::Serialize;

use super::case::Case;
use super::difference::{Difference, Verdict, compare, worst};
use super::passage::Passage;
use super::snapshot::{ENVELOPE, Snapshot, error_of, is_tool, verdicts};
use super::tester::Reference;
use super::tools::ToolRow;
use super::trace::{ExecutedEnd, TraceLine};
use crate::boundary::Boundary;

/// What was found of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// Its effect is there more often than once, or not, or another.
    Effects,
    /// It answers differently when it is executed again.
    Answers,
    /// It changes something, although it is declared pure.
    ChangesWorld,
    /// Its probe says what is not so.
    ProbeLies,
    /// Its probe does not come to an answer.
    ProbeFails,
    /// What an earlier attempt saved is handed to it, and it begins anew.
    IgnoresReceipt,
    /// It fails when it is executed again.
    FirstAttemptOnly,
    /// It leaves processes behind.
    LeavesProcess,
    /// The owner has to be asked, although its class says that nobody has to be.
    Asks,
    /// A kill point was not reached, or the run did not come to an end.
    Broken,
    /// As its class says, but worth knowing.
    Note,
    /// What could be better.
    Suggestion,
}

impl FindingKind {
    /// Whether a claim of the tool does not hold.
    pub const fn is_failure(self) -> bool {
        !matches!(self, Self::Note | Self::Suggestion)
    }
}

/// Something that was found of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The tool.
    pub tool: String,
    /// What it is.
    pub kind: FindingKind,
    /// In words.
    pub message: String,
    /// The cases that show it.
    pub cases: Vec<Case>,
}

/// One case, run and read.
pub(super) struct Evidence<'a> {
    pub(super) case: Case,
    pub(super) passage: &'a Passage,
    pub(super) snapshot: Option<&'a Snapshot>,
    pub(super) trace: &'a [TraceLine],
}

/// What a case came to.
pub(super) struct Judgement {
    pub(super) verdict: Verdict,
    pub(super) differences: Vec<Difference>,
    pub(super) findings: Vec<(FindingKind, String)>,
    /// The step that it is about.
    pub(super) seq: Option<u64>,
}

/// Compare a case with the undisturbed run.
pub(super) fn judge(
    reference: &Reference,
    tools: &BTreeMap<String, ToolRow>,
    evidence: &Evidence<'_>,
) -> Judgement {
    let Evidence { case, passage, snapshot, trace } = *evidence;
    let seq = case.seq().or_else(|| snapshot.and_then(interrupted));
    let broken = |message: String, verdict| Judgement {
        verdict,
        differences: Vec::new(),
        findings: vec![(FindingKind::Broken, message)],
        seq,
    };
    if let Some(why) = &passage.broken {
        return broken(format!("the run did not come to its end: {why}"), Verdict::Broken);
    }
    let Some(snapshot) = snapshot else {
        return broken("the run left nothing that could be read".to_owned(), Verdict::Broken);
    };
    if passage.kills == 0 {
        return broken(format!("no process died at {case}, so nothing was tested"), Verdict::NotReached);
    }
    let mut except = reference.except.clone();
    for asked in passage.reconciled() {
        // What the owner tells is told in other words.
        except.steps.insert(asked.seq);
        if asked.answer == "abandon" {
            except.given_up.insert(asked.seq);
        }
    }
    let (mut expected, mut found) = (reference.snapshot.parts(&except), snapshot.parts(&except));
    if !except.given_up.is_empty() {
        expected.remove(ENVELOPE);
        found.remove(ENVELOPE);
    }
    let differences = compare(&expected, &found);
    let asked: BTreeSet<u64> = passage.reconciled().map(|asked| asked.seq).collect();
    let asked_in_reference: BTreeSet<u64> = reference.passage.reconciled().map(|asked| asked.seq).collect();
    let verdict = worst(&differences).unwrap_or(if asked.is_subset(&asked_in_reference) {
        Verdict::Once
    } else {
        Verdict::Asked
    });
    let step = seq.and_then(|seq| snapshot.step(seq)).filter(|step| is_tool(step));
    let mut findings = Vec::new();
    if let Some(step) = step {
        let original = reference.snapshot.step(step.seq);
        let subject = Subject {
            step,
            original,
            tool: tools.get(&step.planned.name),
            case,
            trace,
            verdict,
            differences: &differences,
        };
        findings = subject.findings();
    } else if !differences.is_empty() {
        findings.push((FindingKind::Broken, briefs(&differences)));
    }
    Judgement { verdict, differences, findings, seq }
}

/// The step that a power cut interrupted, as far as it shows.
fn interrupted(snapshot: &Snapshot) -> Option<u64> {
    let again =
        |step: &&Step| step.attempts.len() > 1 || step.attempts.iter().any(|it| it.unsettled.is_some());
    snapshot.steps.iter().find(again).map(|step| step.seq)
}

/// The first few differences, in words.
pub(super) fn briefs(differences: &[Difference]) -> String {
    const SHOWN: usize = 3;
    let mut text: Vec<_> = differences.iter().take(SHOWN).map(Difference::brief).collect();
    if differences.len() > SHOWN {
        text.push(format!("and {} more", differences.len() - SHOWN));
    }
    text.join("; ")
}

/// A killed call and what is known of it.
struct Subject<'a> {
    step: &'a Step,
    original: Option<&'a Step>,
    tool: Option<&'a ToolRow>,
    case: Case,
    trace: &'a [TraceLine],
    verdict: Verdict,
    differences: &'a [Difference],
}

impl Subject<'_> {
    fn findings(&self) -> Vec<(FindingKind, String)> {
        let mut findings = Vec::new();
        let lies = self.probe_lies();
        let receipt = self.ignores_receipt();
        let first_only = self.first_attempt_only();
        let specific = lies.is_some() || receipt.is_some() || first_only.is_some();
        findings.extend(lies.map(|message| (FindingKind::ProbeLies, message)));
        findings.extend(receipt.map(|message| (FindingKind::IgnoresReceipt, message)));
        findings.extend(first_only.map(|message| (FindingKind::FirstAttemptOnly, message)));
        findings.extend(self.probe_fails().map(|message| (FindingKind::ProbeFails, message)));
        findings.extend(self.answers_differ().map(|message| (FindingKind::Answers, message)));
        if !specific && self.verdict > Verdict::NotReached {
            findings.push((FindingKind::Effects, self.effects()));
        }
        if self.verdict == Verdict::Asked && !self.may_ask() {
            let class = self.class();
            let message = format!("declared {class}, and the owner is asked what became of it");
            findings.push((FindingKind::Asks, message));
        }
        findings
    }

    fn class(&self) -> String {
        let planned = self.step.planned.effect;
        let declared = self.tool.map_or(planned, |tool| tool.effect);
        if declared == planned {
            format!("`{declared}`")
        } else {
            format!("`{declared}`, called as `{planned}`")
        }
    }

    /// How each execution of the step ended, oldest first.
    fn executions(&self) -> impl Iterator<Item = (u32, &ExecutedEnd)> {
        self.trace.iter().filter_map(|line| match line {
            TraceLine::Executed { seq, attempt, end } if *seq == self.step.seq => Some((*attempt, end)),
            _ => None,
        })
    }

    /// "observed 2 effects: …"
    fn effects(&self) -> String {
        let executions = self.executions().count();
        let what = match self.verdict {
            Verdict::Repeated => format!("observed {} effects", executions.max(2)),
            Verdict::Lost => "its effect is lost".to_owned(),
            _ => format!("not the same after {executions} executions"),
        };
        format!("declared {}, {what}: {}", self.class(), briefs(self.differences))
    }

    fn may_ask(&self) -> bool {
        let planned = &self.step.planned;
        if planned.effect != EffectClass::NonIdempotent || planned.contained {
            return false;
        }
        // A probe that could not be asked, or that does not work, is a finding of its own.
        let has_probe = self.tool.is_some_and(|tool| tool.probes);
        !has_probe || verdicts(self.step).all(|(_, verdict)| !matches!(verdict, ProbeVerdict::Landed))
    }

    /// What a probe said, against what is known: an attempt that completed had its effect, and one that was killed at its
    /// first call of the host had none.
    fn probe_lies(&self) -> Option<String> {
        let point = self.case.first()?;
        let completed = |attempt: u32| {
            self.executions().any(|(of, end)| of == attempt && matches!(end, ExecutedEnd::Completed(_)))
        };
        verdicts(self.step).find_map(|(attempt, verdict)| match verdict {
            ProbeVerdict::NotLanded if completed(attempt) => Some(format!(
                "its probe says `not-landed` of attempt {attempt}, which had completed: {}",
                self.consequence()
            )),
            ProbeVerdict::Landed if attempt == 1 && point.boundary < Boundary::MidExec => None,
            ProbeVerdict::Landed if attempt == 1 && point.boundary == Boundary::MidExec => Some(format!(
                "its probe says `landed` of attempt 1, which was killed before it could do anything: {}",
                self.consequence()
            )),
            _ => None,
        })
    }

    fn consequence(&self) -> String {
        if self.differences.is_empty() {
            "nothing came of it here".to_owned()
        } else {
            briefs(self.differences)
        }
    }

    fn probe_fails(&self) -> Option<String> {
        verdicts(self.step).find_map(|(attempt, verdict)| match verdict {
            ProbeVerdict::Failed { why } => {
                Some(format!("its probe of attempt {attempt} does not come to an answer: {}", one_line(why)))
            }
            _ => None,
        })
    }

    /// The effect is there twice although the second attempt was told how far the first one had come.
    fn ignores_receipt(&self) -> Option<String> {
        let saved = self.step.attempts.first().is_some_and(|attempt| attempt.receipts > 0);
        let again = self.executions().any(|(attempt, _)| attempt > 1);
        (saved && again && self.verdict == Verdict::Repeated).then(|| {
            format!(
                "declared {}, attempt 2 is handed the receipt of attempt 1 and begins anew: {}",
                self.class(),
                briefs(self.differences)
            )
        })
    }

    /// It completes undisturbed, and fails when it is executed again.
    fn first_attempt_only(&self) -> Option<String> {
        let error = error_of(self.step)?;
        let had_completed = self.original.is_some_and(|step| error_of(step).is_none());
        (had_completed && self.step.attempt() > 1).then(|| {
            format!(
                "declared {}, attempt {} fails where attempt 1 completes: {}",
                self.class(),
                self.step.attempt(),
                one_line(error)
            )
        })
    }

    /// A pure call is executed again from the same state, and says something else.
    fn answers_differ(&self) -> Option<String> {
        if self.step.planned.effect != EffectClass::Pure {
            return None;
        }
        let mut ends = self.executions().map(|(_, end)| end);
        let first = ends.next()?;
        let other = ends.find(|end| *end != first)?;
        Some(format!("declared `pure`, {}", two_answers(&shown(first), &shown(other))))
    }
}

/// Two answers that should be one.
pub(super) fn two_answers(first: &str, other: &str) -> String {
    format!("answers differently when it is executed again: `{first}`, then `{other}`")
}

fn shown(end: &ExecutedEnd) -> String {
    let text = match end {
        ExecutedEnd::Completed(value) => match value["content"][0]["text"].as_str() {
            Some(text) => text.to_owned(),
            None => value.to_string(),
        },
        ExecutedEnd::Failed(message) => format!("error: {message}"),
    };
    one_line(&text)
}

/// A text of several lines as one, and not too long.
pub(super) fn one_line(text: &str) -> String {
    const SHOWN: usize = 240;
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
