//! Setup and turns: what surrounds the batches of a run.

use std::time::{Duration, SystemTime};

use deed_journal::{EffectClass, MessageBody, Position, Role, RunStatus, StepKind, ToolCall};
use serde_json::json;

use super::own_step::{OwnStep, OwnValue};
use super::{Flow, RunError, Runner, recorded_policy};
use crate::arguments;
use crate::boundary::Boundary;
use crate::capability::git::Earlier;
use crate::engine::LogLevel;
use crate::mission::{Call, Spec};
use crate::model::{ModelAnswer, ModelRequest};
use crate::workspace;

/// The first setup step: what the model is told before anything else.
pub(super) const PREFIX: OwnStep =
    OwnStep { seq: 1, kind: StepKind::Setup, name: "prefix", effect: EffectClass::Pure };

/// The second one, in a git workspace: the branch that the run works on.
pub(super) const GIT_BRANCH: OwnStep =
    OwnStep { seq: 2, kind: StepKind::Setup, name: "git_branch", effect: EffectClass::Idempotent };

impl Runner<'_> {
    /// The setup steps. They were planned when the run was created.
    pub(super) fn setup(&mut self) -> Result<Flow, RunError> {
        let prefix = self.own_step(&PREFIX, |runner| Ok(json!({ "system": runner.system_prefix() })))?;
        self.reached(PREFIX.seq, Boundary::AfterCommit)?;
        let mut seq = PREFIX.seq + 1;
        if self.run.git {
            let branch = format!("deed/{}", self.run.id.short());
            self.own_step(&GIT_BRANCH, |runner| {
                let Some(directory) = runner.workspace() else { return Ok(json!({ "branch": branch })) };
                let earlier = runner.earlier_attempts(GIT_BRANCH.seq)?;
                // Where HEAD leads is of the workspace, too.
                let _turn = runner.take_turn(GIT_BRANCH.seq)?;
                // Without its branch the run would commit to one that is not its own.
                let removed = workspace::enter_branch(&directory, &branch, earlier).map_err(|error| {
                    RunError::Branch { run: runner.run.id, branch: branch.clone(), reason: error.to_string() }
                })?;
                for lock in removed {
                    let lock = lock.display();
                    let line = format!("removed `{lock}`, which an earlier attempt left when it was killed");
                    runner.host.watcher.log(GIT_BRANCH.seq, LogLevel::Warn, &line);
                }
                Ok(json!({ "branch": branch }))
            })?;
            self.reached(GIT_BRANCH.seq, Boundary::AfterCommit)?;
            seq = GIT_BRANCH.seq + 1;
        }
        let system = prefix.value["system"].as_str().unwrap_or_default().to_owned();
        let mut messages = vec![MessageBody::text(Role::System, system)];
        if let Spec::Mission(mission) = &self.spec {
            messages.push(MessageBody::text(Role::User, mission.objective.clone()));
        }
        self.tell(messages);
        self.run.position = Position::Turn { seq };
        Ok(Flow::On)
    }

    /// When earlier attempts of a step can have left something behind; none when this is the first one.
    fn earlier_attempts(&self, seq: u64) -> Result<Option<Earlier>, RunError> {
        let step = self.host.journal.read().step(self.run.id, seq)?;
        let first_ms = step.as_ref().filter(|step| step.attempt() > 1).and_then(|step| step.attempts.first());
        Ok(first_ms.map(|first| Earlier {
            intent: SystemTime::UNIX_EPOCH + Duration::from_millis(first.intent.clock_ms),
            started: self.host.toolbox.engine().started(),
        }))
    }

    fn system_prefix(&self) -> String {
        let mut text = String::from(
            "You work in a workspace through tools. Paths are relative to the workspace. Every call is recorded; a call that a crash interrupted is settled before you see its result.",
        );
        if !self.run.criteria.is_empty() {
            text.push_str("\nCriteria, to be met before `finish`:");
            for known in &self.run.criteria {
                text.push_str("\n- ");
                text.push_str(&known.criterion);
            }
        }
        text
    }

    /// One turn: the policy in force, the model's answer (a batch has it given), the plan of its calls.
    pub(super) fn turn(&mut self, seq: u64) -> Result<Flow, RunError> {
        let policy = OwnStep { seq, kind: StepKind::Policy, name: "snapshot", effect: EffectClass::Pure };
        let taken = self.own_step(&policy, |runner| {
            Ok(serde_json::to_value(runner.current_policy()).expect("a policy has text keys only"))
        })?;
        self.reached(seq, Boundary::AfterCommit)?;
        self.policy = recorded_policy(self.run.id, seq, taken.value)?;
        match &self.spec {
            Spec::Batch(batch) => {
                let calls = batch.calls.clone();
                self.start_batch(seq + 1, String::new(), Role::User, &calls)
            }
            Spec::Mission(_) => self.ask_model(seq + 1),
        }
    }

    fn ask_model(&mut self, seq: u64) -> Result<Flow, RunError> {
        let model = self.model.take().expect("a mission has a model");
        let own =
            OwnStep { seq, kind: StepKind::ModelCall, name: model.name(), effect: EffectClass::Idempotent };
        let answered = self.own_step(&own, |runner| {
            // Everything the model sees is durable: the intent of this step committed it.
            let messages = match runner.transcript.take() {
                Some(messages) => messages,
                None => runner.host.journal.read().transcript(runner.run.session)?,
            };
            let messages = runner.transcript.insert(messages);
            let tools = runner.host.toolbox.descriptors(&runner.scope);
            let request = ModelRequest { run: runner.run.id, seq, messages, tools: &tools };
            let mut answer = model.respond(&request).map_err(|source| RunError::Model {
                run: runner.run.id,
                seq,
                source,
            })?;
            arguments::bound(&mut answer.calls);
            if answer.text.len() > arguments::TEXT_BYTES {
                answer.text = arguments::shown(&answer.text, arguments::TEXT_BYTES).into_owned();
            }
            Ok(serde_json::to_value(answer).expect("an answer has text keys only"))
        });
        self.model = Some(model);
        let OwnValue { value, attempt, recorded } = answered?;
        debug_assert!(!recorded, "the answer commits with the position that follows it");
        let answer: ModelAnswer = serde_json::from_value(value).map_err(|error| RunError::Source {
            run: self.run.id,
            reason: format!("the answer of step {seq} is not readable: {error}"),
        })?;
        self.run.usage.turns += 1;
        self.run.usage.repeated_model_calls += u64::from(attempt - 1);
        let flow = if answer.calls.is_empty() {
            self.tell(vec![MessageBody::text(Role::Assistant, answer.text.clone())]);
            let result = if answer.text.is_empty() { None } else { Some(answer.text) };
            self.end(RunStatus::Partial, result)?
        } else {
            self.start_batch(seq + 1, answer.text, Role::Assistant, &answer.calls)?
        };
        self.reached(seq, Boundary::AfterCommit)?;
        Ok(flow)
    }

    /// Plan the calls that `role` asks for, and put them into the transcript.
    fn start_batch(
        &mut self,
        first: u64,
        text: String,
        role: Role,
        calls: &[Call],
    ) -> Result<Flow, RunError> {
        if calls.is_empty() {
            return self.end(RunStatus::Done, None);
        }
        self.run.usage.calls += calls.len() as u64;
        let ids = self.plan_calls(first, calls)?;
        let calls = calls
            .iter()
            .zip(ids)
            .map(|(call, id)| ToolCall { id, tool: call.tool.clone(), input: call.input.clone() })
            .collect();
        self.tell(vec![MessageBody { role, text, calls, result: None }]);
        let last = first + self.batch.len() as u64 - 1;
        self.run.position = Position::Batch { first, last, untold: first };
        self.make_urgent();
        Ok(Flow::On)
    }
}
