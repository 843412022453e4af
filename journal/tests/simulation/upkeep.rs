//! What pruning and recovering sessions must do, by the model.

use deed_journal::{Op, RecoveryAction, RecoveryItem, RewriteKind, RunId, TailPolicy};

use crate::model::Model;

impl Model {
    /// The runs that go when the newest `keep` of the ended ones stay. Runs with a call key are all too young to go.
    pub fn surplus(&self, keep: usize) -> Vec<RunId> {
        let mut ended: Vec<_> =
            self.runs.values().map(|state| &state.run).filter(|run| run.status.has_ended()).collect();
        ended.sort_by_key(|run| run.number);
        ended.truncate(ended.len().saturating_sub(keep));
        ended.into_iter().filter(|run| run.call_key.is_none()).map(|run| run.id).collect()
    }

    /// What becomes of each turn in flight, and the operations that do it.
    pub fn recovery(&self, policy: TailPolicy) -> Vec<(RecoveryItem, Vec<Op>)> {
        let mut sessions: Vec<_> = self.sessions.iter().collect();
        sessions.sort_by_key(|(id, session)| (session.created_ms, **id));
        let flying = sessions.into_iter().filter_map(|(id, state)| Some((*id, state, state.turn.as_ref()?)));
        flying
            .map(|(session, state, turn)| {
                let base = state.base();
                let owner = state.run.and_then(|run| self.runs.get(&run));
                let extends = match turn.base.main {
                    None => true,
                    Some(head) => state
                        .main
                        .iter()
                        .zip(1u64..)
                        .any(|(message, count)| count == head.count && message.hash == head.hash),
                };
                let beyond = base.count().saturating_sub(turn.base.count());
                let messages = if extends { beyond } else { 0 };
                let clear = Op::ClearTurn { session, turn: turn.id.clone() };
                let (action, ops) = match owner.filter(|run| !run.run.status.has_ended()) {
                    Some(run) => (RecoveryAction::LeaveToRun(run.run.id), Vec::new()),
                    None if policy == TailPolicy::Strip && messages > 0 => {
                        let (keep, kind) = (turn.base.count(), RewriteKind::Recover);
                        let cut = Op::Rewrite { session, base, keep, messages: Vec::new(), kind, at_ms: 0 };
                        (RecoveryAction::Strip { messages }, vec![cut, clear])
                    }
                    None => {
                        let warn = policy != TailPolicy::Keep && messages > 0;
                        (RecoveryAction::Keep { messages, warn }, vec![clear])
                    }
                };
                (RecoveryItem { session, turn: turn.id.clone(), action }, ops)
            })
            .collect()
    }
}
