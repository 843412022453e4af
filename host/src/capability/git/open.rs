//! Which repository a call may use: the one whose work tree is the workspace itself.
//!
//! Not one further up: its other files are not granted. And since a tool may write below `.git`, nothing there may lead
//! out of it: otherwise one call could point the repository elsewhere, and the next one, with the host's hands, write there.

use std::fs;
use std::path::{Path, PathBuf};

use git2::{ErrorCode, Repository, RepositoryOpenFlags};

use super::Error;

/// Places below a git directory through which libgit2 writes.
const WRITTEN: [&str; 7] = ["HEAD", "index", "objects", "refs", "refs/heads", "logs", "packed-refs"];

pub(super) fn open(workspace: &Path) -> Result<Repository, Error> {
    let none = |why: String| {
        Error::NoRepository(format!("the workspace is no work tree of a git repository: {why}"))
    };
    let workspace = fs::canonicalize(workspace).map_err(|error| none(error.to_string()))?;
    let repository = Repository::open_ext(&workspace, RepositoryOpenFlags::NO_SEARCH, &[] as &[PathBuf])
        .map_err(|error| match error.code() {
            ErrorCode::NotFound => none("it has no `.git`; `git init` makes one".to_owned()),
            _ => none(error.message().to_owned()),
        })?;

    let same =
        |a: &Path, b: &Path| matches!((fs::canonicalize(a), fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b);
    let is_work_tree = repository.workdir().is_some_and(|directory| same(directory, &workspace));
    if !is_work_tree {
        return Err(none("its configuration names another work tree, or none".to_owned()));
    }
    let dot_git = workspace.join(".git");
    if repository.is_worktree() {
        // A linked work tree: its git directory is elsewhere, and names this work tree in turn. What a tool writes
        // into `.git` here cannot make it so.
        let back = fs::read_to_string(repository.path().join("gitdir")).unwrap_or_default();
        if !same(Path::new(back.trim_end()), &dot_git) {
            return Err(none("`.git` names a git directory that does not name this work tree".to_owned()));
        }
    } else {
        let is_directory = fs::symlink_metadata(&dot_git).is_ok_and(|metadata| metadata.is_dir());
        if !is_directory || !same(repository.path(), &dot_git) || !same(repository.commondir(), &dot_git) {
            return Err(none("`.git` leads out of the workspace".to_owned()));
        }
    }
    for place in WRITTEN {
        let path = repository.path().join(place);
        if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink()) {
            return Err(none(format!("`{}` is a symbolic link", path.display())));
        }
    }
    Ok(repository)
}
