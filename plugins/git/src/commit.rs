//! `git_commit`.

use deed_sdk::git::{self, Committed};
use deed_sdk::prelude::*;

use crate::short;

/// Commit every change in the files to the current branch, untracked files included.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct GitCommit {
    /// The commit's message; its first line is the subject.
    message: String,
    /// Commit only changes in these files, or in files below these directories; all if left out.
    #[serde(default)]
    paths: Vec<String>,
}

/// Exactly once by the host's doing: it writes the step's idempotency key into the commit, and finds it by that.
impl Tool for GitCommit {
    const NAME: &str = "git_commit";
    const EFFECT: Effect = Effect::Idempotent;

    fn run(self, _: &Call) -> Result<Output> {
        let Some(subject) = subject(&self.message) else {
            return Err(Error::invalid("`message` is empty; say what the commit does"));
        };
        let committed = git::commit(&self.message, &self.paths)
            .map_err(|error| Error::from(error).context(format!("failed to commit `{subject}`")))?;
        let output = Output::text(to_text(&committed, subject));
        Ok(if committed.landed_before { output.landed_before() } else { output })
    }
}

/// Git drops the blank lines before the subject, too.
fn subject(message: &str) -> Option<&str> {
    message.lines().map(str::trim).find(|line| !line.is_empty())
}

fn to_text(committed: &Committed, subject: &str) -> String {
    let id = short(&committed.id);
    let branch = committed.branch.as_deref().unwrap_or("a detached HEAD");
    let files = match committed.files_changed {
        1 => "1 file".into(),
        count => format!("{count} files"),
    };
    format!("committed {id} on {branch}: {subject} ({files} changed)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_does_not_depend_on_the_attempt() {
        let committed = |landed_before| Committed {
            id: "1a2b3c4d5e".into(),
            branch: Some("deed/0123abcd".into()),
            files_changed: 3,
            landed_before,
        };
        let text = to_text(&committed(false), "Fix add()");
        assert_eq!(text, "committed 1a2b3c4 on deed/0123abcd: Fix add() (3 files changed)");
        assert_eq!(text, to_text(&committed(true), "Fix add()"));
    }

    #[test]
    fn the_subject_is_the_first_line_that_says_something() {
        assert_eq!(subject("\n  Fix add()\n\nIt subtracted.\n"), Some("Fix add()"));
        assert_eq!(subject(" \n"), None);
    }
}
