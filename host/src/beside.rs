//! What the host keeps beside the journal: the components that unsettled steps run on, the locks of calls, and the stages of
//! contained ones.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use backon::{BlockingRetryable as _, ConstantBuilder};
use deed_journal::{Digest, RunId};
use tempfile::NamedTempFile;

use crate::engine::{Engine, Foreign, Plugin, Stubs};
use crate::stage::{self, Stage};

/// How long recovery waits for the processes of an earlier attempt. They were told to die with their host, so they are
/// gone within milliseconds; what is left after five seconds does not mean to go.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often it looks.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// The directories beside a journal.
#[derive(Debug)]
pub struct Beside {
    journal: PathBuf,
    components: PathBuf,
    calls: PathBuf,
    stages: PathBuf,
    /// The workspaces in which calls can be contained, with commands or without; of the others, why not.
    staged: Mutex<BTreeMap<(PathBuf, bool), Result<(), String>>>,
    /// Kept components that were loaded.
    loaded: Mutex<BTreeMap<Digest, Plugin>>,
}

impl Beside {
    /// Beside the journal at `journal`: `journal.redb` has `journal.redb.components`, `journal.redb.calls` and
    /// `journal.redb.stages`.
    pub fn new(journal: &Path) -> Self {
        let journal = &in_full(journal);
        let named = |suffix: &str| {
            let mut name = journal.as_os_str().to_owned();
            name.push(suffix);
            PathBuf::from(name)
        };
        Self {
            journal: journal.to_owned(),
            components: named(".components"),
            calls: named(".calls"),
            stages: named(".stages"),
            staged: Mutex::default(),
            loaded: Mutex::default(),
        }
    }

    /// The journal that all this is beside.
    pub fn journal(&self) -> &Path {
        &self.journal
    }

    /// Keep a component until no step needs it. Durable when this returns; one that is kept already costs a look.
    pub fn keep(&self, digest: Digest, component: &[u8]) -> io::Result<()> {
        let path = self.component(digest);
        if path.exists() {
            return Ok(());
        }
        create_private(&self.components)?;
        let mut file = NamedTempFile::new_in(&self.components)?;
        file.write_all(component)?;
        file.as_file().sync_all()?;
        file.persist(&path)?;
        File::open(&self.components)?.sync_all()
    }

    /// A component that was kept. None when it is gone, or is not what its name says.
    pub fn kept(&self, digest: Digest) -> Option<Vec<u8>> {
        fs::read(self.component(digest)).ok().filter(|bytes| Digest::of(bytes) == digest)
    }

