//! The workspace as the runner sees it: a directory, perhaps the root of a git repository.

use std::path::Path;

use git2::{Repository, RepositoryOpenFlags};

/// Whether `directory` is the root of a git work tree.
pub(crate) fn is_git_root(directory: &Path) -> bool {
    open(directory).is_ok_and(|repository| !repository.is_bare())
}

/// Put HEAD on the branch `name`, made from the current commit when it is missing. The files stay as they are. Again,
/// it changes nothing.
///
/// # Errors
/// In git's words.
pub(crate) fn enter_branch(directory: &Path, name: &str) -> Result<(), git2::Error> {
    let repository = open(directory)?;
    let full = format!("refs/heads/{name}");
    // Before the first commit there is nothing to branch from: HEAD alone names the branch.
    if let Ok(head) = repository.head() {
        if head.name().ok() == Some(full.as_str()) {
            return Ok(());
        }
        if repository.find_reference(&full).is_err() {
            repository.branch(name, &head.peel_to_commit()?, false)?;
        }
    }
    repository.set_head(&full)
}

fn open(directory: &Path) -> Result<Repository, git2::Error> {
    // Not `discover`: a repository above the workspace is not the workspace's.
    let none: [&str; 0] = [];
    Repository::open_ext(directory, RepositoryOpenFlags::NO_SEARCH, none)
}
