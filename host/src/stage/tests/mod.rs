//! What the tests of the stage share: two layers on a disk, a call on a real overlay of them, and whole trees to compare.

mod changes;
mod medium;
mod model;
mod overlay;
mod power_loss;
mod publish;
mod random_trees;
mod repository;
mod script;
mod sudden_death;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use cap_std::fs::Dir;
use deed_journal::{Change, Digest, PathBytes, Version};
use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use tempfile::TempDir;

use super::changes::{Collected, collect};
use super::disk::{Observer, Operation, Unobserved};
use super::publish::{Left, Publication, publish_observed};
use super::sync::sync;
use super::{StageError, Timestamp};

const KEY: &str = "00112233445566778899aabbccddeeff";

/// A workspace, and what a call left above it.
struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        Self::at(tempfile::tempdir().unwrap())
    }

    /// In a file system in memory, where there is one: for thousands of them, on which nothing is mounted.
    fn in_memory() -> Self {
        Self::at(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap())
    }

    fn at(directory: TempDir) -> Self {
        let place = Self { directory };
        for name in ["lower", "upper", "work", "merged"] {
            fs::create_dir(place.directory.path().join(name)).unwrap();
        }
        place
    }

    fn lower(&self, path: &str) -> PathBuf {
        self.directory.path().join("lower").join(path)
    }

    fn upper(&self, path: &str) -> PathBuf {
        self.directory.path().join("upper").join(path)
    }

    fn open(&self, layer: &str) -> Dir {
        Dir::open_ambient_dir(self.directory.path().join(layer), cap_std::ambient_authority()).unwrap()
    }

    /// Later than every change until now, and no later than any from now on.
    fn now(&self) -> Timestamp {
        let file = File::create(self.directory.path().join("clock")).unwrap();
        let changed = || {
            file.set_permissions(Permissions::from_mode(0o600)).unwrap();
            let metadata = file.metadata().unwrap();
            Timestamp { secs: metadata.ctime(), nanos: metadata.ctime_nsec() }
        };
        let first = changed();
        std::iter::repeat_with(changed).find(|now| *now > first).unwrap()
    }

    fn collect(&self, began: Timestamp) -> Collected {
        collect(&self.open("upper"), &self.open("lower"), began).unwrap()
    }

    /// What the call changed, when nobody else changed anything.
    fn changes(&self) -> Vec<Change> {
        let collected = self.collect(self.now());
        assert_eq!(collected.conflicts, []);
        collected.changes
    }

    fn sync(&self, changes: &[Change]) {
        sync(&self.open(""), Path::new("upper"), changes).unwrap();
    }

    fn publish(&self, changes: &[Change]) -> Vec<Left> {
        self.publish_observed(changes, false, &Unobserved).unwrap()
    }

    fn publish_observed(
        &self,
        changes: &[Change],
        replace: bool,
        observer: &dyn Observer,
    ) -> Result<Vec<Left>, StageError> {
        let (upper, workspace) = (&self.open("upper"), &self.open("lower"));
        let publication = Publication { changes, upper, workspace, key: KEY, replace, passed: &|_| {} };
        publish_observed(&publication, observer, Duration::ZERO)
    }

    /// Run a shell script as a contained call would: on an overlay, without any privilege.
    fn run(&self, script: &str) {
        let path = |name: &str| self.directory.path().join(name);
        let options = format!(
            "userxattr,volatile,index=off,lowerdir={},upperdir={},workdir={}",
            path("lower").display(),
            path("upper").display(),
            path("work").display()
        );
        let options = CString::new(options).unwrap();
        let merged = CString::new(path("merged").as_os_str().as_bytes()).unwrap();
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let maps = [format!("{uid} {uid} 1"), format!("{gid} {gid} 1")];
        let mut command = Command::new("sh");
        command.args(["-euc", script]);
        let mount = move || {
            // SAFETY: no file table is unshared.
            unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }?;
            fs::write("/proc/self/setgroups", "deny")?;
            fs::write("/proc/self/uid_map", &maps[0])?;
            fs::write("/proc/self/gid_map", &maps[1])?;
            let kind = c"overlay".as_ptr();
            // SAFETY: each pointer is of a string that ends with a zero and lives until the call is over.
            let done = unsafe { libc::mount(kind, merged.as_ptr(), kind, 0, options.as_ptr().cast()) };
            if done != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(rustix::process::chdir(&*merged)?)
        };
        // SAFETY: the test's child has one thread, and the test's allocator lets a child of a fork go on.
        unsafe { command.pre_exec(mount) };
        let output = command.output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        open_up(self.directory.path());
    }
}

