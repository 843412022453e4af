//! Creating runs.

use std::path::{Path, PathBuf};

use deed_journal::{
    CommitError, Criterion, Digest, Durability, EffectState, Op, Planned, Position, ReadError, Run, RunId,
    RunKind, RunStatus, SessionId, StepError, StepEvent, StepStatus,
};

use super::Host;
use super::turn::{GIT_BRANCH, PREFIX};
use crate::arguments::{self, CALLS_BYTES};
use crate::mission::{Batch, Call, Network, Spec};
use crate::operator::OperatorError;
use crate::policy::Operator;
use crate::toolbox::{Toolbox, UnknownPlugin};
use crate::workspace;

/// Why a run was not created. Nothing was recorded.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The workspace is no directory.
    #[error("workspace `{}` is no directory: {reason}", path.display())]
    Workspace {
        /// As it was named.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The workspace is in the hands of a run that has not ended.
    #[error(
        "git workspace `{}` belongs to run {run} until that ends: `deed resume {run}`, or see `deed waits`",
        path.display(),
        run = run.short()
    )]
    WorkspaceTaken {
        /// The workspace.
        path: PathBuf,
        /// The run.
        run: RunId,
    },
    /// A `deed.toml` cannot be used.
    #[error(transparent)]
    Operator(#[from] OperatorError),
    /// It names a plugin that is not there.
    #[error(transparent)]
    UnknownPlugin(#[from] UnknownPlugin),
    /// A call of a batch cannot be made.
    #[error("call {number} of the batch: {}", error.message)]
    Call {
        /// Its place in the batch, from 1.
        number: usize,
        /// Why.
        error: StepError,
    },
    /// The arguments of a batch are too large together.
    #[error(
        "the arguments of the batch are {bytes} bytes together, and at most {CALLS_BYTES} are taken; split the batch"
    )]
    TooLarge {
        /// Their size.
        bytes: usize,
    },
    /// A single call cannot be made.
    #[error("{}", .0.message)]
    Refused(StepError),
    /// An identical call was made, and what came of it is unknown.
    #[error(
        "an identical call of `{tool}` is not settled: step {seq} of run {run}; `deed resume {run}` settles it, or give this one a `--key` of its own",
        run = run.short()
    )]
    InDoubt {
        /// The tool.
        tool: String,
        /// The call's run.
        run: RunId,
        /// The call's step.
        seq: u64,
    },
    /// A record could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The commit failed.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

/// What a run is created from.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// What it executes.
    pub spec: Spec,
    /// The directory its tools see.
    pub workspace: PathBuf,
}

impl RunOptions {
    /// Whether a run can be created from this; the workspace's absolute path. Needs no journal and writes nothing.
    pub fn check(&self, toolbox: &Toolbox) -> Result<PathBuf, CreateError> {
        let scope = toolbox.scope(self.spec.tools())?;
        if let Spec::Batch(batch) = &self.spec {
            // A refused plugin may be where a tool would have come from: then its call fails by name, and others work.
            let complete = toolbox.refused().is_empty();
            for (index, call) in batch.calls.iter().enumerate() {
                match toolbox.check(&scope, &call.tool, &call.input) {
                    Err(error) if complete || error.kind != "not-found" => {
                        return Err(CreateError::Call { number: index + 1, error });
                    }
                    _ => {}
                }
            }
            if let Some(bytes) = arguments::total_refusal(&batch.calls) {
                return Err(CreateError::TooLarge { bytes });
            }
        }
        directory(&self.workspace)
    }
}

impl CallOptions {
    /// Whether the call can be made; the workspace's absolute path. Needs no journal and writes nothing.
    pub fn check(&self, toolbox: &Toolbox) -> Result<PathBuf, CreateError> {
        let scope = toolbox.scope(None)?;
        toolbox.check(&scope, &self.call.tool, &self.call.input).map_err(CreateError::Refused)?;
        directory(&self.workspace)
    }
}

/// What a single call is made from.
#[derive(Debug, Clone)]
pub struct CallOptions {
    /// The tool and its arguments.
    pub call: Call,
    /// The directory the tool sees.
    pub workspace: PathBuf,
    /// Whether commands reach the network.
    pub network: Network,
    /// The caller's own key: a second call with it joins the first, or returns its outcome.
    pub key: Option<String>,
}

