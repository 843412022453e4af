//! Looking at a repository: open to every class. Writes nothing, not even a refreshed index.

use git2::{
    Delta, DiffDelta, DiffFormat, DiffOptions, ErrorCode, ReferenceType, Repository, Status, StatusEntry,
    StatusOptions,
};

use super::bindings::deed::git::repository::{Change, CommitInfo, DiffSide, Entry, Error, Summary};
use super::relative_paths;

/// Bytes of a patch: a result may hold no more.
const DIFF_BYTES: usize = crate::engine::limits::OUTPUT_BYTES;

/// Commits of one log: pages of history beyond any model's interest.
const LOG_COMMITS: u32 = 1_000;

pub(super) fn status(repository: &Repository) -> Result<Summary, Error> {
    let mut options = StatusOptions::new();
    options
        .include_untracked(true)
        .recurse_untracked_dirs(true)
        .include_ignored(false)
        .renames_head_to_index(true);
    let statuses = repository.statuses(Some(&mut options))?;
    let mut entries: Vec<Entry> = statuses.iter().map(|entry| describe(&entry)).collect();
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    let head = match repository.head() {
        Ok(head) => Some(head.peel_to_commit()?.id().to_string()),
        Err(error) if error.code() == ErrorCode::UnbornBranch => None,
        Err(error) => return Err(error.into()),
    };
    Ok(Summary { branch: branch(repository)?, head, entries })
}

/// The branch that HEAD names, born or not; none when HEAD is detached.
pub(super) fn branch(repository: &Repository) -> Result<Option<String>, Error> {
    let head = repository.find_reference("HEAD")?;
    if head.kind() != Some(ReferenceType::Symbolic) {
        return Ok(None);
    }
    let target = String::from_utf8_lossy(head.symbolic_target_bytes().unwrap_or_default()).into_owned();
    Ok(target.strip_prefix("refs/heads/").map(ToOwned::to_owned))
}

fn describe(entry: &StatusEntry<'_>) -> Entry {
    // A renamed file goes by its new name.
    let renamed = entry.head_to_index().and_then(|delta| path_of(&delta));
    let path = renamed.unwrap_or_else(|| String::from_utf8_lossy(entry.path_bytes()).into_owned());
    let status = entry.status();
    let first =
        |table: &[(Status, Change)]| table.iter().find(|(flag, _)| status.contains(*flag)).map(|(_, to)| *to);
    Entry {
        path,
        staged: first(&[
            (Status::INDEX_NEW, Change::Added),
            (Status::INDEX_RENAMED, Change::Renamed),
            (Status::INDEX_DELETED, Change::Deleted),
            (Status::INDEX_TYPECHANGE, Change::TypeChanged),
            (Status::INDEX_MODIFIED, Change::Modified),
        ]),
        unstaged: first(&[
            (Status::CONFLICTED, Change::Conflicted),
            (Status::WT_NEW, Change::Untracked),
            (Status::WT_RENAMED, Change::Renamed),
            (Status::WT_DELETED, Change::Deleted),
            (Status::WT_TYPECHANGE, Change::TypeChanged),
            (Status::WT_MODIFIED, Change::Modified),
        ]),
    }
}

fn path_of(delta: &DiffDelta<'_>) -> Option<String> {
    let file = if delta.status() == Delta::Deleted { delta.old_file() } else { delta.new_file() };
    file.path_bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

pub(super) fn diff(repository: &Repository, side: DiffSide, paths: &[String]) -> Result<String, Error> {
    let mut options = DiffOptions::new();
    options.disable_pathspec_match(true);
    for path in relative_paths(paths)? {
        options.pathspec(path);
    }
    let tree = match repository.head() {
        Ok(head) => Some(head.peel_to_tree()?),
        Err(error) if error.code() == ErrorCode::UnbornBranch => None,
        Err(error) => return Err(error.into()),
    };
    let mut diff = match side {
        DiffSide::Unstaged => repository.diff_index_to_workdir(None, Some(&mut options)),
        DiffSide::Staged => repository.diff_tree_to_index(tree.as_ref(), None, Some(&mut options)),
        DiffSide::All => repository.diff_tree_to_workdir_with_index(tree.as_ref(), Some(&mut options)),
    }?;
    diff.find_similar(None)?;

    let mut patch = Vec::new();
    let printed = diff.print(DiffFormat::Patch, |_, _, line| {
        if matches!(line.origin(), '+' | '-' | ' ') {
            patch.push(line.origin() as u8);
        }
        patch.extend_from_slice(line.content());
        patch.len() <= DIFF_BYTES
    });
    match printed {
        Ok(()) => Ok(String::from_utf8_lossy(&patch).into_owned()),
        Err(error) if error.code() == ErrorCode::User => Err(Error::Failed(format!(
            "the patch is larger than {DIFF_BYTES} bytes; name the paths of interest"
        ))),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn log(repository: &Repository, limit: u32) -> Result<Vec<CommitInfo>, Error> {
    let mut walk = repository.revwalk()?;
    match walk.push_head() {
        Ok(()) => {}
        Err(_) if repository.is_empty()? => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut commits = Vec::new();
    for id in walk.take(limit.min(LOG_COMMITS) as usize) {
        let commit = repository.find_commit(id?)?;
        let author = commit.author();
        commits.push(CommitInfo {
            id: commit.id().to_string(),
            author: format!("{} <{}>", text(author.name_bytes()), text(author.email_bytes())),
            time: commit.time().seconds(),
            subject: text(commit.summary_bytes().unwrap_or_default()),
            message: text(commit.message_bytes()),
        });
    }
    Ok(commits)
}
