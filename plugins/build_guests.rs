//! Building guests from the build scripts of the packages that embed them.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

const TARGET: &str = "wasm32-wasip2";

/// A package of the guests' workspace.
pub struct Guest {
    /// The name that the built component gets: `fs` becomes `fs.wasm`.
    pub name: &'static str,
    /// The package's name.
    pub package: &'static str,
    /// Its directory, relative to the repository.
    pub directory: &'static str,
}

/// Builds `guests` for release, puts each into `OUT_DIR` as `NAME.wasm`, and tells cargo what to watch. Ends the build
/// script with an error that says what to type when the target is not installed or a guest does not build.
///
/// The nested cargo has a target folder of its own, shared by every build script that calls this: cargo's lock on it
/// makes them take turns, and what they have in common is compiled once. The lock that the outer cargo holds is on
/// another folder, so none waits for itself.
pub fn build(guests: &[Guest]) {
    let repository = canonical(&Path::new(&required("CARGO_MANIFEST_DIR")).join(".."));
    watch(&repository, guests);
    let out_dir = PathBuf::from(required("OUT_DIR"));
    // OUT_DIR is `target/PROFILE/build/PACKAGE-HASH/out`. Every profile shares the guests: they are always release builds.
    let target_dir = match out_dir.ancestors().nth(4) {
        Some(target_dir) => target_dir.join("guests"),
        None => fail(&format!("`OUT_DIR` is `{}`, which is not below a target folder", out_dir.display())),
    };
    require_target();

    let mut cargo = Command::new(required("CARGO"));
    // Not below the caller's directory: no configuration file of that directory applies.
    cargo.current_dir(repository.join("plugins"));
    cargo.args(["build", "--locked", "--release", "--target", TARGET, "--target-dir"]).arg(&target_dir);
    for guest in guests {
        cargo.args(["--package", guest.package]);
    }
    forget_the_hosts_settings(&mut cargo);
    cargo.env("CARGO_ENCODED_RUSTFLAGS", remappings(&repository, &target_dir).join("\x1f"));
    match cargo.status() {
        Ok(status) if status.success() => {}
        Ok(status) => {
            fail(&format!("failed to build the guests in `plugins` ({status}); its messages are above"))
        }
        Err(error) => fail(&format!("failed to start cargo for the guests: {error}")),
    }

    let built = target_dir.join(TARGET).join("release");
    for guest in guests {
        let from = built.join(guest.package.replace('-', "_")).with_extension("wasm");
        let to = out_dir.join(guest.name).with_extension("wasm");
        if let Err(error) = fs::copy(&from, &to) {
            fail(&format!("failed to copy `{}` to `{}`: {error}", from.display(), to.display()));
        }
    }
}

fn watch(repository: &Path, guests: &[Guest]) {
    // Directories one by one: a target folder of the guests' workspace changes with every build there.
    let shared =
        ["wit", "plugins/sdk", "plugins/Cargo.toml", "plugins/Cargo.lock", "plugins/build_guests.rs"];
    for path in shared.into_iter().chain(guests.iter().map(|guest| guest.directory)) {
        println!("cargo::rerun-if-changed={}", repository.join(path).display());
    }
    println!("cargo::rerun-if-changed=build.rs");
}

/// Asks the compiler, not rustup, which need not be there.
fn require_target() {
    let mut rustc = Command::new(required("RUSTC"));
    rustc.args(["--print", "target-libdir", "--target", TARGET]);
    let is_there = rustc.output().is_ok_and(|output| {
        output.status.success() && Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir()
    });
    if !is_there {
        fail(&format!(
            "the target `{TARGET}` is not installed; type `make plugins`, or `rustup target add {TARGET}`"
        ));
    }
}

/// What was set for the outer build is meant for the host's machine: a linker flag of it breaks the guests' build, and a
/// profile of it changes their digests.
fn forget_the_hosts_settings(cargo: &mut Command) {
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER"] {
        cargo.env_remove(name);
    }
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if ["CARGO_BUILD_", "CARGO_PROFILE_", "CARGO_TARGET_"].iter().any(|prefix| name.starts_with(prefix)) {
            cargo.env_remove(&*name);
        }
    }
}

/// Source paths end up in panic messages. The same names on every machine keep the digests of the guests the same.
fn remappings(repository: &Path, target_dir: &Path) -> Vec<String> {
    let cargo_home =
        env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")));
    [(Some(repository), "/deed"), (cargo_home.as_deref(), "/cargo"), (Some(target_dir), "/target")]
        .into_iter()
        .filter_map(|(from, to)| Some(format!("--remap-path-prefix={}={to}", from?.display())))
        .collect()
}

fn canonical(path: &Path) -> PathBuf {
    fs::canonicalize(path)
        .unwrap_or_else(|error| fail(&format!("failed to find `{}`: {error}", path.display())))
}

/// A variable that cargo sets for every build script.
fn required(name: &str) -> String {
    env::var(name)
        .unwrap_or_else(|_| fail(&format!("`{name}` is not set; this runs as a build script of cargo")))
}

fn fail(message: &str) -> ! {
    println!("cargo::error={message}");
    exit(1)
}