/// The run of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Created {
    /// The run.
    pub run: RunId,
    /// It was there already, under the caller's key.
    pub joined: bool,
}

impl Host {
    /// Record a new run, queued. Durable when this returns.
    pub fn create_run(&self, options: &RunOptions) -> Result<RunId, CreateError> {
        let RunOptions { spec, .. } = options;
        let workspace = options.check(&self.toolbox)?;
        self.check_operator(&workspace)?;
        let git = workspace::is_git_root(&workspace);
        if git {
            self.refuse_taken(&workspace)?;
        }
        let kind = match spec {
            Spec::Mission(_) => RunKind::Mission,
            Spec::Batch(_) => RunKind::Batch,
        };
        let run = Run { git, ..self.new_run(kind, spec.objective(), &workspace) };
        let run = Run {
            criteria: spec
                .criteria()
                .iter()
                .map(|text| Criterion { criterion: text.clone(), met: false })
                .collect(),
            ..run
        };
        let planned_ms = self.clock.now_ms();
        let mut ops = vec![create_op(&run, spec), plan_op(&run, 1, PREFIX.plan(planned_ms))];
        if git {
            ops.push(plan_op(&run, 2, GIT_BRANCH.plan(planned_ms)));
        }
        self.journal.commit(ops, Durability::Durable)?;
        Ok(run.id)
    }

    /// Record a single call as a run of its own, or find the one that the caller's key stands for.
    pub fn create_call(&self, options: &CallOptions) -> Result<Created, CreateError> {
        let CallOptions { call, key, .. } = options;
        let key = key.as_ref().map(|key| Digest::of(key.as_bytes()));
        let workspace = directory(&options.workspace)?;
        if let Some(key) = &key
            && let Some(run) = self.journal.read().run_of_call_key(key)?
        {
            self.refuse_other_call(run, options, &workspace)?;
            return Ok(Created { run, joined: true });
        }
        options.check(&self.toolbox)?;
        self.check_operator(&workspace)?;
        if key.is_none() {
            self.refuse_in_doubt(call, &workspace)?;
        }
        let run = Run {
            position: Position::Turn { seq: 1 },
            call_key: key,
            ..self.new_run(RunKind::Call, &call.tool, &workspace)
        };
        let spec = Spec::Batch(Batch {
            objective: String::new(),
            workspace: None,
            tools: None,
            network: options.network,
            policy: Vec::new(),
            grants: Vec::new(),
            answer_within_ms: None,
            answers: Vec::new(),
            observe: Vec::new(),
            calls: vec![call.clone()],
        });
        self.journal.commit(vec![create_op(&run, &spec)], Durability::Durable)?;
        Ok(Created { run: run.id, joined: false })
    }

    /// A run whose policy cannot be read could not go on, and would hold its workspace.
    fn check_operator(&self, workspace: &Path) -> Result<(), CreateError> {
        Operator::read(workspace, self.config_dir.as_deref())?;
        Ok(())
    }

    fn new_run(&self, kind: RunKind, objective: &str, workspace: &Path) -> Run {
        let id = RunId::from_bytes(self.entropy.id());
        let session = SessionId::from_bytes(self.entropy.id());
        Run {
            kind,
            status: RunStatus::Queued,
            workspace: workspace.to_str().map(str::to_owned),
            ..Run::new(id, session, self.entropy.id(), objective, self.clock.now_ms())
        }
    }

    fn refuse_taken(&self, workspace: &Path) -> Result<(), CreateError> {
        let name = workspace.to_string_lossy();
        let open = self.journal.read().open_runs().map_err(ReadError::from)?.items;
        match open.iter().find(|run| run.git && run.workspace.as_deref() == Some(&name)) {
            Some(run) => Err(CreateError::WorkspaceTaken { path: workspace.to_owned(), run: run.id }),
            None => Ok(()),
        }
    }

