//! What is known of components on disk, so that a warm start compiles and describes nothing.
//!
//! Of each there are two files, both behind a checksum: the compiled code, named after the component's digest and the engine
//! that compiled it, and what the component said of itself, which every engine reads. It is machine code that will be
//! executed: so the directory must be its owner's alone and out of the tools' reach, and a file that is not whole is made
//! again.

use std::fs::{self, DirBuilder};
use std::hash::{Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cap_std::fs::{Dir, MetadataExt, PermissionsExt};
use cap_tempfile::TempFile;
use wasmtime::component::Component;

use super::facts::Facts;
use super::types::Digest;

/// First bytes of every file; the number changes with the format.
const MAGIC: &[u8; 16] = b"deed component 2";

/// A kind of file: its ending, and how many are kept; the oldest go first.
type Kind = (&'static str, usize);

/// A component is some 2 MB compiled, so this is about 130 MB, and more versions than an author makes in a day.
const CODE: Kind = (".compiled", 64);

/// What a component says of itself is some KiB.
const FACTS: Kind = (".facts", 512);

/// The directory is not one that code may be loaded from.
#[derive(Debug, thiserror::Error)]
pub(super) enum CacheError {
    #[error("it belongs to user {owner}, not to user {user}")]
    Foreign { owner: u32, user: u32 },
    #[error("others may write to it (mode {mode:o}); `chmod go-w` makes it safe")]
    Writable { mode: u32 },
    #[error("it lies in the workspace `{}`, whose tools could write code there", .0.display())]
    InWorkspace(PathBuf),
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A directory that holds compiled components.
pub(super) struct Cache {
    directory: Dir,
    engine: String,
}

impl Cache {
    /// Open `path`, or create it for its owner alone. Not in one of `workspaces`.
    pub(super) fn open(
        path: &Path,
        workspaces: &[PathBuf],
        engine: &wasmtime::Engine,
    ) -> Result<Self, CacheError> {
        refuse_inside(path, workspaces)?;
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let directory = Dir::open_ambient_dir(path, cap_std::ambient_authority())?;
        // Asked of the open directory, which nobody can exchange any more.
        let metadata = directory.dir_metadata()?;
        let (owner, user) = (metadata.uid(), rustix::process::geteuid().as_raw());
        if owner != user {
            return Err(CacheError::Foreign { owner, user });
        }
        let mode = metadata.permissions().mode() & 0o7777;
        if mode & 0o022 != 0 {
            return Err(CacheError::Writable { mode });
        }
        let mut hasher = StableHasher(blake3::Hasher::new());
        engine.precompile_compatibility_hash().hash(&mut hasher);
        let engine = hasher.0.finalize().to_hex()[..16].to_owned();
        Ok(Self { directory, engine })
    }

    fn code_name(&self, digest: Digest) -> String {
        format!("{digest}-{}{}", self.engine, CODE.0)
    }

    /// What is known of the component with this digest, if it is here and whole.
    pub(super) fn facts(&self, key: Digest) -> Option<Facts> {
        let file = self.directory.read(format!("{key}{}", FACTS.0)).ok()?;
        serde_json::from_slice(unpack(&file)?).ok()
    }

    /// Keep what is known of a component.
    pub(super) fn store_facts(&self, key: Digest, facts: &Facts) -> io::Result<()> {
        self.store_file(&format!("{key}{}", FACTS.0), &serde_json::to_vec(facts)?, FACTS)
    }

    /// The component with this digest, if it is here and whole.
    pub(super) fn load(&self, engine: &wasmtime::Engine, digest: Digest) -> Option<Component> {
        let file = self.directory.read(self.code_name(digest)).ok()?;
        let code = unpack(&file)?;
        // SAFETY: `deserialize` must be given what `Component::serialize` made, unaltered. `code` was written by `store`
        // below under a name that holds this engine's compatibility hash; its checksum has just been verified against
        // torn and lost writes; and only this user, who could as well alter this program, can write to the directory, which
        // lies outside the workspaces.
        unsafe { Component::deserialize(engine, code) }.ok()
    }

    /// Whether the component with this digest is here; whole or not is seen when it is loaded.
    pub(super) fn has(&self, digest: Digest) -> bool {
        self.directory.exists(self.code_name(digest))
    }

    /// Keep a component.
    pub(super) fn store(&self, digest: Digest, component: &Component) -> io::Result<()> {
        let code = component.serialize().map_err(io::Error::other)?;
        self.store_file(&self.code_name(digest), &code, CODE)
    }

    /// Others see the whole file or none.
    fn store_file(&self, name: &str, body: &[u8], kind: Kind) -> io::Result<()> {
        let mut file = TempFile::new(&self.directory)?;
        file.write_all(&pack(body))?;
        file.replace(name)?;
        self.prune(kind)
    }

    fn prune(&self, (ending, kept): Kind) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in self.directory.entries()? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().ends_with(ending) {
                let modified = entry.metadata()?.modified()?.into_std();
                files.push((modified, entry.file_name()));
            }
        }
        files.sort_unstable_by_key(|(modified, _): &(SystemTime, _)| *modified);
        for (_, name) in files.iter().rev().skip(kept) {
            self.directory.remove_file(name)?;
        }
        Ok(())
    }
}

/// Refuse a directory, there or not, that lies in a workspace. A workspace that is not there holds nothing.
fn refuse_inside(path: &Path, workspaces: &[PathBuf]) -> Result<(), CacheError> {
    let path = std::path::absolute(path)?;
    // What is not there yet will be made where the last directory on the way really is.
    let place = path.ancestors().find_map(|ancestor| fs::canonicalize(ancestor).ok()).unwrap_or(path);
    let mut workspaces = workspaces.iter().filter_map(|workspace| fs::canonicalize(workspace).ok());
    match workspaces.find(|workspace| place.starts_with(workspace)) {
        Some(workspace) => Err(CacheError::InWorkspace(workspace)),
        None => Ok(()),
    }
}

/// Magic, checksum of the body, body.
fn pack(body: &[u8]) -> Vec<u8> {
    [MAGIC, Digest::of(body).as_bytes().as_slice(), body].concat()
}

fn unpack(file: &[u8]) -> Option<&[u8]> {
    let (checksum, body) = file.strip_prefix(MAGIC)?.split_first_chunk::<32>()?;
    (Digest::of(body).as_bytes() == checksum).then_some(body)
}

/// A hasher that gives the same in every build of this program, which the standard library's does not promise.
struct StableHasher(blake3::Hasher);

impl Hasher for StableHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let hash = self.0.finalize();
        u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
    }
}
