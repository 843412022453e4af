//! What a run changes: files, the repository, remotes, and what observers see.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use deed_journal::Digest;
use git2::{Oid, Repository, Sort, Status, StatusOptions};
use walkdir::WalkDir;

use super::CrashTestError;
use super::mask::Masks;
use super::observer::Observers;
use super::place::Place;

/// Files larger than this are compared by digest: their difference would fill pages.
const SHOWN_BYTES: u64 = 64 << 10;

/// A part of the world: `counter.log`, `git history`, `remote 1`, `observe rows`. Its text is masked.
pub(super) type Parts = BTreeMap<String, String>;

/// The state of the world at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct World {
    pub(super) parts: Parts,
}

impl World {
    /// Look at everything. The hashes of commits are added to `masks`.
    pub(super) fn look(
        place: &Place,
        remotes: usize,
        observers: &Observers,
        masks: &mut Masks,
        stop: &AtomicBool,
    ) -> Result<Self, CrashTestError> {
        let workspace = place.workspace();
        let mut parts = files(&workspace)?;
        let failed = |error: git2::Error| CrashTestError::Read(format!("the repository: {error}"));
        if workspace.join(".git").exists() {
            let repository = Repository::open(&workspace).map_err(failed)?;
            parts.insert("git history".into(), history(&repository, masks).map_err(failed)?);
            parts.insert("git status".into(), status(&repository).map_err(failed)?);
        }
        for number in 0..remotes {
            let name = format!("remote {}", number + 1);
            let text = match Repository::open(place.remote(number)) {
                Ok(repository) => history(&repository, masks).map_err(failed)?,
                Err(error) => format!("no repository: {error}\n"),
            };
            parts.insert(name, text);
        }
        for (name, text) in observers.look(place, stop)? {
            parts.insert(format!("observe {name}"), text);
        }
        for text in parts.values_mut() {
            *text = masks.apply(text);
        }
        Ok(Self { parts })
    }
}

/// Every file of the workspace, but for git's own, which are compared by what git says.
fn files(workspace: &Path) -> Result<Parts, CrashTestError> {
    let walk = WalkDir::new(workspace).min_depth(1).sort_by_file_name().into_iter();
    let mut parts = Parts::new();
    for entry in walk.filter_entry(|entry| entry.file_name() != ".git") {
        let entry = entry.map_err(|error| CrashTestError::Read(error.to_string()))?;
        let path = entry.path();
        let read = CrashTestError::io("read", path);
        let kind = entry.file_type();
        let text = if kind.is_dir() {
            "a directory\n".to_owned()
        } else if kind.is_symlink() {
            format!("a link to {}\n", fs::read_link(path).map_err(&read)?.display())
        } else if kind.is_file() {
            let metadata = entry.metadata().map_err(|error| CrashTestError::Read(error.to_string()))?;
            let executable = metadata.permissions().mode() & 0o111 != 0;
            let bytes = fs::read(path).map_err(&read)?;
            let text = shown(&bytes);
            if executable { format!("(executable)\n{text}") } else { text }
        } else {
            "neither file nor directory\n".to_owned()
        };
        let name = path.strip_prefix(workspace).unwrap_or(path).to_string_lossy().into_owned();
        parts.insert(name, text);
    }
    Ok(parts)
}

fn shown(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.len() as u64 <= SHOWN_BYTES => text.to_owned(),
        _ => format!("{} bytes, digest {}\n", bytes.len(), Digest::of(bytes)),
    }
}

/// Every commit that a reference leads to, then the references.
fn history(repository: &Repository, masks: &mut Masks) -> Result<String, git2::Error> {
    let mut walk = repository.revwalk()?;
    walk.set_sorting(Sort::TOPOLOGICAL | Sort::REVERSE)?;
    let mut references: Vec<(String, Oid)> = Vec::new();
    for reference in repository.references()? {
        let reference = reference?;
        let Ok(commit) = reference.peel_to_commit() else { continue };
        let name = String::from_utf8_lossy(reference.name_bytes()).into_owned();
        references.push((name, commit.id()));
    }
    references.sort();
    for (_, id) in &references {
        walk.push(*id)?;
    }
    let mut text = String::new();
    for (number, id) in (1..).zip(walk) {
        let commit = repository.find_commit(id?)?;
        masks.add(commit.id(), format!("<commit {number}>"));
        let _ = writeln!(text, "commit {} of tree {}", commit.id(), commit.tree_id());
        for line in String::from_utf8_lossy(commit.message_bytes()).lines() {
            let _ = writeln!(text, "    {line}");
        }
    }
    for (name, id) in references {
        let _ = writeln!(text, "{name} is at {id}");
    }
    let head = repository.find_reference("HEAD")?;
    let head = head.symbolic_target_bytes().map(|target| String::from_utf8_lossy(target).into_owned());
    let _ = writeln!(text, "HEAD is on {}", head.as_deref().unwrap_or("a commit"));
    Ok(text)
}

/// What differs between the last commit, the index and the files.
fn status(repository: &Repository) -> Result<String, git2::Error> {
    let mut options = StatusOptions::new();
    options.include_untracked(true).recurse_untracked_dirs(true);
    let statuses = repository.statuses(Some(&mut options))?;
    Ok(statuses.iter().filter(|entry| entry.status() != Status::CURRENT).fold(
        String::new(),
        |text, entry| {
            text + &format!("{:?} {}\n", entry.status(), String::from_utf8_lossy(entry.path_bytes()))
        },
    ))
}
