//! Which repository a call may use: the one whose work tree is the workspace itself.
//!
//! Not one further up: its other files are not granted. And since a tool may write below `.git`, nothing there may lead
//! out of it: otherwise one call could point the repository elsewhere, and the next one, with the host's hands, write there.
//! Nor may anything be a pipe where libgit2 expects a file: opening it would wait, in the kernel, where no limit reaches.

use std::fs::{self, FileType};
use std::io;
use std::path::{Component, Path, PathBuf};

use git2::{Repository, RepositoryOpenFlags};

use super::Error;

/// Files of a git directory that libgit2 reads unasked, and those that lead to others.
const READ: [&str; 13] = [
    "HEAD",
    "commondir",
    "config",
    "config.worktree",
    "gitdir",
    "index",
    "info/attributes",
    "info/exclude",
    "info/grafts",
    "objects/info/alternates",
    "packed-refs",
    "shallow",
    "logs/HEAD",
];

/// Files of the work tree's root that libgit2 reads unasked.
const READ_IN_ROOT: [&str; 3] = [".gitignore", ".gitattributes", ".gitmodules"];

/// Places below a git directory through which libgit2 writes.
const WRITTEN: [&str; 9] =
    ["HEAD", "index", "objects", "refs", "refs/heads", "logs", "logs/HEAD", "logs/refs", "packed-refs"];

/// References that a reference may name, one after the other. Git itself follows five.
const REFERENCES: usize = 5;

/// Object directories that take objects from one another, one after the other. Git itself follows five.
const ALTERNATES: usize = 5;

/// Bytes of a file that holds one path.
const PATH_FILE_BYTES: u64 = 8 << 10;

/// Why a repository is not used.
#[derive(Debug, thiserror::Error)]
#[error("the workspace is no work tree of a git repository: {0}")]
pub(crate) struct NotUsable(String);

impl From<NotUsable> for Error {
    fn from(why: NotUsable) -> Self {
        Self::NoRepository(why.to_string())
    }
}

/// Open the repository of `workspace`, if nothing of it leads elsewhere.
pub(crate) fn open(workspace: &Path) -> Result<Repository, NotUsable> {
    let none = |why: &str| NotUsable(why.to_owned());
    let workspace = fs::canonicalize(workspace).map_err(|error| NotUsable(error.to_string()))?;
    // All that libgit2 reads on opening is looked at before.
    let dot_git = workspace.join(".git");
    let directory = git_directory(&workspace, &dot_git)?;
    check_files(&directory, &READ)?;
    check_files(&workspace, &READ_IN_ROOT)?;
    check_includes(&workspace, &directory)?;
    if let Ok(common) = read_path(&directory.join("commondir")) {
        let common = directory.join(common);
        check_files(&common, &READ)?;
        check_includes(&workspace, &common)?;
    }

    let repository = Repository::open_ext(&workspace, RepositoryOpenFlags::NO_SEARCH, &[] as &[PathBuf])
        .map_err(|error| NotUsable(error.message().to_owned()))?;
    let same =
        |a: &Path, b: &Path| matches!((fs::canonicalize(a), fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b);
    let is_work_tree = repository.workdir().is_some_and(|directory| same(directory, &workspace));
    if !is_work_tree {
        return Err(none("its configuration names another work tree, or none"));
    }
    if repository.is_worktree() {
        // A linked work tree: its git directory is elsewhere, and names this work tree in turn. What a tool writes
        // into `.git` here cannot make it so.
        let back = read_path(&repository.path().join("gitdir")).unwrap_or_default();
        if !same(&back, &dot_git) {
            return Err(none("`.git` names a git directory that does not name this work tree"));
        }
    } else if directory != dot_git
        || !same(repository.path(), &dot_git)
        || !same(repository.commondir(), &dot_git)
    {
        return Err(none("`.git` leads out of the workspace"));
    }
    for place in WRITTEN {
        for directory in [repository.path(), repository.commondir()] {
            check_no_link(&directory.join(place))?;
        }
    }
    let objects = repository.commondir().join("objects");
    check_objects(&objects)?;
    check_alternates(&workspace, &objects, ALTERNATES)?;
    check_head(&repository)?;
    Ok(repository)
}

/// The git directory that `.git` is, or names.
fn git_directory(workspace: &Path, dot_git: &Path) -> Result<PathBuf, NotUsable> {
    let kind = match fs::symlink_metadata(dot_git) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(NotUsable("it has no `.git`; `git init` makes one".to_owned()));
        }
        Err(error) => return Err(NotUsable(error.to_string())),
    };
    if kind.is_dir() {
        return Ok(dot_git.to_owned());
    }
    if !kind.is_file() {
        return Err(NotUsable("`.git` leads out of the workspace".to_owned()));
    }
    let named = read_path(dot_git).map_err(|error| NotUsable(error.to_string()))?;
    match named.to_str().and_then(|named| named.strip_prefix("gitdir:")) {
        Some(named) => Ok(workspace.join(named.trim_start())),
        None => Err(NotUsable("`.git` is a file that names no git directory".to_owned())),
    }
}

