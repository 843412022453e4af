//! `deed:workspace/files`: what WASI alone cannot do with files in the workspace.

use std::ffi::OsStr;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use cap_std::fs::{Dir, File, Metadata, MetadataExt, OpenOptions, OpenOptionsExt};
use wasmtime::component::{HasData, Linker};

use self::bindings::deed::workspace::files::{self, Error, Expectation};
use super::filesystem::leads_out;
use super::{Action, Gate};
use crate::engine::types::Digest;

mod bindings {
    wasmtime::component::bindgen!({
        path: "../wit/workspace",
        world: "deed:workspace/imports",
        imports: { default: async | trappable },
    });
}

/// Bytes hashed between two looks at the call's time: 1 MiB is about a millisecond, disk included.
const HASH_STEP_BYTES: usize = 1 << 20;

/// The workspace of one call.
pub(crate) struct WorkspaceCtx {
    directory: Option<Arc<Dir>>,
    /// The name of a file that is being written, in the directory of its target.
    beside: String,
    gate: Gate,
}

pub(crate) struct WorkspaceCtxBuilder(WorkspaceCtx);

impl WorkspaceCtx {
    /// A context in which every path is refused until a directory is given.
    pub(crate) fn builder(gate: Gate) -> WorkspaceCtxBuilder {
        WorkspaceCtxBuilder(Self { directory: None, beside: beside(""), gate })
    }
}

impl WorkspaceCtxBuilder {
    pub(crate) fn directory(mut self, directory: Option<Arc<Dir>>) -> Self {
        self.0.directory = directory;
        self
    }

    /// Names the files that are being written.
    pub(crate) fn idempotency_key(mut self, key: &str) -> Self {
        self.0.beside = beside(key);
        self
    }

    pub(crate) fn build(self) -> WorkspaceCtx {
        self.0
    }
}

/// Characters of a key that name its files: 16 hexadecimal digits are 64 bits.
const KEY_SHOWN: usize = 16;

/// A hidden name of the call with this key alone.
fn beside(key: &str) -> String {
    let key: String = key.chars().filter(char::is_ascii_alphanumeric).take(KEY_SHOWN).collect();
    format!(".deed-{key}.tmp")
}

/// How a store's data reaches its workspace.
pub(crate) trait WorkspaceView: Send {
    fn workspace(&mut self) -> WorkspaceCtxView<'_>;
}

pub(crate) struct WorkspaceCtxView<'a>(pub(crate) &'a mut WorkspaceCtx);

struct HasWorkspace;

impl HasData for HasWorkspace {
    type Data<'a> = WorkspaceCtxView<'a>;
}

/// Offer `deed:workspace/files`.
pub(crate) fn add_to_linker<T: WorkspaceView + 'static>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    files::add_to_linker::<T, HasWorkspace>(linker, T::workspace)
}

impl files::Host for WorkspaceCtxView<'_> {
    async fn digest(&mut self, path: String) -> wasmtime::Result<Result<Option<String>, Error>> {
        Ok(self.digest_of(&path).await)
    }

    async fn replace(
        &mut self,
        path: String,
        content: Vec<u8>,
        expected: Expectation,
    ) -> wasmtime::Result<Result<String, Error>> {
        Ok(self.replace_with(&path, &content, expected).await)
    }
}

