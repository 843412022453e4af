//! The installed plugins: components in a directory of deed's own, each pinned by its digest in the user's `deed.toml`.
//!
//! A plugin is installed when its pin is written, in one rename. What an installation that was cut short leaves behind is
//! either a component that no pin names, or nothing; the next one sweeps it up. What is not the pinned bytes is refused, and
//! only that plugin is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use deed_journal::Digest;

use super::pins;
use crate::engine::{Foreign, Stubs};
use crate::operator::{self, OperatorError, OperatorFile, PluginEntry};
use crate::toolbox::{PluginSource, RefusalReason, RefusedPlugin};

/// Length of a plugin's name: as for tools.
const NAME_BYTES: usize = 64;

/// The ending of a component's file.
const ENDING: &str = ".wasm";

/// The ending of the file of a WIT that describes a component.
const WIT_ENDING: &str = ".wit";

/// What a file is called until it is whole.
const UNFINISHED: &str = ".new";

/// Held by whoever installs or removes.
const LOCK: &str = "lock";

/// An instant of an installation, where a test may cut it short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instant {
    /// Half of the component is written.
    Writing,
    /// The component is in its place, and no pin names it.
    Written,
    /// The new `deed.toml` is written, and not in its place.
    Pinning,
    /// It is in its place; the version before is still there.
    Pinned,
}

/// Why something was not installed or removed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The name cannot be one.
    #[error(
        "`{0}` is no name of a plugin: expected 1 to 64 letters, digits, `_` and `-`; give one with `--name`"
    )]
    Name(String),
    /// There is no such plugin.
    #[error("no plugin `{name}` is installed: expected {}", known(known_names))]
    Unknown {
        /// As it was asked for.
        name: String,
        /// Those that are.
        known_names: Vec<String>,
    },
    /// `deed.toml` cannot be read.
    #[error(transparent)]
    Operator(#[from] OperatorError),
    /// `deed.toml` cannot be edited.
    #[error("failed to edit `{}`: {reason}", path.display())]
    Edit {
        /// The file.
        path: PathBuf,
        /// What is in the way.
        reason: String,
    },
    /// A file cannot be written.
    #[error("failed to write `{}`: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
}

fn known(names: &[String]) -> String {
    if names.is_empty() {
        return "none, since there is none".to_owned();
    }
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    format!("one of {}", quoted.join(", "))
}

/// Where plugins are installed.
#[derive(Debug, Clone)]
pub struct Installed {
    directory: PathBuf,
    file: PathBuf,
}

impl Installed {
    /// Components in `directory`, pins in the `deed.toml` of the configuration directory `config`. Neither need be there.
    pub fn new(directory: PathBuf, config: &Path) -> Self {
        Self { directory, file: config.join(operator::FILE_NAME) }
    }

    /// The pins, by the plugins' names.
    pub fn pins(&self) -> Result<BTreeMap<String, PluginEntry>, OperatorError> {
        Ok(OperatorFile::read(&self.file)?.unwrap_or_default().plugins)
    }

    /// The bytes of every installed plugin that is what was installed, and why the others are refused.
    pub fn sources(&self) -> Result<(Vec<PluginSource>, Vec<RefusedPlugin>), OperatorError> {
        let mut sources = Vec::new();
        let mut refused = Vec::new();
        for (name, pin) in self.pins()? {
            match self.source(&name, &pin) {
                Ok(source) => sources.push(source),
                Err(reason) => refused.push(RefusedPlugin { name, reason }),
            }
        }
        Ok((sources, refused))
    }

    /// What a pin names, ready to be loaded.
    ///
    /// # Errors
    /// It is gone, or something else is in its place.
    pub fn source(&self, name: &str, pin: &PluginEntry) -> Result<PluginSource, RefusalReason> {
        let bytes = self.component(name, pin)?;
        let wit = pin.wit.map(|digest| pinned(name, pin, self.wit_path(digest), digest)).transpose()?;
        let foreign = Foreign {
            effects: pin.effects.clone(),
            stubs: Stubs::Of(pin.stubs.clone()),
            // What is written is text, and what is here is what was written.
            wit: wit.map(|text| String::from_utf8_lossy(&text).into_owned()),
        };
        Ok(PluginSource { name: name.to_owned(), bytes: bytes.into(), foreign })
    }

