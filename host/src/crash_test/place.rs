//! The place of one case: copies of the workspace and of its remotes, and a journal, in a directory of its own.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::CrashTestError;
use super::remotes::Remote;

/// What every case begins with: a copy that was taken once, so that all begin with the same.
pub(super) struct Template {
    /// Holds everything.
    pub(super) root: PathBuf,
    /// The remotes, in the order of their copies.
    pub(super) remotes: Vec<Remote>,
    /// The mission or batch, as it was read.
    pub(super) mission: serde_json::Value,
}

impl Template {
    fn workspace(&self) -> PathBuf {
        self.root.join("workspace")
    }

    fn remote(&self, number: usize) -> PathBuf {
        self.root.join("remotes").join(number.to_string())
    }

    /// Take the copies.
    pub(super) fn take(
        root: PathBuf,
        workspace: &Path,
        remotes: Vec<Remote>,
        mission: serde_json::Value,
    ) -> Result<Self, CrashTestError> {
        let template = Self { root, remotes, mission };
        copy(workspace, &template.workspace())?;
        for (number, remote) in template.remotes.iter().enumerate() {
            copy(&remote.path, &template.remote(number))?;
        }
        Ok(template)
    }

    /// Lay a case out in `directory`, which is not there yet.
    pub(super) fn lay_out(&self, directory: PathBuf, seed: u64) -> Result<Place, CrashTestError> {
        let place = Place { directory, seed };
        for directory in [place.state(), place.temporary(), place.output()] {
            fs::create_dir_all(&directory).map_err(CrashTestError::io("create", &directory))?;
        }
        copy(&self.workspace(), &place.workspace())?;
        let copies: Vec<_> = self
            .remotes
            .iter()
            .enumerate()
            .map(|(number, remote)| {
                let to = place.remote(number);
                copy(&self.remote(number), &to)?;
                Ok((remote, to))
            })
            .collect::<Result<_, CrashTestError>>()?;
        let mission = super::remotes::redirect(&place.workspace(), &self.mission, &copies)?;
        let text = serde_json::to_string_pretty(&mission).expect("what came from JSON can be printed");
        fs::write(place.mission(), text).map_err(CrashTestError::io("write", &place.mission()))?;
        Ok(place)
    }
}

/// The directory of one case.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) directory: PathBuf,
    /// What its ids come from.
    pub(super) seed: u64,
}

impl Place {
    pub(super) fn workspace(&self) -> PathBuf {
        self.directory.join("workspace")
    }

    pub(super) fn remote(&self, number: usize) -> PathBuf {
        self.directory.join("remotes").join(number.to_string())
    }

    pub(super) fn mission(&self) -> PathBuf {
        self.directory.join("mission.json")
    }

    pub(super) fn journal(&self) -> PathBuf {
        self.directory.join("journal.redb")
    }

    /// The locks of the calls.
    pub(super) fn locks(&self) -> PathBuf {
        self.directory.join("journal.redb.calls")
    }

    pub(super) fn trace(&self) -> PathBuf {
        self.directory.join("trace.jsonl")
    }

    pub(super) fn state(&self) -> PathBuf {
        self.directory.join("state")
    }

    pub(super) fn temporary(&self) -> PathBuf {
        self.directory.join("tmp")
    }

    pub(super) fn output(&self) -> PathBuf {
        self.directory.join("output")
    }

    /// Keep it at `to`, in place of what was there.
    pub(super) fn keep(&self, to: &Path) -> Result<(), CrashTestError> {
        remove(to).map_err(CrashTestError::io("remove", to))?;
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).map_err(CrashTestError::io("create", parent))?;
        }
        if fs::rename(&self.directory, to).is_ok() {
            return Ok(());
        }
        // On another file system.
        copy(&self.directory, to)?;
        self.remove()
    }

    pub(super) fn remove(&self) -> Result<(), CrashTestError> {
        remove(&self.directory).map_err(CrashTestError::io("remove", &self.directory))
    }
}

/// Remove a directory and all below it. What is not there is removed.
pub(super) fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Copy a directory with everything in it as it is: modes, times, links as links. The program knows more kinds of files,
/// attributes and file systems than we want to.
fn copy(from: &Path, to: &Path) -> Result<(), CrashTestError> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent).map_err(CrashTestError::io("create", parent))?;
    }
    // In a group of its own: a signal from the terminal is for the tester, which stops between two copies.
    let output = Command::new("cp").arg("-a").arg("--").arg(from).arg(to).process_group(0).output();
    let output = output.map_err(CrashTestError::io("start `cp` for", from))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(CrashTestError::io("copy", from)(io::Error::other(words)))
}
