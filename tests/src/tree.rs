//! Files of a directory, as a value.

use std::{collections::BTreeMap, fmt, fs, io, path::Path};

use walkdir::WalkDir;

/// The git directory, which is compared by what git says and not byte by byte.
const GIT_DIR: &str = ".git";

/// Path and content of every file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree(pub BTreeMap<String, Vec<u8>>);

impl Tree {
    /// The text of a file that is there.
    #[track_caller]
    pub fn text(&self, path: &str) -> &str {
        let bytes =
            self.0.get(path).unwrap_or_else(|| panic!("there is no `{path}` among {:?}", self.paths()));
        std::str::from_utf8(bytes).expect("the missions hold text")
    }

    /// Every path.
    pub fn paths(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }
}

/// Each file with its content indented, so that a difference can be read.
impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (path, content) in &self.0 {
            writeln!(f, "{path} ({} bytes)", content.len())?;
            match std::str::from_utf8(content) {
                Ok(text) => text.lines().try_for_each(|line| writeln!(f, "    {line}"))?,
                Err(_) => writeln!(f, "    blake3 {}", blake3::hash(content))?,
            }
        }
        Ok(())
    }
}

/// Every file below `dir`, but for git's own.
///
/// # Errors
/// When something cannot be read.
pub fn read_tree(dir: &Path) -> io::Result<Tree> {
    files_of(dir)
        .map(|entry| {
            let entry = entry?;
            let path = relative(dir, entry.path());
            Ok((path, fs::read(entry.path())?))
        })
        .collect::<io::Result<_>>()
        .map(Tree)
}

/// Copy every file below `from` to the same place below `to`, and say how many there were.
///
/// # Errors
/// When something cannot be read or written.
pub fn copy_tree(from: &Path, to: &Path) -> io::Result<usize> {
    let mut copied = 0;
    for entry in files_of(from) {
        let entry = entry?;
        let target = to.join(relative(from, entry.path()));
        fs::create_dir_all(target.parent().expect("a file below `to` has a parent"))?;
        // The content alone: registries keep their copies read-only.
        fs::write(&target, fs::read(entry.path())?)?;
        copied += 1;
    }
    Ok(copied)
}

fn files_of(dir: &Path) -> impl Iterator<Item = io::Result<walkdir::DirEntry>> {
    WalkDir::new(dir)
        .sort_by_file_name()
        .into_iter()
        .filter_entry(|entry| entry.file_name() != GIT_DIR)
        .filter(|entry| entry.as_ref().map_or(true, |entry| !entry.file_type().is_dir()))
        .map(|entry| entry.map_err(io::Error::from))
}

fn relative(base: &Path, path: &Path) -> String {
    path.strip_prefix(base).expect("a walk stays below its base").to_string_lossy().into_owned()
}
