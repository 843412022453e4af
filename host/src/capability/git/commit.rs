//! Making a commit that is made once, whatever happens in between.
//!
//! The order: stage, write the tree, write the index, write the commit, sync, move the branch by compare-and-swap, sync.
//! A crash before the branch moves leaves staged files, which the next attempt commits; a crash after it leaves a commit
//! that the next attempt finds by its key. Key, clock and tree being the same, it would make the identical commit anyway.

use std::fs::File;
use std::path::Path;

use git2::{
    Commit, ErrorCode, Index, IndexAddOption, Oid, Repository, RepositoryState, Signature, Sort, Time, Tree,
};

use super::bindings::deed::git::repository::{Committed, Error};
use super::leftover::{self, Earlier};
use super::{read, relative_paths};

/// The trailer that carries the idempotency key.
const TRAILER: &str = "Deed-Key";

/// Commits looked through for one's own. What others may have put on top while the host was down: a day's work of a
/// large team. A look costs some 10 µs.
const KEY_SEARCH_COMMITS: usize = 1_000;

/// Who commits when neither the repository nor the user has an identity.
const FALLBACK_NAME: &str = "deed";
/// See [`FALLBACK_NAME`].
const FALLBACK_EMAIL: &str = "deed@localhost";

/// What of the step goes into the commit.
#[derive(Clone, Copy)]
pub(super) struct Stamp<'a> {
    pub(super) key: &'a str,
    pub(super) clock_ms: u64,
    /// None on the first attempt.
    pub(super) earlier: Option<Earlier>,
}

/// Whether somebody, or an attempt that was killed, holds a lock that a commit needs.
pub(super) fn is_locked(repository: &Repository) -> bool {
    let branch = read::branch(repository).ok().flatten().unwrap_or_default();
    leftover::is_locked(repository, &branch)
}

pub(super) fn commit(
    repository: &Repository,
    message: &str,
    paths: &[String],
    stamp: Stamp<'_>,
    removed: impl Fn(&Path),
) -> Result<Committed, Error> {
    if message.trim().is_empty() {
        return Err(Error::Failed("the commit message is empty".to_owned()));
    }
    let paths = relative_paths(paths)?;
    let Some(branch) = read::branch(repository)? else {
        return Err(Error::Failed(
            "HEAD is detached, so there is no branch to commit to; switch to one".to_owned(),
        ));
    };
    let parent = match repository.head() {
        Ok(head) => Some(head.peel_to_commit()?),
        Err(error) if error.code() == ErrorCode::UnbornBranch => None,
        Err(error) => return Err(error.into()),
    };
    if let Some(parent) = &parent
        && let Some(own) = find_own(repository, parent.id(), stamp.key)?
    {
        // Made, but perhaps not yet durable, when the earlier attempt ended.
        sync(repository)?;
        return report(repository, &own, branch, true);
    }
    if repository.state() != RepositoryState::Clean {
        let state = repository.state();
        return Err(Error::Conflict(format!(
            "the repository is in the middle of something ({state:?}); finish it first"
        )));
    }

    // Only now: whoever has made the commit has no need of the locks.
    if let Some(earlier) = stamp.earlier {
        earlier.remove_locks(repository, &branch).iter().for_each(|lock| removed(lock));
    }
    let parent_tree = parent.as_ref().map(Commit::tree).transpose()?;
    let mut index = repository.index()?;
    let tree = stage(repository, &mut index, parent_tree.as_ref(), &paths)?;
    let unchanged = match &parent_tree {
        Some(before) => before.id() == tree.id(),
        None => tree.is_empty(),
    };
    if unchanged {
        return Err(Error::NothingToCommit(format!("nothing differs from the last commit of `{branch}`")));
    }
    index.write()?;

    let signature = signature(repository, stamp.clock_ms)?;
    let message = with_trailer(message, stamp.key);
    let parents: Vec<&Commit<'_>> = parent.iter().collect();
    let id = repository.commit(None, &signature, &signature, &message, &tree, &parents)?;
    // The branch must never name objects that a power loss takes away.
    sync(repository)?;
    move_branch(repository, &branch, parent.as_ref().map(Commit::id), id, &message)?;
    sync(repository)?;
    report(repository, &repository.find_commit(id)?, branch, false)
}

/// The commit with this key, if the branch holds one.
fn find_own<'r>(repository: &'r Repository, head: Oid, key: &str) -> Result<Option<Commit<'r>>, Error> {
    let mut walk = repository.revwalk()?;
    walk.set_sorting(Sort::TOPOLOGICAL | Sort::TIME)?;
    walk.push(head)?;
    for id in walk.take(KEY_SEARCH_COMMITS) {
        let commit = repository.find_commit(id?)?;
        if carries(&commit, key) {
            return Ok(Some(commit));
        }
    }
    Ok(None)
}