    /// The component that a pin names.
    ///
    /// # Errors
    /// It is gone, or another is in its place.
    pub fn component(&self, name: &str, pin: &PluginEntry) -> Result<Vec<u8>, RefusalReason> {
        pinned(name, pin, self.path(pin.digest), pin.digest)
    }

    /// Install a component under a name, in place of the version before, if there is one. Durable when this returns.
    /// `reached` is told of each instant on the way.
    pub fn add(
        &self,
        plugin: &PluginSource,
        source: Option<&Path>,
        reached: &dyn Fn(Instant),
    ) -> Result<Digest, InstallError> {
        let PluginSource { name, bytes: component, foreign } = plugin;
        check_name(name)?;
        let _lock = self.lock()?;
        self.sweep(&self.pins()?)?;
        let digest = Digest::of(component);
        let wit = foreign.wit.as_deref().map(|text| (Digest::of(text.as_bytes()), text));
        if let Some((digest, text)) = wit {
            write(&self.wit_path(digest), text.as_bytes(), 0o600, &|| ())?;
        }
        // Also when one is there: it may be what a fault of the disk left.
        write(&self.path(digest), component, 0o600, &|| reached(Instant::Writing))?;
        reached(Instant::Written);
        let pin = PluginEntry {
            digest,
            source: source.map(Path::to_owned),
            effects: foreign.effects.clone(),
            stubs: match &foreign.stubs {
                Stubs::Of(imports) => imports.clone(),
                Stubs::Every => BTreeSet::new(),
            },
            wit: wit.map(|(digest, _)| digest),
        };
        self.edit(reached, |text| pins::with(text, name, &pin))?;
        reached(Instant::Pinned);
        self.sweep(&self.pins()?)?;
        Ok(digest)
    }

    /// Remove a plugin: its pin, then its component.
    pub fn remove(&self, name: &str) -> Result<(), InstallError> {
        let _lock = self.lock()?;
        let mut pins = self.pins()?;
        if pins.remove(name).is_none() {
            return Err(InstallError::Unknown {
                name: name.to_owned(),
                known_names: pins.into_keys().collect(),
            });
        }
        self.edit(&|_| (), |text| pins::without(text, name))?;
        self.sweep(&pins)
    }

    fn path(&self, digest: Digest) -> PathBuf {
        self.directory.join(format!("{digest}{ENDING}"))
    }

    fn wit_path(&self, digest: Digest) -> PathBuf {
        self.directory.join(format!("{digest}{WIT_ENDING}"))
    }

    /// Two that write the pins at once would each lose the other's.
    fn lock(&self) -> Result<File, InstallError> {
        let path = self.directory.join(LOCK);
        let lock = || {
            create_private(&self.directory)?;
            let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(&path)?;
            file.lock()?;
            Ok(file)
        };
        lock().map_err(|source| InstallError::Write { path: path.clone(), source })
    }

    /// Remove what no pin names: versions before, and what an installation that was cut short left.
    fn sweep(&self, pins: &BTreeMap<String, PluginEntry>) -> Result<(), InstallError> {
        let failed = |path: &Path, source| InstallError::Write { path: path.to_owned(), source };
        let mut keep: BTreeSet<_> = pins.values().map(|pin| format!("{}{ENDING}", pin.digest)).collect();
        keep.extend(pins.values().filter_map(|pin| Some(format!("{}{WIT_ENDING}", pin.wit?))));
        keep.insert(LOCK.to_owned());
        let entries = fs::read_dir(&self.directory).map_err(|error| failed(&self.directory, error))?;
        for entry in entries {
            let entry = entry.map_err(|error| failed(&self.directory, error))?;
            if !entry.file_name().to_str().is_some_and(|name| keep.contains(name)) {
                fs::remove_file(entry.path()).map_err(|error| failed(&entry.path(), error))?;
            }
        }
        Ok(())
    }

    fn edit(
        &self,
        reached: &dyn Fn(Instant),
        change: impl FnOnce(&str) -> Result<String, String>,
    ) -> Result<(), InstallError> {
        let failed = |reason| InstallError::Edit { path: self.file.clone(), reason };
        let before = operator::text(&self.file)?;
        let after = change(before.as_deref().unwrap_or_default()).map_err(failed)?;
        // What would not read is not written: it would end every command.
        OperatorFile::of_text(&self.file, &after)?;
        // It may be a link to where the user keeps such files, and stays one.
        let file = match fs::canonicalize(&self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.file.clone(),
            place => place.map_err(|error| failed(error.to_string()))?,
        };
        let mode = fs::metadata(&file).map_or(0o600, |metadata| metadata.permissions().mode() & 0o777);
        if let Some(directory) = file.parent() {
            create_private(directory)
                .map_err(|source| InstallError::Write { path: directory.to_owned(), source })?;
        }
        write(&file, after.as_bytes(), mode, &|| reached(Instant::Pinning))
    }
}

