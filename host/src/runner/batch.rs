//! A batch: its steps, one after the other, neighbouring pure calls in parallel.

use std::path::Path;
use std::sync::{Arc, mpsc};

use deed_journal::{
    Answer, EXPIRED, EffectClass, EffectState, MessageBody, Outcome, Position, Recovery, RunKind, RunStatus,
    SettledBy, Step, StepError, StepEvent, StepKind, StepResult, ToolResult, WaitKind,
};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::execute::{Execution, Request};
use super::plan::{APPROVE, Bound, Question};
use super::reconcile::{CRASHED, Reconciled};
use super::{Flow, RunError, Runner, missing};
use crate::boundary::{Boundary, KillPoint};
use crate::engine::{CallEnd, LogLevel, Output, Plugin};
use crate::grants::Granted;
use crate::host_tools::{self, HostTool};
use crate::turns::{Turn, WorkspaceLock};

/// Pure calls that run at once; more wait for the next group. Guests share the cores, so more only adds memory: eight
/// at their limit are 2 GiB.
const PARALLEL_CALLS: usize = 8;

/// Executions of one idempotent call in a row that end abnormally before the owner is asked. The first may have met a
/// passing fault, the second tells a passing one from a lasting one, the third is for luck.
const ABNORMAL_ENDS: u32 = 3;

impl<'h> Runner<'h> {
    /// Take the batch on until all its steps are settled, or one waits.
    pub(super) fn batch(&mut self, first: u64, last: u64) -> Result<Flow, RunError> {
        while let Some(index) = self.batch.iter().position(|step| step.outcome.is_none() || step.is_pending())
        {
            self.stop_if_asked()?;
            if self.batch[index].is_pending() {
                if let Flow::Waiting = self.publish_pending(index)? {
                    return Ok(Flow::Waiting);
                }
                continue;
            }
            let seq = first + index as u64;
            let step = &self.batch[index];
            if !self.is_pure_call(index) {
                self.show(seq, step.planned.kind, &step.planned.name);
            }
            let starts = step.planned.kind == StepKind::ToolCall && !self.is_inline(index)?;
            let pure = starts && !self.batch[index].planned.effect.is_effectful();
            if pure && let Some(flow) = self.admit(index, None)? {
                if matches!(flow, Flow::Waiting) {
                    return Ok(flow);
                }
                continue;
            }
            let step = &self.batch[index];
            let flow = match step.planned.kind {
                StepKind::Wait => self.wait_step(index)?,
                StepKind::Now => self.settle_inline(index)?,
                StepKind::ToolCall if !starts => self.settle_inline(index)?,
                StepKind::ToolCall if step.planned.effect.is_effectful() => self.effectful(index)?,
                StepKind::ToolCall => self.pure_group(index)?,
                _ => return Err(self.divergence(step, "a step of a batch".to_owned())),
            };
            if matches!(flow, Flow::Waiting) || self.run.position == Position::End {
                return Ok(flow);
            }
        }
        self.finish_batch(last)
    }

    /// All steps are settled: what comes next?
    fn finish_batch(&mut self, last: u64) -> Result<Flow, RunError> {
        let completed = |step: &Step| match &step.outcome.as_ref()?.result {
            StepResult::Completed { value } => Some(value.clone()),
            _ => None,
        };
        let all_completed = self.batch.iter().all(|step| completed(step).is_some());
        match self.run.kind {
            RunKind::Mission => {
                let finished = self.batch.iter().rfind(|step| is_finish(step)).and_then(completed);
                if let Some(summary) = finished {
                    return self.end(RunStatus::Done, summary["structured"].as_str().map(str::to_owned));
                }
                self.run.position = Position::Turn { seq: last + 1 };
                Ok(Flow::On)
            }
            RunKind::Batch | RunKind::Call if all_completed => self.end(RunStatus::Done, None),
            RunKind::Batch => self.end(RunStatus::Partial, None),
            RunKind::Call => self.end(RunStatus::Failed, None),
        }
    }

    /// Whether a tool call needs no component: refused, denied by the owner, or a tool of the host's own.
    fn is_inline(&self, index: usize) -> Result<bool, RunError> {
        let planned = &self.batch[index].planned;
        Ok(planned.refused.is_some() || planned.component.is_none() || self.is_denied(index)?)
    }

    /// The owner's answer to the question that was put before this step, if one was.
    fn answer_before(&self, index: usize) -> Option<Answer> {
        let wait = &self.batch[index.checked_sub(2)?];
        match &wait.outcome.as_ref()?.result {
            StepResult::Completed { value } if wait.planned.kind == StepKind::Wait => {
                serde_json::from_value(value.clone()).ok()
            }
            _ => None,
        }
    }

