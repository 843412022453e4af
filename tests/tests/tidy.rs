//! The house rules that no compiler checks.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::LazyLock,
};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};
use deed_tests::project_root;
use spdx::{Expression, ParseMode};
use walkdir::WalkDir;

/// Lines of a file. What is longer holds more than one thing.
const MAX_LINES: usize = 800;

/// Files that may be longer, each with its reason.
const LONG_FILES: [(&str, &str); 0] = [];

/// Where others' files lie as they were released, with the digests of those that are code. They keep their own marks of what is
/// unfinished; nobody here changes them.
const VENDORED: &str = "host/templates/c/cJSON/";
const VENDORED_FILES: [(&str, &str); 2] = [
    ("cJSON.c", "f83e7c859e494d91426eb1d9da78368b699dd0d07ca08cd4d44838d015dd4dbd"),
    ("cJSON.h", "0e2cb500257df919c83f9708d56e991e2db5103dc65d4754e7c2f2c957e94afe"),
];

/// Packages in the lock file, those of other platforms included: what there is now, and room for a few. Whoever needs more
/// raises it, and says in the commit what for.
const MAX_LOCKED_PACKAGES: usize = 392;

/// Packages that are built in several versions, and who holds back the older one. A stale entry fails as well.
const DUPLICATES: [(&str, &str); 7] = [
    ("cpufeatures", "sha2, of wasmtime's environment"),
    ("embedded-io", "postcard, which offers both"),
    ("getrandom", "ahash, of jsonschema"),
    ("hashbrown", "gimli and referencing"),
    ("io-lifetimes", "fs-set-times, of cap-std"),
    ("itertools", "criterion"),
    ("syn", "wasmtime's macros"),
];

/// Licences that go with `MIT OR Apache-2.0`, for source and binary alike. `CDLA-Permissive-2.0` is one for data, Mozilla's
/// list of whom to trust in `webpki-roots`: it asks that its text goes along with the data, and nothing of what is made of it.
const LICENCES: [&str; 14] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// The platform whose dependencies are judged, so that the answer is the same on every machine.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";
/// The platform of guests.
const GUEST_PLATFORM: &str = "wasm32-wasip2";

static HOST: LazyLock<Metadata> = LazyLock::new(|| metadata("Cargo.toml", PLATFORM));
static GUESTS: LazyLock<Metadata> = LazyLock::new(|| metadata("plugins/Cargo.toml", GUEST_PLATFORM));
static FILES: LazyLock<Vec<SourceFile>> = LazyLock::new(source_files);

struct SourceFile {
    /// Relative to the project.
    path: String,
    text: String,
}

fn metadata(manifest: &str, platform: &str) -> Metadata {
    MetadataCommand::new()
        .manifest_path(project_root().join(manifest))
        .other_options(["--locked", "--filter-platform", platform].map(str::to_owned))
        .exec()
        .unwrap_or_else(|error| panic!("failed to read `{manifest}`: {error}"))
}

/// Every text file of the project, but for what is built.
fn source_files() -> Vec<SourceFile> {
    WalkDir::new(project_root())
        .sort_by_file_name()
        .into_iter()
        .filter_entry(|entry| entry.file_name() != "target" && entry.file_name() != ".git")
        .map(|entry| entry.expect("the project can be read"))
        .filter(|entry| entry.file_type().is_file())
        .filter_map(|entry| {
            let path = entry.path().strip_prefix(project_root()).expect("it lies in the project");
            let text = String::from_utf8(fs::read(entry.path()).expect("the project can be read")).ok()?;
            Some(SourceFile { path: path.to_string_lossy().into_owned(), text })
        })
        .collect()
}

fn has_extension(path: &str, extensions: &[&str]) -> bool {
    Path::new(path).extension().is_some_and(|found| extensions.iter().any(|extension| found == *extension))
}

/// Whether `word` stands in `text` with no letter, digit or underscore beside it.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(is_part)
            && !text[at + word.len()..].chars().next().is_some_and(is_part)
    })
}

/// The lines that do something: no comments, and nothing from the tests at a file's end.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    numbered
        .take_while(|(_, line)| line.trim() != "#[cfg(test)]")
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
}

#[track_caller]
fn none(faults: &[String], rule: &str) {
    assert!(faults.is_empty(), "{rule}:\n{}", faults.join("\n"));
}

