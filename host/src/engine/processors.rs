//! The machine's processors, shared between calls.
//!
//! However many guests compute, no more of them run than there are processors: the others wait for their turn, which
//! lasts until the next tick of the epoch. So what else the machine has to do, a neighbour's short call above all, finds a
//! short queue. Who waits does so in its own code and holds no lock of the host's. Priorities of threads would not do: a
//! thread of a low one keeps what it has locked for as long as it is not let run.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;
use tokio::time::timeout;
use wasmtime::{Store, UpdateDeadline};

/// Processor time of a call that counts as short: it never waits for a turn. Most calls take less in all.
const SHORT: Duration = Duration::from_millis(10);

/// How long a call waits for its turn at most. Who has one may be in a function of the host's that blocks, and is not to
/// hold up everybody; eight calls that compute on two processors wait 30 ms.
const PATIENCE: Duration = Duration::from_millis(100);

/// A turn for each processor.
#[derive(Clone)]
pub(super) struct Processors(Arc<Semaphore>);

impl Processors {
    /// Those that this process may use.
    pub(super) fn new() -> Self {
        // Where the system does not tell, there is one at least.
        Self(Arc::new(Semaphore::new(thread::available_parallelism().map_or(1, usize::from))))
    }

    /// Run `call` on this thread, which is the only one that works on `store`.
    pub(super) async fn share<T: 'static, R>(
        &self,
        store: &mut Store<T>,
        call: impl AsyncFnOnce(&mut Store<T>) -> R,
    ) -> R {
        let turn = Arc::new(Turn { processors: self.clone(), held: Mutex::new(None) });
        let begun = processor_time();
        let at_tick = Arc::clone(&turn);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(move |_| {
            if processor_time().saturating_sub(begun) < SHORT {
                return Ok(UpdateDeadline::Yield(1));
            }
            let turn = Arc::clone(&at_tick);
            Ok(UpdateDeadline::YieldCustom(1, Box::pin(async move { turn.next().await })))
        });
        let mut call = std::pin::pin!(call(store));
        std::future::poll_fn(move |context| {
            let polled = Pin::as_mut(&mut call).poll(context);
            if polled.is_pending() {
                turn.end();
            }
            polled
        })
        .await
    }
}

/// The turn of one call, while it has one.
struct Turn {
    processors: Processors,
    held: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Turn {
    /// Wait for the next one, behind those who wait already.
    async fn next(&self) {
        // Also when nobody waits: in between it is seen whether the call's time is up.
        yield_now().await;
        if let Ok(permit) = timeout(PATIENCE, Arc::clone(&self.processors.0).acquire_owned()).await {
            self.set(Some(permit.expect("the semaphore is never closed")));
        }
    }

    /// The call waits for something, if only for its next turn.
    fn end(&self) {
        self.set(None);
    }

    fn set(&self, permit: Option<OwnedSemaphorePermit>) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = permit;
    }
}

/// What this thread has used of a processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a turn comes to, on a clock and a thread of its own.
    fn wait(turn: &Turn) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(turn.next());
        turn.held.lock().unwrap().is_some()
    }

    #[test]
    fn who_has_no_turn_waits_until_another_one_ends_or_its_patience_does() {
        let processors = Processors(Arc::new(Semaphore::new(1)));
        let [first, second] =
            [(), ()].map(|()| Turn { processors: processors.clone(), held: Mutex::new(None) });
        assert!(wait(&first));
        assert!(!wait(&second), "the first one still computes, and the second goes on all the same");
        first.end();
        assert!(wait(&second));
        assert_eq!(processors.0.available_permits(), 0);
        drop(second);
        assert_eq!(processors.0.available_permits(), 1, "a call that is over has no turn");
    }
}
