//! Where the journal is, and opening it.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use backon::{BlockingRetryable, ConstantBuilder};
use deed::sources::{SeededEntropy, SystemEntropy};
use deed_journal::{
    Answer, BackupError, BootId, CommitError, Digest, Durability, Entropy, Idle, Journal, LiveError,
    LiveJournal, Op, OpenError, Options, ReadError, Reader, StorageError, WaitId,
};
use etcetera::BaseStrategy;

use super::Global;
use super::failure::Usage;
use super::terminal;

/// How long a writer waits for readers to go, and a reader for an owner that begins or ends: in all just below a second,
/// looking every 20 ms.
const LOOKS: usize = 45;
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// How long the process that a journal is taken from may take to end: it may be in the middle of a large write.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// How often a command that reads begins anew because the owner it read through has ended.
const ANEW: usize = 5;

/// The journal of `workspace`: the one named, or the workspace's own in the user's state directory.
pub(super) fn of(global: &Global, workspace: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = &global.journal {
        // One journal has one name: what lies beside it must be found whichever link leads there.
        return Ok(path.canonicalize().unwrap_or_else(|_| path.clone()));
    }
    let workspace = workspace.or(global.workspace.as_deref()).unwrap_or(Path::new("."));
    let absolute = workspace
        .canonicalize()
        .with_context(|| Usage(format!("workspace `{}` is no directory", workspace.display())))?;
    let name = Digest::of(absolute.as_os_str().as_encoded_bytes()).to_string();
    // Half of the digest tells any two workspaces apart.
    Ok(state_dir()?.join(&name[..32]).join("journal.redb"))
}

/// Where a user's journals are, and the locks of workspaces.
pub(super) fn state_dir() -> Result<PathBuf> {
    let strategy = etcetera::choose_base_strategy()
        .context("failed to find the home directory; name a journal with `--journal`")?;
    Ok(strategy.state_dir().unwrap_or_else(|| strategy.data_dir()).join("deed"))
}

/// Refuse a journal that the tools of a run could reach.
pub(super) fn refuse_inside(journal: &Path, workspace: &Path) -> Result<()> {
    if is_inside(journal, workspace)? {
        return Err(Usage(format!(
            "journal `{}` is inside the workspace `{}`, where tools could reach it; name one outside with `--journal`",
            journal.display(),
            workspace.display()
        ))
        .into());
    }
    Ok(())
}

/// Whether a file that may not be there yet would be in `workspace`, an absolute path without links.
pub(super) fn is_inside(file: &Path, workspace: &Path) -> Result<bool> {
    let absolute = std::path::absolute(file).context("failed to find the current directory")?;
    // The nearest directory that is there: links on the way may lead into the workspace.
    let there = absolute.ancestors().skip(1).find_map(|directory| directory.canonicalize().ok());
    Ok(there.is_some_and(|directory| directory.starts_with(workspace)))
}

/// Become the owner of the journal at `path`, creating it if it is missing. Waits up to a second for readers.
pub(super) fn open(global: &Global, path: &Path) -> Result<Journal> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)
            .with_context(|| format!("failed to create `{}`", parent.display()))?;
    }
    let attempt = || Journal::open_watched(path, options(global), terminal::repair_progress());
    Ok(attempt.retry(patience()).when(|error| matches!(error, OpenError::BeingRead(_))).call()?)
}

/// How this process has a journal.
pub(super) fn options(global: &Global) -> Options {
    let entropy: Arc<dyn Entropy> = match global.deterministic {
        Some(seed) => Arc::new(SeededEntropy::new(seed, 0)),
        None => Arc::new(SystemEntropy),
    };
    Options { entropy, boot: BootId::current(), idle: Idle::Timer }
}

fn patience() -> ConstantBuilder {
    ConstantBuilder::default().with_delay(BETWEEN_LOOKS).with_max_times(LOOKS)
}

/// The same for longer: while this process owns the journal, others can read it and answer its questions.
pub(super) fn open_shared(global: &Global, path: &Path) -> Result<Journal> {
    let journal = open(global, path)?;
    Ok(share(global, path, journal))
}

fn share(global: &Global, path: &Path, mut journal: Journal) -> Journal {
    if let Err(error) = journal.share()
        && global.verbose > 0
    {
        let shown = path.display();
        eprintln!(
            "warning: nobody can look at journal `{shown}` while this process runs: no socket: {error}"
        );
    }
    journal
}

/// The same; a process that holds the journal is killed first.
pub(super) fn take_over(global: &Global, path: &Path) -> Result<Journal> {
    let until = Instant::now() + END_PATIENCE;
    let attempt = || {
        let in_use = match open(global, path) {
            Err(error) if matches!(error.downcast_ref(), Some(OpenError::InUse { .. })) => error,
            other => return other,
        };
        let left = until.saturating_duration_since(Instant::now());
        if let Some(pid) = Journal::end_holder(path, left)? {
            eprintln!("process {pid}, which held the journal, is ended");
        }
        Err(in_use)
    };
    let again = |error: &anyhow::Error| {
        Instant::now() < until && matches!(error.downcast_ref(), Some(OpenError::InUse { .. }))
    };
    let patience = ConstantBuilder::default().with_delay(BETWEEN_LOOKS).without_max_times();
    let journal = attempt.retry(patience).when(again).call()?;
    Ok(share(global, path, journal))
}

