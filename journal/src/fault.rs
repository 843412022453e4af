//! A disk that fails on purpose, and shows what a crash could have left at any moment.
//!
//! # Fault model
//! The medium is an array of bytes. A change is a `write` or a `set_len`; it is *pending* until the next `sync` that
//! succeeds. The disk records every change and every sync, so that a crash can be put before and after each of them.
//!
//! - **Death of the process** (SIGKILL): every change stays, as the page cache keeps it: [`ImageKind::Kept`].
//! - **Power cut**: what was synced is there. Of the pending changes any subset survives, applied in any order. A
//!   surviving write may be torn: a prefix of its bytes, a suffix, or any of the 512-byte sectors it touches. A `set_len`
//!   survives whole or not at all. A surviving write behind a lost `set_len` extends the medium; the gap is zero.
//! - **Errors**: a change or a sync, or a read, fails with EIO or ENOSPC, once or from then on. A failed write has written
//!   a prefix, possibly nothing; after a failed sync every pending change is still pending.
//! - **A lying disk**: `sync` says that it succeeded, and everything stays pending. No store can stand that; it is the
//!   control that shows that a harness finds violations.
//!
//! Taken for granted, as by redb: a write changes no byte outside its range; a byte is written or not; what was synced
//! stays as it is. Bits that flip later are not a matter of this disk: whoever wants them changes the bytes.
//!
//! Everything random comes from one `u64` ([`Seeded`]), so that an image can be built again from its seed.

mod crash;
mod seeded;

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use crash::{Crash, History, Image, ImageKind, SECTOR_BYTES};
pub use seeded::Seeded;

use crate::medium::Medium;

/// How the system refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Errno {
    /// The disk cannot.
    Eio,
    /// The disk is full.
    Enospc,
}

impl Errno {
    fn error(self) -> io::Error {
        // The numbers are the same on every Linux, and what their texts come from.
        io::Error::from_raw_os_error(match self {
            Self::Eio => 5,
            Self::Enospc => 28,
        })
    }
}

/// Which operations a fault is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultTarget {
    /// Writes, `set_len` and syncs.
    Changes,
    /// Reads.
    Reads,
}

/// How long it lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Times {
    /// One operation fails.
    Once,
    /// Every one from there on.
    ForGood,
}

/// An error to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fault {
    /// What fails.
    pub target: FaultTarget,
    /// The operation that fails first, counted from 0 among those of its target since the disk was made.
    pub at: usize,
    /// How.
    pub errno: Errno,
    /// How often.
    pub times: Times,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Event {
    Write {
        offset: u64,
        data: Arc<[u8]>,
    },
    SetLen(u64),
    Sync,
    /// An operation that failed and changed nothing, or a sync that lied.
    Nothing,
}

/// The disk. Clones are the same disk.
#[derive(Clone, Default)]
pub struct FaultDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    start: Arc<Vec<u8>>,
    bytes: Vec<u8>,
    events: Vec<Event>,
    recording: bool,
    changes: usize,
    reads: usize,
    fault: Option<Fault>,
    fired: usize,
    lying: bool,
    random: Option<Seeded>,
}

impl fmt::Debug for FaultDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        write!(f, "FaultDisk({} bytes, {} changes)", state.bytes.len(), state.changes)
    }
}

impl FaultDisk {
    /// An empty disk that records.
    pub fn new() -> Self {
        Self::with(Vec::new())
    }

    /// A disk with these bytes on it, which are synced, that records.
    pub fn with(bytes: Vec<u8>) -> Self {
        let disk = Self::scratch(bytes);
        let mut state = disk.state();
        state.start = Arc::new(state.bytes.clone());
        state.recording = true;
        drop(state);
        disk
    }

    /// A disk with these bytes on it, which does not record: for looking at an image.
    pub fn scratch(bytes: Vec<u8>) -> Self {
        let disk = Self::default();
        disk.state().bytes = bytes;
        disk
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic of the store does not concern the bytes.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk as a medium for a store.
    pub fn medium(&self) -> Box<dyn Medium> {
        Box::new(self.clone())
    }

    /// What a reader sees now: what the death of the process would leave.
    pub fn contents(&self) -> Vec<u8> {
        self.state().bytes.clone()
    }

    /// How many changes and syncs were asked for so far, failed ones included.
    pub fn changes(&self) -> usize {
        self.state().changes
    }

    /// How many reads were asked for so far.
    pub fn reads(&self) -> usize {
        self.state().reads
    }

    /// Fail from now on as `fault` says. `seed` decides how much a failed write has written.
    pub fn inject(&self, fault: Fault, seed: u64) {
        let mut state = self.state();
        state.fault = Some(fault);
        state.random = Some(Seeded::new(seed));
    }

    /// Fail no more.
    pub fn mend(&self) {
        self.state().fault = None;
    }

    /// How many operations have failed.
    pub fn fired(&self) -> usize {
        self.state().fired
    }

    /// From now on say that everything is synced, and sync nothing.
    pub fn lie(&self) {
        self.state().lying = true;
    }

    /// What happened so far.
    pub fn history(&self) -> History {
        let state = self.state();
        History { start: Arc::clone(&state.start), events: state.events.clone() }
    }
}

impl State {
    fn fails(&mut self, target: FaultTarget, number: usize) -> Option<io::Error> {
        let fault = self.fault.filter(|fault| fault.target == target)?;
        let hit = match fault.times {
            Times::Once => number == fault.at,
            Times::ForGood => number >= fault.at,
        };
        hit.then(|| {
            self.fired += 1;
            fault.errno.error()
        })
    }

    fn change(&mut self, event: Event) -> io::Result<()> {
        let number = self.changes;
        self.changes += 1;
        let failure = self.fails(FaultTarget::Changes, number);
        let event = match (&failure, event) {
            (None, Event::Sync) if self.lying => Event::Nothing,
            (None, event) => event,
            (Some(_), Event::Write { offset, data }) => {
                let written = self.random.as_mut().map_or(0, |random| random.below(data.len() + 1));
                Event::Write { offset, data: data[..written].into() }
            }
            (Some(_), _) => Event::Nothing,
        };
        apply(&mut self.bytes, &event, None);
        if self.recording {
            self.events.push(event);
        }
        failure.map_or(Ok(()), Err)
    }
}

impl Medium for FaultDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.state();
        let number = state.reads;
        state.reads += 1;
        if let Some(error) = state.fails(FaultTarget::Reads, number) {
            return Err(error);
        }
        let start = index(offset);
        let found = start.checked_add(out.len()).and_then(|end| state.bytes.get(start..end));
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.state().change(Event::Write { offset, data: data.into() })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.state().change(Event::SetLen(len))
    }

    fn sync(&self) -> io::Result<()> {
        self.state().change(Event::Sync)
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("a medium in memory is no longer than memory")
}

/// Carry out `event`, of a write only the bytes in `parts`.
fn apply(bytes: &mut Vec<u8>, event: &Event, parts: Option<&[Range<usize>]>) {
    match event {
        Event::Write { offset, data } => {
            let whole = 0..data.len();
            for part in parts.unwrap_or(std::slice::from_ref(&whole)) {
                let (start, end) = (index(*offset) + part.start, index(*offset) + part.end);
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[start..end].copy_from_slice(&data[part.clone()]);
            }
        }
        Event::SetLen(len) => bytes.resize(index(*len), 0),
        Event::Sync | Event::Nothing => {}
    }
}
