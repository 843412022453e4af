//! How the texts differ that a call changed: for people, and never read back.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;

use cap_std::fs::Dir;
use deed_journal::{Change, PathBytes, Version};
use git2::{DiffLineType, DiffOptions, Patch};

use super::{StageError, git_paths, tree};

/// All differences together: a few thousand lines, more than anybody reads, and little beside a model's context.
const MAX_DIFF_BYTES: usize = 256 << 10;

/// A file, which is held in memory with its other version. Texts that people write are smaller.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A side of a difference that is shown as text.
type Text = Vec<u8>;

/// The differences, in the order of the changes, as `git diff` would show them. What is in a git directory is left out: it
/// follows from the work tree, or nobody can read it.
pub(super) fn of(upper: &Dir, lower: &Dir, changes: &[Change]) -> Result<String, StageError> {
    let mut diff = String::new();
    let mut left_out = 0;
    for change in changes.iter().filter(|change| is_shown(change)) {
        // Once it is full, no further file is read.
        if left_out > 0 {
            left_out += 1;
            continue;
        }
        let one = difference(upper, lower, change)?;
        if diff.len() + one.len() > MAX_DIFF_BYTES {
            left_out += 1;
        } else {
            diff.push_str(&one);
        }
    }
    if left_out > 0 {
        let _ = writeln!(diff, "({left_out} more differ; this shows at most {MAX_DIFF_BYTES} bytes)");
    }
    Ok(diff)
}

fn is_shown(change: &Change) -> bool {
    let has_content = |version: &Version| matches!(version, Version::File { .. } | Version::Link { .. });
    change.base != change.staged
        && (has_content(&change.base) || has_content(&change.staged))
        && git_paths::git_directory(&change.path).is_none()
}

fn difference(upper: &Dir, lower: &Dir, change: &Change) -> Result<String, StageError> {
    let path = shown(&change.path);
    let (old_mode, new_mode) = (mode(&change.base), mode(&change.staged));
    let title = format!("diff --git a/{path} b/{path}\n");
    let modes = match (old_mode, new_mode) {
        (None, Some(new)) => format!("new file mode {new:06o}\n"),
        (Some(old), None) => format!("deleted file mode {old:06o}\n"),
        (Some(old), Some(new)) if old != new => format!("old mode {old:06o}\nnew mode {new:06o}\n"),
        _ => String::new(),
    };
    if content_equals(&change.base, &change.staged) {
        return Ok(title + &modes);
    }
    let name = |side: &str, mode: Option<u32>| {
        if mode.is_some() { format!("{side}/{path}") } else { "/dev/null".to_owned() }
    };
    let (old_name, new_name) = (name("a", old_mode), name("b", new_mode));
    let failed = |error| StageError::file("compare", change.path.as_path())(error);
    let texts = (
        side(lower, &change.path, &change.base).map_err(failed)?,
        side(upper, &change.path, &change.staged).map_err(failed)?,
    );
    let lines = match texts {
        (Some(old), Some(new)) => hunks(&old, &new),
        _ => None,
    };
    let lines = match lines {
        // One of them is empty, and the other is not there.
        Some(lines) if lines.is_empty() => lines,
        Some(lines) => format!("--- {old_name}\n+++ {new_name}\n{lines}"),
        None => format!("Binary files {old_name} and {new_name} differ\n"),
    };
    Ok(title + &modes + &lines)
}

fn content_equals(base: &Version, staged: &Version) -> bool {
    match (base, staged) {
        (Version::File { digest, .. }, Version::File { digest: other, .. }) => digest == other,
        (base, staged) => base == staged,
    }
}

/// The mode that git gives what has content.
fn mode(version: &Version) -> Option<u32> {
    match version {
        Version::File { mode, .. } => Some(0o100_000 | mode),
        Version::Link { .. } => Some(0o120_000),
        _ => None,
    }
}

/// The content of one side, nothing for what has none. None when it is not to be shown as text.
fn side(root: &Dir, path: &PathBytes, version: &Version) -> std::io::Result<Option<Text>> {
    match version {
        Version::Link { target } => Ok(Some(target.as_bytes().to_vec())),
        Version::File { size_bytes, .. } if *size_bytes > MAX_FILE_BYTES => Ok(None),
        Version::File { .. } => {
            let (parent, name) = tree::split(path.as_path())?;
            let file = match tree::passage(root, parent).and_then(|parent| tree::open(parent, name)) {
                // Somebody else is at it; a conflict is found elsewhere.
                Err(error) if tree::is_missing(&error) => return Ok(None),
                file => file?,
            };
            let mut content = Vec::new();
            file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content)?;
            let is_text = content.len() as u64 <= MAX_FILE_BYTES && memchr::memchr(0, &content).is_none();
            Ok(is_text.then_some(content))
        }
        _ => Ok(Some(Vec::new())),
    }
}

/// The lines that differ, with three around them. None when git cannot tell.
fn hunks(old: &[u8], new: &[u8]) -> Option<String> {
    let mut options = DiffOptions::new();
    options.force_text(true);
    let name = Some(Path::new("file"));
    let mut patch = Patch::from_buffers(old, name, new, name, Some(&mut options)).ok()?;
    let mut text = String::new();
    let printed = patch.print(&mut |_, _, line| {
        match line.origin_value() {
            DiffLineType::FileHeader | DiffLineType::Binary => return true,
            DiffLineType::Context | DiffLineType::Addition | DiffLineType::Deletion => {
                text.push(line.origin());
            }
            _ => {}
        }
        text.push_str(&String::from_utf8_lossy(line.content()));
        true
    });
    printed.ok().map(|()| text)
}

/// A path in one line.
fn shown(path: &PathBytes) -> String {
    path.to_string().chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
