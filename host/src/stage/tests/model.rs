//! Random trees as plain maps, what may become of one, and the upper layer that an overlay would have between two of them.

use std::os::unix::fs::symlink;

use super::*;
use crate::tests::seeds::Seeded;

/// Names of files of the work tree; the last one is no UTF-8.
const NAMES: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"e f\n", b"\xff\xfe"];

/// Files of a repository, some of which git guards.
const GIT: [&str; 15] = [
    "HEAD",
    "config",
    "index",
    "packed-refs",
    "refs/heads/main",
    "refs/heads/x",
    "refs/heads/y/z",
    "refs/tags/v1",
    "objects/11/22",
    "objects/pack/pack-1.pack",
    "objects/pack/pack-1.idx",
    "logs/HEAD",
    "modules/m/HEAD",
    "modules/m/index",
    "hooks/post-commit",
];

/// Locks that somebody left, or leaves.
const LOCKS: [&str; 2] = [".git/index.lock", ".git/refs/heads/main.lock"];

/// Directories that their owner may not change until he opens them, too.
const DIRECTORY_MODES: [u32; 6] = [0o755, 0o755, 0o700, 0o775, 0o1777, 0o500];
const FILE_MODES: [u32; 5] = [0o644, 0o644, 0o600, 0o755, 0o444];

/// Only for what is published: nobody could look into them before the call.
const CLOSED_DIRECTORY: u32 = 0o300;
const CLOSED_FILE: u32 = 0o200;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    Directory(u32),
    File(Vec<u8>, u32),
    Link(PathBuf),
}

impl Node {
    fn directory(random: &mut Seeded) -> Self {
        Self::Directory(*random.pick(&DIRECTORY_MODES))
    }

    fn file(random: &mut Seeded) -> Self {
        Self::File(random.content(), *random.pick(&FILE_MODES))
    }

    fn any(random: &mut Seeded) -> Self {
        match random.below(6) {
            0 => Self::Link(PathBuf::from(*random.pick(&["a", "b/a", "/nowhere/x"]))),
            1 | 2 => Self::directory(random),
            _ => Self::file(random),
        }
    }

    const fn is_directory(&self) -> bool {
        matches!(self, Self::Directory(_))
    }
}

/// A tree. What leads to a node is a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Model(BTreeMap<PathBuf, Node>);

impl Model {
    /// A work tree.
    pub(super) fn work(random: &mut Seeded) -> Self {
        let mut model = Self(BTreeMap::new());
        for _ in 0..3 + random.below(9) {
            let path = model.somewhere(random);
            model.put(&path, Node::any(random));
        }
        model
    }

    /// The same, with a repository in it.
    pub(super) fn repository(random: &mut Seeded) -> Self {
        let mut model = Self::work(random);
        for name in GIT {
            if !random.once_in(5) {
                model.put(&Path::new(".git").join(name), Node::File(random.content(), 0o644));
            }
        }
        for lock in LOCKS {
            if random.once_in(8) {
                model.put(Path::new(lock), Node::File(Vec::new(), 0o644));
            }
        }
        model
    }

    /// The same, without locks: what they guard would be left to the owner.
    pub(super) fn unlocked(mut self) -> Self {
        for lock in LOCKS {
            self.remove(Path::new(lock));
        }
        self
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.0.keys()
    }

    /// What a call may make of it.
    pub(super) fn changed(&self, random: &mut Seeded) -> Self {
        let mut new = self.clone();
        if new.0.contains_key(Path::new(".git")) {
            for name in GIT {
                match random.below(6) {
                    0 => new.remove(&Path::new(".git").join(name)),
                    1..=3 => new.put(&Path::new(".git").join(name), Node::File(random.content(), 0o644)),
                    _ => {}
                }
            }
            let lock = Path::new(*random.pick(&LOCKS));
            if random.once_in(8) {
                new.put(lock, Node::File(Vec::new(), 0o644));
            }
        }
        for _ in 0..=random.below(7) {
            new.change(random);
        }
        new.make_possible(self);
        new
    }

    fn change(&mut self, random: &mut Seeded) {
        // Not of locks: whoever has one that is a directory is told so.
        let known: Vec<PathBuf> =
            self.0.keys().filter(|path| path.extension().is_none_or(|end| end != "lock")).cloned().collect();
        let new = self.somewhere(random);
        if known.is_empty() {
            return self.put(&new, Node::any(random));
        }
        let path = random.pick(&known).clone();
        match random.below(8) {
            0 => self.remove(&path),
            1 => self.put(&path, Node::any(random)),
            2 => {
                // A directory that was there is replaced by one with something else in it.
                self.remove(&path);
                let below = path.join(name(random));
                self.put(&below, Node::file(random));
            }
            3 => {
                let node = self.0[&path].clone();
                self.remove(&path);
                self.put(&new, node);
            }
            4 | 5 => match self.0.get_mut(&path) {
                Some(Node::Directory(mode)) => {
                    *mode = if random.once_in(4) { CLOSED_DIRECTORY } else { *random.pick(&DIRECTORY_MODES) };
                }
                Some(Node::File(_, mode)) => {
                    *mode = if random.once_in(4) { CLOSED_FILE } else { *random.pick(&FILE_MODES) };
                }
                _ => {}
            },
            _ => self.put(&new, Node::any(random)),
        }
    }

