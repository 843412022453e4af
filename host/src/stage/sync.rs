//! Making a stage durable before the outcome is: what is committed can then be published after any loss of power.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use deed_journal::{Change, Version};

use super::StageError;
use super::disk::{Disk, Observer, Unobserved};
use super::tree;

/// Make the staged files durable, which are in the directory `upper` below `root`, and every directory that leads to them: all
/// was made for this call, the directory of the stage included, and what no name leads to is lost.
pub(crate) fn sync(root: &Dir, upper: &Path, changes: &[Change]) -> Result<(), StageError> {
    sync_observed(root, upper, changes, &Unobserved)
}

pub(super) fn sync_observed(
    root: &Dir,
    upper: &Path,
    changes: &[Change],
    observer: &dyn Observer,
) -> Result<(), StageError> {
    let disk = Disk::new(root, observer);
    let mut directories: BTreeSet<PathBuf> = upper.ancestors().map(Path::to_owned).collect();
    for change in changes {
        let path = upper.join(change.path.as_path());
        let innermost = match &change.staged {
            // What is gone has nothing in the stage that is needed.
            Version::Absent | Version::Special => continue,
            Version::Directory { .. } => &*path,
            Version::File { .. } => {
                let open = || {
                    let (parent, name) = tree::split(&path)?;
                    tree::open(tree::passage(root, parent)?, name)
                };
                open()
                    .and_then(|file| disk.sync_file(&path, &file))
                    .map_err(StageError::file("sync the staged", &path))?;
                parent(&path)
            }
            Version::Link { .. } => parent(&path),
        };
        // Those above one that is known are known as well.
        for directory in innermost.ancestors() {
            if !directories.insert(directory.to_owned()) {
                break;
            }
        }
    }
    // What is in a directory before the name that leads to it.
    for directory in directories.iter().rev() {
        let synced =
            disk.sync_directory(directory).map_err(StageError::file("sync the staged", directory))?;
        if !synced {
            return Err(StageError::Damaged { path: directory.clone() });
        }
    }
    Ok(())
}

/// The directory of a path; the root's own is itself.
pub(super) fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}
