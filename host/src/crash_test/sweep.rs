//! Every case, a few at a time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::case::Case;
use super::difference::Verdict;
use super::judge::{Evidence, Judgement, judge};
use super::passage::Orders;
use super::report::CaseReport;
use super::tester::{Reference, Tester, read_trace};
use super::tools::ToolRow;
use super::trace::TraceLine;
use super::world::World;
use super::{CrashTestError, Progress};
use crate::boundary::Boundary;

/// What a case came to, and what later comparisons need of it.
pub(super) struct Tried {
    pub(super) report: CaseReport,
    pub(super) findings: Vec<(super::FindingKind, String)>,
    pub(super) trace: Vec<TraceLine>,
    /// The world right after the kill, where it was looked at.
    pub(super) at_kill: Option<World>,
}

/// Run `cases`, `jobs` at a time. What was tried before a stop is given back.
pub(super) fn sweep(
    tester: &Tester<'_>,
    reference: &Reference,
    tools: &BTreeMap<String, ToolRow>,
    cases: &[Case],
    jobs: usize,
    (keep, progress): (Option<&Path>, &dyn Progress),
) -> Result<Vec<Tried>, CrashTestError> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Tried)>> = Mutex::default();
    let failed: Mutex<Option<CrashTestError>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, cases.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(number) else { return };
                    match attempt(tester, reference, tools, *case, keep) {
                        Ok(tried) => {
                            progress.done(&tried.report);
                            done.lock().unwrap_or_else(PoisonError::into_inner).push((number, tried));
                        }
                        Err(error) => {
                            // The others would meet the same.
                            next.store(cases.len(), Ordering::Relaxed);
                            failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                            return;
                        }
                    }
                }
            });
        }
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        None | Some(CrashTestError::Stopped) => {}
        Some(error) => return Err(error),
    }
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, tried)| tried).collect())
}

fn attempt(
    tester: &Tester<'_>,
    reference: &Reference,
    tools: &BTreeMap<String, ToolRow>,
    case: Case,
    keep: Option<&Path>,
) -> Result<Tried, CrashTestError> {
    let place = tester.place()?;
    let boundary = case.first().map(|point| point.boundary);
    let look = matches!(boundary, Some(Boundary::BeforeIntent | Boundary::AfterExec));
    let passage = tester.pass(&place, Orders { case: Some(case), look, ..Orders::default() })?;
    let snapshot = match passage.broken {
        None => Some(tester.snapshot(&place)?),
        Some(_) => None,
    };
    let trace = read_trace(&place)?;
    let evidence = Evidence { case, passage: &passage, snapshot: snapshot.as_ref(), trace: &trace };
    let Judgement { verdict, differences, findings, seq } = judge(reference, tools, &evidence);
    let fails = verdict > Verdict::Asked || findings.iter().any(|(kind, _)| kind.is_failure());
    let mut kept = None;
    match keep.filter(|_| fails) {
        Some(keep) => {
            let to = keep.join(case.to_string().replace([':', '+'], "-"));
            place.keep(&to)?;
            kept = Some(to);
        }
        None => place.remove()?,
    }
    let step = seq.and_then(|seq| reference.snapshot.step(seq));
    let report = CaseReport {
        case,
        seq,
        tool: step.filter(|step| super::snapshot::is_tool(step)).map(|step| step.planned.name.clone()),
        step: step.map(|step| format!("{}/{}", step.planned.kind.as_str(), step.planned.name)),
        boundary,
        verdict,
        fails,
        processes: passage.processes.len(),
        kills: passage.kills,
        asked: passage.asked,
        messages: findings.iter().map(|(_, message)| message.clone()).collect(),
        differences,
        kept,
        replay: String::new(),
    };
    Ok(Tried { report, findings, trace, at_kill: passage.at_kill })
}