#[test]
fn files_are_short() {
    let is_prose_or_code = |file: &&SourceFile| has_extension(&file.path, &["rs", "md", "wit", "toml"]);
    let long: BTreeMap<&str, usize> = FILES
        .iter()
        .filter(is_prose_or_code)
        .map(|file| (file.path.as_str(), file.text.lines().count()))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .collect();
    let listed: BTreeSet<&str> = LONG_FILES.iter().map(|(path, _)| *path).collect();
    let unlisted = long.iter().filter(|(path, _)| !listed.contains(**path));
    let faults: Vec<String> = unlisted.map(|(path, lines)| format!("{path}: {lines} lines")).collect();
    none(&faults, &format!("a file has at most {MAX_LINES} lines"));
    let stale: Vec<String> =
        listed.iter().filter(|path| !long.contains_key(*path)).map(ToString::to_string).collect();
    none(&stale, "these are listed as long and are not");
}

#[test]
fn nothing_is_left_over() {
    // Put together here, so that this file does not find itself.
    let words = [["TO", "DO"], ["FIX", "ME"], ["XX", "X"]].map(|halves| halves.concat());
    let calls = [["dbg", "!"], ["todo", "!"], ["unimplemented", "!"]].map(|halves| halves.concat());
    let mut faults = Vec::new();
    let is_ours = |file: &&SourceFile| {
        !has_extension(&file.path, &["lock"])
            && VENDORED_FILES.iter().all(|(name, _)| file.path.strip_prefix(VENDORED) != Some(name))
    };
    for file in FILES.iter().filter(is_ours) {
        for (at, line) in file.text.lines().enumerate() {
            let found = words.iter().find(|word| has_word(line, word));
            // Hidden lines of an example in the docs may be left out in earnest.
            let is_code = !line.trim_start().starts_with("//");
            let found =
                found.or_else(|| calls.iter().find(|call| is_code && line.contains(&format!("{call}("))));
            if let Some(found) = found {
                faults.push(format!("{}:{}: {found}", file.path, at + 1));
            }
        }
    }
    none(&faults, "what is unfinished goes to the issue tracker");
}

/// cJSON 1.7.19, MIT. Its licence goes along with it into every project.
#[test]
fn what_is_vendored_is_as_it_was_released() {
    let text = |name: &str| {
        let path = format!("{VENDORED}{name}");
        &FILES.iter().find(|file| file.path == path).unwrap_or_else(|| panic!("there is no `{path}`")).text
    };
    for (name, released) in VENDORED_FILES {
        assert_eq!(blake3::hash(text(name).as_bytes()).to_string(), released, "`{name}` was changed");
    }
    let licence = text("LICENSE");
    assert!(licence.contains("Permission is hereby granted, free of charge"), "{licence}");
    let there: BTreeSet<&str> = FILES.iter().filter_map(|file| file.path.strip_prefix(VENDORED)).collect();
    assert_eq!(
        there,
        BTreeSet::from(["LICENSE", "cJSON.c", "cJSON.h"]),
        "what else is there is ours to judge"
    );
}

#[test]
fn nothing_names_the_place_it_was_made_at() {
    let places = [["/wor", "k/"], ["/root", "/.cargo"], ["../sha", "red"]].map(|halves| halves.concat());
    let mut faults = Vec::new();
    for file in FILES.iter() {
        for (at, line) in file.text.lines().enumerate() {
            if let Some(place) = places.iter().find(|place| line.contains(*place)) {
                faults.push(format!("{}:{}: `{place}`", file.path, at + 1));
            }
        }
    }
    none(&faults, "a path of one machine means nothing on another");
}

#[test]
fn packages_come_from_the_public_registry_or_from_here() {
    let packages = HOST.packages.iter().chain(&GUESTS.packages);
    let foreign = packages.filter(|package| match &package.source {
        Some(source) => source.repr != "registry+https://github.com/rust-lang/crates.io-index",
        None => !package.manifest_path.starts_with(project_root()),
    });
    let faults: Vec<String> =
        foreign.map(|package| format!("{} from {:?}", package.name, package.source)).collect();
    none(&faults, "every package can be had by everyone");
    let settings = FILES
        .iter()
        .filter(|file| file.path.ends_with(".cargo/config.toml") || file.path.ends_with(".cargo/config"));
    let faults: Vec<String> = settings
        .filter(|file| file.text.contains("[source") || file.text.contains("[registries"))
        .map(|file| file.path.clone())
        .collect();
    none(&faults, "cargo is not sent to another registry");
}

/// The workspace's package of this name.
fn member(name: &str) -> &'static Package {
    let mut members = HOST.workspace_packages().into_iter();
    members.find(|package| *package.name == name).unwrap_or_else(|| panic!("there is no package `{name}`"))
}

