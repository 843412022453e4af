//! `git_log`.

use deed_sdk::git::{self, CommitInfo};
use deed_sdk::prelude::*;

use crate::short;

/// List the last commits of the current branch, newest first: id, author and subject.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct GitLog {
    /// How many at most.
    #[serde(default = "default_limit")]
    #[schemars(range(min = 1, max = 200))]
    limit: u32,
}

const fn default_limit() -> u32 {
    20
}

impl Tool for GitLog {
    const NAME: &str = "git_log";
    const EFFECT: Effect = Effect::Pure;

    fn run(self, _: &Call) -> Result<Output> {
        if !(1..=200).contains(&self.limit) {
            return Err(Error::invalid(format!("`limit` is `{}`; expected 1 to 200", self.limit)));
        }
        let commits =
            git::log(self.limit).map_err(|error| Error::from(error).context("failed to read the git log"))?;
        Ok(Output::text(to_text(&commits)))
    }
}

fn to_text(commits: &[CommitInfo]) -> String {
    if commits.is_empty() {
        return "no commits yet\n".into();
    }
    let line = |commit: &CommitInfo| format!("{} {}: {}\n", short(&commit.id), commit.author, commit.subject);
    commits.iter().map(line).collect()
}
