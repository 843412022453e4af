//! Settling a step whose outcome is unknown: by its tool's probe, else by the owner.

use deed_journal::{
    Asked, ProbeVerdict, Probed, RunStatus, SettledBy, StepEvent, StepResult, Unsettled, WaitId, WaitKind,
};

use super::batch::to_value;
use super::{Flow, RunError, Runner};
use crate::arguments::shown_args;
use crate::boundary::Boundary;
use crate::engine::{CallEnd, Output, Verdict};

/// The owner's answers about a call whose outcome is unknown.
const HAPPENED: &str = "happened";
const DID_NOT_HAPPEN: &str = "did-not-happen";
const ABANDON: &str = "abandon";

/// Why the outcome of an attempt is unknown that an earlier process began.
pub(super) const CRASHED: &str = "the process ended before its outcome was recorded";

/// What becomes of a call whose outcome only the owner can tell, when nobody is there to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnUnknown {
    /// The run waits for an answer.
    #[default]
    Ask,
    /// The call is given up, and the run goes on. The model is told that its outcome is unknown.
    Abandon,
    /// The call is given up, and the run ends as failed.
    Fail,
}

impl OnUnknown {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Abandon => "abandon",
            Self::Fail => "fail",
        }
    }
}

/// What reconciling an attempt led to.
pub(super) enum Reconciled {
    /// The step is settled, or the owner is asked.
    Over(Flow),
    /// The attempt did not land, and cannot any more: it may run again. The verdict commits with the next intent.
    NotLanded(Probed),
}

/// What a probe found.
enum Found {
    Landed(Output),
    /// Anything else, with the words for the owner.
    Other(ProbeVerdict, String),
}

