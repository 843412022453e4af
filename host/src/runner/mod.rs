//! The runner: takes a run from its last record to its end, or to a question.
//!
//! A run is read, not replayed: its head record says what comes next, and the steps of the batch under way say how far
//! each of them is. Every change goes through the outbox, which decides what commits together.

mod admit;
mod batch;
mod contain;
mod contained;
mod create;
mod execute;
mod outbox;
mod own_step;
mod plan;
mod reconcile;
mod turn;
mod wait;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use deed_journal::{
    Asked, Clock, CommitError, Criterion, Digest, Entropy, Journal, Message, Position, ReadError, Run, RunId,
    RunStatus, Session, SessionId, Step, StepKind, StepResult, Usage,
};
use serde::Serialize;
use serde_json::Value;

pub use self::create::{CallOptions, CreateError, Created, RunOptions};
pub use self::reconcile::OnUnknown;

use self::outbox::Outbox;
use crate::beside::Beside;
use crate::boundary::{Boundaries, Boundary, KillPoint};
use crate::engine::{CancelToken, Limits};
use crate::mission::Spec;
use crate::model::{Model, ModelError};
use crate::operator::OperatorError;
use crate::policy::{Operator, Snapshot};
use crate::stage::StageError;
use crate::toolbox::{Scope, Toolbox, UnknownPlugin};
use crate::turns::Unpublished;
use crate::watch::{Owner, Watcher};

/// Everything a run needs from outside.
pub struct Host {
    /// Where everything is recorded.
    pub journal: Arc<Journal>,
    /// The tools at hand.
    pub toolbox: Toolbox,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness for identifiers.
    pub entropy: Arc<dyn Entropy>,
    /// What crash tests arm.
    pub boundaries: Arc<dyn Boundaries>,
    /// Who sees the progress.
    pub watcher: Arc<dyn Watcher>,
    /// The directory of the user's own `deed.toml`, if there is one. That of a workspace lies in the workspace.
    pub config_dir: Option<PathBuf>,
    /// Where components and the locks of calls are kept; nowhere when none: then a step of another version than the
    /// installed one cannot go on, and nobody waits for an earlier attempt's processes.
    pub beside: Option<Beside>,
    /// Where the locks are by which writers of one workspace take turns; they take none when none.
    pub locks_dir: Option<PathBuf>,
    /// What becomes of a call whose outcome only the owner can tell.
    pub on_unknown: OnUnknown,
    /// Who answers questions.
    pub owner: Arc<dyn Owner>,
    /// What each call may use up.
    pub limits: Limits,
    /// Asks calls to stop, and runs before their next step. A call that did not stop by itself, and may have had its
    /// effect, is settled when its run is taken on, as after a crash.
    pub cancel: CancelToken,
    /// Asks runs to stop before their next step: what is under way ends and is recorded first.
    pub stop: Arc<AtomicBool>,
}

impl Host {
    /// Whether somebody asked runs to stop.
    fn is_to_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.cancel.is_cancelled()
    }
}