fn carries(commit: &Commit<'_>, key: &str) -> bool {
    let message = String::from_utf8_lossy(commit.message_bytes());
    message.contains(key)
        && git2::message_trailers_strs(&message)
            .is_ok_and(|trailers| trailers.iter().any(|(name, value)| name == TRAILER && value == key))
}

/// Bring the index up to date with the files, and make the tree to commit: all of it, or the last commit's with only what
/// lies below `paths` replaced.
fn stage<'r>(
    repository: &'r Repository,
    index: &mut Index,
    before: Option<&Tree<'_>>,
    paths: &[String],
) -> Result<Tree<'r>, Error> {
    index.read(true)?;
    if paths.is_empty() {
        index.add_all(["*"], IndexAddOption::DEFAULT, None)?;
        return Ok(repository.find_tree(index.write_tree()?)?);
    }
    index.add_all(paths, IndexAddOption::DISABLE_PATHSPEC_MATCH, None)?;
    let mut partial = Index::new()?;
    if let Some(before) = before {
        partial.read_tree(before)?;
    }
    for path in paths {
        let known = |index: &Index| index.iter().any(|entry| is_below(&entry.path, path));
        if !known(index) && !known(&partial) {
            return Err(Error::NotFound(format!(
                "`{path}` is neither in the repository nor a file that git would add"
            )));
        }
    }
    let chosen = |entry: &[u8]| paths.iter().any(|path| is_below(entry, path));
    let gone: Vec<Vec<u8>> = partial.iter().map(|entry| entry.path).filter(|path| chosen(path)).collect();
    for path in gone {
        partial.remove(Path::new(&*String::from_utf8_lossy(&path)), 0)?;
    }
    for entry in index.iter().filter(|entry| chosen(&entry.path)) {
        partial.add(&entry)?;
    }
    Ok(repository.find_tree(partial.write_tree_to(repository)?)?)
}

/// Whether `entry` is `path` or a file below it.
fn is_below(entry: &[u8], path: &str) -> bool {
    entry.strip_prefix(path.as_bytes()).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

fn signature(repository: &Repository, clock_ms: u64) -> Result<Signature<'static>, Error> {
    let config = repository.config()?.snapshot()?;
    let setting = |name: &str, fallback: &str| {
        let value = config.get_string(name).unwrap_or_default();
        if value.trim().is_empty() { fallback.to_owned() } else { value }
    };
    let seconds = i64::try_from(clock_ms / 1_000).unwrap_or(i64::MAX);
    let name = setting("user.name", FALLBACK_NAME);
    let email = setting("user.email", FALLBACK_EMAIL);
    Ok(Signature::new(&name, &email, &Time::new(seconds, 0))?)
}

/// The key joins the trailers that are there, or starts a paragraph of its own.
fn with_trailer(message: &str, key: &str) -> String {
    let message = message.trim_end();
    let has_trailers = git2::message_trailers_strs(message).is_ok_and(|trailers| trailers.len() > 0);
    let separator = if has_trailers { "\n" } else { "\n\n" };
    format!("{message}{separator}{TRAILER}: {key}\n")
}

fn move_branch(
    repository: &Repository,
    branch: &str,
    from: Option<Oid>,
    to: Oid,
    message: &str,
) -> Result<(), Error> {
    let name = format!("refs/heads/{branch}");
    let subject = message.lines().next().unwrap_or_default();
    let moved = match from {
        Some(from) => repository.reference_matching(&name, to, true, from, &format!("commit: {subject}")),
        None => repository.reference(&name, to, false, &format!("commit (initial): {subject}")),
    };
    match moved {
        Ok(_) => Ok(()),
        Err(error) if error.code() == ErrorCode::Exists => {
            Err(Error::Conflict(format!("somebody else made the first commit of `{branch}`")))
        }
        Err(error) => Err(error.into()),
    }
}

/// Make everything written to the repository durable. One sync of the file system, where libgit2 would sync each object
/// by itself.
fn sync(repository: &Repository) -> Result<(), Error> {
    for directory in [repository.commondir(), repository.path()] {
        let synced = File::open(directory).and_then(|directory| Ok(rustix::fs::syncfs(directory)?));
        synced.map_err(|error| Error::Failed(format!("sync `{}`: {error}", directory.display())))?;
        if repository.path() == repository.commondir() {
            break;
        }
    }
    Ok(())
}

/// Equal for the attempt that made the commit and for every one that finds it.
fn report(
    repository: &Repository,
    commit: &Commit<'_>,
    branch: String,
    landed_before: bool,
) -> Result<Committed, Error> {
    let before = match commit.parent(0) {
        Ok(parent) => Some(parent.tree()?),
        Err(_) => None,
    };
    let diff = repository.diff_tree_to_tree(before.as_ref(), Some(&commit.tree()?), None)?;
    Ok(Committed {
        id: commit.id().to_string(),
        branch: Some(branch),
        files_changed: u32::try_from(diff.deltas().len()).unwrap_or(u32::MAX),
        landed_before,
    })
}
