//! A file system in memory that knows which of its changes are durable, and shows what a loss of power could leave of the
//! others. The fault model is written down in [`super::power_loss`].

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, SystemTime};

use super::*;
use crate::tests::seeds::Seeded;

/// Of a file: seconds and nanoseconds.
pub(super) type Time = (i64, i64);

/// Something that was done to a path, with what came of it.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Create(PathBuf),
    Write(PathBuf, Vec<u8>),
    Symlink(PathBuf, PathBuf),
    Attributes(PathBuf, u32, Time),
    SyncFile(PathBuf),
    Rename(PathBuf, PathBuf),
    Link(PathBuf, PathBuf),
    Unlink(PathBuf),
    MakeDirectory(PathBuf, u32),
    RemoveDirectory(PathBuf),
    SyncDirectory(PathBuf),
}

impl Step {
    /// What an operation is going to be, once it is [`seen`](Self::seen).
    pub(super) fn of(operation: Operation<'_>) -> Self {
        let path = Path::to_owned;
        match operation {
            Operation::Create(at) => Self::Create(path(at)),
            Operation::Write(at) => Self::Write(path(at), Vec::new()),
            Operation::Symlink(at) => Self::Symlink(path(at), PathBuf::new()),
            Operation::SetAttributes(at) => Self::Attributes(path(at), 0, (0, 0)),
            Operation::SyncFile(at) => Self::SyncFile(path(at)),
            Operation::Rename { from, to } => Self::Rename(path(from), path(to)),
            Operation::Link { from, to } => Self::Link(path(from), path(to)),
            Operation::Unlink(at) => Self::Unlink(path(at)),
            Operation::MakeDirectory(at) => Self::MakeDirectory(path(at), 0),
            Operation::RemoveDirectory(at) => Self::RemoveDirectory(path(at)),
            Operation::SyncDirectory(at) => Self::SyncDirectory(path(at)),
        }
    }

    /// Look at what came of it, below `root`.
    pub(super) fn seen(mut self, root: &Path) -> Self {
        match &mut self {
            Self::Write(path, content) => *content = fs::read(root.join(path)).unwrap(),
            Self::Symlink(path, target) => *target = fs::read_link(root.join(path)).unwrap(),
            Self::MakeDirectory(path, mode) => *mode = attributes(&root.join(path)).0,
            Self::Attributes(path, mode, time) => (*mode, *time) = attributes(&root.join(path)),
            _ => {}
        }
        self
    }

    /// How what is in `root` would have been made below `prefix`: all but special files.
    pub(super) fn making(root: &Path, prefix: &Path, steps: &mut Vec<Self>) {
        let mut entries: Vec<_> = fs::read_dir(root).unwrap().map(Result::unwrap).collect();
        // The disk's own order is another one on each.
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (at, path) = (entry.path(), prefix.join(entry.file_name()));
            let (kind, (mode, time)) = (entry.file_type().unwrap(), attributes(&at));
            if kind.is_dir() {
                steps.push(Self::MakeDirectory(path.clone(), mode));
                Self::making(&at, &path, steps);
            } else if kind.is_symlink() {
                steps.push(Self::Symlink(path, fs::read_link(at).unwrap()));
            } else if kind.is_file() {
                steps.push(Self::Create(path.clone()));
                steps.push(Self::Write(path.clone(), fs::read(at).unwrap()));
                steps.push(Self::Attributes(path, mode, time));
            }
        }
    }
}

fn attributes(path: &Path) -> (u32, Time) {
    let metadata = fs::symlink_metadata(path).unwrap();
    (metadata.mode() & 0o7777, (metadata.mtime(), metadata.mtime_nsec()))
}

/// A file, a directory or a link, whatever names it has.
type Id = usize;

const ROOT: Id = 0;

/// A new file, before anybody sets its mode.
const NEW_FILE: u32 = 0o600;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Directory,
    File(Vec<u8>),
    Link(PathBuf),
}