    /// A key stands for one call: the same tool with the same arguments in the same workspace, on the same network.
    fn refuse_other_call(
        &self,
        run: RunId,
        CallOptions { call, network, .. }: &CallOptions,
        workspace: &Path,
    ) -> Result<(), CreateError> {
        let reader = self.journal.read();
        let recorded = reader.run_source(run)?.and_then(|source| serde_json::from_value(source).ok());
        let recorded_workspace = reader.run(run)?.and_then(|run| run.workspace);
        let is_same = |batch: &Batch| {
            batch.calls == [call.clone()]
                && batch.network == *network
                && recorded_workspace.as_deref() == Some(&*workspace.to_string_lossy())
        };
        match recorded {
            Some(Spec::Batch(batch)) if is_same(&batch) => Ok(()),
            _ => Err(CreateError::Refused(StepError {
                kind: "conflict".to_owned(),
                message: format!(
                    "this key stands for another call, in run {}: `deed show {} 2`; take another key",
                    run.short(),
                    run.short()
                ),
                effect: EffectState::NotApplied,
            })),
        }
    }

    /// Without a key, an effectful call like one that is not settled could repeat its effect: now, or when that one's run
    /// is resumed.
    fn refuse_in_doubt(&self, call: &Call, workspace: &Path) -> Result<(), CreateError> {
        let scope = self.toolbox.scope(None)?;
        let tool = self.toolbox.find(&scope, &call.tool).map_err(CreateError::Refused)?;
        if !tool.descriptor.effect.is_effectful() {
            return Ok(());
        }
        let reader = self.journal.read();
        for run in reader.open_runs().map_err(ReadError::from)?.items {
            if run.workspace.as_deref() != workspace.to_str() {
                continue;
            }
            let seq = match run.position {
                Position::Batch { first, last, .. } => self.unsettled(run.id, first..=last, call)?,
                // Nothing of it is planned yet; it will be what it was made from.
                Position::Turn { seq } if run.kind == RunKind::Call => {
                    let source =
                        reader.run_source(run.id)?.and_then(|source| serde_json::from_value(source).ok());
                    matches!(source, Some(Spec::Batch(batch)) if batch.calls == [call.clone()])
                        .then_some(seq + 1)
                }
                _ => None,
            };
            if let Some(seq) = seq {
                return Err(CreateError::InDoubt { tool: call.tool.clone(), run: run.id, seq });
            }
        }
        Ok(())
    }

    /// The first of some steps that is this call and not settled. Of calls that are only planned, a mission's are its own
    /// business; a single call's is the same wish once more.
    fn unsettled(
        &self,
        run: RunId,
        seqs: std::ops::RangeInclusive<u64>,
        call: &Call,
    ) -> Result<Option<u64>, ReadError> {
        let digest = Digest::of_json(&call.input);
        let reader = self.journal.read();
        let single = reader.run(run)?.is_some_and(|run| run.kind == RunKind::Call);
        for seq in seqs {
            let Some(step) = reader.step(run, seq)? else { continue };
            let status = step.status();
            let begun = matches!(status, StepStatus::Intent | StepStatus::NeedsReconcile);
            let same = step.planned.name == call.tool && step.planned.args_digest == digest;
            if same && (begun || (single && !status.is_settled())) {
                return Ok(Some(seq));
            }
        }
        Ok(None)
    }
}

fn create_op(run: &Run, spec: &Spec) -> Op {
    let source = serde_json::to_value(spec).expect("a mission has text keys only");
    Op::CreateRun { run: Box::new(run.clone()), source }
}

fn plan_op(run: &Run, seq: u64, planned: Planned) -> Op {
    Op::Step { run: run.id, seq, event: StepEvent::Planned(planned) }
}

fn directory(path: &Path) -> Result<PathBuf, CreateError> {
    let wrong = |reason: String| CreateError::Workspace { path: path.to_owned(), reason };
    let absolute = path.canonicalize().map_err(|error| wrong(error.to_string()))?;
    if !absolute.is_dir() {
        return Err(wrong("it is a file; name the directory around it".to_owned()));
    }
    if absolute.to_str().is_none() {
        return Err(wrong("its path is not UTF-8, which the journal could not name".to_owned()));
    }
    Ok(absolute)
}
