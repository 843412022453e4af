//! Whether calls can be contained in a workspace, and why not.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Why a workspace takes no stage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotPossible {
    /// What git writes there would not be held.
    #[error("its git directory lies outside of it, for `{}` {what}", path.display())]
    GitElsewhere { path: PathBuf, what: &'static str },
    /// An overlay does not show it.
    #[error("another file system is mounted in it, at `{}`", .0.display())]
    MountWithin(PathBuf),
    /// Whether somebody else has changed a file cannot be told there.
    #[error("it is on a file system ({0}) whose times are not this machine's")]
    Remote(&'static str),
    /// Two changes within a second cannot be told apart there.
    #[error(
        "its file system keeps times in whole seconds, by which an edit of somebody else's would not be noticed"
    )]
    CoarseTimes,
    /// An ordinary user cannot write a copy of it.
    #[error("it belongs to user {user} and group {group}, and deed runs as others")]
    Foreign { user: u32, group: u32 },
    /// The system's words.
    #[error("{0}")]
    System(String),
}

/// File systems whose files are changed elsewhere: `statfs(2)`, and `linux/magic.h`.
const REMOTE: [(i64, &str); 9] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x0102_1997, "9P"),
    (0x6573_5546, "FUSE"),
    (0x5346_414f, "AFS"),
    (0x00c3_6400, "Ceph"),
    (0x7375_7245, "Coda"),
];

/// Why `workspace`, an absolute path without links, takes no stage whatever this machine can do.
pub(crate) fn refusal(workspace: &Path) -> Option<NotPossible> {
    let system = |error: io::Error| Some(NotPossible::System(error.to_string()));
    let metadata = match fs::metadata(workspace) {
        Ok(metadata) => metadata,
        Err(error) => return system(error),
    };
    let user = rustix::process::geteuid().as_raw();
    let is_own = (metadata.uid(), metadata.gid()) == (user, rustix::process::getegid().as_raw());
    if user != 0 && !is_own {
        return Some(NotPossible::Foreign { user: metadata.uid(), group: metadata.gid() });
    }
    // By chance, one time in a million or less.
    if metadata.ctime_nsec() == 0 {
        return Some(NotPossible::CoarseTimes);
    }
    if let Some(elsewhere) = git_elsewhere(workspace) {
        return Some(elsewhere);
    }
    let kind = match rustix::fs::statfs(workspace) {
        Ok(found) => found.f_type,
        Err(error) => return system(error.into()),
    };
    if let Some((_, name)) = REMOTE.iter().find(|(magic, _)| *magic == kind) {
        return Some(NotPossible::Remote(name));
    }
    match fs::read("/proc/self/mountinfo") {
        Ok(mounts) => mount_points(&mounts)
            .find(|point| point.starts_with(workspace) && point != workspace)
            .map(NotPossible::MountWithin),
        Err(error) => system(error),
    }
}

/// A work tree whose repository is not in it.
fn git_elsewhere(workspace: &Path) -> Option<NotPossible> {
    let own = workspace.join(".git");
    let found = |path: PathBuf, what| Some(NotPossible::GitElsewhere { path, what });
    match fs::symlink_metadata(&own) {
        Ok(metadata) if metadata.is_dir() => return None,
        Ok(_) => return found(own, "is no directory"),
        Err(_) => {}
    }
    let above = workspace.ancestors().skip(1).map(|ancestor| ancestor.join(".git"));
    above.into_iter().find(|git| git.exists()).and_then(|git| found(git, "is above it"))
}

/// The places at which something is mounted: the fifth field of each line, in which spaces and the like are octal
/// (`proc_pid_mountinfo(5)`).
fn mount_points(mounts: &[u8]) -> impl Iterator<Item = PathBuf> {
    let lines = mounts.split(|byte| *byte == b'\n');
    let fields = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    fields.map(|field| {
        let mut path = Vec::with_capacity(field.len());
        let mut rest = field;
        while let Some((first, after)) = rest.split_first() {
            let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
            let escaped =
                digits.filter(|_| *first == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok());
            path.push(escaped.unwrap_or(*first));
            rest = if escaped.is_some() { &after[3..] } else { after };
        }
        PathBuf::from(OsStr::from_bytes(&path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_with_their_escapes() {
        let mounts = b"1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:3 / /a\\040b\\134 rw - tmpfs none rw\n";
        assert_eq!(mount_points(mounts).collect::<Vec<_>>(), [Path::new("/"), Path::new("/a b\\")]);
    }

    #[test]
    fn a_repository_outside_of_the_workspace_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let (inner, linked) = (root.join("repository/inner"), root.join("linked"));
        fs::create_dir_all(root.join("repository/.git")).unwrap();
        fs::create_dir_all(&inner).unwrap();
        fs::create_dir(&linked).unwrap();
        fs::write(linked.join(".git"), "gitdir: ../repository/.git").unwrap();
        let said = |path: &Path| refusal(path).map(|reason| reason.to_string());
        assert_eq!(said(&root.join("repository")), None);
        assert!(said(&inner).is_some_and(|said| said.contains("is above it")));
        assert!(said(&linked).is_some_and(|said| said.contains("is no directory")));
    }
}
