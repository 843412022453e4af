//! A contained call: it runs on its stage, its changes commit with its outcome, and are published.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use deed_journal::{
    Asked, Change, Changes, Durability, EffectState, Op, PathBytes, Published, Run, RunStatus, SettledBy,
    Step, StepError, StepEvent, StepResult, WaitId, WaitKind,
};

use super::batch::Ended;
use super::reconcile::OnUnknown;
use super::{Flow, Host, RunError, Runner, missing};
use crate::boundary::Boundary;
use crate::capability::is_operators;
use crate::engine::{LogLevel, Plugin};
use crate::stage::{Collected, Left, Stage, StageError, Timestamp};
use crate::turns::{Turn, Unpublished, WorkspaceLock};

/// Bytes of JSON in one record of changes: a quarter of what a record holds, so that one path more never matters.
const PART_BYTES: usize = 4 << 20;

/// Files named in a question or an error. Whoever has more of them reads `deed show`.
const NAMED: usize = 20;

/// The owner's answers about a file that somebody else has changed.
const KEEP: &str = "keep";
const REPLACE: &str = "replace";

impl Runner<'_> {
    /// Make a contained call, settle it, and publish what it changed. Its intent is durable, and whatever an earlier attempt
    /// wrote is dropped with that one's stage.
    pub(super) fn contained_call(
        &mut self,
        index: usize,
        plugin: Plugin,
        (attempt, begun): (u32, bool),
        turn: Option<Arc<Turn>>,
    ) -> Result<Flow, RunError> {
        let seq = self.batch[index].seq;
        let stage = self
            .host
            .stage(&self.run, seq, attempt)
            .ok_or_else(|| missing(format!("stage of step {seq}")))?;
        for earlier in (1..attempt).filter_map(|earlier| self.host.stage(&self.run, seq, earlier)) {
            // One that is in use by a process that is still dying is removed when the run has ended.
            let _ = earlier.remove();
        }
        let commands = plugin.runs_commands();
        let home = self.host.toolbox.engine().command_home();
        let (result, changes) = match stage.mount(home, commands) {
            Ok((mounted, since)) => {
                let execution = self.execution(index, plugin, attempt, begun).on(mounted);
                self.mark_start(&self.batch[index], attempt)?;
                let end = execution.run();
                // Unmounted, for all that this process has of it.
                drop(execution);
                self.reached(seq, Boundary::AfterExec)?;
                // Receipts were recorded meanwhile.
                self.batch[index] = self.reload(seq)?;
                match Ended::of(end) {
                    Ended::Known(StepResult::Completed { value }) => match self.take_from(seq, &stage, since)
                    {
                        Ok(collected) => (StepResult::Completed { value }, Some(collected)),
                        Err(error) => (StepResult::Failed { error }, None),
                    },
                    Ended::Known(StepResult::Failed { error }) | Ended::InDoubt(error) => {
                        (dropped(error), None)
                    }
                    Ended::Known(result) => (result, None),
                }
            }
            Err(error) => {
                let name = &self.batch[index].planned.name;
                let message =
                    format!("`{name}` was not called: it is contained, and this machine failed to {error}");
                let kind = "stage".to_owned();
                (
                    StepResult::Failed {
                        error: StepError { kind, message, effect: EffectState::NotApplied },
                    },
                    None,
                )
            }
        };
        let changes = changes.filter(|collected| !collected.changes.is_empty());
        let has_changes = changes.is_some();
        if let Some(collected) = changes {
            self.record_changes(index, attempt, collected);
        }
        self.settle(index, result, SettledBy::Execution, false);
        if !has_changes {
            self.reached(seq, Boundary::AfterCommit)?;
            // An earlier attempt may have died between its note and its commit.
            let _ = turn.map(|turn| turn.end_publishing());
            // One that stays is removed when the run has ended.
            let _ = stage.remove();
            return Ok(Flow::On);
        }
        // Before the commit: from then on nobody else may change the workspace first, whenever this process dies.
        self.host.note_publication(&self.run, seq, turn.as_deref())?;
        self.commit_durably()?;
        self.reached(seq, Boundary::AfterCommit)?;
        self.publish(index, turn)
    }

    /// What the call wrote on its stage, ready to be committed: synced, and in nobody's way.
    ///
    /// # Errors
    /// Why nothing of it may be published.
    pub(super) fn take_from(
        &self,
        seq: u64,
        stage: &Stage,
        began: Timestamp,
    ) -> Result<Collected, StepError> {
        let name = &self.planned(seq).name;
        let failed = |kind: &str, message: String| StepError {
            kind: kind.to_owned(),
            message: format!("`{name}` changed nothing: {message}"),
            effect: EffectState::NotApplied,
        };
        let unreadable = |error: StageError| failed("stage", format!("failed to {error}"));
        let collected = stage.collect(began).map_err(unreadable)?;
        if let Some(change) =
            collected.changes.iter().find(|change| change.path.as_path().to_str().is_some_and(is_operators))
        {
            let path = &change.path;
            return Err(failed(
                "denied",
                format!("it wrote `{path}`, by which the operator speaks, and no tool may"),
            ));
        }
        if !collected.conflicts.is_empty() {
            let mut message =
                String::from("somebody else changed the same files while it ran, and their version stays");
            for conflict in collected.conflicts.iter().take(NAMED) {
                let _ = write!(message, "\n`{}`: {}", conflict.path, conflict.what);
            }
            more(&mut message, collected.conflicts.len());
            return Err(failed("conflict", message));
        }
        for path in collected.skipped.iter().take(NAMED) {
            let message =
                format!("`{path}` was left out: what is neither file, directory nor link is not published");
            self.host.watcher.log(seq, LogLevel::Warn, &message);
        }
        stage.sync(&collected.changes).map_err(unreadable)?;
        Ok(collected)
    }

    fn planned(&self, seq: u64) -> &deed_journal::Planned {
        let step = self.batch.iter().find(|step| step.seq == seq);
        &step.expect("a call of this batch is under way").planned
    }

    /// Record what a contained attempt changed. Commits with its outcome, which comes next.
    pub(super) fn record_changes(&mut self, index: usize, attempt: u32, collected: Collected) {
        let mut step = self.batch[index].clone();
        let mut diff = collected.diff;
        for (number, changes) in (0..).zip(parts(collected.changes)) {
            let diff = std::mem::take(&mut diff);
            self.record(&mut step, StepEvent::Changes(Changes { attempt, number, changes, diff }));
        }
        self.batch[index] = step;
    }

    /// Bring what a settled step changed into the workspace. Where somebody else's version is, it stays, and the owner is asked.
    pub(super) fn publish(&mut self, index: usize, turn: Option<Arc<Turn>>) -> Result<Flow, RunError> {
        let mut step = self.batch[index].clone();
        let (seq, attempt) = (step.seq, step.attempt());
        let left = self.host.publish(&self.run, &step, turn.as_deref(), None, &|place| {
            if place == 0 {
                self.reached_now(seq, Boundary::MidPublish);
            }
        })?;
        self.reached(seq, Boundary::AfterPublish)?;
        let asks = !left.is_empty() && self.host.on_unknown == OnUnknown::Ask;
        let published = Published { asks, ..self.host.published(attempt, &left) };
        self.record(&mut step, StepEvent::Published(published));
        if !asks {
            return self.published(index, step, turn, &left);
        }
        let asked = self.host.conflict(&self.run, &step, &left);
        self.batch[index] = step;
        self.open(asked)?;
        if let Some(turn) = turn {
            // What is asked about is somebody else's: the others may go on.
            let _ = turn.end_publishing();
        }
        // The batch comes back to this step, and finds the question.
        Ok(Flow::On)
    }

    /// The publication of a step is over; its mark is recorded.
    fn published(
        &mut self,
        index: usize,
        step: Step,
        turn: Option<Arc<Turn>>,
        left: &[Left],
    ) -> Result<Flow, RunError> {
        let (seq, attempt) = (step.seq, step.attempt());
        let name = step.planned.name.clone();
        self.batch[index] = step;
        let stage = self
            .host
            .stage(&self.run, seq, attempt)
            .ok_or_else(|| missing(format!("stage of step {seq}")))?;
        self.release_once_durable(turn, stage);
        for left in left.iter().take(NAMED) {
            let message = format!("`{}` was left as it is: {left}", left.path);
            self.host.watcher.log(seq, LogLevel::Warn, &message);
        }
        if !left.is_empty() && self.host.on_unknown == OnUnknown::Fail {
            let result =
                format!("step {seq} `{name}`: somebody else's version stayed at {} of its paths", left.len());
            return self.end(RunStatus::Failed, Some(result));
        }
        Ok(Flow::On)
    }

    /// Take up a publication that an earlier process left, or that waits for the owner.
    pub(super) fn publish_pending(&mut self, index: usize) -> Result<Flow, RunError> {
        let mut step = self.batch[index].clone();
        let (seq, attempt) = (step.seq, step.attempt());
        let Some(Published { kept, .. }) = step.published.clone() else {
            let turn = self.take_turn(seq)?;
            return self.publish(index, turn);
        };
        // Nobody waits for his turn while the owner thinks.
        self.forget_publication()?;
        let id = WaitId { run: self.run.id, seq, revision: attempt };
        let option = if self.host.on_unknown != OnUnknown::Ask && !self.is_answered(id)? {
            self.answer(id, KEEP.to_owned(), Some("--on-unknown".to_owned()))?.option
        } else {
            match self.answer_to(id)? {
                Some(answer) => answer.option,
                None => return Ok(Flow::Waiting),
            }
        };
        let (turn, left) = if option == REPLACE {
            // The answer is durable before what it allows.
            self.commit_durably()?;
            let turn = self.take_turn(seq)?;
            let left = self.host.publish(&self.run, &step, turn.as_deref(), Some(&kept), &|_| {})?;
            (turn, left.into_iter().map(|left| left.path).collect())
        } else {
            (None, kept)
        };
        let published =
            Published { attempt, published_ms: self.host.clock.now_ms(), kept: left, asks: false };
        self.record(&mut step, StepEvent::Published(published));
        self.published(index, step, turn, &[])
    }

    /// Take back the note of a publication of this run's that is over, or waits for the owner. When the word of that was lost with
    /// the power, nobody else can give it.
    pub(super) fn forget_publication(&self) -> Result<(), RunError> {
        let (Some(directory), Some(workspace), Some(beside)) =
            (&self.host.locks_dir, &self.run.workspace, &self.host.beside)
        else {
            return Ok(());
        };
        let failed = |source| RunError::Turn { workspace: workspace.clone(), source };
        let lock = WorkspaceLock::new(directory, Path::new(workspace));
        let Some(turn) = lock.try_turn().map_err(failed)? else { return Ok(()) };
        match turn.unpublished().map_err(failed)? {
            Some(note) if note.run == self.run.id && note.journal == beside.journal() => {
                turn.end_publishing().map_err(failed)
            }
            _ => Ok(()),
        }
    }
}