    /// Leave out what no call could have done, or what would be left to the owner.
    fn make_possible(&mut self, old: &Self) {
        for lock in LOCKS.map(Path::new) {
            if old.0.contains_key(lock) && self.0.contains_key(lock) {
                self.remove(lock);
            }
        }
        let closed: Vec<PathBuf> = self
            .0
            .iter()
            .filter(|(path, node)| matches!(node, Node::Directory(0o500)) && old.0.get(*path) == Some(node))
            .map(|(path, _)| path.clone())
            .collect();
        // One that is opened is another change in the one above.
        for path in closed.into_iter().rev() {
            let names = |model: &Self| {
                let below = model.below(&path).filter(|(below, _)| below.parent() == Some(&path));
                below.map(|(path, node)| (path.clone(), node.clone())).collect::<Vec<_>>()
            };
            if names(self) != names(old) {
                self.0.insert(path, Node::Directory(0o755));
            }
        }
    }

    /// A name in a directory that is there.
    fn somewhere(&self, random: &mut Seeded) -> PathBuf {
        let directories = self.0.iter().filter(|(_, node)| node.is_directory()).map(|(path, _)| path.clone());
        let directories: Vec<PathBuf> = directories.chain([PathBuf::new(), PathBuf::new()]).collect();
        random.pick(&directories).join(name(random))
    }

    fn put(&mut self, path: &Path, node: Node) {
        for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
            if self.0.get(above).is_none_or(|node| !node.is_directory()) {
                self.0.insert(above.to_owned(), Node::Directory(0o755));
            }
        }
        if !node.is_directory() {
            self.remove(path);
        }
        self.0.insert(path.to_owned(), node);
    }

    fn remove(&mut self, path: &Path) {
        self.0.retain(|at, _| !at.starts_with(path));
    }

    fn below(&self, path: &Path) -> impl Iterator<Item = (&PathBuf, &Node)> {
        self.0.iter().filter(move |(at, _)| at.starts_with(path) && *at != path)
    }

    /// As [`tree`] finds it.
    pub(super) fn tree(&self) -> Tree {
        let found = |node: &Node| match node {
            Node::Directory(mode) => (libc::S_IFDIR | mode, Vec::new()),
            Node::File(content, mode) => (libc::S_IFREG | mode, content.clone()),
            Node::Link(target) => (libc::S_IFLNK | 0o777, target.as_os_str().as_bytes().to_vec()),
        };
        self.0.iter().map(|(path, node)| (path.clone(), found(node))).collect()
    }

    /// Put it on a disk, into an empty directory.
    pub(super) fn lay(&self, root: &Path) {
        for (path, node) in &self.0 {
            make(&root.join(path), node);
        }
        self.close(root);
    }

    /// The modes of directories, once everything is in them.
    fn close(&self, root: &Path) {
        for (path, node) in self.0.iter().rev() {
            if let (Node::Directory(mode), at) = (node, root.join(path))
                && at.is_dir()
            {
                set_mode(&at, *mode);
            }
        }
    }

    /// What an overlay has in its `upper` layer when a call made this of the `old` tree.
    pub(super) fn stage(&self, old: &Self, upper: &Path, random: &mut Seeded) {
        self.stage_below(old, Path::new(""), upper, false, random);
        self.close(upper);
    }

    fn stage_below(&self, old: &Self, directory: &Path, upper: &Path, opaque: bool, random: &mut Seeded) {
        let nothing = Self(BTreeMap::new());
        let old = if opaque { &nothing } else { old };
        let both = old.below(directory).chain(self.below(directory)).map(|(path, _)| path);
        let paths: std::collections::BTreeSet<&PathBuf> =
            both.filter(|path| path.parent() == Some(directory)).collect();
        for path in paths {
            let at = upper.join(path);
            match (old.0.get(path), self.0.get(path)) {
                (_, None) => whiteout(&at),
                (Some(old), Some(new)) if old == new && !new.is_directory() => {}
                (before, Some(new @ Node::Directory(_))) => {
                    let was_directory = before.is_some_and(Node::is_directory);
                    let is_same = was_directory
                        && before == Some(new)
                        && old.below(path).collect::<Vec<_>>() == self.below(path).collect::<Vec<_>>();
                    if is_same && !random.once_in(6) {
                        continue;
                    }
                    make(&at, new);
                    // To write the same again in a directory that is closed is more than its owner may.
                    let is_closed = |node: &Node| *node == Node::Directory(0o500);
                    let is_open = !is_closed(new) && !self.below(path).any(|(_, node)| is_closed(node));
                    let replaced = before.is_some() && (!was_directory || is_open && random.once_in(4));
                    if replaced {
                        set_attribute(&at, "user.overlay.opaque", b"y");
                    }
                    self.stage_below(old, path, upper, opaque || replaced || !was_directory, random);
                }
                (_, Some(new)) => make(&at, new),
            }
        }
    }
}

pub(super) fn name(random: &mut Seeded) -> &'static OsStr {
    OsStr::from_bytes(NAMES[random.below(NAMES.len())])
}

fn make(at: &Path, node: &Node) {
    match node {
        Node::Directory(_) => fs::create_dir(at).unwrap(),
        Node::File(content, mode) => {
            fs::write(at, content).unwrap();
            set_mode(at, *mode);
        }
        Node::Link(target) => symlink(target, at).unwrap(),
    }
}
