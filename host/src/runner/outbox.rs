//! The outbox: what has happened in memory and is not committed yet, and how it must be committed.
//!
//! The commit plan in one place. An operation waits here for the next commit that is due anyway: the intent of the next
//! effectful call, the next model request, the end. What may not wait that long is urgent.

use std::sync::Arc;

use deed_journal::{Durability, MessageBody, Op, Run, Step, StepEvent};

use super::{RunError, Runner};
use crate::stage::Stage;
use crate::turns::Turn;

/// Operations on their way to the journal.
#[derive(Debug)]
pub(super) struct Outbox {
    ops: Vec<Op>,
    /// They must be durable before anything else executes: a batch that was planned, the outcome of a non-idempotent call,
    /// an answer of the owner.
    urgent: bool,
    /// The run's head record as the journal has it.
    committed: Run,
    /// The turn that a publication has until the mark of its end is durable, and the stage that it came from.
    published: Option<(Option<Arc<Turn>>, Stage)>,
    /// Settled steps and their attempts, whose locks are of no more use once that is durable.
    settled: Vec<(u64, u32)>,
}

impl Outbox {
    pub(super) fn new(committed: &Run) -> Self {
        Self {
            ops: Vec::new(),
            urgent: false,
            committed: committed.clone(),
            published: None,
            settled: Vec::new(),
        }
    }
}

impl Runner<'_> {
    /// Add an event to a step, in the journal with the next commit.
    pub(super) fn push_event(&mut self, seq: u64, event: StepEvent) {
        self.outbox.ops.push(Op::Step { run: self.run.id, seq, event });
    }

    pub(super) fn push(&mut self, op: Op) {
        self.outbox.ops.push(op);
    }

    /// Extend the transcript, in the journal with the next commit.
    pub(super) fn tell(&mut self, messages: Vec<MessageBody>) {
        if messages.is_empty() {
            return;
        }
        let base = self.session.base();
        let extended = self.session.extend(&messages);
        if let Some(transcript) = &mut self.transcript {
            transcript.extend(extended);
        }
        self.outbox.ops.push(Op::Append { session: self.run.session, base, messages });
    }

    /// The outcome of `step` waits here: until it is durable, whoever comes next looks for the processes of its attempts.
    pub(super) fn forget_calls_once_durable(&mut self, step: &Step) {
        if !step.attempts.is_empty() {
            self.outbox.settled.push((step.seq, step.attempt()));
        }
    }

    /// The mark of a publication waits here. Until it is durable, nobody else may change the workspace: recovery would compare
    /// with what is there.
    pub(super) fn release_once_durable(&mut self, turn: Option<Arc<Turn>>, stage: Stage) {
        self.outbox.published = Some((turn, stage));
        self.outbox.urgent = true;
    }

    /// The turn that is held for a publication.
    pub(super) fn held_turn(&self) -> Option<Arc<Turn>> {
        self.outbox.published.as_ref().and_then(|(turn, _)| turn.clone())
    }

    /// What waits here must be durable before anything else executes.
    pub(super) fn make_urgent(&mut self) {
        self.outbox.urgent = true;
    }

    /// Something that needs no commit of its own is about to execute: let what waits here go as it may, riding unless it
    /// is urgent.
    pub(super) fn release(&mut self) -> Result<(), RunError> {
        let durability = if self.outbox.urgent { Durability::Durable } else { Durability::Riding };
        self.commit(durability)
    }

    /// Commit what waits here; it and everything before it is durable when this returns. Without anything new this
    /// costs a sync only if something still rides.
    pub(super) fn commit_durably(&mut self) -> Result<(), RunError> {
        self.commit(Durability::Durable)
    }

    fn commit(&mut self, durability: Durability) -> Result<(), RunError> {
        let mut ops = std::mem::take(&mut self.outbox.ops);
        self.outbox.urgent = false;
        if self.run != self.outbox.committed {
            ops.push(Op::UpdateRun(Box::new(self.run.clone())));
            self.outbox.committed = self.run.clone();
        }
        if ops.is_empty() && durability == Durability::Riding {
            return Ok(());
        }
        self.host.journal.commit(ops, durability)?;
        if durability != Durability::Riding {
            if let Some((turn, stage)) = self.outbox.published.take() {
                // What is left of either is looked at again by whoever comes next, and found to be over.
                let _ = turn.map(|turn| turn.end_publishing());
                let _ = stage.remove();
            }
            for (seq, attempts) in std::mem::take(&mut self.outbox.settled) {
                if let Some(beside) = &self.host.beside {
                    beside.forget_calls(self.run.id, seq, attempts);
                }
            }
        }
        Ok(())
    }
}
