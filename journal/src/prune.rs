//! Retention: ended runs are removed by age and by count. What is not settled never is.

use crate::commit::{CommitError, Op};
use crate::id::RunId;
use crate::journal::Journal;
use crate::reader::Reader;
use crate::record::ReadError;
use crate::storage::Durability;

/// A run that a caller's own key stands for stays this long after it ended, whatever the policy: 30 days, in which a
/// second call with the key still returns the first one's outcome.
pub const CALL_KEY_MS: u64 = 30 * 24 * 60 * 60 * 1000;

/// Which ended runs may go. A run goes when one of the two rules says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrunePolicy {
    /// Runs that ended this many milliseconds ago, or longer.
    pub older_than_ms: Option<u64>,
    /// All ended runs but this many of the newest.
    pub keep: Option<usize>,
}

impl Reader {
    /// The runs that [`Journal::prune`] would remove at `now_ms`, oldest first.
    pub fn prune_plan(&self, policy: PrunePolicy, now_ms: u64) -> Result<Vec<RunId>, ReadError> {
        let mut ended = self.runs()?.items;
        ended.retain(|run| run.status.has_ended());
        let surplus = policy.keep.map_or(0, |keep| ended.len().saturating_sub(keep));
        let ended = ended.into_iter().enumerate().filter(|(index, run)| {
            let age_ms = now_ms.saturating_sub(run.ended_ms.unwrap_or(run.created_ms));
            let by_rule = *index < surplus || policy.older_than_ms.is_some_and(|limit| age_ms >= limit);
            by_rule && (run.call_key.is_none() || age_ms >= CALL_KEY_MS)
        });
        Ok(ended.map(|(_, run)| run.id).collect())
    }
}

impl Journal {
    /// The runs that [`prune`](Self::prune) would remove at `now_ms`, oldest first.
    pub fn prune_plan(&self, policy: PrunePolicy, now_ms: u64) -> Result<Vec<RunId>, ReadError> {
        self.read().prune_plan(policy, now_ms)
    }

    /// Remove ended runs, each with its steps, its questions and the session it began. Each goes whole or stays whole,
    /// whatever happens meanwhile; all that went is durable when this returns. The file keeps its size until it is
    /// compacted. Returns the runs that went.
    pub fn prune(&self, policy: PrunePolicy, now_ms: u64) -> Result<Vec<RunId>, CommitError> {
        let runs = self.prune_plan(policy, now_ms)?;
        for run in &runs {
            self.commit(vec![Op::DropRun(*run)], Durability::Riding)?;
        }
        self.sync()?;
        Ok(runs)
    }
}
