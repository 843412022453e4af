//! `git_status`, `git_diff`, `git_log`, `git_commit`, `git_push`: the git repository that the workspace is in.

mod commit;
mod diff;
mod log;
mod push;
mod status;

deed_sdk::export!(status::GitStatus, diff::GitDiff, log::GitLog, commit::GitCommit, push::GitPush);

/// A commit's id as people read it: git's own default length.
fn short(id: &str) -> &str {
    id.get(..7).unwrap_or(id)
}
