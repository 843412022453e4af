//! SIGTERM and SIGINT (Ctrl-C), each time more urgent: stop before the next step, cancel what is under way, end at once.

use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use deed::engine::CancelToken;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

/// Obey signals from now on. The first one sets the flag that is returned, the second one cancels `cancel`, the third
/// ends this process at once.
pub(super) fn obey(cancel: CancelToken) -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    if let Err(error) = listen(&stop, cancel) {
        eprintln!("warning: a signal may end this process at once: {error}");
    }
    stop
}

fn listen(stop: &Arc<AtomicBool>, cancel: CancelToken) -> io::Result<()> {
    let (mut wakes, woken) = UnixStream::pair()?;
    let count = Arc::new(AtomicUsize::new(0));
    let enough = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        // In this order: a signal finds the flags as those before it have left them.
        flag::register_conditional_default(signal, Arc::clone(&enough))?;
        flag::register(signal, Arc::clone(stop))?;
        let counted = Arc::clone(&count);
        // SAFETY: to add to a number is all that it does, and safe in a handler.
        unsafe {
            low_level::register(signal, move || {
                counted.fetch_add(1, Ordering::SeqCst);
            })?;
        }
        low_level::pipe::register(signal, woken.try_clone()?)?;
    }
    // To cancel is too much for a handler. The pipe only wakes who does it: a child of this process that has not become a
    // command yet has the pipe as well, and gets the terminal's signals, too; the count is in a memory of its own.
    thread::Builder::new().name("deed-signals".to_owned()).spawn(move || {
        while wakes.read(&mut [0; 8]).is_ok_and(|bytes| bytes > 0) {
            if count.load(Ordering::SeqCst) > 1 {
                cancel.cancel();
                enough.store(true, Ordering::SeqCst);
            }
        }
    })?;
    Ok(())
}
