//! Steps that are the host's own work: setup, policy, clock readings, model calls.

use deed_journal::{
    EffectClass, Intent, Outcome, Planned, Probed, Recovery, SettledBy, Step, StepEvent, StepKind, StepResult,
};
use serde_json::{Value, json};

use super::{RunError, Runner};
use crate::boundary::Boundary;

/// What a step of the host's own does.
pub(super) struct OwnStep {
    pub(super) seq: u64,
    pub(super) kind: StepKind,
    pub(super) name: &'static str,
    /// Effectful: its intent becomes durable before it executes, with everything before it.
    pub(super) effect: EffectClass,
}

impl OwnStep {
    pub(super) fn plan(&self, planned_ms: u64) -> Planned {
        Planned::new(self.kind, self.name, self.effect, json!({}), planned_ms)
    }
}

/// The value of a step of the host's own.
pub(super) struct OwnValue {
    pub(super) value: Value,
    pub(super) attempt: u32,
    /// It was recorded by an earlier process; nothing ran.
    pub(super) recorded: bool,
}

impl Runner<'_> {
    /// Settle a step of the host's own, whatever an earlier process did of it, and return its value. Its outcome waits in
    /// the outbox. `execute` failing leaves the step as it is, to be tried again by a resume.
    pub(super) fn own_step(
        &mut self,
        own: &OwnStep,
        execute: impl FnOnce(&mut Self) -> Result<Value, RunError>,
    ) -> Result<OwnValue, RunError> {
        let mut step = self.step_at(own)?;
        self.show(own.seq, own.kind, own.name);
        if let Some(outcome) = &step.outcome {
            let StepResult::Completed { value } = &outcome.result else {
                return Err(self.divergence(&step, "a step that has a value".to_owned()));
            };
            return Ok(OwnValue { value: value.clone(), attempt: outcome.attempt, recorded: true });
        }
        self.approach(own.seq)?;
        self.reached(own.seq, Boundary::BeforeIntent)?;
        let attempt = self.begin(&mut step, None)?;
        self.reached(own.seq, Boundary::AfterIntent)?;
        self.mark_start(&step, attempt)?;
        let value = execute(self)?;
        self.reached(own.seq, Boundary::AfterExec)?;
        self.push_event(
            own.seq,
            StepEvent::Outcome(Outcome {
                attempt,
                result: StepResult::Completed { value: value.clone() },
                settled_by: SettledBy::Execution,
                landed_before: false,
                settled_ms: self.host.clock.now_ms(),
            }),
        );
        Ok(OwnValue { value, attempt, recorded: false })
    }

    /// The step as it is recorded, or planned now.
    fn step_at(&mut self, own: &OwnStep) -> Result<Step, RunError> {
        if let Some(step) = self.host.journal.read().step(self.run.id, own.seq)? {
            if (step.planned.kind, step.planned.name.as_str()) != (own.kind, own.name) {
                return Err(self.divergence(&step, format!("{}/{}", own.kind.as_str(), own.name)));
            }
            return Ok(step);
        }
        let planned = own.plan(self.host.clock.now_ms());
        self.push_event(own.seq, StepEvent::Planned(planned.clone()));
        Ok(Step::new(own.seq, planned))
    }

    pub(super) fn divergence(&self, step: &Step, expected: String) -> RunError {
        let Planned { kind, name, .. } = &step.planned;
        let recorded = format!("{}/{name} ({})", kind.as_str(), step.status().as_str());
        RunError::Divergence { run: self.run.id, seq: step.seq, recorded, expected }
    }

    /// Record the intent of the next attempt and make it durable, with everything before it, unless an intent that never
    /// started is there already. A pure step needs none. `verdict` is what a probe said of the attempt before; it commits
    /// together with the intent that it allows. Returns the attempt.
    pub(super) fn begin(&mut self, step: &mut Step, verdict: Option<Probed>) -> Result<u32, RunError> {
        if !step.planned.effect.is_effectful() {
            return Ok(1);
        }
        let recovery = Recovery::of(step, self.host.journal.started(self.run.id, step));
        let attempt = if let Recovery::Start { attempt } = recovery {
            attempt
        } else {
            let attempt = step.attempt() + 1;
            // Every attempt reads the clock that the first one read.
            let first_ms = step.attempts.first().map(|attempt| attempt.intent.clock_ms);
            let clock_ms = first_ms.unwrap_or_else(|| self.host.clock.now_ms());
            let marks = self.host.journal.mark_place();
            if let Some(verdict) = verdict {
                self.record(step, StepEvent::Probed(verdict));
            }
            self.record(step, StepEvent::Intent(Intent { attempt, clock_ms, marks }));
            attempt
        };
        self.commit_durably()?;
        Ok(attempt)
    }

    /// Say that an effectful attempt starts now.
    pub(super) fn mark_start(&self, step: &Step, attempt: u32) -> Result<(), RunError> {
        if !step.planned.effect.is_effectful() {
            return Ok(());
        }
        let seq = step.seq;
        self.host
            .journal
            .mark_start(self.run.id, seq, attempt)
            .map_err(|source| RunError::Mark { seq, source })
    }

    /// Add an event to a step, here and with the next commit in the journal.
    pub(super) fn record(&mut self, step: &mut Step, event: StepEvent) {
        step.apply(&event).expect("the runner records what follows from the step's status");
        self.push_event(step.seq, event);
    }
}