impl Host {
    /// The stage of an attempt.
    pub(super) fn stage(&self, run: &Run, seq: u64, attempt: u32) -> Option<Stage> {
        let workspace = run.workspace.as_deref()?;
        Some(self.beside.as_ref()?.stage(run.id, seq, attempt, Path::new(workspace)))
    }

    /// Bring what a settled step changed into its workspace; what is left is what somebody else has changed. With `replaced`,
    /// those paths alone, whatever is there.
    fn publish(
        &self,
        run: &Run,
        step: &Step,
        turn: Option<&Turn>,
        replaced: Option<&[PathBytes]>,
        passed: &dyn Fn(usize),
    ) -> Result<Vec<Left>, RunError> {
        let seq = step.seq;
        let stage = self
            .stage(run, seq, step.attempt())
            .ok_or_else(|| missing(format!("workspace of step {seq}")))?;
        let failed = |source| RunError::Publish { run: run.id, seq, source: Box::new(source) };
        self.note_publication(run, seq, turn)?;
        let changes: Vec<Change> = match replaced {
            None => step.changes.clone(),
            Some(paths) => {
                let paths: BTreeSet<_> = paths.iter().collect();
                step.changes.iter().filter(|change| paths.contains(&change.path)).cloned().collect()
            }
        };
        let key = self.journal.key(run, seq).to_string();
        let left = stage.publish(&changes, &key, replaced.is_some(), passed).map_err(failed)?;
        // Whoever holds a lock of git's lets it go, and then it can be published.
        match left.iter().find_map(Left::lock) {
            Some(lock) => Err(failed(StageError::Locked { lock: lock.to_owned() })),
            None => Ok(left),
        }
    }