impl WorkspaceCtxView<'_> {
    fn root(&self) -> Result<&Arc<Dir>, Error> {
        let message = || Error::Denied("this call is granted no workspace".to_owned());
        self.0.directory.as_ref().ok_or_else(message)
    }

    async fn digest_of(&self, path: &str) -> Result<Option<String>, Error> {
        self.0.gate.admit(Action::Read(path)).map_err(Error::Denied)?;
        let root = self.root()?;
        let relative = relative(path)?;
        self.refuse_escape(path, &root.metadata(&relative))?;
        match hash(root, &relative).await {
            Ok(digest) => Ok(Some(digest.to_string())),
            Err(HashError::NoFile) => Err(Error::NotAFile(format!("`{path}` is no regular file"))),
            Err(HashError::Io(error)) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(HashError::Io(error)) => Err(refine(path, &error)),
        }
    }

    /// Refuse a path that was found to lead out of the workspace, so that the host remembers it. Whatever else is wrong
    /// with it, what comes next says better.
    fn refuse_escape(&self, path: &str, found: &io::Result<Metadata>) -> Result<(), Error> {
        match found {
            Err(error) if leads_out(error) => self.0.gate.admit(Action::Leave(path)).map_err(Error::Denied),
            _ => Ok(()),
        }
    }

    async fn replace_with(&self, path: &str, content: &[u8], expected: Expectation) -> Result<String, Error> {
        self.0.gate.admit(Action::Replace(path)).map_err(Error::Denied)?;
        let root = self.root()?;
        let relative = relative(path)?;
        self.refuse_escape(path, &root.symlink_metadata(&relative))?;
        let Some(name) = relative.file_name() else {
            return Err(Error::NotAFile(format!("`{path}` is the workspace itself")));
        };
        let parent = relative.parent().unwrap_or(Path::new(""));
        let io_error = |error: io::Error| refine(path, &error);

        // Checked before anything is created: a refused replacement leaves no directories behind.
        let existing = match open_parent(root, parent) {
            Ok(directory) => examine(&directory, name, path)?.map(|metadata| (directory, metadata)),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(io_error(error)),
        };
        check(path, existing.as_ref().map(|(directory, _)| &**directory), name, expected).await?;

        let (directory, metadata) = match existing {
            Some((directory, metadata)) => (directory, Some(metadata)),
            None => (create_parents(root, parent).map_err(io_error)?, None),
        };
        write_durably(&directory, (name, &self.0.beside), content, metadata.as_ref()).map_err(io_error)?;
        Ok(Digest::of(content).to_string())
    }
}

/// The path below the workspace, without `.` and leading `/`; `..` stays, and is resolved where it cannot leave it.
fn relative(path: &str) -> Result<PathBuf, Error> {
    if path.is_empty() || path.contains('\0') {
        return Err(Error::NotFound(format!("`{path}` is no path")));
    }
    Ok(Path::new(path)
        .components()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .collect())
}

/// What an I/O error means for a path that the sandbox resolves.
fn refine(path: &str, error: &io::Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound => Error::NotFound(format!("`{path}`: {error}")),
        ErrorKind::PermissionDenied => {
            Error::Denied(format!("`{path}` leaves the workspace, or is protected: {error}"))
        }
        ErrorKind::NotADirectory | ErrorKind::IsADirectory => Error::NotAFile(format!("`{path}`: {error}")),
        _ => Error::Io(format!("`{path}`: {error}")),
    }
}

fn open_parent(root: &Arc<Dir>, parent: &Path) -> io::Result<Arc<Dir>> {
    if parent.as_os_str().is_empty() {
        return Ok(Arc::clone(root));
    }
    root.open_dir(parent).map(Arc::new)
}

