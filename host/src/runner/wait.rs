//! Questions to the owner: approvals, questions of the model, and what came of a call that nobody else can tell.

use deed_journal::{
    Answer, Asked, Intent, Op, RunStatus, SettledBy, Step, StepEvent, StepResult, Unsettled, WaitId, WaitKind,
};

use super::batch::to_value;
use super::plan::Question;
use super::{Flow, RunError, Runner, missing};
use crate::arguments::shown_args;
use crate::boundary::Boundary;
use crate::engine::Output;

/// The owner's answers about a call whose outcome is unknown.
const HAPPENED: &str = "happened";
const DID_NOT_HAPPEN: &str = "did-not-happen";
const ABANDON: &str = "abandon";

/// Why the outcome of an attempt is unknown that an earlier process began.
pub(super) const CRASHED: &str = "the process ended before its outcome was recorded";

impl Runner<'_> {
    /// A step that is a question: ask it, and settle it with the answer.
    pub(super) fn wait_step(&mut self, index: usize) -> Result<Flow, RunError> {
        let mut step = self.batch[index].clone();
        let seq = step.seq;
        self.approach(seq)?;
        if step.attempts.is_empty() {
            self.reached(seq, Boundary::BeforeIntent)?;
            let asked = self.question_of(&step)?;
            let intent = Intent { attempt: 1, clock_ms: asked.opened_ms, marks: None };
            self.record(&mut step, StepEvent::Intent(intent));
            self.batch[index] = step;
            self.open(asked)?;
            self.reached(seq, Boundary::AfterIntent)?;
        }
        let Some(answer) = self.answer_to(WaitId { run: self.run.id, seq, revision: 1 })? else {
            return Ok(Flow::Waiting);
        };
        self.reached(seq, Boundary::AfterExec)?;
        let value = serde_json::to_value(answer).expect("an answer has text keys only");
        self.settle(index, StepResult::Completed { value }, SettledBy::Owner, false);
        self.reached(seq, Boundary::AfterCommit)?;
        Ok(Flow::On)
    }

    fn question_of(&self, step: &Step) -> Result<Asked, RunError> {
        let Question { kind, text: question, options } = serde_json::from_value(step.planned.args.clone())
            .map_err(|error| RunError::Source {
                run: self.run.id,
                reason: format!("the question of step {} is not readable: {error}", step.seq),
            })?;
        Ok(Asked {
            id: WaitId { run: self.run.id, seq: step.seq, revision: 1 },
            kind,
            name: step.planned.name.clone(),
            question,
            options,
            opened_ms: self.host.clock.now_ms(),
            expires_ms: None,
        })
    }

    /// Nobody but the owner can tell what came of this attempt: record that, and ask.
    pub(super) fn reconcile(&mut self, index: usize, attempt: u32, reason: String) -> Result<Flow, RunError> {
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
            expires_ms: None,
        };
        self.record(&mut step, StepEvent::Unsettled(Unsettled { attempt, reason }));
        self.batch[index] = step;
        self.open(asked)?;
        // The batch comes back to this step, and finds the question.
        Ok(Flow::On)
    }

    /// Act on the owner's answer about an attempt. None: it did not happen, run it again.
    pub(super) fn reconciled(&mut self, index: usize, attempt: u32) -> Result<Option<Flow>, RunError> {
        let seq = self.batch[index].seq;
        let Some(answer) = self.answer_to(WaitId { run: self.run.id, seq, revision: attempt })? else {
            return Ok(Some(Flow::Waiting));
        };
        let result = match answer.option.as_str() {
            DID_NOT_HAPPEN => return Ok(None),
            HAPPENED => {
                let last = self.batch[index].attempts.last().and_then(|attempt| attempt.unsettled.as_ref());
                let when = match last {
                    Some(unsettled) if unsettled.reason != CRASHED => "before it ended abnormally",
                    _ => "before a crash",
                };
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
        Ok(Some(Flow::On))
    }

    /// Ask. The question commits with what made it necessary, and is durable before anyone sees it.
    fn open(&mut self, asked: Asked) -> Result<(), RunError> {
        self.push(Op::Ask(asked));
        self.run.status = RunStatus::Waiting;
        self.commit_durably()
    }

    /// The answer to an open question, given before or now in place. None: the run waits.
    fn answer_to(&mut self, id: WaitId) -> Result<Option<Answer>, RunError> {
        let wait = self.host.journal.read().wait(id)?.ok_or_else(|| missing(format!("question {id}")))?;
        if wait.answer.is_some() {
            self.run.status = RunStatus::Running;
            return Ok(wait.answer);
        }
        self.run.status = RunStatus::Waiting;
        let Some(reply) = self.host.owner.ask(&wait.asked) else {
            self.commit_durably()?;
            return Ok(None);
        };
        self.run.status = RunStatus::Running;
        let answer = Answer { option: reply.option, text: reply.text, answered_ms: self.host.clock.now_ms() };
        self.push(Op::Answer { id, answer: answer.clone() });
        // What it allows may be pure, and nobody is asked again because a process died over it.
        self.make_urgent();
        Ok(Some(answer))
    }
}