    /// Whether the owner was asked to approve this step, and did anything but that.
    fn is_denied(&self, index: usize) -> Result<bool, RunError> {
        let Some(wait) = index.checked_sub(2).map(|before| &self.batch[before].planned) else {
            return Ok(false);
        };
        if wait.kind != StepKind::Wait {
            return Ok(false);
        }
        let Ok(Question { kind: WaitKind::Approval, bound, .. }) = Question::deserialize(&wait.args) else {
            return Ok(false);
        };
        // An approval is for one call: these arguments, this component, this class.
        let step = &self.batch[index];
        if bound.is_some_and(|bound| bound != Bound::of(&step.planned)) {
            return Err(self.divergence(step, "the call that was approved".to_owned()));
        }
        Ok(self.answer_before(index).is_none_or(|answer| answer.option != APPROVE))
    }

    /// Settle a step that takes no time and touches nothing but the run's own record.
    fn settle_inline(&mut self, index: usize) -> Result<Flow, RunError> {
        let seq = self.batch[index].seq;
        self.approach(seq)?;
        self.reached(seq, Boundary::BeforeIntent)?;
        self.reached(seq, Boundary::AfterIntent)?;
        let (result, settled_by) = self.inline_result(index)?;
        self.reached(seq, Boundary::AfterExec)?;
        self.settle(index, result, settled_by, false);
        self.reached(seq, Boundary::AfterCommit)?;
        Ok(Flow::On)
    }

    fn inline_result(&mut self, index: usize) -> Result<(StepResult, SettledBy), RunError> {
        let planned = self.batch[index].planned.clone();
        if planned.kind == StepKind::Now {
            let value = json!({ "now_ms": self.host.clock.now_ms() });
            return Ok((StepResult::Completed { value }, SettledBy::Execution));
        }
        if let Some(error) = planned.refused {
            return Ok((StepResult::Failed { error }, SettledBy::Refusal));
        }
        if self.is_denied(index)?
            && let Some(answer) = self.answer_before(index)
        {
            let error = denied_by_owner(&planned.name, &answer);
            return Ok((StepResult::Failed { error }, SettledBy::Owner));
        }
        let tool = HostTool::ALL.into_iter().find(|tool| tool.name() == planned.name);
        let output = match tool {
            Some(HostTool::AskOwner) => self.answer_before(index).map_or_else(
                || Err(refused("conflict", "the question was not asked".to_owned())),
                |answer| host_tools::ask_owner(&answer),
            ),
            Some(HostTool::UpdateCriteria) => host_tools::update_criteria(&planned.args, &self.run.criteria)
                .map(|(output, criteria)| {
                    self.run.criteria = criteria;
                    output
                }),
            Some(HostTool::Finish) => host_tools::finish(&planned.args, &self.run.criteria)
                .map(|summary| Output { structured: Some(Value::String(summary)), ..Output::default() }),
            None => Err(refused("not-found", format!("there is no tool `{}`", planned.name))),
        };
        let result = match output {
            Ok(output) => StepResult::Completed { value: to_value(&output) },
            Err(error) => StepResult::Failed { error },
        };
        Ok((result, SettledBy::Execution))
    }

    /// Run this pure call and its pure neighbours in parallel. Each outcome rides as soon as it is there.
    fn pure_group(&mut self, start: usize) -> Result<Flow, RunError> {
        let armed = self.host.boundaries.armed();
        let mut end = start + 1;
        while end < self.batch.len()
            && end - start < PARALLEL_CALLS
            && self.is_pure_call(end)
            && self.is_admitted(end)
        {
            // What comes before an armed step is settled first, so that its neighbours are not cut off with it.
            if self.host.boundaries.watches() || armed.is_some_and(|point| point.seq == self.batch[end].seq) {
                break;
            }
            end += 1;
        }
        let seq = self.batch[start].seq;
        self.approach(seq)?;
        self.reached(seq, Boundary::BeforeIntent)?;
        self.reached(seq, Boundary::AfterIntent)?;
        // The plan is durable before anything executes.
        self.release()?;
        let executions: Vec<_> = (start..end)
            .map(|index| {
                let step = &self.batch[index];
                self.show(step.seq, step.planned.kind, &step.planned.name);
                let plugin = self
                    .component_of(index)
                    .ok_or_else(|| missing(format!("component of step {}", step.seq)))?;
                Ok((index, self.execution(index, plugin, 1, false)))
            })
            .collect::<Result<_, RunError>>()?;
        if let [(index, execution)] = &executions[..] {
            let end = execution.run();
            self.reached(seq, Boundary::AfterExec)?;
            return self.settle_pure(*index, end);
        }
        let (send, results) = mpsc::channel();
        let boundaries = &self.host.boundaries;
        std::thread::scope(|scope| {
            for (index, execution) in &executions {
                let send = send.clone();
                scope.spawn(move || {
                    let end = execution.run();
                    let point = KillPoint { seq: execution.seq(), boundary: Boundary::AfterExec };
                    if boundaries.armed() == Some(point) {
                        boundaries.reached(point);
                    }
                    // A receiver that is gone has failed already, and says why.
                    let _ = send.send((*index, end));
                });
            }
            drop(send);
            results.iter().try_for_each(|(index, end)| {
                self.settle_pure(index, end)?;
                self.release()
            })
        })?;
        Ok(Flow::On)
    }