/// Why a run cannot go on. Its records are as they were at its last commit.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There is no such run.
    #[error("there is no run {0}")]
    NoSuchRun(RunId),
    /// A record could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A commit failed.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// What is recorded is not what the run would do next.
    #[error(
        "run {run} diverges at step {seq}: recorded is {recorded}, and the run would do {expected}; resume it with the deed that began it",
        run = run.short()
    )]
    Divergence {
        /// The run.
        run: RunId,
        /// The step.
        seq: u64,
        /// What is recorded.
        recorded: String,
        /// What would come next.
        expected: String,
    },
    /// What the run executes is recorded in a form that this version does not know.
    #[error("what run {run} executes cannot be read: {reason}", run = run.short())]
    Source {
        /// The run.
        run: RunId,
        /// Why.
        reason: String,
    },
    /// A plugin of the run is not installed any more.
    #[error(transparent)]
    UnknownPlugin(#[from] UnknownPlugin),
    /// A `deed.toml` cannot be used.
    #[error(transparent)]
    Operator(#[from] OperatorError),
    /// A component could not be kept for the steps that are bound to it, so they were not planned.
    #[error(
        "failed to keep component {component} beside the journal: {source}; the run is as it was, resume it"
    )]
    Keep {
        /// The component.
        component: Digest,
        /// The system's words.
        source: std::io::Error,
    },
    /// The lock of the workspace is not to be had.
    #[error("failed to take a turn in workspace `{workspace}`: {source}; the run is as it was, resume it")]
    Turn {
        /// The workspace.
        workspace: String,
        /// The system's words.
        source: std::io::Error,
    },
    /// What another run of another journal changed is half there.
    #[error(
        "workspace `{workspace}` is in the middle of what step {} of run {} changed; `deed --journal {} resume {}` ends that",
        note.seq, note.run.short(), note.journal.display(), note.run
    )]
    Unpublished {
        /// The workspace.
        workspace: String,
        /// Whose publication it is.
        note: Box<Unpublished>,
    },
    /// What a step changed could not be brought into the workspace. Its outcome is recorded.
    #[error("failed to publish what step {seq} of run {run} changed: {source}; set that right, then `deed resume {run}`", run = run.short())]
    Publish {
        /// The run.
        run: RunId,
        /// The step.
        seq: u64,
        /// Why.
        source: Box<StageError>,
    },
    /// The model failed. Resume to ask it again.
    #[error("step {seq} of run {run}: {source}", run = run.short())]
    Model {
        /// The run.
        run: RunId,
        /// The step.
        seq: u64,
        /// Why.
        source: ModelError,
    },
    /// The start of an attempt could not be marked, so it did not start.
    #[error("failed to mark the start of step {seq}: {source}; the run is as it was, resume it")]
    Mark {
        /// The step.
        seq: u64,
        /// The system's words.
        source: std::io::Error,
    },
    /// The repository could not be put on the run's branch.
    #[error(
        "failed to put the workspace on branch `{branch}`: {reason}; set that right, then `deed resume {run}`",
        run = run.short()
    )]
    Branch {
        /// The run.
        run: RunId,
        /// The branch.
        branch: String,
        /// In git's words.
        reason: String,
    },
    /// It was asked to stop. Everything until then is recorded.
    #[error("run {run} was stopped before its next step; `deed resume {run}` takes it on", run = .0.short())]
    Stopped(RunId),
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Envelope {
    /// The run.
    pub run: RunId,
    /// Its transcript.
    pub session: SessionId,
    /// Where it stands.
    pub status: RunStatus,
    /// The last words of an ended run.
    pub result: Option<String>,
    /// What had to be met.
    pub criteria: Vec<Criterion>,
    /// What was used.
    pub usage: Usage,
    /// The questions that hold it.
    #[serde(skip)]
    pub waits: Vec<Asked>,
}

/// A record that must be there is not.
fn missing(record: String) -> RunError {
    ReadError::Damaged { record, reason: "it is missing".to_owned() }.into()
}

/// The policy that the batch under way was planned with; between batches, today's.
fn policy_of(host: &Host, run: &Run, spec: &Spec, operator: &Operator) -> Result<Snapshot, RunError> {
    let Position::Batch { first, .. } = run.position else { return Ok(Snapshot::of(spec, operator)) };
    // A mission's policy step comes before its model call, a batch's right before its calls.
    let seq = match spec {
        Spec::Mission(_) => first - 2,
        Spec::Batch(_) => first - 1,
    };
    let step = host.journal.read().step(run.id, seq)?;
    let outcome = step.and_then(|step| step.outcome);
    let Some(StepResult::Completed { value }) = outcome.map(|outcome| outcome.result) else {
        return Err(missing(format!("policy of step {seq} of run {}", run.id)));
    };
    recorded_policy(run.id, seq, value)
}

fn recorded_policy(run: RunId, seq: u64, value: Value) -> Result<Snapshot, RunError> {
    serde_json::from_value(value).map_err(|error| RunError::Source {
        run,
        reason: format!("the policy of step {seq} is not readable: {error}"),
    })
}

/// Whether a run goes on.
enum Flow {
    On,
    Waiting,
}

/// One run on its way.
pub struct Runner<'h> {
    host: &'h Host,
    run: Run,
    spec: Spec,
    scope: Scope,
    model: Option<Box<dyn Model>>,
    session: Session,
    /// The session's messages, once the model needs them: a long transcript does not make resuming long.
    transcript: Option<Vec<Message>>,
    outbox: Outbox,
    /// What the operator says today.
    operator: Operator,
    /// The policy of the turn under way.
    policy: Snapshot,
    /// The steps of the batch under way.
    batch: Vec<Step>,
}

