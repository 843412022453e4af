//! Start marks: proof, at no sync, that an attempt never started.
//!
//! Just before an attempt executes, one small write to a file beside the journal says so. The write is not synced: the
//! page cache survives SIGKILL. So within one boot an intent without its mark never ran. A reboot loses unsynced
//! writes; then absence proves nothing. The file says which boot it belongs to and has a random *epoch* of its own, and
//! an intent records that epoch: whenever the file is started anew (another boot, a lost file, a file grown too large),
//! older intents no longer match it and count as perhaps started, which is the safe side.
//!
//! An intent also records how long the file was. A file that is shorter than that has lost its unsynced end (its file
//! system was taken away and came back within one boot), and proves nothing about the intent. An entry whose checksum is
//! wrong makes the whole file prove nothing.
//!
//! Layout: `deed marks 1\n`, the boot id and the epoch (16 bytes each), then one 32-byte entry an attempt: run (16),
//! seq (8, big endian), attempt (4, big endian), the first 4 bytes of BLAKE3 over epoch and those 28. An entry cut short
//! by a kill is no entry: its attempt did not start, since the write comes first.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::id::RunId;
use crate::source::Entropy;

const MAGIC: &[u8; 13] = b"deed marks 1\n";
const HEADER_BYTES: usize = MAGIC.len() + 32;
const FACT_BYTES: usize = 28;
const ENTRY_BYTES: usize = FACT_BYTES + 4;

/// A fresh file is started beyond this size: about 32,000 attempts, read back in a millisecond.
const MAX_BYTES: u64 = 1 << 20;

/// Which file a mark would be in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epoch(#[serde(with = "hex::serde")] [u8; 16]);

/// Where a mark would be: recorded with the intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkPlace {
    /// Which file.
    pub epoch: Epoch,
    /// How long it was, in bytes.
    pub bytes: u64,
}

/// What the marks tell of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Started {
    /// It may have run.
    Yes,
    /// It never ran.
    No,
    /// There is no proof either way: treat it as perhaps run.
    Unknown,
}

/// The kernel's name for this boot: `/proc/sys/kernel/random/boot_id`, without dashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BootId([u8; 16]);

impl BootId {
    /// This boot's id; none where the system does not tell, and then nothing is ever provably unstarted.
    pub fn current() -> Option<Self> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Self::parse(&text)
    }

    /// Read an id as the kernel writes it.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 16];
        hex::decode_to_slice(text.trim().replace('-', ""), &mut bytes).ok()?;
        Some(Self(bytes))
    }
}

/// The marks of one journal.
#[derive(Debug)]
pub(crate) struct Marks {
    path: PathBuf,
    boot: BootId,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    epoch: Epoch,
    bytes: u64,
    started: HashSet<(RunId, u64, u32)>,
    /// An entry is damaged: absence proves nothing.
    damaged: bool,
}

impl Marks {
    /// Open the file at `path` if it is of this boot, else start a fresh one.
    pub(crate) fn open(path: &Path, boot: BootId, entropy: &dyn Entropy) -> io::Result<Self> {
        let inner = match Inner::load(path, boot)? {
            Some(inner) if inner.bytes < MAX_BYTES => inner,
            _ => Inner::fresh(path, boot, entropy)?,
        };
        Ok(Self { path: path.to_owned(), boot, inner: Mutex::new(inner) })
    }

    /// Where the next attempt's mark will be. Called before its intent is recorded.
    pub(crate) fn place(&self, entropy: &dyn Entropy) -> io::Result<MarkPlace> {
        let mut inner = self.lock();
        if inner.bytes >= MAX_BYTES || inner.damaged {
            *inner = Inner::fresh(&self.path, self.boot, entropy)?;
        }
        Ok(MarkPlace { epoch: inner.epoch, bytes: inner.bytes })
    }

    /// The attempt starts now.
    pub(crate) fn mark(&self, run: RunId, seq: u64, attempt: u32) -> io::Result<()> {
        let mut inner = self.lock();
        let entry = inner.entry(run, seq, attempt);
        if let Err(error) = inner.file.write_all(&entry) {
            // A part of the entry may be there, and would shift the ones that follow.
            if inner.file.set_len(inner.bytes).is_err() {
                inner.damaged = true;
            }
            return Err(error);
        }
        inner.bytes += ENTRY_BYTES as u64;
        inner.started.insert((run, seq, attempt));
        Ok(())
    }