/// Have a journal to oneself by `alone`, or reach it through the process that owns it. An owner that does not share the
/// journal may be one that only begins, or is about to end: it is looked again for a moment.
fn reach<T>(alone: impl Fn() -> Result<T>, through: impl Fn(LiveJournal) -> Result<T>) -> Result<T> {
    let attempt = || {
        let error = match alone() {
            Err(error) => error,
            done => return done,
        };
        let Some(OpenError::InUse { path, pid }) = error.downcast_ref() else { return Err(error) };
        match LiveJournal::connect(path) {
            Ok(journal) => through(journal),
            Err(LiveError::Absent) => Err(error),
            Err(why) => {
                let in_use = OpenError::InUse { path: path.clone(), pid: *pid };
                Err(anyhow::Error::new(why).context(in_use.to_string()))
            }
        }
    };
    let again = |error: &anyhow::Error| matches!(error.downcast_ref(), Some(OpenError::InUse { .. }));
    attempt.retry(patience()).when(again).call()
}

/// Do what reads, and do it again when the process that it read through has ended: by then the journal is free, or another
/// process has it. `work` shows nothing before it has read everything.
pub(super) fn reading<T>(work: impl FnMut() -> Result<T>) -> Result<T> {
    work.retry(ConstantBuilder::default().with_delay(BETWEEN_LOOKS).with_max_times(ANEW)).when(is_lost).call()
}

fn is_lost(error: &anyhow::Error) -> bool {
    let lost = |error: &StorageError| matches!(error, StorageError::Lost(_));
    // An error that passes another one on has no cause of its own: look inside.
    error.chain().any(|cause| {
        if let Some(CommitError::Read(ReadError::Storage(error))) = cause.downcast_ref() {
            return lost(error);
        }
        if let Some(ReadError::Storage(error)) = cause.downcast_ref() {
            return lost(error);
        }
        if let Some(BackupError::Read(error)) = cause.downcast_ref() {
            return lost(error);
        }
        cause.downcast_ref().is_some_and(lost)
    })
}

/// A journal opened to read.
pub(super) enum ReadHandle {
    /// Beside other readers, untouched.
    Reader(Reader),
    /// It was not closed cleanly: this process became its owner, to repair it.
    Repaired(Box<Journal>),
    /// Through the process that owns it.
    Live(LiveJournal),
}

impl ReadHandle {
    pub(super) fn reader(&self) -> &Reader {
        match self {
            Self::Reader(reader) => reader,
            Self::Repaired(journal) => journal.read(),
            Self::Live(journal) => journal.read(),
        }
    }
}

/// A journal opened to answer a question.
pub(super) enum AnswerHandle {
    /// By its owner, which is this process.
    Own(Box<Journal>),
    /// Through the process that owns it.
    Live(LiveJournal),
}

impl AnswerHandle {
    pub(super) fn reader(&self) -> &Reader {
        match self {
            Self::Own(journal) => journal.read(),
            Self::Live(journal) => journal.read(),
        }
    }

    /// Commit an answer, durably. Says whether it changed anything.
    pub(super) fn answer(&self, id: WaitId, answer: Answer) -> Result<bool, CommitError> {
        match self {
            Self::Own(journal) => {
                let changes = journal.commit(vec![Op::Answer { id, answer }], Durability::Durable)?;
                Ok(changes.contains(&true))
            }
            Self::Live(journal) => journal.answer(id, answer),
        }
    }
}

/// Open the journal, which has to be there, to answer a question.
pub(super) fn answering(global: &Global) -> Result<AnswerHandle> {
    let path = of(global, None)?;
    if !path.exists() {
        return Err(OpenError::Missing(path).into());
    }
    let alone = || Ok(AnswerHandle::Own(Box::new(open(global, &path)?)));
    reach(alone, |journal| Ok(AnswerHandle::Live(journal)))
}

/// Copy the file at `path` as it is, damage included. While a process owns it only what it holds is copied, through that
/// process; says whether it was so.
pub(super) fn copy(path: &Path, to: &Path) -> Result<bool> {
    let alone = || {
        Journal::copy(path, to)?;
        Ok(false)
    };
    reach(alone, |journal| {
        journal.read().backup(to, &mut |_, _| {})?;
        Ok(true)
    })
}

/// Open the journal to read it; none when there is no journal yet.
pub(super) fn read(global: &Global) -> Result<Option<ReadHandle>> {
    let path = of(global, None)?;
    let alone = || match Reader::open(&path) {
        Ok(reader) => Ok(Some(ReadHandle::Reader(reader))),
        Err(OpenError::Missing(_)) => Ok(None),
        Err(OpenError::NeedsRepair(_)) => Ok(Some(ReadHandle::Repaired(Box::new(open(global, &path)?)))),
        Err(error) => Err(error.into()),
    };
    reach(alone, |journal| Ok(Some(ReadHandle::Live(journal))))
}

/// Open the journal to read something that must be in it.
pub(super) fn read_existing(global: &Global) -> Result<ReadHandle> {
    let missing = || -> Result<anyhow::Error> { Ok(OpenError::Missing(of(global, None)?).into()) };
    read(global)?.map_or_else(|| Err(missing()?), Ok)
}
