//! Where the binary under test is.
//!
//! Cargo names another package's binary to nobody, so it is looked up beside the test's own executable, where every build
//! of the workspace puts it. A binary older than its sources is refused: it would prove something about yesterday.

use std::{
    env,
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::LazyLock,
    time::SystemTime,
};

/// Names a binary to test in place of the one beside the tests.
const OVERRIDE: &str = "DEED_BIN";

/// The top folder of the project.
pub fn project_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests package lies in the project")
}

/// The `deed` binary of the build that this test belongs to.
pub fn deed_binary() -> &'static Path {
    static BINARY: LazyLock<PathBuf> = LazyLock::new(|| {
        if let Some(named) = env::var_os(OVERRIDE) {
            let named = PathBuf::from(named);
            assert!(named.is_file(), "{OVERRIDE} names `{}`, which is no file", named.display());
            return named;
        }
        let binary = profile_dir().join("deed");
        assert!(
            binary.is_file(),
            "no binary at `{}`: run `make build`, or name one by {OVERRIDE}",
            binary.display()
        );
        if let Some(source) = newer_source(&binary) {
            panic!(
                "`{}` is older than `{source}`: run `make build`, or name a binary by {OVERRIDE}",
                binary.display()
            );
        }
        binary
    });
    &BINARY
}

/// A cache directory that all tests share, so that the guests are compiled once and not once for every process.
pub fn shared_cache_dir() -> &'static Path {
    static CACHE: LazyLock<PathBuf> = LazyLock::new(|| {
        let dir = profile_dir().join("deed-tests-cache");
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .unwrap_or_else(|error| panic!("failed to create `{}`: {error}", dir.display()));
        dir
    });
    &CACHE
}

/// `target/debug`, or whatever the build at hand uses.
pub(crate) fn profile_dir() -> PathBuf {
    let exe = env::current_exe().expect("the system names the running executable");
    let holder = exe.parent().expect("an executable lies in a directory");
    let is_inner = holder.file_name().is_some_and(|name| name == "deps" || name == "examples");
    if is_inner { holder.parent().expect("cargo nests these directories") } else { holder }.to_path_buf()
}

/// A source file that changed after `binary` was linked, by the list that cargo writes beside it.
fn newer_source(binary: &Path) -> Option<String> {
    let built = modified(binary)?;
    let list = fs::read_to_string(binary.with_extension("d")).ok()?;
    let (_, sources) = list.split_once(": ")?;
    // Spaces within a path are escaped.
    let sources = sources.replace("\\ ", "\0");
    sources
        .split_whitespace()
        .map(|source| source.replace('\0', " "))
        .filter(|source| Path::new(source).is_file())
        .find(|source| modified(Path::new(source)).is_some_and(|changed| changed > built))
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}