    fn is_pure_call(&self, index: usize) -> bool {
        let step = &self.batch[index];
        step.outcome.is_none()
            && step.planned.kind == StepKind::ToolCall
            && !step.planned.effect.is_effectful()
            && self.is_inline(index).is_ok_and(|inline| !inline)
    }

    fn settle_pure(&mut self, index: usize, end: CallEnd) -> Result<Flow, RunError> {
        let seq = self.batch[index].seq;
        let result = match Ended::of(end) {
            Ended::Known(result) => result,
            // A pure call has no effect that could be in doubt.
            Ended::InDoubt(error) => StepResult::Failed { error },
        };
        self.settle(index, result, SettledBy::Execution, false);
        self.reached(seq, Boundary::AfterCommit)?;
        Ok(Flow::On)
    }

    /// Settle an effectful call, whatever an earlier process did of it.
    fn effectful(&mut self, index: usize) -> Result<Flow, RunError> {
        let seq = self.batch[index].seq;
        let mut abnormal = 0;
        // The attempt whose outcome is unknown, and why.
        let mut unknown: Option<(u32, String)> = None;
        loop {
            // Whether an attempt has begun what the next one is to finish.
            let mut begun = false;
            if unknown.is_none() {
                let step = self.batch[index].clone();
                match Recovery::of(&step, self.host.journal.started(self.run.id, &step)) {
                    Recovery::Return | Recovery::Publish { .. } => return Ok(Flow::On),
                    Recovery::Run { attempt }
                        if attempt > 1
                            && !self.processes_are_gone(index, attempt - 1)
                            // On a stage of its own it can do no harm.
                            && !step.planned.contained =>
                    {
                        unknown = Some((attempt - 1, CRASHED.to_owned()));
                    }
                    // Without its component it cannot run again, whatever its class says.
                    Recovery::Run { attempt } if attempt > 1 && self.component_of(index).is_none() => {
                        unknown = Some((
                            attempt - 1,
                            format!("{CRASHED}, and the version of its plugin that ran it is gone"),
                        ));
                    }
                    Recovery::Run { attempt } => begun = attempt > 1,
                    Recovery::Start { .. } => {}
                    Recovery::Reconcile { attempt } => unknown = Some((attempt, CRASHED.to_owned())),
                    Recovery::Answer { attempt } => {
                        if let Some(flow) = self.reconciled(index, attempt)? {
                            return Ok(flow);
                        }
                    }
                }
            }
            let mut verdict = None;
            if let Some((attempt, reason)) = unknown.take() {
                match self.reconcile(index, attempt, &reason)? {
                    Reconciled::Over(flow) => return Ok(flow),
                    // It did not happen, again and again: that is a failure, and no doubt.
                    Reconciled::NotLanded(probed) if abnormal >= ABNORMAL_ENDS => {
                        self.record_verdict(index, probed);
                        let message =
                            format!("{reason}; its probe says that it did not land, {abnormal} times");
                        let error = refused("aborted", message);
                        self.settle(index, StepResult::Failed { error }, SettledBy::Probe, false);
                        return Ok(Flow::On);
                    }
                    Reconciled::NotLanded(probed) => verdict = Some(probed),
                }
            }
            // What has not happened may not be allowed any more.
            if !begun && let Some(flow) = self.admit(index, verdict.as_ref())? {
                return Ok(flow);
            }
            // Before anything is recorded: a call that cannot run has no intent.
            let Some(plugin) = self.component_of(index) else {
                let message = format!(
                    "`{}` was not called again: the version of its plugin that it was planned with is gone",
                    self.batch[index].planned.name
                );
                let error = refused("component-gone", message);
                self.settle(index, StepResult::Failed { error }, SettledBy::Refusal, false);
                return Ok(Flow::On);
            };
            self.approach(seq)?;
            self.reached(seq, Boundary::BeforeIntent)?;
            let turn = self.take_turn(seq)?;
            let mut step = self.batch[index].clone();
            let attempt = self.begin(&mut step, verdict)?;
            self.batch[index] = step;
            self.reached(seq, Boundary::AfterIntent)?;
            if self.batch[index].planned.contained {
                return self.contained_call(index, plugin, (attempt, begun), turn);
            }
            let execution = self.execution(index, plugin, attempt, begun);
            self.mark_start(&self.batch[index], attempt)?;
            let end = execution.run();
            drop(turn);
            self.reached(seq, Boundary::AfterExec)?;
            // Receipts were recorded meanwhile.
            self.batch[index] = self.reload(seq)?;
            let landed_before = matches!(&end, CallEnd::Completed(output) if output.landed_before);
            let reason = match Ended::of(end) {
                Ended::Known(result) => {
                    self.settle(index, result, SettledBy::Execution, landed_before);
                    self.reached(seq, Boundary::AfterCommit)?;
                    return Ok(Flow::On);
                }
                Ended::InDoubt(error) => error.message,
            };
            if self.host.cancel.is_cancelled() {
                // Another attempt would be cancelled as well, and so would a probe.
                return self.stop();
            }
            abnormal += 1;
            let idempotent = self.batch[index].planned.effect == EffectClass::Idempotent;
            if !idempotent || abnormal >= ABNORMAL_ENDS {
                unknown = Some((attempt, reason));
            }
        }
    }

