//! Admission: what must hold when a planned call starts, perhaps long after it was planned.

use deed_journal::{EffectState, Probed, SettledBy, Step, StepError, StepResult, WaitId};

use super::plan::{APPROVE, Question, approval, denied};
use super::{Flow, RunError, Runner};
use crate::engine::Plugin;
use crate::policy::{Decision, SourcedRule};

impl Runner<'_> {
    /// Whether a call of which nothing has happened may start. None: it may; else it was settled, or waits for an approval
    /// that a policy which became stricter asks for. `verdict` is by what that is known, if a probe said it.
    pub(super) fn admit(&mut self, index: usize, verdict: Option<&Probed>) -> Result<Option<Flow>, RunError> {
        let step = self.batch[index].clone();
        let toolbox = &self.host.toolbox;
        let is_compiled =
            |digest| toolbox.installed(digest).is_some_and(|plugin| toolbox.engine().is_compiled(plugin));
        if step.planned.component.is_some_and(|digest| !is_compiled(digest)) {
            // It may be compiled now, which takes its time, and what has ended is not to be in doubt meanwhile.
            self.commit_durably()?;
        }
        if step.attempts.is_empty() && self.component_of(index).is_none() {
            let component = step.planned.component.map_or_else(String::new, |digest| digest.to_string());
            let message = format!(
                "`{}` was not called: it was planned with component {component}, which is gone; plan it again to call the version that is installed",
                step.planned.name
            );
            self.refuse(
                index,
                StepError { kind: "component-gone".to_owned(), message, effect: EffectState::NotApplied },
            );
            return Ok(Some(Flow::On));
        }
        let Some(rule) = self.tightening(&step) else { return Ok(None) };
        match rule.rule.decision {
            Decision::Allow => Ok(None),
            Decision::Deny => {
                if let Some(verdict) = verdict {
                    self.record_verdict(index, verdict.clone());
                }
                self.refuse(index, denied(&step.planned, &rule));
                Ok(Some(Flow::On))
            }
            Decision::Ask => self.late_approval(index, &step),
        }
    }

    /// Whether a call may start that nothing stands in the way of: for the neighbours of a pure call.
    pub(super) fn is_admitted(&self, index: usize) -> bool {
        self.component_of(index).is_some() && self.tightening(&self.batch[index]).is_none()
    }

    /// The rule by which today's policy is stricter with a step than the one it was planned with.
    fn tightening(&self, step: &Step) -> Option<SourcedRule> {
        let today = self.current_policy();
        if today == self.policy {
            return None;
        }
        let planned = &step.planned;
        let decision =
            |rule: &Option<SourcedRule>| rule.as_ref().map_or(Decision::Allow, |rule| rule.rule.decision);
        let then = self.policy.decide(&planned.name, &planned.args);
        let now = today.decide(&planned.name, &planned.args);
        now.clone().filter(|_| decision(&now) > decision(&then))
    }

    /// The numbers of the steps are given out, so this approval is a question of the call's own step.
    fn late_approval(&mut self, index: usize, step: &Step) -> Result<Option<Flow>, RunError> {
        let id = WaitId { run: self.run.id, seq: step.seq, revision: 0 };
        if self.host.journal.read().wait(id)?.is_none() {
            let Question { kind, text, options, .. } = approval(&step.planned);
            let asked = self.asked(id, kind, &step.planned.name, text, options);
            self.open(asked)?;
        }
        let Some(answer) = self.answer_to(id)? else { return Ok(Some(Flow::Waiting)) };
        if answer.option == APPROVE {
            return Ok(None);
        }
        self.refuse(index, super::batch::denied_by_owner(&step.planned.name, &answer));
        Ok(Some(Flow::On))
    }

    fn refuse(&mut self, index: usize, error: StepError) {
        self.settle(index, StepResult::Failed { error }, SettledBy::Refusal, false);
    }

    /// The component that a step is bound to; none when it is gone.
    pub(super) fn component_of(&self, index: usize) -> Option<Plugin> {
        let planned = &self.batch[index].planned;
        self.host.component(planned.component?, &planned.name)
    }
}
