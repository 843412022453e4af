//! What a project is made of: a template, the interface, and for Rust the SDK. All of it is part of the binary.

use std::borrow::Cow;

use super::Language;

/// A path in the project, and the file's text.
pub(super) type File = (String, Cow<'static, str>);

/// `included!("wit/tool": "run.wit", …)`: files of the repository, by their path there.
macro_rules! included {
    ($($directory:literal: $($name:literal),+;)+) => {
        &[$($((
            concat!($directory, "/", $name),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../", $directory, "/", $name)),
        ),)+)+]
    };
}

/// Every package of the interface.
const WIT: &[(&str, &str)] = included! {
    "wit/tool": "reconcile.wit", "run.wit", "tools.wit", "types.wit", "world.wit";
    "wit/workspace": "workspace.wit";
    "wit/process": "process.wit";
    "wit/git": "git.wit", "remote.wit";
};

/// The SDK, as it is here.
const SDK: &[(&str, &str)] = included! {
    "plugins/sdk": "Cargo.toml";
    "plugins/sdk/src": "arguments.rs", "bindings.rs", "call.rs", "error.rs", "http.rs", "lib.rs", "output.rs",
        "process.rs", "registered.rs", "tool.rs";
};

/// The workspace that the SDK takes versions and lints from, and the versions it was tested with.
const GUESTS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../plugins/Cargo.toml"));
const LOCK: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../plugins/Cargo.lock"));

macro_rules! vendored {
    ($path:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/templates/c/", $path))
    };
}

macro_rules! template {
    ($path:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/templates/", $path, ".in"))
    };
}

/// cJSON, as it was released.
const CJSON: &[(&str, &str)] = &[
    ("cJSON.c", vendored!("cJSON/cJSON.c")),
    ("cJSON.h", vendored!("cJSON/cJSON.h")),
    ("LICENSE", vendored!("cJSON/LICENSE")),
];

/// Every file of a project.
pub(super) fn of(language: Language) -> Vec<File> {
    match language {
        Language::Rust => rust(),
        Language::Python => python(),
        Language::JavaScript => javascript(),
        Language::C => c(),
    }
}

fn plain(path: &str, text: &'static str) -> File {
    (path.to_owned(), Cow::Borrowed(text))
}

fn rust() -> Vec<File> {
    let mut files = vec![
        plain("Cargo.toml", template!("rust/Cargo.toml")),
        plain("src/lib.rs", template!("rust/lib.rs")),
        plain("README.md", template!("rust/README.md")),
        plain(".gitignore", "/target\n*.wasm\n"),
        // cargo keeps what fits, and so builds with the versions that the SDK was tested with.
        plain("Cargo.lock", LOCK),
        ("deed/plugins/Cargo.toml".to_owned(), Cow::Owned(sdk_workspace())),
    ];
    // Laid out as in deed's repository: the SDK finds the interface where it always does.
    let vendored = WIT.iter().chain(SDK).map(|(path, text)| plain(&format!("deed/{path}"), text));
    files.extend(vendored);
    files
}

/// The guests' workspace with no guest in it but the SDK.
fn sdk_workspace() -> String {
    let lines =
        GUESTS.lines().map(|line| if line.starts_with("members = ") { "members = [\"sdk\"]" } else { line });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

fn python() -> Vec<File> {
    let mut files = vec![
        plain("app.py", template!("python/app.py")),
        plain("greeting.py", template!("python/greeting.py")),
        plain("test_greeting.py", template!("python/test_greeting.py")),
        plain("README.md", template!("python/README.md")),
        plain("wit/plugin.wit", template!("python/plugin.wit")),
        plain(".gitignore", "__pycache__/\n*.wasm\n"),
    ];
    files.extend(packages());
    files
}

fn javascript() -> Vec<File> {
    let mut files = vec![
        plain("package.json", template!("js/package.json")),
        plain("build.js", template!("js/build.js")),
        plain("app.js", template!("js/app.js")),
        plain("greeting.js", template!("js/greeting.js")),
        plain("greeting.test.js", template!("js/greeting.test.js")),
        plain("README.md", template!("js/README.md")),
        plain("wit/plugin.wit", template!("js/plugin.wit")),
        plain(".gitignore", "/node_modules\n*.wasm\n"),
    ];
    files.extend(packages());
    files
}

fn c() -> Vec<File> {
    let mut files = vec![
        plain("plugin.c", template!("c/plugin.c")),
        plain("greeting.c", template!("c/greeting.c")),
        plain("greeting.h", template!("c/greeting.h")),
        plain("greeting_test.c", template!("c/greeting_test.c")),
        plain("compile_flags.txt", template!("c/compile_flags.txt")),
        plain("README.md", template!("c/README.md")),
        plain("wit/plugin.wit", template!("c/plugin.wit")),
        plain(".gitignore", "/gen\n/greeting_test\n*.wasm\n"),
    ];
    files.extend(CJSON.iter().map(|(name, text)| plain(&format!("cJSON/{name}"), text)));
    files.extend(packages());
    files
}

/// Every package of the interface, where the tools that read WIT look for packages. Those that a world does not name cost
/// nothing.
fn packages() -> impl Iterator<Item = File> {
    let packages = WIT.iter().filter_map(|(path, text)| Some((path.strip_prefix("wit/")?, *text)));
    packages.map(|(path, text)| plain(&format!("wit/deps/deed-{path}"), text))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    fn below(directory: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        entries.flat_map(|path| if path.is_dir() { below(&path) } else { vec![path] }).collect()
    }

    #[test]
    fn no_file_of_the_interface_or_of_the_sdk_is_forgotten() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut there: BTreeSet<_> =
            ["wit", "plugins/sdk"].iter().flat_map(|place| below(&root.join(place))).collect();
        // It is made of the others, which a project has.
        assert!(there.remove(&root.join("wit/REFERENCE.md")));
        let listed: BTreeSet<_> = WIT.iter().chain(SDK).map(|(path, _)| root.join(path)).collect();
        assert_eq!(there, listed);
    }

    #[test]
    fn the_sdk_is_the_only_member_of_its_workspace() {
        let workspace: toml::Table = sdk_workspace().parse().unwrap();
        let members = workspace["workspace"]["members"].as_array().unwrap();
        assert_eq!(members.iter().filter_map(toml::Value::as_str).collect::<Vec<_>>(), ["sdk"]);
    }
}
