//! The workspace as the runner sees it: a directory, perhaps the root of a git repository.

use std::path::{Path, PathBuf};

use crate::capability::git::{Earlier, NotUsable, check_reference, open};

/// No branch was entered. HEAD is where it was.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BranchError {
    #[error(transparent)]
    NotUsable(#[from] NotUsable),
    /// In git's words.
    #[error("{}", .0.message())]
    Git(#[from] git2::Error),
}

/// Whether `directory` is the root of a git work tree whose repository the host may use.
pub(crate) fn is_git_root(directory: &Path) -> bool {
    open(directory).is_ok()
}

/// Put HEAD on the branch `name`, made from the current commit when it is missing. The files stay as they are. Again,
/// it changes nothing, but for the locks that an `earlier` attempt left; returns those that were removed.
pub(crate) fn enter_branch(
    directory: &Path,
    name: &str,
    earlier: Option<Earlier>,
) -> Result<Vec<PathBuf>, BranchError> {
    let repository = open(directory)?;
    let removed = earlier.map(|earlier| earlier.remove_head_locks(&repository, name)).unwrap_or_default();
    let full = format!("refs/heads/{name}");
    check_reference(&repository, &full)?;
    // Before the first commit there is nothing to branch from: HEAD alone names the branch.
    if let Ok(head) = repository.head() {
        if head.name().ok() == Some(full.as_str()) {
            return Ok(removed);
        }
        if repository.find_reference(&full).is_err() {
            repository.branch(name, &head.peel_to_commit()?, false)?;
        }
    }
    repository.set_head(&full)?;
    Ok(removed)
}

#[cfg(test)]
mod tests;