    /// Say in the workspace's lock that a publication begins.
    fn note_publication(&self, run: &Run, seq: u64, turn: Option<&Turn>) -> Result<(), RunError> {
        let (Some(turn), Some(beside)) = (turn, &self.beside) else { return Ok(()) };
        let note = Unpublished { journal: beside.journal().to_owned(), run: run.id, seq };
        let workspace = run.workspace.clone().unwrap_or_default();
        turn.begin_publishing(&note).map_err(|source| RunError::Turn { workspace, source })
    }

    fn published(&self, attempt: u32, left: &[Left]) -> Published {
        let kept = left.iter().map(|left| left.path.clone()).collect();
        Published { attempt, published_ms: self.clock.now_ms(), kept, asks: false }
    }

    /// The question which version of some files is to stay.
    fn conflict(&self, run: &Run, step: &Step, left: &[Left]) -> Asked {
        let stage = self.stage(run, step.seq, step.attempt());
        let is_lost = left.iter().any(Left::is_lost);
        let options = if is_lost { &[KEEP][..] } else { &[KEEP, REPLACE] };
        let mut question = format!(
            "Which version is to stay? `{}` (step {}) is done, and somebody else changed what it changed before that was in the workspace. `{KEEP}` leaves theirs, `{REPLACE}` puts that of the step in its place",
            step.planned.name, step.seq
        );
        for left in left.iter().take(NAMED) {
            let _ = write!(question, "\n`{}`: {left}", left.path);
        }
        more(&mut question, left.len());
        if let Some(stage) = &stage {
            let _ = write!(
                question,
                "\ntheirs is in `{}`, that of the step in `{}`",
                stage.workspace().display(),
                stage.written().display()
            );
        }
        Asked {
            id: WaitId { run: run.id, seq: step.seq, revision: step.attempt() },
            kind: WaitKind::Conflict,
            name: step.planned.name.clone(),
            question,
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            opened_ms: self.clock.now_ms(),
            // Neither version becomes the right one by waiting.
            expires_ms: None,
        }
    }