#[derive(Debug, Clone)]
struct Inode {
    kind: Kind,
    mode: u32,
    time: Option<Time>,
}

type Names = BTreeMap<(Id, OsString), Id>;

/// A change that a loss of power may take back.
#[derive(Debug, Clone)]
enum Pending {
    /// A name of a directory leads there, or nowhere; and of a rename, the old name leads nowhere.
    Name {
        directory: Id,
        name: OsString,
        to: Option<Id>,
        old: Option<OsString>,
    },
    Content(Id, Vec<u8>),
    Mode(Id, u32),
    Time(Id, Time),
}

#[derive(Debug, Clone)]
pub(super) struct Medium {
    /// With what is durable of each.
    inodes: Vec<Inode>,
    durable: Names,
    /// As programs see them.
    names: Names,
    /// In the order in which they were made.
    pending: Vec<Pending>,
}

impl Medium {
    /// An empty directory.
    pub(super) fn new() -> Self {
        let root = Inode { kind: Kind::Directory, mode: 0o755, time: None };
        Self { inodes: vec![root], durable: Names::new(), names: Names::new(), pending: Vec::new() }
    }

    /// What a directory on a disk holds, durably.
    pub(super) fn of(root: &Path) -> Self {
        let (mut medium, mut steps) = (Self::new(), Vec::new());
        Step::making(root, Path::new(""), &mut steps);
        for step in &steps {
            medium.apply(step);
        }
        medium.keep_all()
    }

    fn place(&self, path: &Path) -> (Id, OsString) {
        let parent = path.parent().unwrap();
        (self.directory(parent), path.file_name().unwrap().to_owned())
    }

    fn directory(&self, path: &Path) -> Id {
        path.components().fold(ROOT, |at, name| self.names[&(at, name.as_os_str().to_owned())])
    }

    fn inode(&self, path: &Path) -> Id {
        self.names[&self.place(path)]
    }

    fn born(&mut self, kind: Kind, mode: u32) -> Id {
        self.inodes.push(Inode { kind, mode, time: None });
        self.inodes.len() - 1
    }

    fn name(&mut self, path: &Path, to: Option<Id>, from: Option<&Path>) {
        let (directory, name) = self.place(path);
        let old = from.map(|from| self.place(from));
        assert!(old.as_ref().is_none_or(|(from, _)| *from == directory), "each rename is within a directory");
        let name = Pending::Name { directory, name, to, old: old.map(|(_, name)| name) };
        name.apply_to(&mut self.names);
        self.pending.push(name);
    }

    /// Do what was done.
    pub(super) fn apply(&mut self, step: &Step) {
        match step {
            Step::Create(path) => {
                let file = self.born(Kind::File(Vec::new()), NEW_FILE);
                self.name(path, Some(file), None);
            }
            Step::Write(path, content) => {
                self.pending.push(Pending::Content(self.inode(path), content.clone()));
            }
            Step::Symlink(path, target) => {
                let link = self.born(Kind::Link(target.clone()), 0o777);
                self.name(path, Some(link), None);
            }
            Step::Attributes(path, mode, time) => {
                let inode = self.inode(path);
                self.pending.extend([Pending::Mode(inode, *mode), Pending::Time(inode, *time)]);
            }
            Step::SyncFile(path) => self.sync(self.inode(path)),
            Step::Rename(from, to) => self.name(to, Some(self.inode(from)), Some(from)),
            Step::Link(from, to) => self.name(to, Some(self.inode(from)), None),
            Step::Unlink(path) | Step::RemoveDirectory(path) => self.name(path, None, None),
            Step::MakeDirectory(path, mode) => {
                let directory = self.born(Kind::Directory, *mode);
                self.name(path, Some(directory), None);
            }
            Step::SyncDirectory(path) => self.sync(self.directory(path)),
        }
    }