    /// What is known of an attempt whose mark would be at `place`.
    pub(crate) fn started(&self, run: RunId, seq: u64, attempt: u32, place: Option<MarkPlace>) -> Started {
        let inner = self.lock();
        let proves = place.is_some_and(|place| place.epoch == inner.epoch && place.bytes <= inner.bytes);
        if inner.started.contains(&(run, seq, attempt)) {
            Started::Yes
        } else if proves && !inner.damaged {
            Started::No
        } else {
            Started::Unknown
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().expect("no holder of this lock panics: it only writes bytes and inserts")
    }
}

impl Inner {
    /// The file at `path`, if there is one of this boot.
    fn load(path: &Path, boot: BootId) -> io::Result<Option<Self>> {
        let mut file = match OpenOptions::new().read(true).append(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let Some((header, entries)) = bytes.split_at_checked(HEADER_BYTES) else { return Ok(None) };
        if header[..MAGIC.len()] != MAGIC[..] || header[MAGIC.len()..][..16] != boot.0 {
            return Ok(None);
        }
        let mut epoch = [0; 16];
        epoch.copy_from_slice(&header[MAGIC.len() + 16..]);
        let entries = entries.chunks_exact(ENTRY_BYTES);
        let whole = (HEADER_BYTES + entries.len() * ENTRY_BYTES) as u64;
        // A cut entry must not shift the ones that follow it.
        file.set_len(whole)?;
        let mut inner =
            Self { file, epoch: Epoch(epoch), bytes: whole, started: HashSet::new(), damaged: false };
        for entry in entries {
            let number = |bytes: &[u8]| bytes.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
            let mut run = [0; 16];
            run.copy_from_slice(&entry[..16]);
            let run = RunId::from_bytes(run);
            let seq = number(&entry[16..24]);
            let attempt = u32::try_from(number(&entry[24..FACT_BYTES])).expect("four bytes fit");
            if inner.entry(run, seq, attempt) == entry {
                inner.started.insert((run, seq, attempt));
            } else {
                inner.damaged = true;
            }
        }
        Ok(Some(inner))
    }

    /// The entry of an attempt.
    fn entry(&self, run: RunId, seq: u64, attempt: u32) -> [u8; ENTRY_BYTES] {
        let mut entry = [0; ENTRY_BYTES];
        entry[..16].copy_from_slice(run.as_bytes());
        entry[16..24].copy_from_slice(&seq.to_be_bytes());
        entry[24..FACT_BYTES].copy_from_slice(&attempt.to_be_bytes());
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.epoch.0).update(&entry[..FACT_BYTES]);
        entry[FACT_BYTES..].copy_from_slice(&hasher.finalize().as_bytes()[..4]);
        entry
    }

    /// Start over, under a new epoch.
    fn fresh(path: &Path, boot: BootId, entropy: &dyn Entropy) -> io::Result<Self> {
        let epoch = Epoch(entropy.id());
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&boot.0);
        header.extend_from_slice(&epoch.0);
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(&header)?;
        Ok(Self { file, epoch, bytes: HEADER_BYTES as u64, started: HashSet::new(), damaged: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Count(std::sync::atomic::AtomicU8);
    impl Entropy for Count {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        }
    }

    const RUN: RunId = RunId::from_bytes([5; 16]);
    const BOOT: BootId = BootId([9; 16]);

    struct Fixture {
        dir: tempfile::TempDir,
        entropy: Count,
    }

    impl Fixture {
        fn new() -> Self {
            Self { dir: tempfile::tempdir().unwrap(), entropy: Count(1.into()) }
        }

        fn path(&self) -> PathBuf {
            self.dir.path().join("marks")
        }

        fn open(&self, boot: BootId) -> Marks {
            Marks::open(&self.path(), boot, &self.entropy).unwrap()
        }

        fn place(&self, marks: &Marks) -> MarkPlace {
            marks.place(&self.entropy).unwrap()
        }
    }

    #[test]
    fn absence_proves_only_in_the_same_boot_and_the_same_file() {
        let fixture = Fixture::new();
        let marks = fixture.open(BOOT);
        let place = Some(fixture.place(&marks));
        marks.mark(RUN, 1, 1).unwrap();
        drop(marks);

        let marks = fixture.open(BOOT);
        assert_eq!(marks.started(RUN, 1, 1, place), Started::Yes);
        assert_eq!(marks.started(RUN, 2, 1, place), Started::No);
        assert_eq!(marks.started(RUN, 1, 2, place), Started::No);
        assert_eq!(marks.started(RUN, 2, 1, None), Started::Unknown);
        drop(marks);

        let other = fixture.open(BootId([8; 16]));
        assert_eq!(other.started(RUN, 2, 1, place), Started::Unknown, "another boot");
        drop(other);

        std::fs::remove_file(fixture.path()).unwrap();
        let lost = fixture.open(BOOT);
        assert_eq!(lost.started(RUN, 2, 1, place), Started::Unknown, "a lost file");
    }

    #[test]
    fn an_entry_cut_by_a_kill_is_no_entry_and_later_ones_are_read() {
        let fixture = Fixture::new();
        let marks = fixture.open(BOOT);
        let place = Some(fixture.place(&marks));
        marks.mark(RUN, 1, 1).unwrap();
        marks.mark(RUN, 2, 1).unwrap();
        let cut = std::fs::metadata(fixture.path()).unwrap().len() - 3;
        OpenOptions::new().write(true).open(fixture.path()).unwrap().set_len(cut).unwrap();

        let marks = fixture.open(BOOT);
        assert_eq!(marks.started(RUN, 2, 1, place), Started::No);
        marks.mark(RUN, 3, 1).unwrap();
        let marks = fixture.open(BOOT);
        assert_eq!(marks.started(RUN, 1, 1, place), Started::Yes);
        assert_eq!(marks.started(RUN, 3, 1, place), Started::Yes);
    }

    #[test]
    fn a_damaged_entry_or_a_lost_end_proves_nothing() {
        let fixture = Fixture::new();
        let marks = fixture.open(BOOT);
        marks.mark(RUN, 1, 1).unwrap();
        let place = Some(fixture.place(&marks));
        drop(marks);
        let whole = std::fs::read(fixture.path()).unwrap();

        std::fs::write(fixture.path(), &whole[..HEADER_BYTES]).unwrap();
        let lost = fixture.open(BOOT);
        assert_eq!(lost.started(RUN, 2, 1, place), Started::Unknown, "the end is lost");
        drop(lost);

        for byte in HEADER_BYTES..whole.len() {
            let mut flipped = whole.clone();
            flipped[byte] ^= 1;
            std::fs::write(fixture.path(), &flipped).unwrap();
            let damaged = fixture.open(BOOT);
            assert_eq!(damaged.started(RUN, 1, 1, place), Started::Unknown, "byte {byte}");
            let next = fixture.place(&damaged);
            assert_ne!(Some(next.epoch), place.map(|place| place.epoch), "a fresh file is begun");
        }
    }
}
