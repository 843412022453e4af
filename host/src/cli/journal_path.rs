//! Where the journal is, and opening it.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use backon::{BlockingRetryable, ConstantBuilder};
use deed::sources::{SeededEntropy, SystemEntropy};
use deed_journal::{BootId, Digest, Entropy, Idle, Journal, OpenError, Options, Reader};
use etcetera::BaseStrategy;

use super::Global;
use super::failure::Usage;
use super::terminal;

/// How long a writer waits for readers to go, in all just below a second, looking every 20 ms.
const LOOKS: usize = 45;
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

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
    let absolute = std::path::absolute(journal).context("failed to find the current directory")?;
    // The nearest directory that is there: links on the way may lead into the workspace.
    let there = absolute.ancestors().skip(1).find_map(|directory| directory.canonicalize().ok());
    if there.is_some_and(|directory| directory.starts_with(workspace)) {
        return Err(Usage(format!(
            "journal `{}` is inside the workspace `{}`, where tools could reach it; name one outside with `--journal`",
            journal.display(),
            workspace.display()
        ))
        .into());
    }
    Ok(())
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
    let attempt = || {
        let entropy: Arc<dyn Entropy> = match global.deterministic {
            Some(seed) => Arc::new(SeededEntropy::new(seed, 0)),
            None => Arc::new(SystemEntropy),
        };
        let options = Options { entropy, boot: BootId::current(), idle: Idle::Timer };
        Journal::open_watched(path, options, terminal::repair_progress())
    };
    let patience = ConstantBuilder::default().with_delay(BETWEEN_LOOKS).with_max_times(LOOKS);
    Ok(attempt.retry(patience).when(|error| matches!(error, OpenError::BeingRead(_))).call()?)
}

/// A journal opened to read.
pub(super) enum ReadHandle {
    /// Beside other readers, untouched.
    Reader(Reader),
    /// It was not closed cleanly: this process became its owner, to repair it.
    Repaired(Box<Journal>),
}

impl ReadHandle {
    pub(super) fn reader(&self) -> &Reader {
        match self {
            Self::Reader(reader) => reader,
            Self::Repaired(journal) => journal.read(),
        }
    }
}

/// Open the journal to read it; none when there is no journal yet.
pub(super) fn read(global: &Global) -> Result<Option<ReadHandle>> {
    let path = of(global, None)?;
    match Reader::open(&path) {
        Ok(reader) => Ok(Some(ReadHandle::Reader(reader))),
        Err(OpenError::Missing(_)) => Ok(None),
        Err(OpenError::NeedsRepair(_)) => Ok(Some(ReadHandle::Repaired(Box::new(open(global, &path)?)))),
        Err(error) => Err(error.into()),
    }
}

/// Open the journal to read something that must be in it.
pub(super) fn read_existing(global: &Global) -> Result<ReadHandle> {
    let missing = || -> Result<anyhow::Error> { Ok(OpenError::Missing(of(global, None)?).into()) };
    read(global)?.map_or_else(|| Err(missing()?), Ok)
}
