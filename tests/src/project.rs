//! Projects of plugins: made by `deed plugin new`, outside of this repository, and built by the ordinary tools of their
//! language.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use deed::plugin::project::Language;
use serde_json::Value;

use crate::{Deed, Outcome, Sandbox, binary::profile_dir};

/// Names a `node_modules` with componentize-js in it: npm installs into each project anew, and from the network.
const NODE_MODULES: &str = "DEED_NODE_MODULES";

/// What `deed plugin build` takes for C, in its order; what it is asked, and how an answer begins that says it is there.
const C_COMPILERS: [(&str, &[&str], &str); 3] = [
    ("zig", &["version"], "0."),
    ("python3", &["-m", "ziglang", "version"], "0."),
    ("clang", &["--target=wasm32-wasi", "-print-file-name=crt1-reactor.o"], "/"),
];

/// What `--lang` takes, and what installs the language's tools.
fn named(language: Language) -> (&'static str, &'static str) {
    match language {
        Language::Rust => ("rust", "https://rustup.rs"),
        Language::Python => ("python", "pip install componentize-py"),
        Language::JavaScript => ("js", "npm install"),
        Language::C => ("c", "pip install ziglang"),
    }
}

fn is_here(language: Language) -> bool {
    match language {
        // These tests are built by it.
        Language::Rust => true,
        Language::Python => Command::new("componentize-py").arg("--version").output().is_ok(),
        Language::JavaScript => std::env::var_os(NODE_MODULES).is_some(),
        Language::C => C_COMPILERS.iter().any(|(program, arguments, beginning)| {
            let asked = Command::new(program).args(*arguments).output();
            asked.is_ok_and(|output| {
                output.status.success() && output.stdout.starts_with(beginning.as_bytes())
            })
        }),
    }
}

/// A project in the home of a sandbox.
pub struct Project {
    name: &'static str,
    directory: PathBuf,
}

impl Project {
    /// A new one from the template; none where the language's tools are not installed. That is said (`--nocapture` shows it),
    /// and whoever builds it is told what to install.
    #[expect(clippy::print_stdout, reason = "a test that does not run is to be seen")]
    pub fn new(sandbox: &Sandbox, name: &'static str, language: Language) -> Option<Self> {
        let (lang, install) = named(language);
        let _ = sandbox.deed(["plugin", "new", name, "--lang", lang]).run().expect_code(0);
        let directory = sandbox.home().join(name);
        if !is_here(language) {
            println!("LEFT OUT: the tools for {language} are not installed; {install} installs them");
            let missing = sandbox.deed(["plugin", "build", name]).run().expect_code(2);
            assert!(missing.stderr.contains(install), "{missing}");
            return None;
        }
        if let (Language::JavaScript, Some(modules)) = (language, std::env::var_os(NODE_MODULES)) {
            symlink(modules, directory.join("node_modules")).expect("a fresh directory is writable");
        }
        Some(Self { name, directory })
    }

    /// Where it lies.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Replace `old`, which is there, in one of its files.
    #[track_caller]
    pub fn edit(&self, file: &str, old: &str, new: &str) {
        let path = self.directory.join(file);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("read `{file}`: {error}"));
        assert!(text.contains(old), "`{old}` is not in `{file}`:\n{text}");
        fs::write(&path, text.replace(old, new)).expect("the sandbox is writable");
    }

    /// Build it; where its component is.
    #[track_caller]
    pub fn build(&self, sandbox: &Sandbox) -> PathBuf {
        let built: Value = sandbox.deed(["plugin", "build", self.name]).with_rust().run_patiently().json();
        sandbox.home().join(built["component"].as_str().expect("it says which"))
    }
}

/// A tool of the user's, not of the sandbox's.
fn home(variable: &str, place: &str) -> PathBuf {
    std::env::var_os(variable)
        .map_or_else(|| std::env::home_dir().expect("who builds this has a home").join(place), PathBuf::from)
}

/// Where projects in Rust are built, so that the next run of the tests finds what they are made of.
pub fn project_target() -> PathBuf {
    profile_dir().with_file_name("tmp").join("project-target")
}

impl Deed {
    /// With what rustup's programs look for, and the target folder of [`project_target`].
    #[must_use]
    pub fn with_rust(self) -> Self {
        self.env("CARGO_HOME", &home("CARGO_HOME", ".cargo").to_string_lossy())
            .env("RUSTUP_HOME", &home("RUSTUP_HOME", ".rustup").to_string_lossy())
            .env("CARGO_TARGET_DIR", &project_target().to_string_lossy())
    }

    /// Run what compiles: an interpreter of 18 MB, or all that an SDK is made of. Half a minute on a machine with nothing else
    /// to do.
    #[track_caller]
    #[must_use]
    pub fn run_patiently(self) -> Outcome {
        self.start().wait_within(Duration::from_mins(15)).expect_code(0)
    }
}
