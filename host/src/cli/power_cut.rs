//! A journal whose power goes: the store's file is kept in memory, and when the power goes, what a disk could have kept of
//! it is written out and the process dies.
//!
//! The fault model is that of [`FaultDisk`]: what was synced is there; of the rest some is lost, torn or reordered.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use deed::crash_test::{Trace, TraceLine};
use deed_journal::test_support::{FaultDisk, ImageKind, Medium, RedbStore, Seeded};
use deed_journal::{Idle, Journal, Options};

use super::trace;

/// When the power goes, written `OPERATION:SEED`.
#[derive(Debug, Clone, Copy)]
pub(super) struct PowerCut {
    /// The change or sync of the store that is not made any more, counted from 0.
    operation: usize,
    /// Decides what is left.
    seed: u64,
}

impl FromStr for PowerCut {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (operation, seed) = text.split_once(':')?;
            Some(Self { operation: operation.parse().ok()?, seed: seed.parse().ok()? })
        };
        parse().ok_or_else(|| format!("`{text}` is no power cut: expected OPERATION:SEED"))
    }
}

/// Open the journal at `path` on such a medium. As after a reboot, no start mark proves anything.
pub(super) fn open(path: &Path, options: Options, cut: PowerCut, trace: Option<Trace>) -> Result<Journal> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        bytes => bytes.with_context(|| format!("failed to read `{}`", path.display()))?,
    };
    let disk = FaultDisk::with(bytes);
    let medium = disk.medium();
    let store =
        RedbStore::open_medium(Box::new(Failing { disk, medium, path: path.to_owned(), cut, trace }))?;
    // What is synced when does not depend on how fast the machine is, so that an operation's number means one moment.
    Ok(Journal::open_storage(Arc::new(store), Options { idle: Idle::Never, ..options })?)
}

/// The medium.
#[derive(Debug)]
struct Failing {
    disk: FaultDisk,
    /// The same disk.
    medium: Box<dyn Medium>,
    path: PathBuf,
    cut: PowerCut,
    trace: Option<Trace>,
}

impl Failing {
    /// The power goes before this operation, if it is its time.
    fn before_change(&self) {
        if self.disk.changes() != self.cut.operation {
            return;
        }
        let history = self.disk.history();
        let mut random = Seeded::new(self.cut.seed);
        let kind = *random.pick(&ImageKind::ALL);
        if let Some(crash) = history.crashes().last()
            && let Err(error) = self.write_out(&crash.image(kind, &mut random).bytes)
        {
            eprintln!("warning: failed to write `{}`: {error}", self.path.display());
        }
        trace::die()
    }

    fn write_out(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&self.path)?;
        file.write_all(bytes)
    }
}

impl Medium for Failing {
    fn len(&self) -> io::Result<u64> {
        self.medium.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.medium.read(offset, out)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.before_change();
        self.medium.write(offset, data)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.before_change();
        self.medium.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.before_change();
        self.medium.sync()
    }

    fn close(&self) -> io::Result<()> {
        if let Some(trace) = &self.trace {
            trace::write(trace, &TraceLine::Operations(self.disk.changes()));
        }
        self.write_out(&self.disk.contents())?;
        self.medium.close()
    }
}