impl Runner<'_> {
    /// Find out what came of an attempt whose outcome is unknown, for this reason.
    pub(super) fn reconcile(
        &mut self,
        index: usize,
        attempt: u32,
        reason: &str,
    ) -> Result<Reconciled, RunError> {
        let found = if self.processes_are_gone(index, attempt) {
            self.probe(index, attempt)?
        } else {
            Some(Found::of_held())
        };
        let probed = |verdict| Probed { attempt, verdict, probed_ms: self.host.clock.now_ms() };
        let flow = match found {
            None => self.unsettled(index, attempt, reason.to_owned(), None)?,
            Some(Found::Landed(output)) => {
                let probed = probed(ProbeVerdict::Landed);
                self.record_verdict(index, probed);
                let value = to_value(&Output { landed_before: true, ..output });
                self.settle(index, StepResult::Completed { value }, SettledBy::Probe, true);
                self.reached(self.batch[index].seq, Boundary::AfterCommit)?;
                Flow::On
            }
            Some(Found::Other(verdict @ ProbeVerdict::NotLanded, _)) => {
                return Ok(Reconciled::NotLanded(probed(verdict)));
            }
            Some(Found::Other(verdict, evidence)) => {
                let probed = probed(verdict);
                self.unsettled(index, attempt, format!("{reason}; {evidence}"), Some(probed))?
            }
        };
        Ok(Reconciled::Over(flow))
    }

    /// Ask the tool's probe, if it has one that can be asked.
    fn probe(&mut self, index: usize, attempt: u32) -> Result<Option<Found>, RunError> {
        let Some(plugin) = self.component_of(index) else { return Ok(None) };
        let seq = self.batch[index].seq;
        let granted = self.policy.granted(&self.batch[index].planned.name);
        if !plugin.probes(&self.batch[index].planned.name) {
            return Ok(None);
        }
        self.approach(seq)?;
        let verdict = self.execution_of(index, plugin, granted, attempt).probe();
        if self.host.cancel.is_cancelled() {
            // That it was cut short is no evidence. It is asked again when the run is taken on.
            return self.stop();
        }
        self.reached(seq, Boundary::AfterExec)?;
        Ok(Some(Found::of(verdict)))
    }

    /// Whether no process that an attempt started is left.
    pub(super) fn processes_are_gone(&self, index: usize, attempt: u32) -> bool {
        let seq = self.batch[index].seq;
        // Whoever cannot look has seen nothing.
        self.host
            .beside
            .as_ref()
            .is_none_or(|beside| beside.processes_are_gone(self.run.id, seq, attempt).unwrap_or(false))
    }

    pub(super) fn record_verdict(&mut self, index: usize, probed: Probed) {
        let mut step = self.batch[index].clone();
        self.record(&mut step, StepEvent::Probed(probed));
        self.batch[index] = step;
    }

    /// Nobody but the owner can tell what came of this attempt: record that, with what the probe said, and ask.
    fn unsettled(
        &mut self,
        index: usize,
        attempt: u32,
        reason: String,
        probed: Option<Probed>,
    ) -> Result<Flow, RunError> {
        if let Some(probed) = probed {
            self.record_verdict(index, probed);
        }
        if self.host.on_unknown != OnUnknown::Ask {
            return self.give_up(index, &reason);
        }
        let mut step = self.batch[index].clone();
        let question = format!(
            "Did `{}` (step {}, attempt {attempt}) happen? Its outcome is unknown: {reason}. Its arguments: {}",
            step.planned.name,
            step.seq,
            shown_args(&step.planned.args)
        );
        let asked = Asked {
            id: WaitId { run: self.run.id, seq: step.seq, revision: attempt },
            kind: WaitKind::Reconcile,
            name: step.planned.name.clone(),
            question,
            options: [HAPPENED, DID_NOT_HAPPEN, ABANDON].map(str::to_owned).to_vec(),
            opened_ms: self.host.clock.now_ms(),
            // What is unknown does not become known by waiting.
            expires_ms: None,
        };
        self.record(&mut step, StepEvent::Unsettled(Unsettled { attempt, reason }));
        self.batch[index] = step;
        self.open(asked)?;
        // The batch comes back to this step, and finds the question.
        Ok(Flow::On)
    }

    /// Nobody is there to ask: the operator said beforehand what becomes of the call.
    fn give_up(&mut self, index: usize, reason: &str) -> Result<Flow, RunError> {
        let on_unknown = self.host.on_unknown;
        let reason = format!(
            "the outcome of this call is unknown ({reason}), and it was given up as `--on-unknown {}` says; it may or may not have happened",
            on_unknown.as_str()
        );
        self.settle(index, StepResult::Abandoned { reason: reason.clone() }, SettledBy::Owner, false);
        if on_unknown == OnUnknown::Fail {
            let planned = &self.batch[index].planned;
            let result = format!("step {} `{}`: {reason}", self.batch[index].seq, planned.name);
            return self.end(RunStatus::Failed, Some(result));
        }
        self.make_urgent();
        Ok(Flow::On)
    }

    /// Act on the owner's answer about an attempt. None: it did not happen, run it again.
    pub(super) fn reconciled(&mut self, index: usize, attempt: u32) -> Result<Option<Flow>, RunError> {
        let seq = self.batch[index].seq;
        let id = WaitId { run: self.run.id, seq, revision: attempt };
        let unsettled = self.batch[index].attempts.last().and_then(|attempt| attempt.unsettled.clone());
        let reason = unsettled.map_or_else(String::new, |unsettled| unsettled.reason);
        if self.host.on_unknown != OnUnknown::Ask && !self.is_answered(id)? {
            // The question that an earlier process asked is closed with it, unless somebody was faster.
            let text = format!("--on-unknown {}", self.host.on_unknown.as_str());
            let answer = self.answer(id, ABANDON.to_owned(), Some(text.clone()))?;
            if answer.text == Some(text) {
                return self.give_up(index, &reason).map(Some);
            }
        }
        let Some(answer) = self.answer_to(id)? else {
            return Ok(Some(Flow::Waiting));
        };
        let result = match answer.option.as_str() {
            DID_NOT_HAPPEN => return Ok(None),
            HAPPENED => {
                let when =
                    if reason.starts_with(CRASHED) { "before a crash" } else { "before it ended abnormally" };
                let mut text = format!(
                    "the owner confirmed that this call had already run {when}; it was not run again"
                );
                if let Some(result) = &answer.text {
                    text.push_str("\nits result, as the owner gave it: ");
                    text.push_str(result);
                }
                StepResult::Completed {
                    value: to_value(&Output { landed_before: true, ..Output::text(text) }),
                }
            }
            _ => {
                let why = answer.text.map_or_else(String::new, |text| format!(": {text}"));
                let reason = format!(
                    "the outcome of this call is unknown, and the owner gave it up{why}; it may or may not have happened"
                );
                StepResult::Abandoned { reason }
            }
        };
        let landed_before = matches!(result, StepResult::Completed { .. });
        self.settle(index, result, SettledBy::Owner, landed_before);
        self.reached(seq, Boundary::AfterCommit)?;
        Ok(Some(Flow::On))
    }
}

impl Found {
    /// While a process of the attempt is there, what has not landed yet still may.
    fn of_held() -> Self {
        let why = "a process that it started is still there".to_owned();
        Self::Other(ProbeVerdict::Undecidable { why: why.clone() }, why)
    }

    fn of(verdict: Result<Verdict, CallEnd>) -> Self {
        match verdict {
            Ok(Verdict::Landed(output)) => Self::Landed(output),
            Ok(Verdict::NotLanded) => Self::Other(ProbeVerdict::NotLanded, String::new()),
            Ok(Verdict::Partial(what)) => {
                let evidence = format!("its probe found only a part of it: {what}");
                Self::Other(ProbeVerdict::Partial { what }, evidence)
            }
            Ok(Verdict::Undecidable(why)) => {
                let evidence = format!("its probe cannot tell: {why}");
                Self::Other(ProbeVerdict::Undecidable { why }, evidence)
            }
            Err(end) => {
                let why = match end {
                    CallEnd::Failed(failure) => failure.message,
                    CallEnd::Aborted(abort) => abort.message,
                    // The engine gives a verdict for it.
                    CallEnd::Completed(output) => output.to_text(),
                };
                let evidence = format!("its probe failed: {why}");
                Self::Other(ProbeVerdict::Failed { why }, evidence)
            }
        }
    }
}
