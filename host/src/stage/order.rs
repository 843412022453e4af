//! The order in which changes are published, so that whoever looks in the middle finds nothing that names what is missing.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use deed_journal::{Change, PathBytes, Version};

use super::git_paths::{Part, part};

/// Where a change stands. Declared in the order of publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// A lock of git's that the call removed, and that would now keep us out.
    Unlock,
    /// New directories, and those that got other permissions; above before below. One may take the place of a file with a lock.
    Directories,
    /// Files and links: first what references and the index name, then them.
    Files(Part),
    /// References before anything else, objects last.
    Removed(Removed),
    /// Below before above.
    RemovedDirectories,
    /// A lock of git's that the call left: it would have kept us out.
    Lock,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Removed {
    Guarded,
    Other,
    /// What names objects goes before them.
    Objects(Reverse<Part>),
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    phase: Phase,
    /// A directory that gives way to a file takes what was below along, just before it.
    anchor: PathBytes,
    is_anchor: bool,
    below_before_above: Reverse<PathBytes>,
}

/// Put changes in the order of publication.
pub(super) fn sort(changes: &mut [Change]) {
    let replaced: BTreeSet<PathBytes> = changes
        .iter()
        .filter(|change| {
            change.base.is_directory() && !change.staged.is_directory() && change.staged != Version::Absent
        })
        .map(|change| change.path.clone())
        .collect();
    changes.sort_by_cached_key(|change| place(change, &replaced));
}

fn place(change: &Change, replaced: &BTreeSet<PathBytes>) -> Place {
    let path = change.path.clone();
    if change.staged != Version::Absent {
        let phase = phase_of_staged(change);
        return Place { phase, anchor: path.clone(), is_anchor: true, below_before_above: Reverse(path) };
    }
    let is_lock = part(&path) == Part::Lock && !change.base.is_directory();
    // The one that was a directory when the call began; none of those above it can have been replaced as well.
    let above = ancestors(&path).find(|above| !is_lock && replaced.contains(above));
    let (phase, anchor) = match above {
        Some(above) => (Phase::Files(part(&above)), above),
        None => (phase_of_removed(change), PathBytes::new(Vec::new())),
    };
    Place { phase, anchor, is_anchor: false, below_before_above: Reverse(path) }
}

fn phase_of_staged(change: &Change) -> Phase {
    match (part(&change.path), &change.staged) {
        (_, Version::Directory { .. }) => Phase::Directories,
        (Part::Lock, _) => Phase::Lock,
        (part, _) => Phase::Files(part),
    }
}

fn phase_of_removed(change: &Change) -> Phase {
    match part(&change.path) {
        _ if change.base.is_directory() => Phase::RemovedDirectories,
        Part::Lock => Phase::Unlock,
        part if part.is_guarded() => Phase::Removed(Removed::Guarded),
        part if part.is_object() => Phase::Removed(Removed::Objects(Reverse(part))),
        _ => Phase::Removed(Removed::Other),
    }
}

/// The directories above a path, the nearest first.
fn ancestors(path: &PathBytes) -> impl Iterator<Item = PathBytes> {
    let bytes = path.as_bytes();
    let slashes = bytes.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/');
    slashes.map(|(at, _)| PathBytes::new(&bytes[..at]))
}