    /// A kept component, ready to be called. None when it is gone or the engine does not take it any more.
    pub(crate) fn load(&self, digest: Digest, engine: &Engine, name: &str) -> Option<Plugin> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plugin) = loaded.get(&digest) {
            return Some(plugin.clone());
        }
        // It was called before, so somebody agreed to the stubs of what it imports in vain.
        let foreign = Foreign { stubs: Stubs::Every, ..Foreign::default() };
        let plugin = engine.load_as(name, &self.kept(digest)?, &foreign).ok()?;
        loaded.insert(digest, plugin.clone());
        Some(plugin)
    }

    /// Drop every component that is not `needed`.
    pub fn drop_others(&self, needed: &BTreeSet<Digest>) -> io::Result<()> {
        let entries = match fs::read_dir(&self.components) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        let names: BTreeSet<_> = needed.iter().map(|digest| name_of(*digest)).collect();
        for entry in entries {
            let entry = entry?;
            if !entry.file_name().to_str().is_some_and(|name| names.contains(name)) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Drop the locks and the stages of every run but these.
    pub fn forget_other_runs(&self, open: &BTreeSet<RunId>) -> io::Result<()> {
        let others = |directory: &Path| {
            let entries = match fs::read_dir(directory) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                entries => entries?.collect::<io::Result<Vec<_>>>()?,
            };
            let is_other = |name: &OsStr| {
                let run = name.to_str().and_then(|name| name.split('-').next()?.parse().ok());
                run.is_none_or(|run| !open.contains(&run))
            };
            let others = entries.into_iter().filter(|entry| is_other(&entry.file_name()));
            io::Result::Ok(others.map(|entry| entry.path()).collect())
        };
        for lock in others(&self.calls)? {
            fs::remove_file(lock)?;
        }
        for stage in others(&self.stages)? {
            stage::remove(&stage)?;
        }
        Ok(())
    }

    /// The stage of an attempt over a workspace.
    pub(crate) fn stage(&self, run: RunId, seq: u64, attempt: u32, workspace: &Path) -> Stage {
        Stage::new(self.stages.join(format!("{run}-{seq}-{attempt}")), workspace.to_owned())
    }

    /// A stage that no attempt has.
    pub(crate) fn trial_stage(&self, workspace: &Path) -> Stage {
        Stage::new(self.stages.join(format!("trial-{}", std::process::id())), workspace.to_owned())
    }

    /// Whether calls can be contained in a workspace, with commands or without. Tried once; the answer is kept.
    pub(crate) fn can_stage(
        &self,
        (workspace, commands): (&Path, bool),
        attempt: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        let mut staged = self.staged.lock().unwrap_or_else(PoisonError::into_inner);
        staged.entry((workspace.to_owned(), commands)).or_insert_with(attempt).clone()
    }

    fn component(&self, digest: Digest) -> PathBuf {
        self.components.join(name_of(digest))
    }

    /// The file that the processes of an attempt hold locked.
    pub fn call_lock(&self, run: RunId, seq: u64, attempt: u32) -> PathBuf {
        // Where it cannot be made, neither can the file, and then no process is started.
        let _ = create_private(&self.calls);
        self.call(run, seq, attempt)
    }

    fn call(&self, run: RunId, seq: u64, attempt: u32) -> PathBuf {
        self.calls.join(format!("{run}-{seq}-{attempt}"))
    }

    /// Wait until no process of an attempt is left, for some seconds; whether that is so. One that started none is gone.
    pub fn processes_are_gone(&self, run: RunId, seq: u64, attempt: u32) -> io::Result<bool> {
        let path = self.call(run, seq, attempt);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            file => file?,
        };
        let looks = usize::try_from(PATIENCE.as_millis() / BETWEEN_LOOKS.as_millis()).unwrap_or(usize::MAX);
        let patience = ConstantBuilder::default().with_delay(BETWEEN_LOOKS).with_max_times(looks);
        let gone = (|| file.try_lock())
            .retry(patience)
            .when(|error| matches!(error, TryLockError::WouldBlock))
            .call();
        match gone {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Forget the attempts of a settled step.
    pub fn forget_calls(&self, run: RunId, seq: u64, attempts: u32) {
        for attempt in 1..=attempts {
            // One that is left behind is a few bytes that nobody looks at.
            let _ = fs::remove_file(self.call(run, seq, attempt));
        }
    }
}

/// The one path that a journal has, whether it is there yet or not.
fn in_full(journal: &Path) -> PathBuf {
    let beside = || {
        let directory = journal.parent().filter(|parent| !parent.as_os_str().is_empty());
        Some(directory.unwrap_or(Path::new(".")).canonicalize().ok()?.join(journal.file_name()?))
    };
    journal.canonicalize().ok().or_else(beside).unwrap_or_else(|| journal.to_owned())
}

fn name_of(digest: Digest) -> String {
    format!("{digest}.wasm")
}

fn create_private(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_is_kept_until_it_is_not_needed() {
        let directory = tempfile::tempdir().unwrap();
        let beside = Beside::new(&directory.path().join("journal.redb"));
        let (one, other) = (Digest::of(b"one"), Digest::of(b"other"));
        assert_eq!(beside.kept(one), None);
        beside.drop_others(&BTreeSet::new()).unwrap();
        for _ in 0..2 {
            beside.keep(one, b"one").unwrap();
        }
        beside.keep(other, b"other").unwrap();
        assert_eq!(beside.kept(one).as_deref(), Some(&b"one"[..]));
        beside.drop_others(&BTreeSet::from([other])).unwrap();
        assert_eq!((beside.kept(one), beside.kept(other).is_some()), (None, true));
        fs::write(beside.component(other), b"changed").unwrap();
        assert_eq!(beside.kept(other), None, "a changed byte is not served");
    }

    /// A journal that was named before it was there had another name afterwards, and its notes were somebody else's.
    #[test]
    fn a_journal_has_one_name_before_and_after_it_is_made() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("inner")).unwrap();
        let path = directory.path().join("inner/../journal.redb");
        let before = Beside::new(&path);
        File::create(&path).unwrap();
        assert_eq!(before.journal(), Beside::new(&path).journal());
        assert!(before.journal().is_absolute() && !before.journal().ends_with(".."));
    }

    #[test]
    fn an_attempt_is_gone_when_nobody_holds_its_lock() {
        let directory = tempfile::tempdir().unwrap();
        let beside = Beside::new(&directory.path().join("journal.redb"));
        let run = RunId::from_bytes([7; 16]);
        assert!(beside.processes_are_gone(run, 3, 1).unwrap(), "it started none");
        let path = beside.call_lock(run, 3, 1);
        let held = File::create(&path).unwrap();
        held.lock().unwrap();
        drop(held);
        assert!(beside.processes_are_gone(run, 3, 1).unwrap());
        beside.forget_other_runs(&BTreeSet::from([run])).unwrap();
        assert!(path.exists());
        beside.forget_calls(run, 3, 2);
        assert!(!path.exists());
        let path = beside.call_lock(run, 4, 1);
        File::create(&path).unwrap();
        beside.forget_other_runs(&BTreeSet::new()).unwrap();
        assert!(!path.exists());
    }
}
