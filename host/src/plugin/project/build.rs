//! Building a project by its language's own tools, with an error that says what to install where one is missing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use serde::Deserialize;

use super::{Language, c};

/// The target that Rust builds components for.
const RUST_TARGET: &str = "wasm32-wasip2";

/// Why a project was not built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// It is no project.
    #[error("`{}` is no project of a plugin: expected a `Cargo.toml`, an `app.py`, a `package.json` or a `plugin.c`; `deed plugin new` makes one", .0.display())]
    NoProject(PathBuf),
    /// A tool is not installed.
    #[error("`{tool}` is not installed: {install}")]
    Missing {
        /// Which.
        tool: String,
        /// How to get it.
        install: &'static str,
    },
    /// A tool cannot be started.
    #[error("failed to start `{tool}`: {source}")]
    Start {
        /// Which.
        tool: String,
        /// The system's words.
        source: io::Error,
    },
    /// A tool said no.
    #[error("`{tool}` failed ({status}); what it says is above")]
    Failed {
        /// Which.
        tool: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// It builds something else than one component.
    #[error("`{}` builds {} components; expected one: `crate-type = [\"cdylib\"]` under `[lib]`", directory.display(), count)]
    Components {
        /// The project.
        directory: PathBuf,
        /// How many.
        count: usize,
    },
    /// The interface does not read, or has no such world.
    #[error("failed to make bindings from `{}`: {reason}", directory.display())]
    Interface {
        /// Where it is.
        directory: PathBuf,
        /// What is wrong with it, and where.
        reason: String,
    },
    /// A file of the project cannot be read.
    #[error("failed to read `{}`: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// What was compiled does not fit the interface.
    #[error("failed to make a component of `{}`: {reason}", module.display())]
    Component {
        /// The compiled module.
        module: PathBuf,
        /// What does not fit.
        reason: String,
    },
    /// The component cannot be put into its place.
    #[error("failed to write `{}`: {source}", path.display())]
    Write {
        /// Its place.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
}

/// Build the project in `directory`. The component is `NAME.wasm` in it, which is what comes back. What the tools say goes to
/// standard error. `wasi_sdk` is a wasi-sdk that a project in C is to be built by; without it, a compiler that is installed is.
pub fn build(directory: &Path, wasi_sdk: Option<&Path>) -> Result<PathBuf, BuildError> {
    match Language::of(directory) {
        Some(Language::Rust) => rust(directory),
        Some(Language::Python) => python(directory),
        Some(Language::JavaScript) => javascript(directory),
        Some(Language::C) => c::build(directory, wasi_sdk),
        None => Err(BuildError::NoProject(directory.to_owned())),
    }
}

/// A line that cargo prints about something it has built.
#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    manifest_path: PathBuf,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

fn rust(directory: &Path) -> Result<PathBuf, BuildError> {
    const INSTALL: &str = "https://rustup.rs installs Rust";
    let target = run(
        Command::new("rustc")
            .args(["--print", "target-libdir", "--target", RUST_TARGET])
            .current_dir(directory),
        INSTALL,
    )?;
    if !Path::new(target.trim()).is_dir() {
        return Err(BuildError::Missing {
            tool: RUST_TARGET.to_owned(),
            install: "`rustup target add wasm32-wasip2` installs it",
        });
    }
    let mut cargo = Command::new("cargo");
    cargo
        .args(["build", "--release", "--target", RUST_TARGET, "--message-format", "json-render-diagnostics"])
        .current_dir(directory);
    let built = run(&mut cargo, INSTALL)?;
    // Of what is built, that of the project's own: what it depends on may be a component as well.
    let own = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned()).join("Cargo.toml");
    let components: Vec<PathBuf> = built
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok())
        .filter(|message| message.manifest_path == own)
        .flat_map(|message| message.filenames)
        .filter(|file| file.extension().is_some_and(|extension| extension == "wasm"))
        .collect();
    let [component] = &*components else {
        return Err(BuildError::Components { directory: directory.to_owned(), count: components.len() });
    };
    // cargo writes `my_plugin.wasm` for the package `my-plugin`.
    let name = package_name(directory).map_or_else(|| component.with_extension(""), PathBuf::from);
    let mut file = name.file_name().unwrap_or_default().to_owned();
    file.push(".wasm");
    let place = directory.join(file);
    // Not a link to it: the next build of cargo's would change what may be installed by then.
    fs::copy(component, &place).map_err(|source| BuildError::Write { path: place.clone(), source })?;
    Ok(place)
}

/// The name of a project's package.
fn package_name(directory: &Path) -> Option<String> {
    let manifest: toml::Table = fs::read_to_string(directory.join("Cargo.toml")).ok()?.parse().ok()?;
    Some(manifest.get("package")?.get("name")?.as_str()?.to_owned())
}

fn python(directory: &Path) -> Result<PathBuf, BuildError> {
    let place = named_after(directory);
    let mut componentize = Command::new("componentize-py");
    componentize.args(["-d", "wit", "-w", "plugin", "componentize", "app", "-o"]).arg(&place);
    run(componentize.current_dir(directory), "`pip install componentize-py` installs it")?;
    Ok(place)
}

fn javascript(directory: &Path) -> Result<PathBuf, BuildError> {
    const COMPONENTIZE: &str = "@bytecodealliance/componentize-js";
    if !directory.join("node_modules").join(COMPONENTIZE).is_dir() {
        return Err(BuildError::Missing {
            tool: COMPONENTIZE.to_owned(),
            install: "`npm install` in the project installs it",
        });
    }
    let place = named_after(directory);
    let mut node = Command::new("node");
    run(node.arg("build.js").arg(&place).current_dir(directory), "https://nodejs.org has it")?;
    Ok(place)
}

/// The component of a project that has no name but its directory's.
pub(super) fn named_after(directory: &Path) -> PathBuf {
    let directory = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    let mut file = directory.file_name().unwrap_or_default().to_owned();
    file.push(".wasm");
    directory.join(file)
}

/// Run a tool to its end, and return what it printed.
pub(super) fn run(command: &mut Command, install: &'static str) -> Result<String, BuildError> {
    let tool = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().map_err(|source| {
        if source.kind() == io::ErrorKind::NotFound {
            BuildError::Missing { tool: tool.clone(), install }
        } else {
            BuildError::Start { tool: tool.clone(), source }
        }
    })?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(BuildError::Failed { tool, status: output.status })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_how_to_get_it() {
        let directory = tempfile::tempdir().unwrap();
        let error = build(directory.path(), None).unwrap_err();
        assert!(error.to_string().contains("deed plugin new"), "{error}");
        let error =
            run(&mut Command::new("no-such-tool-of-any-language"), "`get it` installs it").unwrap_err();
        assert!(matches!(error, BuildError::Missing { .. }), "{error}");
        assert!(error.to_string().ends_with("is not installed: `get it` installs it"), "{error}");
    }
}