impl<'h> Runner<'h> {
    /// Load a run to take it on. Writes nothing.
    pub fn load(host: &'h Host, id: RunId) -> Result<Self, RunError> {
        let reader = host.journal.read();
        let run = reader.run(id)?.ok_or(RunError::NoSuchRun(id))?;
        let unreadable = |reason: String| RunError::Source { run: id, reason };
        let source = reader.run_source(id)?.ok_or_else(|| missing(format!("source of run {id}")))?;
        let spec: Spec = serde_json::from_value(source).map_err(|error| unreadable(error.to_string()))?;
        let session =
            reader.session(run.session)?.ok_or_else(|| missing(format!("session {}", run.session)))?;
        let batch = match run.position {
            Position::Batch { first, last, .. } => (first..=last)
                .map(|seq| reader.step(id, seq)?.ok_or_else(|| missing(format!("step {seq} of run {id}"))))
                .collect::<Result<_, _>>()?,
            _ => Vec::new(),
        };
        let workspace = run.workspace.as_deref().map_or(Path::new("/"), Path::new);
        let (operator, _) = Operator::read(workspace, host.config_dir.as_deref())?;
        Ok(Self {
            scope: host.toolbox.scope(spec.tools())?,
            model: match &spec {
                Spec::Mission(mission) => Some(crate::model::of(&mission.model)),
                Spec::Batch(_) => None,
            },
            policy: policy_of(host, &run, &spec, &operator)?,
            operator,
            host,
            outbox: Outbox::new(&run),
            run,
            spec,
            session,
            transcript: None,
            batch,
        })
    }

    /// Put another model in the place of the mission's own, such as one that also writes a log.
    #[must_use]
    pub fn map_model(mut self, map: impl FnOnce(Box<dyn Model>) -> Box<dyn Model>) -> Self {
        self.model = self.model.map(map);
        self
    }

    /// Take the run on until it ends or waits. An ended run is returned as it is.
    pub fn drive(mut self) -> Result<Envelope, RunError> {
        if self.run.status.has_ended() {
            self.forget_publication()?;
        } else {
            self.run.status = RunStatus::Running;
        }
        loop {
            self.stop_if_asked()?;
            let flow = match self.run.position {
                Position::Setup => self.setup()?,
                Position::Turn { seq } => self.turn(seq)?,
                Position::Batch { first, last, .. } => self.batch(first, last)?,
                Position::End => break,
            };
            if matches!(flow, Flow::Waiting) {
                break;
            }
        }
        self.envelope()
    }

    /// Between two steps is the place to stop: nothing is under way.
    fn stop_if_asked(&mut self) -> Result<(), RunError> {
        if !self.host.is_to_stop() || self.run.status.has_ended() {
            return Ok(());
        }
        self.stop()
    }

    /// Stop here, with everything recorded that is known.
    fn stop<T>(&mut self) -> Result<T, RunError> {
        self.commit_durably()?;
        Err(RunError::Stopped(self.run.id))
    }

    fn envelope(self) -> Result<Envelope, RunError> {
        let waits = self.host.journal.read().waits(self.run.id)?;
        Ok(Envelope {
            run: self.run.id,
            session: self.run.session,
            status: self.run.status,
            result: self.run.result,
            criteria: self.run.criteria,
            usage: self.run.usage,
            waits: waits.into_iter().filter(|wait| wait.answer.is_none()).map(|wait| wait.asked).collect(),
        })
    }

    /// End the run. Durable when this returns.
    fn end(&mut self, status: RunStatus, result: Option<String>) -> Result<Flow, RunError> {
        self.run.status = status;
        self.run.result = result;
        self.run.position = Position::End;
        self.run.ended_ms = Some(self.host.clock.now_ms());
        self.commit_durably()?;
        Ok(Flow::On)
    }

    /// The policy as it is today.
    fn current_policy(&self) -> Snapshot {
        Snapshot::of(&self.spec, &self.operator)
    }

    fn workspace(&self) -> Option<PathBuf> {
        self.run.workspace.as_ref().map(PathBuf::from)
    }

    fn show(&self, seq: u64, kind: StepKind, name: &str) {
        self.host.watcher.step(self.run.usage.turns, seq, kind, name);
    }

    /// The step at `seq` comes next. When a crash test armed one of its boundaries, everything before it is settled
    /// first, as it is in every run that has the time.
    fn approach(&mut self, seq: u64) -> Result<(), RunError> {
        if self.host.boundaries.armed().is_some_and(|point| point.seq == seq) {
            self.commit_durably()?;
        }
        Ok(())
    }

    /// The run crosses a boundary. `AfterCommit` means durably.
    fn reached(&mut self, seq: u64, boundary: Boundary) -> Result<(), RunError> {
        let point = KillPoint { seq, boundary };
        if self.host.boundaries.armed() == Some(point) {
            if boundary == Boundary::AfterCommit {
                self.commit_durably()?;
                self.host.journal.sync()?;
            }
            self.host.boundaries.reached(point);
        } else {
            self.host.boundaries.crossed(point);
        }
        Ok(())
    }

    /// The same where nothing can be committed first.
    fn reached_now(&self, seq: u64, boundary: Boundary) {
        let point = KillPoint { seq, boundary };
        if self.host.boundaries.armed() == Some(point) {
            self.host.boundaries.reached(point);
        } else {
            self.host.boundaries.crossed(point);
        }
    }
}