/// Make removable what a call or the overlay has closed.
fn open_up(directory: &Path) {
    let _ = fs::set_permissions(directory, Permissions::from_mode(0o700));
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}

/// Whether this machine lets its users mount overlays. Where it does not, what needs one is not tested.
fn can_mount() -> bool {
    static POSSIBLE: OnceLock<bool> = OnceLock::new();
    *POSSIBLE.get_or_init(|| std::panic::catch_unwind(|| Place::new().run("true")).is_ok())
}

fn write(path: PathBuf, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// How overlayfs says that a name is gone.
fn whiteout(path: &Path) {
    rustix::fs::mknodat(CWD, path, FileType::CharacterDevice, Mode::empty(), 0).unwrap();
}

fn pipe(path: &Path) {
    rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

fn set_attribute(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty()).unwrap();
}

/// A directory of the upper layer that hides what is below it.
fn opaque(path: &Path) {
    fs::create_dir_all(path).unwrap();
    set_attribute(path, "user.overlay.opaque", b"y");
}

/// What overlayfs notes at what it copies up.
fn copied_up(path: &Path) {
    set_attribute(path, "user.overlay.origin", b"");
}

/// A file as changes have it.
fn file(content: &str, mode: u32) -> Version {
    Version::File { digest: Digest::of(content.as_bytes()), size_bytes: content.len() as u64, mode }
}

fn change(path: &str, base: Version, staged: Version) -> Change {
    Change { path: PathBytes::new(path), base, staged }
}

fn paths(changes: &[Change]) -> Vec<String> {
    changes.iter().map(|change| change.path.to_string()).collect()
}

/// Everything in a directory: path, kind, mode, and content or target.
type Tree = BTreeMap<PathBuf, (u32, Vec<u8>)>;

fn tree(root: &Path) -> Tree {
    fn walk(root: &Path, directory: &Path, tree: &mut Tree) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let content = if metadata.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else if metadata.is_file() {
                opened(&path, || fs::read(&path))
            } else {
                Vec::new()
            };
            if metadata.is_dir() {
                opened(&path, || {
                    // Whether it can be listed, and what is in it reached.
                    fs::read_dir(&path)?
                        .try_for_each(|entry| fs::symlink_metadata(entry?.path()).map(drop))?;
                    walk(root, &path, tree);
                    Ok(())
                });
            }
            tree.insert(path.strip_prefix(root).unwrap().to_owned(), (metadata.mode(), content));
        }
    }
    let mut tree = Tree::new();
    walk(root, root, &mut tree);
    tree
}

/// The first difference of two trees.
fn same(found: &Tree, expected: &Tree) -> Result<(), String> {
    let said = |tree: &Tree, path: &PathBuf| match tree.get(path) {
        Some((mode, content)) => format!("{mode:o} {:?}", String::from_utf8_lossy(content)),
        None => "nothing".to_owned(),
    };
    match found.keys().chain(expected.keys()).find(|path| found.get(*path) != expected.get(*path)) {
        Some(path) => Err(format!("{path:?}: {} instead of {}", said(found, path), said(expected, path))),
        None => Ok(()),
    }
}

/// Do something with a file or a directory that its owner may have closed for himself.
fn opened<T>(path: &Path, mut look: impl FnMut() -> io::Result<T>) -> T {
    match look() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let mode = fs::metadata(path).unwrap().mode() & 0o7777;
            set_mode(path, mode | 0o700);
            let seen = look().unwrap();
            set_mode(path, mode);
            seen
        }
        seen => seen.unwrap(),
    }
}

/// Dies before the operation with this number.
struct Kill(Cell<i64>);

impl Observer for Kill {
    fn before(&self, _: Operation<'_>) -> io::Result<()> {
        self.0.set(self.0.get() - 1);
        if self.0.get() < 0 { Err(io::Error::other("killed")) } else { Ok(()) }
    }

    /// What a process does is there when it is killed, synced or not.
    fn syncs(&self) -> bool {
        false
    }
}

/// Publish changes, killed before each operation in turn; and after each kill the redo has to come to the same end. `again`
/// sets up the place as it was before.
fn kill_everywhere(again: impl Fn() -> (Place, Vec<Change>), expected: &Tree) {
    for survived in 0.. {
        let (place, changes) = again();
        let killed = place.publish_observed(&changes, false, &Kill(Cell::new(survived))).is_err();
        for _ in 0..2 {
            assert_eq!(place.publish(&changes), [], "after {survived} operations");
            assert_eq!(&tree(&place.lower("")), expected, "after {survived} operations");
        }
        if !killed {
            break;
        }
    }
}
