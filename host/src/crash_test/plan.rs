//! Which cases are tried.

use super::case::Case;
use super::report::OWN_STEPS;
use super::snapshot::is_tool;
use super::tester::Reference;
use super::{CrashTest, CrashTestError};
use crate::boundary::{Boundary, KillPoint};

/// The cases of one test.
pub(super) struct Plan {
    pub(super) cases: Vec<Case>,
    /// Nothing was left out by choice.
    pub(super) complete: bool,
}

impl Plan {
    /// Every point that the undisturbed run crosses, or those that were asked for. `operations` is what the store does in
    /// such a run.
    pub(super) fn of(
        test: &CrashTest,
        reference: &Reference,
        operations: usize,
    ) -> Result<Self, CrashTestError> {
        if let Some(case) = test.case {
            if let Some(point) = case.first()
                && !reference.points.contains(&point)
            {
                let (case, reason) = (case.to_string(), "the undisturbed run does not cross this point");
                return Err(CrashTestError::NoSuchCase { case, reason: reason.to_owned() });
            }
            return Ok(Self { cases: vec![case], complete: false });
        }
        let row = |seq: u64| {
            let step = reference.snapshot.step(seq).filter(|step| is_tool(step));
            step.map_or(OWN_STEPS, |step| step.planned.name.as_str())
        };
        if let Some(unknown) =
            test.only.iter().find(|only| !reference.points.iter().any(|point| row(point.seq) == **only))
        {
            return Err(CrashTestError::Nothing(format!("no call of `{unknown}` in this run")));
        }
        let wanted = |point: &&KillPoint| {
            (test.only.is_empty() || test.only.iter().any(|only| only == row(point.seq)))
                && (test.at.is_empty() || test.at.contains(&point.boundary))
        };
        let points: Vec<KillPoint> = reference.points.iter().filter(wanted).copied().collect();
        let mut cases: Vec<Case> = points.iter().copied().map(Case::Kill).collect();
        if test.double {
            cases.extend(
                points.iter().flat_map(|point| Boundary::ALL.map(|second| Case::Double(*point, second))),
            );
        }
        let mut random = Random(test.seed);
        // Pure calls that run side by side settle together or apart, so runs differ by some operations of the store. Near the
        // end of the count, a run may be over before the power goes.
        let surely = operations - operations / 8;
        cases.extend(
            (0..test.power_cuts).map(|_| Case::PowerCut {
                operation: random.below(surely.max(1)),
                seed: random.number() >> 32,
            }),
        );
        let mut complete = test.only.is_empty() && test.at.is_empty();
        if let Some(sample) = test.sample
            && sample < cases.len()
        {
            complete = false;
            // The first `sample` of a shuffle, in the order they had.
            let mut order: Vec<usize> = (0..cases.len()).collect();
            for at in 0..sample {
                let other = at + random.below(order.len() - at);
                order.swap(at, other);
            }
            order.truncate(sample);
            order.sort_unstable();
            cases = order.into_iter().map(|at| cases[at]).collect();
        }
        if cases.is_empty() {
            return Err(CrashTestError::Nothing("the run crosses none of these points".to_owned()));
        }
        Ok(Self { cases, complete })
    }
}

/// A sequence of numbers from a seed: `SplitMix64`, which is all that a choice of cases needs.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).expect("a length fits");
        usize::try_from(self.number() % end).expect("it is below a length")
    }
}
