//! `git_diff`.

use deed_sdk::git::{self, DiffSide};
use deed_sdk::prelude::*;

/// Show what changed, as a patch in git's unified form.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct GitDiff {
    /// What to compare.
    #[serde(default)]
    side: Side,
    /// Only these files, or files below these directories; all if left out.
    #[serde(default)]
    paths: Vec<String>,
}

#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Side {
    /// The files with the last commit.
    #[default]
    All,
    /// The files with the index.
    Unstaged,
    /// The index with the last commit.
    Staged,
}

/// What a model can still take in. A longer patch is read file by file.
const LIMIT_BYTES: usize = 128 * 1024;

impl Tool for GitDiff {
    const NAME: &str = "git_diff";
    const EFFECT: Effect = Effect::Pure;

    fn run(self, _: &Call) -> Result<Output> {
        let side = match self.side {
            Side::All => DiffSide::All,
            Side::Unstaged => DiffSide::Unstaged,
            Side::Staged => DiffSide::Staged,
        };
        let patch = git::diff(side, &self.paths)
            .map_err(|error| Error::from(error).context("failed to read the git diff"))?;
        Ok(Output::text(bounded(patch)))
    }
}

fn bounded(mut patch: String) -> String {
    if patch.is_empty() {
        return "no difference\n".into();
    }
    if patch.len() > LIMIT_BYTES {
        let kept = patch[..patch.floor_char_boundary(LIMIT_BYTES)].rfind('\n').map_or(0, |at| at + 1);
        let cut = patch.len() - kept;
        patch.truncate(kept);
        patch.push_str(&format!("[cut: {cut} more bytes; narrow it with `paths`]\n"));
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_patch_is_cut_after_a_line_and_says_so() {
        let text = bounded("+line\n".repeat(LIMIT_BYTES / 6 + 10));
        let kept = LIMIT_BYTES / 6 * 6;
        assert_eq!(text[kept..], format!("[cut: {} more bytes; narrow it with `paths`]\n", 60));
        assert!(text[..kept].ends_with("+line\n"));
    }

    #[test]
    fn an_empty_patch_is_said_in_words() {
        assert_eq!(bounded(String::new()), "no difference\n");
    }
}