/// The file that is there, if it is one. Never follows a final symbolic link.
fn examine(directory: &Dir, name: &OsStr, path: &str) -> Result<Option<Metadata>, Error> {
    match directory.symlink_metadata(name) {
        Ok(metadata) if metadata.is_file() => Ok(Some(metadata)),
        Ok(metadata) => {
            let what = match metadata.file_type() {
                kind if kind.is_dir() => "a directory",
                kind if kind.is_symlink() => "a symbolic link",
                _ => "a device, a pipe or the like",
            };
            Err(Error::NotAFile(format!("`{path}` is {what}, not a regular file")))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(refine(path, &error)),
    }
}

/// Compare before the swap. Other calls on this workspace wait for their turn, so nothing of deed's comes in between;
/// against a foreign writer the window is the one between this and the rename.
async fn check(path: &str, parent: Option<&Dir>, name: &OsStr, expected: Expectation) -> Result<(), Error> {
    let wanted = match expected {
        Expectation::Whatever => return Ok(()),
        Expectation::Absent if parent.is_none() => return Ok(()),
        Expectation::Absent => return Err(Error::Conflict(format!("`{path}` exists"))),
        Expectation::Digest(wanted) => wanted,
    };
    let Ok(wanted) = wanted.parse::<Digest>() else {
        return Err(Error::Conflict(format!("`{wanted}` is no digest: expected 64 hexadecimal digits")));
    };
    let Some(parent) = parent else {
        return Err(Error::Conflict(format!("`{path}` does not exist; expected the content {wanted}")));
    };
    match hash(parent, Path::new(name)).await {
        Ok(found) if found == wanted => Ok(()),
        Ok(found) => Err(Error::Conflict(format!("`{path}` has the content {found}; expected {wanted}"))),
        Err(HashError::NoFile) => Err(Error::NotAFile(format!("`{path}` is no regular file"))),
        Err(HashError::Io(error)) => Err(refine(path, &error)),
    }
}

enum HashError {
    NoFile,
    Io(io::Error),
}

impl From<io::Error> for HashError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

async fn hash(directory: &Dir, path: &Path) -> Result<Digest, HashError> {
    // Not blocking: opening a FIFO would otherwise wait for its other end.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut file = directory.open_with(path, OpenOptions::new().read(true).custom_flags(nonblocking))?;
    if !file.metadata()?.is_file() {
        return Err(HashError::NoFile);
    }
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; HASH_STEP_BYTES];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(Digest::from_bytes(*hasher.finalize().as_bytes())),
            Ok(read) => hasher.update(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        tokio::task::yield_now().await;
    }
}

/// Create what is missing of `parent`, each new directory durable in the one above it.
fn create_parents(root: &Arc<Dir>, parent: &Path) -> io::Result<Arc<Dir>> {
    let mut missing: Vec<&Path> = Vec::new();
    for ancestor in parent.ancestors().take_while(|ancestor| !ancestor.as_os_str().is_empty()) {
        match root.metadata(ancestor) {
            Ok(_) => break,
            Err(error) if error.kind() == ErrorKind::NotFound => missing.push(ancestor),
            Err(error) => return Err(error),
        }
    }
    for directory in missing.iter().rev() {
        match root.create_dir(directory) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => sync_directory(&*open_parent(root, directory.parent().unwrap_or(Path::new("")))?)?,
        }
    }
    open_parent(root, parent)
}

/// Write beside the target, sync, rename, sync the directory. The old mode and owner are kept where the system lets us;
/// extended attributes are not.
///
/// The file beside it is named after the call's key, so that the next attempt removes what a killed one left.
fn write_durably(
    directory: &Dir,
    (name, beside): (&OsStr, &str),
    content: &[u8],
    old: Option<&Metadata>,
) -> io::Result<()> {
    match directory.remove_file(beside) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    if old.is_some() {
        // Until the old mode is set, which may be a secret's.
        options.mode(0o600);
    }
    let file = directory.open_with(beside, &options)?;
    let written = fill(&file, content, old).and_then(|()| directory.rename(beside, directory, name));
    if let Err(error) = written {
        let _ = directory.remove_file(beside);
        return Err(error);
    }
    sync_directory(directory)
}

fn fill(mut file: &File, content: &[u8], old: Option<&Metadata>) -> io::Result<()> {
    file.write_all(content)?;
    if let Some(old) = old {
        let new = file.metadata()?;
        if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
            let owner = rustix::fs::Uid::from_raw(old.uid());
            let group = rustix::fs::Gid::from_raw(old.gid());
            // Only root may give files away. Anybody else keeps the content and becomes the owner, as editors do.
            let _ = rustix::fs::fchown(file, Some(owner), Some(group));
        }
        file.set_permissions(old.permissions())?;
    }
    file.sync_all()
}

fn sync_directory(directory: &Dir) -> io::Result<()> {
    // A directory is opened without read access by `open_dir`; syncing needs a descriptor that has it.
    directory.open(".")?.sync_all()
}

#[cfg(test)]
mod tests;
