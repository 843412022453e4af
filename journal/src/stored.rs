//! Records that add up to one thing: the events of a step, the messages of a branch. Read whole, or not at all.

use std::collections::HashMap;

use crate::id::RunId;
use crate::record::{self, Key, ReadError};
use crate::session::{Head, Message, Session};
use crate::step::{Step, StepEvent};
use crate::storage::Snapshot;

/// The step at (run, seq) with the number of its events, if it is planned.
pub(crate) fn step(view: &dyn Snapshot, run: RunId, seq: u64) -> Result<Option<(Step, u64)>, ReadError> {
    let pairs = record::pairs(view, &Key::step(run, seq))?;
    if pairs.is_empty() { Ok(None) } else { fold(view, run, seq, &pairs).map(Some) }
}

/// Every step of a run, in order. A gap in their numbers is damage.
pub(crate) fn steps(view: &dyn Snapshot, run: RunId) -> Result<Vec<Step>, ReadError> {
    let pairs = record::pairs(view, &Key::steps(run))?;
    let groups = pairs.chunk_by(|(a, _), (b, _)| Key::seq_of_step_event(a) == Key::seq_of_step_event(b));
    (1..)
        .zip(groups)
        .map(|(expected, group)| {
            let seq = Key::seq_of_step_event(&group[0].0);
            if seq != Some(expected) {
                return Err(damaged_step(run, expected, "it is missing"));
            }
            fold(view, run, expected, group).map(|(step, _)| step)
        })
        .collect()
}

/// The events of one step, in the order they were recorded.
pub(crate) fn events(view: &dyn Snapshot, run: RunId, seq: u64) -> Result<Vec<StepEvent>, ReadError> {
    let mut pairs = record::pairs(view, &Key::step(run, seq))?;
    pairs.retain(|(key, _)| key != Key::step_head(run, seq).as_bytes());
    pairs.into_iter().map(|(key, bytes)| record::decode(view, &key, &bytes)).collect()
}

/// The step that raw records add up to: events, then their number, so that a record that vanished is noticed.
fn fold(view: &dyn Snapshot, run: RunId, seq: u64, pairs: &[record::Pair]) -> Result<(Step, u64), ReadError> {
    let missing = || damaged_step(run, seq, "one of its records is missing");
    let Some(((head_key, head), events)) = pairs.split_last() else { return Err(missing()) };
    if head_key != Key::step_head(run, seq).as_bytes() {
        return Err(missing());
    }
    let counted: u64 = record::decode(view, head_key, head)?;
    if counted != events.len() as u64 {
        return Err(missing());
    }
    let events: Vec<StepEvent> =
        events.iter().map(|(key, bytes)| record::decode(view, key, bytes)).collect::<Result<_, _>>()?;
    let step = Step::fold(seq, events).map_err(|reason| damaged_step(run, seq, reason))?;
    Ok((step, counted))
}

pub(crate) fn damaged_step(run: RunId, seq: u64, reason: &str) -> ReadError {
    ReadError::Damaged { record: format!("step {seq} of run {run}"), reason: reason.to_owned() }
}

/// The messages of a branch, first to last. A message that changed or vanished is damage, never a shorter transcript.
pub(crate) fn branch(
    view: &dyn Snapshot,
    session: &Session,
    head: Option<Head>,
) -> Result<Vec<Message>, ReadError> {
    let Some(head) = head else { return Ok(Vec::new()) };
    let messages = chain(view, session, head.message)?;
    if messages.len() as u64 != head.count || messages.last().map(|message| message.hash) != Some(head.hash) {
        return Err(damaged_session(session, "its head does not fit its messages"));
    }
    Ok(messages)
}

/// The messages that lead to one, first to last. Their hash chain is checked.
pub(crate) fn chain(view: &dyn Snapshot, session: &Session, last: u64) -> Result<Vec<Message>, ReadError> {
    let stored: Vec<Message> = record::read_all(view, &Key::messages(session.id))?;
    let mut by_id: HashMap<u64, Message> = stored.into_iter().map(|message| (message.id, message)).collect();
    let mut messages = Vec::new();
    let mut next = Some(last);
    while let Some(id) = next {
        // Taken out, so that a chain that bites its tail ends.
        let message =
            by_id.remove(&id).ok_or_else(|| damaged_session(session, &format!("message {id} is missing")))?;
        next = message.parent;
        messages.push(message);
    }
    messages.reverse();
    let mut parent = None;
    for message in &messages {
        if message.hash != Message::chain(parent.as_ref(), &message.body) {
            return Err(damaged_session(session, &format!("message {} does not fit its hash", message.id)));
        }
        parent = Some(message.hash);
    }
    Ok(messages)
}

fn damaged_session(session: &Session, reason: &str) -> ReadError {
    ReadError::Damaged { record: format!("session {}", session.id), reason: reason.to_owned() }
}