    /// Wait until no other writer of the workspace is in the middle of a call.
    pub(super) fn take_turn(&mut self, seq: u64) -> Result<Option<Arc<Turn>>, RunError> {
        if let Some(turn) = self.held_turn() {
            return Ok(Some(turn));
        }
        let turn = self.next_turn(seq)?;
        if let Some(turn) = &turn {
            self.host.end_others_publication(&self.run, turn)?;
        }
        Ok(turn.map(Arc::new))
    }

    fn next_turn(&mut self, seq: u64) -> Result<Option<Turn>, RunError> {
        let (Some(directory), Some(workspace)) = (&self.host.locks_dir, &self.run.workspace) else {
            return Ok(None);
        };
        let lock = WorkspaceLock::new(directory, Path::new(workspace));
        let failed = |source| RunError::Turn { workspace: workspace.clone(), source };
        if let Some(turn) = lock.try_turn().map_err(failed)? {
            return Ok(Some(turn));
        }
        // It may take long, and what has ended is not to be in doubt meanwhile.
        let workspace = workspace.clone();
        self.commit_durably()?;
        let message = "waits for another writer of this workspace to end its call";
        self.host.watcher.log(seq, LogLevel::Warn, message);
        let stopped = || self.host.is_to_stop();
        let failed = |source| RunError::Turn { workspace, source };
        match lock.turn(stopped).map_err(failed)? {
            Some(turn) => Ok(Some(turn)),
            None => Err(RunError::Stopped(self.run.id)),
        }
    }

    pub(super) fn reload(&self, seq: u64) -> Result<Step, RunError> {
        let step = self.host.journal.read().step(self.run.id, seq)?;
        step.ok_or_else(|| missing(format!("step {seq} of run {}", self.run.id)))
    }

