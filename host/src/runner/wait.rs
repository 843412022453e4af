//! Questions to the owner: approvals, questions of the model, and what came of a call that nobody else can tell.

use deed_journal::{
    Answer, Asked, CommitError, Durability, EXPIRED, Intent, Op, RunStatus, SettledBy, Step, StepEvent,
    StepResult, Wait, WaitId, WaitKind,
};

use super::plan::Question;
use super::{Flow, RunError, Runner, missing};
use crate::boundary::Boundary;

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
        let Question { kind, text: question, options, .. } =
            serde_json::from_value(step.planned.args.clone()).map_err(|error| RunError::Source {
                run: self.run.id,
                reason: format!("the question of step {} is not readable: {error}", step.seq),
            })?;
        let id = WaitId { run: self.run.id, seq: step.seq, revision: 1 };
        Ok(self.asked(id, kind, &step.planned.name, question, options))
    }

    /// An approval or a question, put now.
    pub(super) fn asked(
        &self,
        id: WaitId,
        kind: WaitKind,
        name: &str,
        question: String,
        options: Vec<String>,
    ) -> Asked {
        let opened_ms = self.host.clock.now_ms();
        let expires_ms = self.policy.answer_within_ms.map(|within_ms| opened_ms.saturating_add(within_ms));
        Asked { id, kind, name: name.to_owned(), question, options, opened_ms, expires_ms }
    }

    /// Ask. The question commits with what made it necessary, and is durable before anyone sees it.
    pub(super) fn open(&mut self, asked: Asked) -> Result<(), RunError> {
        self.push(Op::Ask(asked));
        self.run.status = RunStatus::Waiting;
        self.commit_durably()
    }

    /// The answer to an open question, given before or now in place. None: the run waits.
    pub(super) fn answer_to(&mut self, id: WaitId) -> Result<Option<Answer>, RunError> {
        let wait = self.wait(id)?;
        if wait.answer.is_some() {
            self.run.status = RunStatus::Running;
            return Ok(wait.answer);
        }
        self.run.status = RunStatus::Waiting;
        let reply = if wait.asked.has_expired(self.host.clock.now_ms()) {
            None
        } else {
            self.host.owner.ask(&wait.asked)
        };
        let now_ms = self.host.clock.now_ms();
        let (option, text) = match reply {
            // Whoever answers too late has not answered.
            _ if wait.asked.has_expired(now_ms) => (EXPIRED.to_owned(), None),
            Some(reply) => (reply.option, reply.text),
            None => {
                self.commit_durably()?;
                // Somebody else may have answered while this one was asked.
                let answer = self.wait(id)?.answer;
                if answer.is_some() {
                    self.run.status = RunStatus::Running;
                }
                return Ok(answer);
            }
        };
        self.answer(id, option, text).map(Some)
    }

    /// Answer a question, here. Returns the answer that counts: the first one, wherever it came from.
    pub(super) fn answer(
        &mut self,
        id: WaitId,
        option: String,
        text: Option<String>,
    ) -> Result<Answer, RunError> {
        let answer = Answer { option, text, answered_ms: self.host.clock.now_ms() };
        let answered =
            self.host.journal.commit(vec![Op::Answer { id, answer: answer.clone() }], Durability::Riding);
        self.run.status = RunStatus::Running;
        // What it allows may be pure, and nobody is asked again because a process died over it.
        self.make_urgent();
        match answered {
            Ok(_) => Ok(answer),
            Err(CommitError::AnsweredBefore { .. }) => {
                self.wait(id)?.answer.ok_or_else(|| missing(format!("answer to question {id}")))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn wait(&self, id: WaitId) -> Result<Wait, RunError> {
        self.host.journal.read().wait(id)?.ok_or_else(|| missing(format!("question {id}")))
    }

    /// Whether a question has its answer.
    pub(super) fn is_answered(&self, id: WaitId) -> Result<bool, RunError> {
        Ok(self.wait(id)?.answer.is_some())
    }
}
