//! Random scripts of file operations, as system calls or for a shell. What fails is passed over, as in most scripts.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::fs::symlink;

use super::model::{Model, name};
use super::*;
use crate::tests::seeds::Seeded;

/// For files and directories alike: some close what is below them to all but root.
const MODES: [u32; 8] = [0o755, 0o755, 0o700, 0o775, 0o644, 0o500, 0o300, 0o444];

#[derive(Debug, Clone)]
enum Action {
    Write {
        path: PathBuf,
        content: String,
        append: bool,
    },
    Rename(PathBuf, PathBuf),
    Mode(PathBuf, u32),
    Symlink(PathBuf, PathBuf),
    Link(PathBuf, PathBuf),
    /// `rm -rf`
    Remove(PathBuf),
    MakeDirectory(PathBuf),
}

#[derive(Debug)]
pub(super) struct Script(Vec<Action>);

impl Script {
    /// Something to do in a tree.
    pub(super) fn random(tree: &Model, random: &mut Seeded) -> Self {
        let mut known: Vec<PathBuf> = tree.paths().cloned().collect();
        known.push(PathBuf::from(name(random)));
        let (mut actions, mut linked) = (Vec::new(), false);
        for _ in 0..=random.below(12) {
            let path = random.pick(&known).clone();
            let new =
                if random.once_in(2) { path.join(name(random)) } else { path.with_file_name(name(random)) };
            known.push(new.clone());
            let at = if random.once_in(2) { path.clone() } else { new.clone() };
            let write = |path, append, random: &mut Seeded| Action::Write {
                path,
                content: String::from_utf8(random.content()).unwrap(),
                append,
            };
            match random.below(12) {
                0 | 1 => actions.push(write(at, false, random)),
                2 | 3 => actions.push(write(path, true, random)),
                // A directory of the workspace is copied by who renames it, and two names of a file are two files then.
                4 | 5 if !linked => actions.push(Action::Rename(path, new)),
                6 => actions.push(Action::Mode(path, *random.pick(&MODES))),
                7 => actions.push(Action::Symlink(PathBuf::from(random.pick(&["a", "b/c", "nowhere"])), new)),
                8 => {
                    linked = true;
                    actions.push(Action::Link(path, new));
                }
                9 => actions.push(Action::Remove(path)),
                10 => actions.extend([Action::Remove(at.clone()), Action::MakeDirectory(at)]),
                11 => actions.extend([Action::Remove(path.clone()), write(path, false, random)]),
                _ => actions.push(Action::MakeDirectory(new)),
            }
        }
        Self(actions)
    }

    /// Do it by system calls.
    pub(super) fn run(&self, root: &Path) {
        for action in &self.0 {
            // As in a script that goes on after an error.
            let _ = action.run(root);
        }
    }

    /// For a shell that is in the tree. Directories are not moved: `mv` and [`run`](Self::run) would differ in what they
    /// leave when they fail in the middle.
    pub(super) fn shell(&self) -> OsString {
        let mut text = b"umask 022\n".to_vec();
        self.0.iter().for_each(|action| action.shell(&mut text));
        std::os::unix::ffi::OsStringExt::from_vec(text)
    }
}

impl Action {
    fn run(&self, root: &Path) -> io::Result<()> {
        let at = |path: &Path| root.join(path);
        match self {
            Self::Write { path, content, append } => {
                let mut options = fs::OpenOptions::new();
                options.create(true).write(true).append(*append).truncate(!append);
                options.open(at(path))?.write_all(content.as_bytes())
            }
            Self::Rename(from, to) => rename(&at(from), &at(to)),
            Self::Mode(path, mode) => fs::set_permissions(at(path), Permissions::from_mode(*mode)),
            Self::Symlink(target, path) => symlink(target, at(path)),
            Self::Link(from, to) => fs::hard_link(at(from), at(to)),
            Self::Remove(path) => remove(&at(path)),
            Self::MakeDirectory(path) => fs::create_dir(at(path)),
        }
    }

    fn shell(&self, text: &mut Vec<u8>) {
        let word = |path: &Path| [b"'", path.as_os_str().as_bytes(), b"'"].concat();
        let line = match self {
            Self::Write { path, content, append } => {
                let sign: &[u8] = if *append { b"' >> " } else { b"' > " };
                [b"printf %s '", content.as_bytes(), sign, &word(path)].concat()
            }
            Self::Rename(from, to) => {
                let no_directory =
                    |path: &Path| [b"test ! -d ", &*word(path), b" -o -L ", &word(path)].concat();
                let [first, second] = [from, to].map(|path| no_directory(path));
                [&*first, b" && ", &second, b" && mv -fT ", &word(from), b" ", &word(to)].concat()
            }
            Self::Mode(path, mode) => [format!("chmod {mode:o} ").as_bytes(), &word(path)].concat(),
            Self::Symlink(target, path) => [b"ln -sT ", &*word(target), b" ", &word(path)].concat(),
            Self::Link(from, to) => [b"ln -T ", &*word(from), b" ", &word(to)].concat(),
            Self::Remove(path) => [b"rm -rf ", &*word(path)].concat(),
            Self::MakeDirectory(path) => [b"mkdir ", &*word(path)].concat(),
        };
        text.extend([&*line, b"\n"].concat());
    }
}

/// Give it another name; by copying where an overlay says that a directory cannot be renamed, as `mv` does.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(from)?.is_dir() {
        return fs::rename(from, to);
    }
    // Otherwise the copy could fail where the rename does not.
    if !is_open(from)? || fs::symlink_metadata(to).is_ok() || to.starts_with(from) {
        return Ok(());
    }
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            copy(from, to)?;
            remove(from)
        }
        done => done,
    }
}

/// Whether its owner can copy and remove all of it.
fn is_open(path: &Path) -> io::Result<bool> {
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_dir() {
        if metadata.mode() & 0o700 != 0o700 {
            return Ok(false);
        }
        for entry in fs::read_dir(path)? {
            if !is_open(&entry?.path())? {
                return Ok(false);
            }
        }
    }
    Ok(metadata.mode() & 0o400 != 0)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(from)?;
    if metadata.is_symlink() {
        return symlink(fs::read_link(from)?, to);
    }
    if !metadata.is_dir() {
        return fs::copy(from, to).map(drop);
    }
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        copy(&from.join(&name), &to.join(name))?;
    }
    fs::set_permissions(to, metadata.permissions())
}

/// As `rm -rf`: what cannot be removed stays, and all else goes.
fn remove(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.is_dir() {
        return fs::remove_file(path);
    }
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        let _ = remove(&entry.path());
    }
    fs::remove_dir(path)
}