    /// Everything one attempt of a call needs, so that it can run on any thread.
    pub(super) fn execution(&self, index: usize, plugin: Plugin, attempt: u32, begun: bool) -> Execution<'h> {
        let name = &self.batch[index].planned.name;
        let mut granted = self.policy.granted(name);
        if !begun {
            // A stricter policy of today counts for what has not begun.
            granted = granted.meet(&self.current_policy().granted(name));
        }
        self.execution_of(index, plugin, granted, attempt)
    }

    pub(super) fn execution_of(
        &self,
        index: usize,
        plugin: Plugin,
        granted: Granted,
        attempt: u32,
    ) -> Execution<'h> {
        let step = &self.batch[index];
        let installed = self.host.toolbox.installed(plugin.digest()).is_some();
        if !installed {
            let message = format!(
                "`{}` runs on component {}, with which this step was planned; another version is installed, and later steps use that",
                step.planned.name,
                plugin.digest()
            );
            self.host.watcher.log(step.seq, LogLevel::Warn, &message);
        }
        let reading = index.checked_sub(1).and_then(|before| self.batch[before].outcome.as_ref());
        let read_ms = match reading.map(|outcome| &outcome.result) {
            Some(StepResult::Completed { value }) => value["now_ms"].as_u64(),
            _ => None,
        };
        let recorded_ms = step.attempts.last().map(|attempt| attempt.intent.clock_ms);
        let clock_ms = recorded_ms.or(read_ms).unwrap_or(step.planned.planned_ms);
        Execution::new(self.host, &self.run, Request { step, plugin, granted, attempt, clock_ms })
    }

    /// Record what came of a step, and put what the model may see of it into the transcript.
    pub(super) fn settle(
        &mut self,
        index: usize,
        result: StepResult,
        settled_by: SettledBy,
        landed_before: bool,
    ) {
        let mut step = self.batch[index].clone();
        let outcome = Outcome {
            attempt: step.attempt().max(1),
            result,
            settled_by,
            landed_before,
            settled_ms: self.host.clock.now_ms(),
        };
        self.record(&mut step, StepEvent::Outcome(outcome));
        let found_out = matches!(settled_by, SettledBy::Execution | SettledBy::Probe);
        if step.planned.effect == EffectClass::NonIdempotent && found_out {
            self.make_urgent();
        }
        self.forget_calls_once_durable(&step);
        self.batch[index] = step;
        self.tell_settled();
    }

    /// Messages enter the transcript in call order, once all earlier calls are settled.
    fn tell_settled(&mut self) {
        let Position::Batch { first, last, untold } = self.run.position else { return };
        let from = usize::try_from(untold - first).expect("a batch fits in memory");
        let settled: Vec<_> =
            self.batch[from..].iter().map_while(|step| Some((step, step.outcome.as_ref()?))).collect();
        let untold = untold + settled.len() as u64;
        let messages = settled.into_iter().filter_map(|(step, outcome)| told(step, outcome)).collect();
        self.tell(messages);
        self.run.position = Position::Batch { first, last, untold };
    }
}

/// What the model sees of a settled step: nothing of the host's own steps, nor of a `finish` that ended the run.
fn told(step: &Step, outcome: &Outcome) -> Option<MessageBody> {
    let call = step.planned.call.clone()?;
    let (ok, text) = match &outcome.result {
        StepResult::Completed { .. } if is_finish(step) => return None,
        StepResult::Completed { value } => {
            let output = Output::deserialize(value);
            (true, output.map_or_else(|_| value.to_string(), |output| output.to_text()))
        }
        StepResult::Failed { error } => (false, error.message.clone()),
        StepResult::Abandoned { reason } => (false, reason.clone()),
    };
    Some(MessageBody::tool_result(ToolResult { call, tool: step.planned.name.clone(), ok, text }))
}

fn is_finish(step: &Step) -> bool {
    step.planned.component.is_none() && step.planned.name == HostTool::Finish.name()
}

/// How a call ended, as far as the journal is concerned.
pub(super) enum Ended {
    /// Its effect is known.
    Known(StepResult),
    /// It may have had its effect or not.
    InDoubt(StepError),
}

impl Ended {
    pub(super) fn of(end: CallEnd) -> Self {
        let (kind, mut message, effect, refusals) = match end {
            CallEnd::Completed(output) => {
                return Self::Known(StepResult::Completed { value: to_value(&output) });
            }
            CallEnd::Failed(failure) => {
                (failure.kind.to_string(), failure.message, failure.effect, failure.refusals)
            }
            CallEnd::Aborted(abort) => {
                let effect =
                    if abort.may_have_effect { EffectState::Unknown } else { EffectState::NotApplied };
                (abort.reason.to_string(), abort.message, effect, abort.refusals)
            }
        };
        for refusal in refusals.iter().map(ToString::to_string) {
            // A tool may have passed on what it was told.
            if !message.contains(&refusal) {
                message.push('\n');
                message.push_str(&refusal);
            }
        }
        let error = StepError { kind, message, effect };
        if effect == EffectState::Unknown {
            Self::InDoubt(error)
        } else {
            Self::Known(StepResult::Failed { error })
        }
    }
}

pub(super) fn to_value(output: &Output) -> Value {
    serde_json::to_value(output).expect("an output has text keys only")
}

/// The owner did anything but approve.
pub(super) fn denied_by_owner(tool: &str, answer: &Answer) -> StepError {
    if answer.option == EXPIRED {
        return refused("expired", format!("this call of `{tool}` was not made: nobody approved it in time"));
    }
    let reason = answer.text.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
    refused("denied", format!("the owner denied this call of `{tool}`{reason}"))
}

fn refused(kind: &str, message: String) -> StepError {
    StepError { kind: kind.to_owned(), message, effect: EffectState::NotApplied }
}