    /// Make durable what is pending of a file, or of a directory and its names.
    fn sync(&mut self, inode: Id) {
        let all = std::mem::take(&mut self.pending).into_iter();
        let (done, pending): (Vec<_>, Vec<_>) = all.partition(|pending| pending.belongs_to() == inode);
        self.pending = pending;
        for change in done {
            self.keep(change);
        }
    }

    fn keep(&mut self, change: Pending) {
        match change {
            Pending::Name { .. } => change.apply_to(&mut self.durable),
            Pending::Content(file, content) => self.inodes[file].kind = Kind::File(content),
            Pending::Mode(inode, mode) => self.inodes[inode].mode = mode,
            Pending::Time(inode, time) => self.inodes[inode].time = Some(time),
        }
    }

    /// As it is when no power is lost.
    pub(super) fn keep_all(mut self) -> Self {
        for change in std::mem::take(&mut self.pending) {
            self.keep(change);
        }
        self
    }

    /// What a loss of power leaves.
    pub(super) fn lose(mut self, random: &mut Seeded) -> Self {
        /// Of four changes that are pending, about how many stay.
        const STAY: [usize; 6] = [0, 1, 2, 3, 3, 4];
        let stay = *random.pick(&STAY);
        for change in std::mem::take(&mut self.pending) {
            let stays = random.below(4) < stay;
            match change {
                Pending::Content(file, content) if !stays => {
                    self.inodes[file].kind = Kind::File(torn(content, random));
                }
                change if stays => self.keep(change),
                _ => {}
            }
        }
        self.names = self.durable.clone();
        self
    }

    /// Put it on a disk, into an empty directory.
    pub(super) fn materialize(&self, root: &Path) {
        self.fill(ROOT, root, &mut BTreeMap::new());
    }

    fn fill(&self, directory: Id, at: &Path, made: &mut BTreeMap<Id, PathBuf>) {
        let from = (directory, OsString::new());
        for ((_, name), id) in self.names.range(from..).take_while(|((parent, _), _)| *parent == directory) {
            let (path, inode) = (at.join::<&OsStr>(name), &self.inodes[*id]);
            if let Some(first) = made.get(id) {
                fs::hard_link(first, path).unwrap();
                continue;
            }
            match &inode.kind {
                Kind::Directory => {
                    fs::create_dir(&path).unwrap();
                    self.fill(*id, &path, made);
                    set_mode(&path, inode.mode);
                }
                Kind::Link(target) => std::os::unix::fs::symlink(target, &path).unwrap(),
                Kind::File(content) => {
                    let file = File::create(&path).unwrap();
                    file.write_all_at(content, 0).unwrap();
                    file.set_permissions(Permissions::from_mode(inode.mode)).unwrap();
                    if let Some((secs, nanos)) = inode.time {
                        let since = Duration::new(secs.try_into().unwrap(), nanos.try_into().unwrap());
                        file.set_modified(SystemTime::UNIX_EPOCH + since).unwrap();
                    }
                }
            }
            made.insert(*id, path);
        }
    }
}

impl Pending {
    /// Whose sync makes it durable.
    fn belongs_to(&self) -> Id {
        match self {
            Self::Name { directory: id, .. }
            | Self::Content(id, _)
            | Self::Mode(id, _)
            | Self::Time(id, _) => *id,
        }
    }

    fn apply_to(&self, names: &mut Names) {
        let Self::Name { directory, name, to, old } = self else { return };
        if let Some(old) = old {
            names.remove(&(*directory, old.clone()));
        }
        match to {
            Some(inode) => names.insert((*directory, name.clone()), *inode),
            None => names.remove(&(*directory, name.clone())),
        };
    }
}

/// What is left of a file that was not synced: nothing, its beginning, or its length with zeros from some place on.
fn torn(mut content: Vec<u8>, random: &mut Seeded) -> Vec<u8> {
    let kept = random.below(content.len() + 1);
    match random.below(3) {
        0 => Vec::new(),
        1 => content[..kept].to_vec(),
        _ => {
            content[kept..].fill(0);
            content
        }
    }
}
