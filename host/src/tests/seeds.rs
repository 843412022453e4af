//! Many seeds, on all processors, and how one is played again.

use std::any::Any;
use std::fmt::Arguments;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

/// Reproducible randomness: `SplitMix64`, which no library update changes.
#[derive(Debug, Clone)]
pub(crate) struct Seeded(u64);

impl Seeded {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.number() % end as u64).unwrap()
    }

    /// True once in `times`, on average.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of `all`, which is not empty.
    pub(crate) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// A text, which may be empty.
    pub(crate) fn content(&mut self) -> Vec<u8> {
        let length = self.below(60);
        (0..length).map(|_| *self.pick(b"deed\\n")).collect()
    }
}

/// What of the seeds `DEED_FUZZ_SEED` and on, `DEED_FUZZ_COUNT` of them or this many, the `work` counted. The first that fails
/// ends the `test`, and says how it is played again.
pub(crate) fn each(test: &str, count: u64, work: impl Fn(u64) -> u64 + Sync) -> Counted {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let (first, asked) = (number("DEED_FUZZ_SEED").unwrap_or(1), number("DEED_FUZZ_COUNT"));
    let seeds = asked.unwrap_or(count);
    let (next, total) = (AtomicU64::new(first), AtomicU64::new(0));
    let worker = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + seeds {
                break;
            }
            match catch_unwind(AssertUnwindSafe(|| work(seed))) {
                Ok(counted) => total.fetch_add(counted, Ordering::Relaxed),
                Err(why) => {
                    // The others need not go on.
                    next.fetch_add(seeds, Ordering::Relaxed);
                    panic!(
                        "seed {seed}: {}\nreplay: DEED_FUZZ_SEED={seed} DEED_FUZZ_COUNT=1 cargo test --workspace --lib {test} \
                         -- --nocapture",
                        said(&*why)
                    )
                }
            };
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            if let Err(why) = worker.join() {
                panic!("{}", said(&*why));
            }
        }
    });
    Counted { first, seeds, total: total.into_inner(), is_all: asked.is_none() }
}

/// What came of [`each`].
pub(crate) struct Counted {
    pub(crate) first: u64,
    pub(crate) seeds: u64,
    pub(crate) total: u64,
    /// Nobody asked for another number of them.
    pub(crate) is_all: bool,
}

fn said(why: &(dyn Any + Send)) -> &str {
    let text = why.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| why.downcast_ref::<&str>().copied()).unwrap_or("it panicked")
}

/// Say what was looked at, also when the test passes: only the print macros are held back then.
pub(crate) fn report(line: Arguments<'_>) {
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
}
