//! [`Walk`]: the files below a directory.

use std::path::{Component, Path, PathBuf};
use std::{fs, io};

/// Every regular file below a directory, each directory's entries in order of name, without `.git`. Symbolic links are
/// not followed, so it ends, and visits nothing twice. A directory that cannot be read is an error among the files.
pub(crate) struct Walk {
    /// The last one is next.
    pending: Vec<Pending>,
}

enum Pending {
    File(PathBuf),
    Directory(PathBuf),
}

impl Walk {
    /// Starts at `start`, a directory or a regular file. The files' paths begin with it, `.` left out.
    pub(crate) fn from(start: &str) -> io::Result<Self> {
        let is_directory = fs::metadata(start)?.is_dir();
        let path = Path::new(start).components().filter(|part| *part != Component::CurDir).collect();
        Ok(Self { pending: vec![if is_directory { Pending::Directory(path) } else { Pending::File(path) }] })
    }

    fn enter(&mut self, directory: &Path) -> io::Result<()> {
        // An empty path names nothing; as the beginning of others it is the workspace.
        let readable = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        let mut entries = Vec::new();
        for entry in fs::read_dir(readable)? {
            let entry = entry?;
            entries.push((entry.file_name(), entry.file_type()?));
        }
        entries.sort_unstable_by(|(one, _), (other, _)| other.cmp(one));
        for (name, kind) in entries {
            if kind.is_file() {
                self.pending.push(Pending::File(directory.join(name)));
            } else if kind.is_dir() && name != ".git" {
                self.pending.push(Pending::Directory(directory.join(name)));
            }
        }
        Ok(())
    }
}

impl Iterator for Walk {
    type Item = io::Result<PathBuf>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.pending.pop()? {
                Pending::File(path) => return Some(Ok(path)),
                Pending::Directory(path) => {
                    if let Err(error) = self.enter(&path) {
                        return Some(Err(error));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_in_order_without_those_of_git() {
        let root = tempfile::tempdir().unwrap();
        for path in ["b.txt", "a/z.txt", "a/.git", ".git/config", "a.txt", "sub/.git/config"] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let found: Vec<_> = Walk::from(root.path().to_str().unwrap())
            .unwrap()
            .map(|path| path.unwrap().strip_prefix(root.path()).unwrap().to_str().unwrap().to_owned())
            .collect();
        // `a/.git` is a file, as in a worktree: git's own, but nothing that is costly or wrong to search.
        assert_eq!(found, ["a/.git", "a/z.txt", "a.txt", "b.txt"]);
    }

    #[test]
    fn a_file_is_a_walk_of_one() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("a.txt");
        fs::write(&file, "").unwrap();
        let found: Vec<_> = Walk::from(file.to_str().unwrap()).unwrap().map(Result::unwrap).collect();
        assert_eq!(found, [file]);
    }
}
