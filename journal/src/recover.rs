//! Recovering sessions: what becomes of a turn that a crash cut short. Runs recover by themselves, from their own
//! records; this is for sessions whose turns nobody takes on.

use crate::commit::{CommitError, Op};
use crate::id::{RunId, SessionId};
use crate::journal::Journal;
use crate::reader::Reader;
use crate::record::ReadError;
use crate::run::Run;
use crate::session::{RewriteKind, Session};
use crate::storage::Durability;

/// What becomes of the messages that a turn in flight had written when it was cut short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TailPolicy {
    /// They stay, and nothing is said.
    Keep,
    /// They stay, and the report says so.
    #[default]
    KeepAndWarn,
    /// They are cut off `main`; the session's log of rewrites leads to them.
    Strip,
}

/// What recovery does about one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecoveryAction {
    /// Nothing: the run that began the session has not ended, and takes its turn on when it is resumed.
    LeaveToRun(RunId),
    /// The marker is cleared. So many messages of the turn stay.
    Keep {
        /// Messages after the turn's base.
        messages: u64,
        /// The policy asks to say so.
        warn: bool,
    },
    /// The marker is cleared, and so many messages are cut off.
    Strip {
        /// Messages after the turn's base.
        messages: u64,
    },
}

/// One line of a recovery's plan, and of its report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryItem {
    /// The session.
    pub session: SessionId,
    /// The turn that was in flight.
    pub turn: String,
    /// What is done about it.
    pub action: RecoveryAction,
}

impl Reader {
    /// Exactly what [`Journal::recover`] would do now.
    pub fn recovery_plan(&self, policy: TailPolicy) -> Result<Vec<RecoveryItem>, ReadError> {
        let sessions = self.sessions()?.items;
        let flying = sessions.iter().filter(|session| session.turn.is_some());
        flying.map(|session| self.plan_one(session, policy)).filter_map(Result::transpose).collect()
    }

    fn plan_one(&self, session: &Session, policy: TailPolicy) -> Result<Option<RecoveryItem>, ReadError> {
        let Some(turn) = &session.turn else { return Ok(None) };
        // A run that cannot be read may not have ended.
        let run: Option<Run> = match session.run.map(|run| (run, self.run(run))) {
            Some((run, Err(ReadError::Damaged { .. } | ReadError::Newer { .. }))) => {
                let action = RecoveryAction::LeaveToRun(run);
                return Ok(Some(RecoveryItem { session: session.id, turn: turn.id.clone(), action }));
            }
            Some((_, run)) => run?,
            None => None,
        };
        // What a rewrite took the base from under is no tail of the turn.
        let beyond = session.base().count().saturating_sub(turn.base.count());
        let messages = if self.extends(session)? { beyond } else { 0 };
        let action = match run.filter(|run| !run.status.has_ended()) {
            Some(run) => RecoveryAction::LeaveToRun(run.id),
            None if policy == TailPolicy::Strip && messages > 0 => RecoveryAction::Strip { messages },
            None => RecoveryAction::Keep { messages, warn: policy != TailPolicy::Keep && messages > 0 },
        };
        Ok(Some(RecoveryItem { session: session.id, turn: turn.id.clone(), action }))
    }

    /// Whether `main` still begins with the base of its turn in flight.
    fn extends(&self, session: &Session) -> Result<bool, ReadError> {
        let Some(base) = session.turn.as_ref().and_then(|turn| turn.base.main) else { return Ok(true) };
        let main = self.transcript(session.id)?;
        let index = usize::try_from(base.count - 1).unwrap_or(usize::MAX);
        Ok(main.get(index).is_some_and(|message| message.hash == base.hash))
    }
}

impl Journal {
    /// Exactly what [`recover`](Self::recover) would do now. Writes nothing.
    pub fn recovery_plan(&self, policy: TailPolicy) -> Result<Vec<RecoveryItem>, ReadError> {
        self.read().recovery_plan(policy)
    }

    /// Settle the turns in flight that nobody takes on. Again, it finds nothing to do. Each session's part is one commit,
    /// so that a crash inside leaves some sessions recovered and the others as they were. Returns what was done, which is
    /// what the plan said.
    pub fn recover(&self, policy: TailPolicy, at_ms: u64) -> Result<Vec<RecoveryItem>, CommitError> {
        let plan = self.recovery_plan(policy)?;
        for item in &plan {
            let clear = Op::ClearTurn { session: item.session, turn: item.turn.clone() };
            let ops = match item.action {
                RecoveryAction::LeaveToRun(_) => continue,
                RecoveryAction::Keep { .. } => vec![clear],
                RecoveryAction::Strip { messages } => {
                    let Some(session) = self.read().session(item.session)? else { continue };
                    let base = session.base();
                    let keep = base.count() - messages;
                    let kind = RewriteKind::Recover;
                    let messages = Vec::new();
                    vec![Op::Rewrite { session: item.session, base, keep, messages, kind, at_ms }, clear]
                }
            };
            self.commit(ops, Durability::Durable)?;
        }
        Ok(plan)
    }
}
