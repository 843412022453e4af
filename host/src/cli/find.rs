//! Finding what a person names: a run by the start of its id, a question by its id, a session.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use deed_journal::{Reader, Run, SessionId, WaitId};

use super::failure::Usage;
use super::output;

/// The least that names a run.
const SHORTEST: usize = 4;

/// The run whose id is or begins with `text`.
pub(super) fn run(reader: &Reader, text: &str) -> Result<Run> {
    if text.len() < SHORTEST {
        return Err(Usage(format!(
            "`{text}` is too short to name a run: give at least {SHORTEST} digits of its id"
        ))
        .into());
    }
    let mut found: Vec<_> = output::listed(reader.runs()?)
        .into_iter()
        .filter(|run| run.id.to_string().starts_with(text))
        .collect();
    match (found.pop(), found.len()) {
        (Some(run), 0) => Ok(run),
        (None, _) => Err(Usage(format!("there is no run `{text}`; `deed runs` lists them")).into()),
        (Some(_), more) => Err(Usage(format!("`{text}` names {} runs; give more digits", more + 1)).into()),
    }
}

/// The question that `text` names, such as `3fa91c02-17` or `3fa91c02-17.2`.
pub(super) fn wait(reader: &Reader, text: &str) -> Result<WaitId> {
    let unknown = || Usage(format!("there is no question `{text}`; `deed waits` lists the open ones"));
    let (id, rest) = text.split_once('-').with_context(unknown)?;
    let (seq, revision) = rest.split_once('.').unwrap_or((rest, "1"));
    let run = run(reader, id).with_context(unknown)?.id;
    let id = WaitId {
        run,
        seq: seq.parse().with_context(unknown)?,
        revision: revision.parse().with_context(unknown)?,
    };
    reader.wait(id)?.with_context(unknown)?;
    Ok(id)
}

/// The session that `text` names: a session's id or its start, or a run.
pub(super) fn session(reader: &Reader, text: &str) -> Result<SessionId> {
    if text.len() < SHORTEST {
        return Err(Usage(format!(
            "`{text}` is too short to name a session: give at least {SHORTEST} digits of its id"
        ))
        .into());
    }
    // A whole id also names a session whose record is damaged, and says so.
    if let Ok(id) = text.parse::<SessionId>()
        && reader.session(id)?.is_some()
    {
        return Ok(id);
    }
    let sessions = output::listed(reader.sessions()?);
    let by_id = sessions.iter().map(|session| session.id).filter(|id| id.to_string().starts_with(text));
    let runs = output::listed(reader.runs()?);
    let by_run = runs.iter().filter(|run| run.id.to_string().starts_with(text)).map(|run| run.session);
    let mut found: BTreeSet<_> = by_id.chain(by_run).collect();
    match (found.pop_first(), found.len()) {
        (Some(session), 0) => Ok(session),
        (None, _) => {
            let reason = format!("there is no session or run `{text}`; `deed session list` lists them");
            Err(Usage(reason).into())
        }
        (Some(_), more) => {
            Err(Usage(format!("`{text}` names {} sessions; give more digits", more + 1)).into())
        }
    }
}
