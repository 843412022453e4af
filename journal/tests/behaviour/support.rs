//! What the tests of this crate's whole behaviour share.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use deed_journal::{Entropy, Idle, Journal, Options, Run, RunId, SessionId};

/// Every identifier is different, and the same in every test run.
struct Counter(AtomicU64);

impl Entropy for Counter {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(0);
        bytes[..8].copy_from_slice(&self.0.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    }
}

/// A journal whose time the test owns.
pub fn options() -> Options {
    Options { entropy: Arc::new(Counter(1.into())), boot: None, idle: Idle::Never }
}

/// Open `journal.redb` in a directory.
pub fn open_in(dir: &Path) -> Journal {
    Journal::open(&dir.join("journal.redb"), options()).expect("a journal of this version opens")
}

/// A run whose ids are all made of `byte`.
pub fn run(byte: u8) -> Run {
    let (id, session) = (RunId::from_bytes([byte; 16]), SessionId::from_bytes([byte; 16]));
    Run::new(id, session, [byte; 16], "test", u64::from(byte))
}