/// The path that a file holds. The file is known to be a regular one.
fn read_path(file: &Path) -> io::Result<PathBuf> {
    let mut text = String::new();
    io::Read::read_to_string(&mut io::Read::take(fs::File::open(file)?, PATH_FILE_BYTES), &mut text)?;
    Ok(text.trim_end().into())
}

/// Refuse what is there and is no regular file, links followed.
fn check_files(directory: &Path, files: &[&str]) -> Result<(), NotUsable> {
    for file in files {
        let path = directory.join(file);
        if fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
            return Err(NotUsable(format!("`{}` is no regular file", path.display())));
        }
    }
    Ok(())
}

/// Refuse a configuration that includes a file of the workspace, which may be a pipe, or include one. Any other is the
/// user's own. What cannot be told from its words is refused as well.
fn check_includes(workspace: &Path, directory: &Path) -> Result<(), NotUsable> {
    for file in ["config", "config.worktree"] {
        let path = directory.join(file);
        let Ok(text) = fs::read(&path) else { continue };
        let mut within = false;
        for line in String::from_utf8_lossy(&text).lines().map(str::trim) {
            let refused = || {
                let path = path.display();
                Err(NotUsable(format!("`{path}` includes a file of the workspace, or an odd one: `{line}`")))
            };
            if line.starts_with('[') {
                within = line.to_ascii_lowercase().starts_with("[include");
                if within && !line.ends_with(']') {
                    return refused();
                }
            } else if within && !line.is_empty() && !line.starts_with(['#', ';']) {
                let value = line.split_once('=').map(|(_, value)| value.trim()).unwrap_or_default();
                let outside = value.starts_with("~/")
                    || (value.starts_with('/')
                        && !Path::new(value).starts_with(workspace)
                        && !value.contains(".."));
                if !outside || value.contains(['"', '\\']) {
                    return refused();
                }
            }
        }
    }
    Ok(())
}

fn check_no_link(path: &Path) -> Result<(), NotUsable> {
    if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink()) {
        return Err(NotUsable(format!("`{}` is a symbolic link", path.display())));
    }
    Ok(())
}

/// Refuse links among the directories that objects are written to, and anything but files among the packs.
fn check_objects(objects: &Path) -> Result<(), NotUsable> {
    let each = |directory: &Path, refused: fn(FileType) -> bool| {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let mut odd = entries.filter(|entry| entry.file_type().is_ok_and(refused));
        match odd.next() {
            Some(entry) => {
                let path = entry.path();
                Err(NotUsable(format!("`{}` is a symbolic link, or no regular file", path.display())))
            }
            None => Ok(()),
        }
    };
    each(objects, |kind| kind.is_symlink())?;
    each(&objects.join("pack"), |kind| !kind.is_file())
}

/// Refuse objects that come from outside the workspace: whoever can write the file that names them would read, and push,
/// what is in any other repository of the user's. A linked work tree's objects are outside, and so is that file.
fn check_alternates(workspace: &Path, objects: &Path, depth: usize) -> Result<(), NotUsable> {
    let Ok(text) = fs::read(objects.join("info/alternates")) else { return Ok(()) };
    let within = |path: &Path| fs::canonicalize(path).is_ok_and(|path| path.starts_with(workspace));
    if !within(objects) {
        return Ok(());
    }
    for line in String::from_utf8_lossy(&text).lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let named = objects.join(line);
        if depth == 0 || !within(&named) {
            return Err(NotUsable(format!(
                "`{}` takes objects from `{line}`, outside the workspace; `git repack -a -d` makes them its own, and then the file can go",
                objects.join("info/alternates").display()
            )));
        }
        check_alternates(workspace, &named, depth - 1)?;
    }
    Ok(())
}

/// Check HEAD and every reference it names.
fn check_head(repository: &Repository) -> Result<(), NotUsable> {
    let mut name = "HEAD".to_owned();
    for _ in 0..REFERENCES {
        check_reference(repository, &name)?;
        let target = repository.find_reference(&name).ok().and_then(|reference| {
            let target = reference.symbolic_target_bytes()?;
            Some(String::from_utf8_lossy(target).into_owned())
        });
        match target {
            Some(target) => name = target,
            None => return Ok(()),
        }
    }
    Err(NotUsable(format!("HEAD leads to more than {REFERENCES} references, one after the other")))
}

/// Refuse a reference that is read or written through a link, its log included, or that is no regular file.
pub(crate) fn check_reference(repository: &Repository, name: &str) -> Result<(), NotUsable> {
    let directories = [repository.path(), repository.commondir()];
    for base in directories.into_iter().flat_map(|directory| [directory.to_owned(), directory.join("logs")]) {
        let mut path = base;
        for part in Path::new(name).components() {
            let Component::Normal(part) = part else {
                return Err(NotUsable(format!("`{name}` is no name of a reference")));
            };
            path.push(part);
            match fs::symlink_metadata(&path) {
                Ok(metadata) if metadata.is_dir() || metadata.is_file() => {}
                Ok(_) => {
                    let path = path.display();
                    return Err(NotUsable(format!("`{path}` is a symbolic link, or no regular file")));
                }
                Err(_) => break,
            }
        }
    }
    Ok(())
}