/// Everything that is built into `name`, itself included.
fn closure(name: &str) -> BTreeSet<String> {
    let resolve = HOST.resolve.as_ref().expect("metadata was asked for with its dependencies");
    let nodes: BTreeMap<&PackageId, _> = resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let mut seen = BTreeSet::new();
    let mut pending = vec![&member(name).id];
    while let Some(id) = pending.pop() {
        if seen.insert(id) {
            let is_built_in = |dep: &&cargo_metadata::NodeDep| {
                dep.dep_kinds.iter().any(|kind| kind.kind != DependencyKind::Development)
            };
            pending.extend(nodes[id].deps.iter().filter(is_built_in).map(|dep| &dep.pkg));
        }
    }
    seen.into_iter().map(|id| HOST[id].name.to_string()).collect()
}

#[test]
fn the_journal_knows_no_webassembly_and_no_host() {
    let foreign =
        |name: &&String| name.starts_with("wasm") || name.starts_with("cranelift") || *name == "deed";
    let faults: Vec<String> = closure("deed-journal").iter().filter(foreign).cloned().collect();
    none(&faults, "what the journal must not know");
    assert!(closure("deed").contains("wasmtime"), "the control: the same question does find it in the host");
}

#[test]
fn wasmtime_is_named_by_the_host_alone() {
    let members = HOST.workspace_packages().into_iter();
    let naming =
        members.filter(|package| package.dependencies.iter().any(|dep| dep.name.starts_with("wasmtime")));
    let names: Vec<String> = naming.map(|package| package.name.to_string()).collect();
    assert_eq!(names, ["deed"]);
}

#[test]
fn redb_is_named_by_one_module_of_the_journal() {
    let members = HOST.workspace_packages().into_iter();
    let naming = members.filter(|package| package.dependencies.iter().any(|dep| dep.name == "redb"));
    let names: Vec<String> = naming.map(|package| package.name.to_string()).collect();
    assert_eq!(names, ["deed-journal"]);

    let modules: BTreeSet<&str> = FILES
        .iter()
        .filter_map(|file| Some((file.path.strip_prefix("journal/src/")?, &file.text)))
        .filter(|(_, text)| code_lines(text).any(|(_, line)| has_word(line, "redb")))
        .map(|(path, _)| path.split(['/', '.']).next().expect("a path has a first part"))
        .collect();
    assert_eq!(modules.len(), 1, "{modules:?}");
}

/// Files of the two libraries; the binary's own modules are not among them, nor what only tests run.
fn library_files() -> impl Iterator<Item = &'static SourceFile> {
    FILES.iter().filter(|file| !file.path.contains("/tests/")).filter(|file| {
        let path = &file.path;
        path.starts_with("journal/src/")
            || path.starts_with("host/src/")
                && path != "host/src/main.rs"
                && !path.starts_with("host/src/cli")
    })
}

#[test]
fn libraries_do_not_print_exit_or_read_the_environment() {
    assert!(library_files().count() > 1, "the libraries were found");
    let calls = ["print!", "println!", "eprint!", "eprintln!", "process::exit"].map(str::to_owned);
    let environment =
        ["var", "var_os", "vars", "vars_os", "args", "args_os", "set_var", "remove_var", "current_dir"];
    let further = ["set_current_dir", "home_dir", "temp_dir", "current_exe"];
    // `env!` is read by the compiler, and the rest of `std::env` reads nothing.
    let environment = environment.iter().chain(&further).map(|name| format!("env::{name}"));
    let banned: Vec<String> = calls.into_iter().chain(environment).collect();
    let mut faults = Vec::new();
    for file in library_files() {
        for (at, line) in code_lines(&file.text) {
            if let Some(found) = banned
                .iter()
                .find(|banned| has_word(line, banned.trim_end_matches('!')) && line.contains(banned.as_str()))
            {
                faults.push(format!("{}:{at}: {found}", file.path));
            }
        }
    }
    none(&faults, "the binary does that, in main.rs and cli/");
}

/// The lines of a file that only tests run.
fn test_lines(file: &SourceFile) -> impl Iterator<Item = (usize, &str)> {
    let path = &file.path;
    let is_test =
        path.contains("/tests/") || path.starts_with("tests/") && !path.starts_with("tests/guests/");
    let numbered = file.text.lines().enumerate().map(|(at, line)| (at + 1, line));
    numbered.skip_while(move |(_, line)| !is_test && line.trim() != "#[cfg(test)]")
}

#[test]
fn no_test_sleeps() {
    let call = ["sl", "eep("].concat();
    let mut faults = Vec::new();
    for file in FILES.iter().filter(|file| has_extension(&file.path, &["rs"])) {
        for (at, line) in test_lines(file).filter(|(_, line)| line.contains(&call)) {
            faults.push(format!("{}:{at}: {}", file.path, line.trim()));
        }
    }
    none(&faults, "a test that waits for time to pass fails on a slow machine and wastes it on a fast one");
}