/// The bytes of a file that a pin names.
fn pinned(name: &str, pin: &PluginEntry, path: PathBuf, digest: Digest) -> Result<Vec<u8>, RefusalReason> {
    let again = || match &pin.source {
        Some(source) => format!("`deed plugin add --name {name} {}` installs it again", source.display()),
        None => format!("install it again, or `deed plugin remove {name}`"),
    };
    match fs::read(&path) {
        Ok(bytes) => match Digest::of(&bytes) {
            found if found == digest => Ok(bytes),
            found => Err(RefusalReason::Changed { path, pinned: digest, found, again: again() }),
        },
        Err(source) => Err(RefusalReason::Gone { path, source, again: again() }),
    }
}

/// Whether a plugin may be called so.
pub fn check_name(name: &str) -> Result<(), InstallError> {
    let is_name = (1..=NAME_BYTES).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if is_name { Ok(()) } else { Err(InstallError::Name(name.to_owned())) }
}

/// Write a file that others see whole or not at all, durably. `halfway` is called in the middle. What a write that was cut
/// short leaves goes by a name of its own, which the next one uses again.
fn write(path: &Path, bytes: &[u8], mode: u32, halfway: &dyn Fn()) -> Result<(), InstallError> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(UNFINISHED);
    let unfinished = PathBuf::from(unfinished);
    let written = || {
        // It may be another's link, or one with another mode.
        match fs::remove_file(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = File::options().create_new(true).write(true).mode(0o600).open(&unfinished)?;
        let (first, rest) = bytes.split_at(bytes.len() / 2);
        file.write_all(first)?;
        halfway();
        file.write_all(rest)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()?;
        fs::rename(&unfinished, path)?;
        File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
    };
    written().map_err(|source| InstallError::Write { path: path.to_owned(), source })
}

fn create_private(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(directory: &Path) -> Installed {
        Installed::new(directory.join("data/plugins"), &directory.join("config"))
    }

    fn add(installed: &Installed, name: &str, bytes: &[u8]) -> Digest {
        installed.add(&PluginSource::new(name, bytes.to_vec()), None, &|_| ()).unwrap()
    }

    fn files(installed: &Installed) -> usize {
        fs::read_dir(&installed.directory).unwrap().count()
    }

    #[test]
    fn a_plugin_is_what_was_installed_until_it_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let installed = here(directory.path());
        assert!(installed.sources().unwrap().0.is_empty());
        let one = add(&installed, "greet", b"one");
        assert_eq!(*installed.sources().unwrap().0[0].bytes, b"one"[..]);
        add(&installed, "other", b"one");
        add(&installed, "greet", b"two");
        assert_eq!(
            (installed.pins().unwrap().len(), files(&installed)),
            (2, 3),
            "`other` still is the first version"
        );
        installed.remove("other").unwrap();
        assert_eq!(files(&installed), 2, "the version before is gone with its last pin");
        assert!(!installed.path(one).exists());
        installed.remove("greet").unwrap();
        let error = installed.remove("greet").unwrap_err();
        assert!(error.to_string().contains("`greet`"), "{error}");
    }

    #[test]
    fn a_link_stays_one_and_a_mode_stays_what_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let installed = here(directory.path());
        let kept = directory.path().join("kept.toml");
        fs::create_dir(directory.path().join("config")).unwrap();
        fs::write(&kept, "# Mine.\n").unwrap();
        fs::set_permissions(&kept, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&kept, &installed.file).unwrap();
        add(&installed, "greet", b"one");
        assert!(installed.file.is_symlink());
        assert!(fs::read_to_string(&kept).unwrap().starts_with("# Mine.\n"));
        assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for name in ["", "a b", "../up", "a.b", &"x".repeat(65)] {
            assert!(check_name(name).is_err(), "{name}");
        }
        assert!(check_name("a_B-3").is_ok());
    }
}