    /// End the publication that another run, of this journal or not, left in the workspace of which this is the turn.
    pub(super) fn end_others_publication(&self, run: &Run, turn: &Turn) -> Result<(), RunError> {
        let workspace = run.workspace.clone().unwrap_or_default();
        let failed = |source| RunError::Turn { workspace: workspace.clone(), source };
        let Some(note) = turn.unpublished().map_err(failed)? else { return Ok(()) };
        if self.beside.as_ref().is_none_or(|beside| beside.journal() != note.journal) {
            if note.journal.exists() {
                return Err(RunError::Unpublished { workspace, note: Box::new(note) });
            }
            // Nobody will ever end it.
            return turn.end_publishing().map_err(failed);
        }
        if note.run == run.id {
            // This run comes to it by itself.
            return Ok(());
        }
        let reader = self.journal.read();
        let pending = match (reader.run(note.run)?, reader.step(note.run, note.seq)?) {
            (Some(other), Some(step)) if step.is_pending() => Some((other, step)),
            _ => None,
        };
        if let Some((other, step)) = pending {
            let (run, seq, attempt) = (other.id, step.seq, step.attempt());
            let event = |published| Op::Step { run, seq, event: StepEvent::Published(published) };
            let ops = match &step.published {
                None => {
                    let left = self.publish(&other, &step, Some(turn), None, &|_| {})?;
                    let asks = !left.is_empty();
                    let mut ops = vec![event(Published { asks, ..self.published(attempt, &left) })];
                    if asks {
                        ops.push(Op::Ask(self.conflict(&other, &step, &left)));
                        ops.push(Op::UpdateRun(Box::new(Run { status: RunStatus::Waiting, ..other })));
                    }
                    ops
                }
                // A `replace` that was cut short is ended; a question has its answer from its own run.
                Some(published) => {
                    let wait = reader.wait(WaitId { run, seq, revision: attempt })?;
                    let answer = wait.and_then(|wait| wait.answer);
                    if answer.is_some_and(|answer| answer.option == REPLACE) {
                        let kept = Some(&published.kept[..]);
                        let left = self.publish(&other, &step, Some(turn), kept, &|_| {})?;
                        vec![event(self.published(attempt, &left))]
                    } else {
                        Vec::new()
                    }
                }
            };
            if !ops.is_empty() {
                self.journal.commit(ops, Durability::Durable)?;
            }
        }
        turn.end_publishing().map_err(failed)
    }
}

/// Say how many more there are than were named.
fn more(text: &mut String, count: usize) {
    if count > NAMED {
        let _ = write!(text, "\nand {} more", count - NAMED);
    }
}

/// Changes in parts that fit in a record each.
fn parts(changes: Vec<Change>) -> Vec<Vec<Change>> {
    let mut parts: Vec<Vec<Change>> = Vec::new();
    let mut bytes = PART_BYTES;
    for change in changes {
        let size = serde_json::to_vec(&change).map_or(0, |json| json.len() + 1);
        if bytes + size > PART_BYTES {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += size;
        if let Some(part) = parts.last_mut() {
            part.push(change);
        }
    }
    parts
}

/// What becomes of a contained call that did not come to a good end: nothing.
pub(super) fn dropped(mut error: StepError) -> StepResult {
    error.message.push_str("\nwhat it had written in the workspace was dropped");
    error.effect = EffectState::NotApplied;
    StepResult::Failed { error }
}

#[cfg(test)]
mod tests {
    use deed_journal::Version;

    use super::*;

    #[test]
    fn many_changes_take_several_records() {
        let change = |number: usize| Change {
            path: PathBytes::new(format!("{number:0>4000}")),
            base: Version::Absent,
            staged: Version::Directory { mode: 0o755 },
        };
        let changes: Vec<_> = (0..2000).map(change).collect();
        let parts = parts(changes.clone());
        assert_eq!(parts.len(), 2);
        assert_eq!(parts.concat(), changes);
        assert!(parts.iter().all(|part| serde_json::to_vec(part).unwrap().len() <= PART_BYTES + 1));
    }
}
