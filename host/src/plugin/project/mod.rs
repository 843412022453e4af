//! Projects of plugins: made from a template, and built by the ordinary tools of their language.
//!
//! A project holds the interface, and for Rust the SDK, so that it builds wherever it lies.

mod build;
mod c;
mod files;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use self::build::{BuildError, build};
use super::installed::{InstallError, check_name};

/// A language that there is a template for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Language {
    /// Built by cargo for `wasm32-wasip2`.
    Rust,
    /// Built by `componentize-py`.
    Python,
    /// Built by componentize-js, from npm.
    JavaScript,
    /// Built by a C compiler for WASI.
    C,
}

impl Language {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Rust, Self::Python, Self::JavaScript, Self::C];

    /// The language of a project, by the file that its tools look for.
    pub fn of(directory: &Path) -> Option<Self> {
        Self::ALL.into_iter().find(|language| directory.join(language.mark()).is_file())
    }

    /// The file that tells a project of this language.
    fn mark(self) -> &'static str {
        match self {
            Self::Rust => "Cargo.toml",
            Self::Python => "app.py",
            Self::JavaScript => "package.json",
            Self::C => "plugin.c",
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rust => "Rust",
            Self::Python => "Python",
            Self::JavaScript => "JavaScript",
            Self::C => "C",
        })
    }
}

/// Why no project was made.
#[derive(Debug, thiserror::Error)]
pub enum NewError {
    /// A plugin cannot be called so.
    #[error(transparent)]
    Name(#[from] InstallError),
    /// cargo takes no such name.
    #[error("`{0}` is no name of a crate: expected it to begin with a letter")]
    Crate(String),
    /// Something is there already.
    #[error("`{}` is there already: expected a directory that is not, or an empty one", .0.display())]
    Exists(PathBuf),
    /// A file cannot be written.
    #[error("failed to write `{}`: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
}

/// Make a project of the plugin `name` in `directory`, which must not be there yet, or empty.
pub fn create(directory: &Path, name: &str, language: Language) -> Result<(), NewError> {
    check_name(name)?;
    if language == Language::Rust && !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(NewError::Crate(name.to_owned()));
    }
    let is_free = match fs::read_dir(directory) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    if !is_free {
        return Err(NewError::Exists(directory.to_owned()));
    }
    // Model interfaces take hyphens in names of tools, but few tools have them.
    let tool = name.replace('-', "_");
    for (path, text) in files::of(language) {
        // The SDK is not a template, and may hold such braces.
        let is_template = !path.starts_with("deed/");
        let text = if is_template {
            text.replace("{{name}}", name).replace("{{tool}}", &tool)
        } else {
            text.into_owned()
        };
        let path = directory.join(path);
        let written =
            fs::create_dir_all(path.parent().unwrap_or(directory)).and_then(|()| fs::write(&path, text));
        written.map_err(|source| NewError::Write { path, source })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_told_by_its_files_and_is_not_made_over_another() {
        let directory = tempfile::tempdir().unwrap();
        for language in Language::ALL {
            let project = directory.path().join(language.to_string());
            create(&project, "my-plugin", language).unwrap();
            assert_eq!(Language::of(&project), Some(language));
            for (path, _) in files::of(language) {
                let text = fs::read_to_string(project.join(&path)).unwrap();
                assert!(!text.contains("{{name}}") && !text.contains("{{tool}}"), "{path}");
            }
            let error = create(&project, "my-plugin", language).unwrap_err();
            assert!(matches!(error, NewError::Exists(_)), "{error}");
        }
        assert_eq!(Language::of(directory.path()), None);
        for name in ["7up", "a b"] {
            assert!(create(&directory.path().join("x"), name, Language::Rust).is_err(), "{name}");
        }
    }
}
