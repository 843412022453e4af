//! `wasi:clocks`, served from the step's recorded clock.
//!
//! A call's time starts at the recorded instant. It advances by a fixed amount with each reading, and by as much as the
//! call sleeps; never with the real clock. So two attempts that do the same read the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wasmtime::component::{HasData, Linker, Resource, ResourceTable};
use wasmtime_wasi::p2::bindings::clocks::{monotonic_clock, wall_clock};
use wasmtime_wasi::p2::{DynPollable, Pollable, subscribe};

/// What one reading adds to the call's time: about what it costs in real time, so that code which spins on the clock
/// until a deadline takes about as long as it would anywhere, and neither hangs nor runs out of time early.
const ADVANCE_NS: u64 = 1_000;

/// One call's time.
pub(crate) struct ClockCtx {
    start_ms: u64,
    elapsed_ns: Arc<AtomicU64>,
}

impl ClockCtx {
    /// Time that starts at `start_ms` since 1970.
    pub(crate) fn new(start_ms: u64) -> Self {
        Self { start_ms, elapsed_ns: Arc::default() }
    }

    fn read(&self) -> u64 {
        self.elapsed_ns.fetch_add(ADVANCE_NS, Ordering::Relaxed)
    }
}

/// How a store's data reaches its clock.
pub(crate) trait ClockView: Send {
    fn clock(&mut self) -> ClockCtxView<'_>;
}

pub(crate) struct ClockCtxView<'a> {
    pub(crate) ctx: &'a mut ClockCtx,
    pub(crate) table: &'a mut ResourceTable,
}

struct HasClock;

impl HasData for HasClock {
    type Data<'a> = ClockCtxView<'a>;
}

/// Replace both clocks of a linker that already has WASI's.
pub(crate) fn add_to_linker<T: ClockView + 'static>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    wall_clock::add_to_linker::<T, HasClock>(linker, T::clock)?;
    monotonic_clock::add_to_linker::<T, HasClock>(linker, T::clock)
}

impl wall_clock::Host for ClockCtxView<'_> {
    fn now(&mut self) -> wasmtime::Result<wall_clock::Datetime> {
        let now =
            Duration::from_millis(self.ctx.start_ms).saturating_add(Duration::from_nanos(self.ctx.read()));
        Ok(wall_clock::Datetime { seconds: now.as_secs(), nanoseconds: now.subsec_nanos() })
    }

    fn resolution(&mut self) -> wasmtime::Result<wall_clock::Datetime> {
        Ok(wall_clock::Datetime { seconds: 0, nanoseconds: 1 })
    }
}

impl monotonic_clock::Host for ClockCtxView<'_> {
    fn now(&mut self) -> wasmtime::Result<u64> {
        Ok(self.ctx.read())
    }

    fn resolution(&mut self) -> wasmtime::Result<u64> {
        Ok(1)
    }

    fn subscribe_instant(&mut self, when: u64) -> wasmtime::Result<Resource<DynPollable>> {
        self.sleep_until(when)
    }

    fn subscribe_duration(&mut self, duration: u64) -> wasmtime::Result<Resource<DynPollable>> {
        let now = self.ctx.elapsed_ns.load(Ordering::Relaxed);
        self.sleep_until(now.saturating_add(duration))
    }
}

impl ClockCtxView<'_> {
    fn sleep_until(&mut self, target_ns: u64) -> wasmtime::Result<Resource<DynPollable>> {
        let now = self.ctx.elapsed_ns.load(Ordering::Relaxed);
        let wait = Duration::from_nanos(target_ns.saturating_sub(now));
        let alarm = self.table.push(Alarm {
            elapsed_ns: Arc::clone(&self.ctx.elapsed_ns),
            target_ns,
            // No deadline: further away than the machine can count. The call's own time limit ends such a wait.
            deadline: tokio::time::Instant::now().checked_add(wait),
        })?;
        subscribe(self.table, alarm)
    }
}

/// A sleep: takes real time, and moves the call's time to its target.
struct Alarm {
    elapsed_ns: Arc<AtomicU64>,
    target_ns: u64,
    deadline: Option<tokio::time::Instant>,
}

#[wasmtime_wasi::async_trait]
impl Pollable for Alarm {
    async fn ready(&mut self) {
        if self.elapsed_ns.load(Ordering::Relaxed) >= self.target_ns {
            // Give way once, so that polling in a loop with no timeout leaves the driver a chance to see other events.
            tokio::task::yield_now().await;
            return;
        }
        match self.deadline {
            Some(deadline) => tokio::time::sleep_until(deadline).await,
            None => std::future::pending().await,
        }
        self.elapsed_ns.fetch_max(self.target_ns, Ordering::Relaxed);
    }
}
