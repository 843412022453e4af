//! Many runs, each killed somewhere else.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use crate::{Kill, Owner, Passage, Sandbox, Snapshot};

/// Cases under way at a time. A case is one process at a time, and waits for the disk about as often as for the processor.
const THREADS: usize = 2;

/// A run that was killed at one point, and what came of it.
pub struct Trial {
    /// Where the process was to die.
    pub kill: Kill,
    /// What happened on the way.
    pub passage: Passage,
    /// What was there afterwards.
    pub snapshot: Snapshot,
}

/// The undisturbed run of a mission.
///
/// # Errors
/// Says what did not go as documented.
pub fn reference(mission: &str, owner: Owner<'_>) -> Result<(Passage, Snapshot), String> {
    let sandbox = Sandbox::of(mission);
    let passage = sandbox.run_to_end(None, owner)?;
    let snapshot = Snapshot::take(&sandbox, &passage)?;
    Ok((passage, snapshot))
}

/// A run of a mission that is killed once.
///
/// # Errors
/// Says, with the point, what did not go as documented.
pub fn trial(mission: &str, kill: Kill, owner: Owner<'_>) -> Result<Trial, String> {
    let sandbox = Sandbox::of(mission);
    let attempt = || {
        let passage = sandbox.run_to_end(Some(kill), owner)?;
        let snapshot = Snapshot::take(&sandbox, &passage)?;
        Ok(Trial { kill, passage, snapshot })
    };
    attempt().map_err(|error: String| format!("killed at {kill}: {error}"))
}

/// Run every case, a few at a time, and give the results in the order of the cases. A panic is a result as well, so that
/// one broken case does not hide the others.
pub fn sweep<T, R>(cases: &[T], run: impl Fn(&T) -> Result<R, String> + Sync) -> Vec<Result<R, String>>
where
    T: Sync,
    R: Send,
{
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<Result<R, String>>>> = Mutex::new(cases.iter().map(|_| None).collect());
    thread::scope(|scope| {
        for _ in 0..THREADS.min(cases.len()) {
            scope.spawn(|| {
                while let Some((number, case)) = claim(&next, cases) {
                    let result = catch_unwind(AssertUnwindSafe(|| run(case))).unwrap_or_else(|panic| {
                        let text = panic.downcast_ref::<String>().map(String::as_str);
                        Err(text.or_else(|| panic.downcast_ref().copied()).unwrap_or("a panic").to_owned())
                    });
                    results.lock().expect("nothing panics while it holds this")[number] = Some(result);
                }
            });
        }
    });
    let results = results.into_inner().expect("nothing panics while it holds this");
    results.into_iter().map(|result| result.expect("every case was claimed")).collect()
}

fn claim<'a, T>(next: &AtomicUsize, cases: &'a [T]) -> Option<(usize, &'a T)> {
    let number = next.fetch_add(1, Ordering::Relaxed);
    cases.get(number).map(|case| (number, case))
}
