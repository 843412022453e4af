//! The check itself, of a copy, in a process that may die of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use deed_journal::{Head, OpenError, ReadError, Reader, Run, Session, VerifyReport};
use rustix::process::{Resource, Rlimit, setrlimit};

use super::super::{Global, journal_path, output};
use super::{Damage, Report};

/// What the check may take: it holds all records at once, small ones with an overhead of some times their size. A damaged
/// store can lead it around in circles, and this is where they end.
const MEMORY_BASE: u64 = 1 << 30;
/// See [`MEMORY_BASE`].
const MEMORY_PER_BYTE: u64 = 8;

/// Check a copy as a whole.
pub(super) fn whole(global: &Global, copy: &Path) -> Report {
    // Without a limit all the same: it is there for a case that hardly occurs.
    let _ = limit_memory(copy);
    match open(global, copy, Reader::verify) {
        Ok(VerifyReport { records, runs, sessions, damage }) => {
            let damage = damage.into_iter().map(named).collect();
            Report { records: Some(records), runs, sessions, damage }
        }
        Err(reason) => Report { damage: vec![Damage::of("store", reason)], ..Report::default() },
    }
}

/// Check a copy that cannot be checked as a whole: each run and each session for itself, so that one which takes the
/// reader down leaves the others to be told.
pub(super) fn in_pieces(global: &Global, copy: &Path) -> Report {
    let _ = limit_memory(copy);
    // What a panic has to say is in the report.
    std::panic::set_hook(Box::new(|_| {}));
    let mut report = Report::default();
    match survive(|| open(global, copy, |reader| reader.runs().map(output::listed))) {
        Ok(runs) => {
            for run in runs {
                let read = survive(|| open(global, copy, |reader| read_run(reader, &run)));
                report.runs += u64::from(report.note(&format!("run {}", run.id), read));
            }
        }
        Err(reason) => report.damage.push(Damage::of("list of runs", reason)),
    }
    match survive(|| open(global, copy, |reader| reader.sessions().map(output::listed))) {
        Ok(sessions) => {
            for session in sessions {
                let read = survive(|| open(global, copy, |reader| read_session(reader, &session)));
                report.sessions += u64::from(report.note(&format!("session {}", session.id), read));
            }
        }
        Err(reason) => report.damage.push(Damage::of("list of sessions", reason)),
    }
    report
}

impl Report {
    /// Keep what is damaged; says whether all is well.
    fn note(&mut self, record: &str, read: Result<(), String>) -> bool {
        let Err(reason) = read else { return true };
        self.damage.push(Damage::of(record, reason));
        false
    }
}

fn read_run(reader: &Reader, run: &Run) -> Result<(), ReadError> {
    reader.steps(run.id)?;
    reader.waits(run.id)?;
    reader.run_source(run.id)?;
    Ok(())
}

fn read_session(reader: &Reader, session: &Session) -> Result<(), ReadError> {
    reader.transcript(session.id)?;
    let rewrites = reader.rewrites(session.id)?;
    let left = rewrites.iter().filter_map(|rewrite| rewrite.before);
    let heads: Vec<Head> = session.heads.values().copied().chain(left).collect();
    heads.into_iter().try_for_each(|head| reader.branch(session, head).map(drop))
}

/// Read something of the copy. What a crash left is repaired there.
fn open<T, E: Into<ReadError>>(
    global: &Global,
    copy: &Path,
    read: impl FnOnce(&Reader) -> Result<T, E>,
) -> Result<T, String> {
    let read = |reader: &Reader| read(reader).map_err(|error| error.into().to_string());
    match Reader::open(copy) {
        Ok(reader) => read(&reader),
        Err(OpenError::NeedsRepair(_)) => {
            let journal = journal_path::open(global, copy).map_err(|error| cause(&*error))?;
            read(journal.read())
        }
        Err(error) => Err(cause(&error)),
    }
}

/// The result of `read`, also when it panics: nothing it leaves behind is used again.
fn survive<T>(read: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().cloned();
        let words = words.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        Err(format!("reading it panics: {}", words.unwrap_or_default()))
    })
}

/// An error without the name of the copy in it.
fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

fn named(error: ReadError) -> Damage {
    let reason = error.to_string();
    match error {
        ReadError::Damaged { record, reason } => Damage { record, reason },
        ReadError::Newer { record, .. } => Damage { record, reason },
        ReadError::Storage(_) => Damage::of("store", reason),
    }
}

fn limit_memory(copy: &Path) -> std::io::Result<()> {
    let bytes = std::fs::metadata(copy)?.len().saturating_mul(MEMORY_PER_BYTE).saturating_add(MEMORY_BASE);
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none)?;
    setrlimit(Resource::As, Rlimit { current: Some(bytes), maximum: Some(bytes) })?;
    Ok(())
}
