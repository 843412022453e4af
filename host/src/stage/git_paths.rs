//! Which part of a git repository a path is, if any: what has to be there first, and what git guards by a lock.
//!
//! A `.git` directory counts at any depth, and so do the repositories of submodules inside one.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use deed_journal::PathBytes;

/// A path, as git sees it. The later, the more depends on the others being there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// Objects, loose and packed.
    Object,
    /// The index of a pack, which makes git look for the pack.
    PackIndex,
    /// What names packs and objects: `multi-pack-index`, the graph of commits.
    ObjectsIndex,
    /// In the work tree.
    Work,
    /// Anything else of a git directory: logs, hooks, messages.
    Other,
    /// `config`.
    Config,
    /// A file below `refs`.
    Reference,
    /// All references in one file.
    References,
    /// `HEAD`.
    Head,
    /// `index`.
    Index,
    /// What keeps others from one of those that have a lock.
    Lock,
}

impl Part {
    /// Whether git takes a lock before it writes one.
    pub(super) const fn is_guarded(self) -> bool {
        matches!(self, Self::Config | Self::Reference | Self::References | Self::Head | Self::Index)
    }

    /// Whether it belongs to the store of objects.
    pub(super) const fn is_object(self) -> bool {
        matches!(self, Self::Object | Self::PackIndex | Self::ObjectsIndex)
    }
}

/// What ends the name of a lock.
const LOCK: &[u8] = b".lock";

/// What a git directory has in it, by which one inside another is told.
const TOP: [&[u8]; 12] = [
    b"HEAD",
    b"config",
    b"config.worktree",
    b"hooks",
    b"index",
    b"info",
    b"logs",
    b"modules",
    b"objects",
    b"packed-refs",
    b"refs",
    b"reftable",
];

/// The part of a git repository that `path` is.
pub(super) fn part(path: &PathBytes) -> Part {
    let parts: Vec<&[u8]> = path.as_bytes().split(|byte| *byte == b'/').collect();
    match git_component(&parts) {
        Some(at) => part_of(inner(&parts[at + 1..])),
        None => Part::Work,
    }
}

/// The `.git` directory that `path` is in.
pub(super) fn git_directory(path: &PathBytes) -> Option<PathBuf> {
    let parts: Vec<&[u8]> = path.as_bytes().split(|byte| *byte == b'/').collect();
    git_component(&parts).map(|at| PathBuf::from(OsString::from_vec(parts[..=at].join(&b'/'))))
}

/// The lock of a guarded file.
pub(super) fn lock(path: &PathBytes) -> PathBuf {
    PathBuf::from(OsString::from_vec([path.as_bytes(), LOCK].concat()))
}

/// Where the last `.git` that has something below it stands.
fn git_component(parts: &[&[u8]]) -> Option<usize> {
    parts[..parts.len() - 1].iter().rposition(|part| *part == b".git")
}

/// A path in a git directory, without what leads into the git directory of a submodule or the part of a work tree.
fn inner<'a, 'b>(mut rest: &'a [&'b [u8]]) -> &'a [&'b [u8]] {
    loop {
        match rest {
            // The name of a submodule may have several parts; that of a work tree has one.
            [b"modules", _, below @ ..] => {
                match below.iter().position(|part| TOP.contains(&part.strip_suffix(LOCK).unwrap_or(part))) {
                    Some(at) => rest = &below[at..],
                    None => return &[],
                }
            }
            [b"worktrees", _, below @ ..] => rest = below,
            _ => return rest,
        }
    }
}

fn part_of(rest: &[&[u8]]) -> Part {
    if let Some((last, before)) = rest.split_last()
        && let Some(stem) = last.strip_suffix(LOCK)
    {
        let guarded = [before, &[stem]].concat();
        return if part_of(&guarded).is_guarded() { Part::Lock } else { Part::Other };
    }
    match rest {
        [b"objects", .., name] if name.ends_with(b".idx") => Part::PackIndex,
        [b"objects", b"pack", b"multi-pack-index", ..]
        | [b"objects", b"info", b"commit-graph" | b"commit-graphs", ..] => Part::ObjectsIndex,
        [b"objects", ..] => Part::Object,
        [b"config" | b"config.worktree"] => Part::Config,
        [b"refs", _, ..] => Part::Reference,
        [b"packed-refs"] | [b"reftable", b"tables.list"] => Part::References,
        [b"HEAD"] => Part::Head,
        [b"index"] => Part::Index,
        _ => Part::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_known_wherever_the_repository_is() {
        let expected = [
            ("objects/ab/cdef", Part::Object),
            ("objects/pack/pack-1.pack", Part::Object),
            ("objects/pack/pack-1.idx", Part::PackIndex),
            ("objects/pack/multi-pack-index", Part::ObjectsIndex),
            ("objects/info/commit-graphs/graph-1.graph", Part::ObjectsIndex),
            ("COMMIT_EDITMSG", Part::Other),
            ("logs/refs/heads/main", Part::Other),
            ("hooks/post-commit", Part::Other),
            ("config", Part::Config),
            ("refs/heads/objects/index", Part::Reference),
            ("refs/stash", Part::Reference),
            ("packed-refs", Part::References),
            ("reftable/tables.list", Part::References),
            ("HEAD", Part::Head),
            ("index", Part::Index),
            ("index.lock", Part::Lock),
            ("refs/heads/main.lock", Part::Lock),
            ("gc.pid.lock", Part::Other),
        ];
        for (path, part_expected) in expected {
            let places =
                [".git/", "a/b/.git/", ".git/modules/x/", ".git/modules/lib/x/", ".git/modules/a/modules/b/"];
            for place in places {
                let path = PathBytes::new(format!("{place}{path}"));
                assert_eq!(part(&path), part_expected, "{path}");
            }
        }
        for path in ["HEAD", "a/index", ".git", "sub/.git", ".gitignore", "refs/heads/main"] {
            assert_eq!(part(&PathBytes::new(path)), Part::Work, "{path}");
        }
        assert_eq!(part(&PathBytes::new(".git/worktrees/one/HEAD")), Part::Head);
    }

    #[test]
    fn a_guarded_file_knows_its_lock_and_its_repository() {
        let path = PathBytes::new("sub/.git/refs/heads/main");
        assert_eq!(lock(&path), PathBuf::from("sub/.git/refs/heads/main.lock"));
        assert_eq!(git_directory(&path), Some(PathBuf::from("sub/.git")));
        assert_eq!(git_directory(&PathBytes::new("sub/.git")), None);
    }
}
