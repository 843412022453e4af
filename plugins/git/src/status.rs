//! `git_status`.

use deed_sdk::git::{self, Change, Entry, Summary};
use deed_sdk::prelude::*;

use crate::short;

/// Show the current branch, the last commit and the changed files, as `git status --short` does: the first letter is
/// the change in the index, the second that in the files, `??` is an untracked file.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct GitStatus {}

impl Tool for GitStatus {
    const NAME: &str = "git_status";
    const EFFECT: Effect = Effect::Pure;

    fn run(self, _: &Call) -> Result<Output> {
        let summary =
            git::status().map_err(|error| Error::from(error).context("failed to read the git status"))?;
        Ok(Output::text(to_text(&summary)))
    }
}

fn to_text(summary: &Summary) -> String {
    let place = match &summary.branch {
        Some(branch) => format!("on branch {branch}"),
        None => "HEAD detached".into(),
    };
    let head = match &summary.head {
        Some(id) => format!("at {}", short(id)),
        None => "no commits yet".into(),
    };
    let mut text = format!("{place}, {head}\n");
    if summary.entries.is_empty() {
        text.push_str("nothing to commit\n");
    }
    for entry in &summary.entries {
        text.push_str(&format!("{} {}\n", letters(entry), entry.path));
    }
    text
}

fn letters(entry: &Entry) -> String {
    match (entry.staged, entry.unstaged) {
        (_, Some(Change::Untracked)) => "??".into(),
        (Some(Change::Conflicted), _) | (_, Some(Change::Conflicted)) => "UU".into(),
        (staged, unstaged) => [staged, unstaged].into_iter().map(letter).collect(),
    }
}

fn letter(change: Option<Change>) -> char {
    match change {
        None => ' ',
        Some(Change::Added) => 'A',
        Some(Change::Modified) => 'M',
        Some(Change::Deleted) => 'D',
        Some(Change::Renamed) => 'R',
        Some(Change::TypeChanged) => 'T',
        Some(Change::Conflicted) => 'U',
        Some(Change::Untracked) => '?',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clean_and_a_changed_tree() {
        let clean = Summary { branch: Some("main".into()), head: Some("1a2b3c4d5e".into()), entries: vec![] };
        assert_eq!(to_text(&clean), "on branch main, at 1a2b3c4\nnothing to commit\n");
        let entry = |path: &str, staged, unstaged| Entry { path: path.into(), staged, unstaged };
        let changed = Summary {
            branch: None,
            head: None,
            entries: vec![
                entry("a", Some(Change::Added), Some(Change::Modified)),
                entry("b", None, Some(Change::Deleted)),
                entry("c", None, Some(Change::Untracked)),
            ],
        };
        assert_eq!(to_text(&changed), "HEAD detached, no commits yet\nAM a\n D b\n?? c\n");
    }
}
