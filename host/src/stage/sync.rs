//! Making a stage durable before the outcome is: what is committed can then be published after any loss of power.

use std::collections::BTreeSet;
use std::path::Path;

use cap_std::fs::Dir;
use deed_journal::{Change, Version};

use super::StageError;
use super::disk::{Disk, Observer, Unobserved};
use super::tree;

/// Make the staged files durable, and the directories that lead to them.
pub(crate) fn sync(upper: &Dir, changes: &[Change]) -> Result<(), StageError> {
    sync_observed(upper, changes, &Unobserved)
}

pub(super) fn sync_observed(
    upper: &Dir,
    changes: &[Change],
    observer: &dyn Observer,
) -> Result<(), StageError> {
    let disk = Disk::new(upper, observer);
    let mut directories = BTreeSet::new();
    for change in changes {
        let path = change.path.as_path();
        let above = match &change.staged {
            // What is gone has nothing in the stage that is needed.
            Version::Absent | Version::Special => continue,
            Version::Directory { .. } => path.ancestors(),
            Version::File { .. } => {
                let open = || {
                    let (parent, name) = tree::split(path)?;
                    tree::open(tree::passage(upper, parent)?, name)
                };
                open()
                    .and_then(|file| disk.sync_file(path, &file))
                    .map_err(StageError::file("sync the staged", path))?;
                path.parent().unwrap_or(path).ancestors()
            }
            Version::Link { .. } => path.parent().unwrap_or(path).ancestors(),
        };
        // Those above one that is known are known as well.
        for directory in above {
            if !directories.insert(directory) {
                break;
            }
        }
    }
    // What is in a directory before the name that leads to it.
    for directory in directories.into_iter().rev() {
        let synced =
            disk.sync_directory(directory).map_err(StageError::file("sync the staged", directory))?;
        if !synced {
            return Err(StageError::Damaged { path: directory.to_owned() });
        }
    }
    Ok(())
}

/// The directory of a path; the root's own is itself.
pub(super) fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}