#[test]
fn licences_of_all_dependencies_fit() {
    let allowed: Vec<Expression> =
        LICENCES.iter().map(|licence| Expression::parse(licence).expect("the list is of SPDX ids")).collect();
    let is_allowed = |wanted: &spdx::LicenseReq| {
        allowed.iter().any(|licence| licence.requirements().any(|held| held.req == *wanted))
    };
    let fits = |package: &Package| {
        let licence = package.license.as_deref()?;
        let expression = Expression::parse_mode(licence, ParseMode::LAX).ok()?;
        expression.evaluate(is_allowed).then_some(())
    };
    let packages = HOST.packages.iter().chain(&GUESTS.packages);
    let unfit = packages.filter(|package| fits(package).is_none());
    let faults: Vec<String> =
        unfit.map(|package| format!("{} {}: {:?}", package.name, package.version, package.license)).collect();
    none(&faults, "licences that do not go with ours");
}

#[test]
fn dependencies_are_built_in_one_version() {
    let resolve = HOST.resolve.as_ref().expect("metadata was asked for with its dependencies");
    let mut versions: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for node in &resolve.nodes {
        let package = &HOST[&node.id];
        versions.entry(package.name.as_str()).or_default().insert(package.version.to_string());
    }
    let found: BTreeSet<&str> =
        versions.iter().filter(|(_, all)| all.len() > 1).map(|(name, _)| *name).collect();
    let listed: BTreeSet<&str> = DUPLICATES.iter().map(|(name, _)| *name).collect();
    let faults: Vec<String> =
        found.difference(&listed).map(|name| format!("{name}: {:?}", versions[name])).collect();
    none(&faults, "built in several versions");
    let stale: Vec<String> = listed.difference(&found).map(ToString::to_string).collect();
    none(&stale, "these are listed as duplicates and are not");
}

#[test]
fn the_lock_file_stays_small() {
    let lock = FILES.iter().find(|file| file.path == "Cargo.lock").expect("the lock file is checked in");
    let locked = lock.text.lines().filter(|line| *line == "[[package]]").count();
    assert!(locked <= MAX_LOCKED_PACKAGES, "{locked} packages, at most {MAX_LOCKED_PACKAGES} were agreed on");
}

/// Where the demands have their tests: the whole system's, and those of the journal and of the host.
fn demand_tests() -> impl Iterator<Item = &'static SourceFile> {
    let places = ["tests/tests/", "journal/tests/", "host/tests/"];
    FILES.iter().filter(move |file| {
        places.iter().any(|place| file.path.starts_with(place)) && has_extension(&file.path, &["rs"])
    })
}

/// The whole-system tests, but for this one, which names everything.
fn system_tests() -> impl Iterator<Item = &'static SourceFile> {
    FILES.iter().filter(|file| file.path.starts_with("tests/tests/") && file.path != "tests/tests/tidy.rs")
}

#[test]
fn every_guest_has_a_test() {
    let guests: Vec<&str> = GUESTS
        .workspace_packages()
        .iter()
        .filter_map(|package| package.manifest_path.parent()?.file_name())
        .filter(|name| *name != "sdk")
        .collect();
    assert!(guests.contains(&"fs"), "the standard plugins were found: {guests:?}");
    let is_named = |guest: &str| {
        // In a mission, or by the constant that `guests.rs` embeds it as.
        let (in_json, embedded) = (format!("\"{guest}\""), guest.replace('-', "_").to_uppercase());
        system_tests().any(|file| file.text.contains(&in_json) || has_word(&file.text, &embedded))
    };
    let faults: Vec<String> =
        guests.iter().filter(|guest| !is_named(guest)).map(ToString::to_string).collect();
    none(&faults, "guests that no test in tests/tests names");
}

#[test]
fn every_demand_that_is_met_has_its_test() {
    let rows = FILES.iter().find(|file| file.path == "tests/rows.txt").expect("the rows are checked in");
    let ids: Vec<String> = rows
        .text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_once(' ').expect("a row is an id and a demand").0.to_lowercase())
        .collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "a row is listed twice");
    let has_test = |id: &str| {
        let test = format!("#[test]\nfn {id}_");
        demand_tests().any(|file| file.text.contains(&test))
    };
    assert!(!has_test("z99"), "the control: a test that is not there is noticed");
    let faults: Vec<String> = ids.iter().filter(|id| !has_test(id)).cloned().collect();
    none(&faults, "demands without a test of their name");
}
