//! Plugins that are checked, inspected, installed, updated and removed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use deed_tests::{CallReply, Deed, Ending, Outcome, Sandbox, ToolRow, copy_tree, guests, shared_cache_dir};
use serde_json::{Value, json};

/// The digest of a component, as people see it.
fn digest(component: &[u8]) -> String {
    blake3::hash(component).to_hex().to_string()
}

/// A component on disk, outside of what is looked at by itself.
fn made(sandbox: &Sandbox, name: &str, component: &[u8]) -> PathBuf {
    let directory = sandbox.root().join("made");
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join(name).with_extension("wasm");
    fs::write(&path, component).unwrap();
    path
}

fn plugin(sandbox: &Sandbox, command: &str, file: &Path) -> Deed {
    sandbox.deed(["plugin", command, file.to_str().unwrap()])
}

/// Where components are installed.
fn directory(sandbox: &Sandbox) -> PathBuf {
    sandbox.home().join(".local/share/deed/plugins")
}

/// The names of what lies there, but for the lock.
fn lying_there(sandbox: &Sandbox) -> Vec<String> {
    let names = fs::read_dir(directory(sandbox)).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.retain(|name| name != "lock");
    names.sort();
    names
}

fn tools(sandbox: &Sandbox) -> (Vec<ToolRow>, Outcome) {
    let listed = sandbox.deed(["tools"]).run().expect_code(0);
    (listed.json(), listed)
}

#[track_caller]
fn greets(sandbox: &Sandbox, with: &str) {
    let greeted = sandbox.call("greet", &json!({ "name": "you" })).run().expect_code(0);
    assert_eq!(greeted.json::<CallReply>().text(), with, "{greeted}");
}

fn messages<'a>(report: &'a Value, level: &str) -> Vec<&'a str> {
    let findings = report["findings"].as_array().unwrap().iter();
    findings
        .filter(|finding| finding["level"] == level)
        .map(|finding| finding["message"].as_str().unwrap())
        .collect()
}

#[test]
fn a_plugin_that_is_sound_passes_and_is_told_apart_from_one_that_is_not() {
    let sandbox = Sandbox::bare();
    let check = |name, component: &[u8]| plugin(&sandbox, "check", &made(&sandbox, name, component)).run();

    let report: Value = check("bold", guests::BOLD).expect_code(0).json();
    assert_eq!(report["digest"], digest(guests::BOLD));
    assert_eq!((&report["passed"], &report["tools"][0]["name"]), (&json!(true), &json!("greet")));
    assert_eq!(messages(&report, "error"), [""; 0]);

    let garbage: Value = check("garbage", b"no component").expect_code(1).json();
    assert!(messages(&garbage, "error")[0].contains("not a WebAssembly component"), "{garbage}");
    let module = check("module", b"\0asm\x01\0\0\0").expect_code(1);
    assert!(module.stderr.contains("core module"), "{module}");

    let import = r#"(component (import "acme:weather/forecast@1.2.0" (instance (export "tomorrow" (func (result string))))))"#;
    let weather: Value = check("weather", &wat::parse_str(import).unwrap()).expect_code(1).json();
    assert!(messages(&weather, "error")[0].contains("`acme:weather/forecast@1.2.0`"), "{weather}");
    let empty: Value = check("empty", &wat::parse_str("(component)").unwrap()).expect_code(1).json();
    assert!(messages(&empty, "error")[0].contains("deed:tool/tools@0.1.0"), "{empty}");
    assert!(!sandbox.journal().exists(), "to look at a plugin takes no journal");
}

#[test]
fn any_component_can_be_inspected() {
    let sandbox = Sandbox::bare();
    let foreign = r#"(component
        (import "acme:weather/forecast@1.2.0" (instance
            (export "tomorrow" (func (param "town" string) (result (list string))))))
        (import "wasi:http/outgoing-handler@0.2.6" (instance))
        (core module $m (func (export "double") (param i32) (result i32)
            (i32.mul (local.get 0) (i32.const 2))))
        (core instance $i (instantiate $m))
        (func $double (param "n" u32) (result u32) (canon lift (core func $i "double")))
        (export "double" (func $double)))"#;
    let foreign = made(&sandbox, "foreign", &wat::parse_str(foreign).unwrap());
    let seen: Value = plugin(&sandbox, "inspect", &foreign).run().expect_code(0).json();
    assert_eq!(seen["exports"][0]["functions"], json!(["double: func(n: u32) -> u32"]));
    assert_eq!(seen["imports"][0]["functions"], json!(["tomorrow: func(town: string) -> list<string>"]));
    assert_eq!(
        (&seen["imports"][0]["offered"], &seen["imports"][1]["offered"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(seen["needs"], json!(["hosts"]));
    assert!(seen["refused"].as_str().unwrap().contains("`acme:weather/forecast@1.2.0`"), "{seen}");

    let bold = made(&sandbox, "bold", guests::BOLD);
    let seen: Value = plugin(&sandbox, "inspect", &bold).run().expect_code(0).json();
    assert_eq!((&seen["digest"], &seen["refused"]), (&json!(digest(guests::BOLD)), &Value::Null));
    assert_eq!(seen["tools"][0]["effect"], "non-idempotent");
    assert_eq!(seen["needs"], json!(["commands"]));
    let text = plugin(&sandbox, "inspect", &bold).args(["--format", "text"]).run().expect_code(0);
    assert!(text.stdout.contains("greet (non-idempotent)") && text.stdout.contains("`commands`"), "{text}");
}

#[test]
fn an_installed_plugin_works_until_a_byte_of_it_is_changed_and_again_when_it_is_added_again() {
    let sandbox = Sandbox::bare();
    sandbox.set_operator("# Mine.\nanswer_within_ms = 5000 # soon\n");
    let file = made(&sandbox, "greet", guests::GREET);
    let added: Value = plugin(&sandbox, "add", &file).run().expect_code(0).json();
    assert_eq!(
        added[0],
        json!({ "plugin": "greet", "status": "installed", "digest": digest(guests::GREET) })
    );
    let written = fs::read_to_string(sandbox.config().join("deed.toml")).unwrap();
    assert!(written.starts_with("# Mine.\nanswer_within_ms = 5000 # soon\n"), "{written}");
    assert!(written.contains(&digest(guests::GREET)), "{written}");
    let (rows, _) = tools(&sandbox);
    let row = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
    assert_eq!((&*row("greet").plugin, &*row("greet").source), ("greet", "installed"));
    assert_eq!(row("greet").digest.as_deref(), Some(&*digest(guests::GREET)));
    assert_eq!((&*row("read_file").source, &*row("finish").source), ("standard", "host"));
    greets(&sandbox, "Hello, you!");

    let component = directory(&sandbox).join(digest(guests::GREET)).with_extension("wasm");
    let mut changed = guests::GREET.to_vec();
    *changed.last_mut().unwrap() ^= 1;
    fs::write(&component, &changed).unwrap();
    let refused = sandbox.call("greet", &json!({ "name": "you" })).run().expect_code(2);
    for named in [&*digest(guests::GREET), &*digest(&changed), "deed plugin add --name greet"] {
        assert!(refused.stderr.contains(named), "{named}: {refused}");
    }
    let read = sandbox.call("list_dir", &json!({})).run().expect_code(0);
    assert!(read.stderr.contains("`greet`"), "it is told, and keeps nothing else from working: {read}");
    let again: Value = plugin(&sandbox, "add", &file).run().expect_code(0).json();
    assert_eq!(again[0]["status"], "unchanged");
    greets(&sandbox, "Hello, you!");

    let _ = sandbox.deed(["plugin", "remove", "greet"]).run().expect_code(0);
    assert_eq!(lying_there(&sandbox), [""; 0]);
    assert!(tools(&sandbox).0.iter().all(|row| row.name != "greet"));
    assert_eq!(
        fs::read_to_string(sandbox.config().join("deed.toml")).unwrap(),
        "# Mine.\nanswer_within_ms = 5000 # soon\n"
    );
    let unknown = sandbox.deed(["plugin", "remove", "greet"]).run().expect_code(2);
    assert!(unknown.stderr.contains("`greet`"), "{unknown}");
}

#[test]
fn c14_of_a_directory_the_sound_plugins_are_installed_and_each_other_one_is_refused_by_name() {
    let sandbox = Sandbox::bare();
    let directory = made(&sandbox, "garbage", b"no component").parent().unwrap().to_owned();
    made(&sandbox, "greet", guests::GREET);
    made(&sandbox, "again", guests::GREET);
    made(&sandbox, "shell", guests::BOLD);
    let added = plugin(&sandbox, "add", &directory).run().expect_code(1);
    let rows: Value = added.json();
    let status: Vec<_> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["plugin"].as_str().unwrap(), row["status"].as_str().unwrap()))
        .collect();
    // In the order of their names: the second one with a tool `greet` has the name of the first one's.
    let expected =
        [("again", "installed"), ("garbage", "refused"), ("greet", "refused"), ("shell", "refused")];
    assert_eq!(status, expected);
    assert!(added.stderr.contains("plugin `again`"), "whose name it is: {added}");
    greets(&sandbox, "Hello, you!");
}

#[test]
fn c23_an_installation_that_is_killed_anywhere_leaves_the_version_before_or_the_new_one() {
    let other = guests::other_probes();
    for (instant, is_new) in [("writing", false), ("written", false), ("pinning", false), ("pinned", true)] {
        let sandbox = Sandbox::bare();
        let file = made(&sandbox, "probes", guests::PROBES);
        let _ = plugin(&sandbox, "add", &file).run().expect_code(0);
        made(&sandbox, "probes", &other);
        let killed = plugin(&sandbox, "add", &file).args(["--kill-at", instant]).run();
        assert_eq!(killed.ending, Ending::KILLED, "{instant}: {killed}");

        let version = |sandbox: &Sandbox| {
            let (rows, listed) = tools(sandbox);
            assert_eq!(listed.stderr, "", "nothing is refused: {listed}");
            rows.into_iter().find(|row| row.plugin == "probes").unwrap().digest.unwrap()
        };
        assert_eq!(version(&sandbox), digest(if is_new { &other } else { guests::PROBES }), "{instant}");
        assert_eq!(lying_there(&sandbox).len(), 2, "{instant}: the control: something is left over");

        let _ = plugin(&sandbox, "add", &file).run().expect_code(0);
        assert_eq!(version(&sandbox), digest(&other), "{instant}");
        assert_eq!(
            lying_there(&sandbox),
            [format!("{}.wasm", digest(&other))],
            "{instant}: nothing is left over"
        );
        let configured = fs::read_dir(sandbox.config()).unwrap().count();
        assert_eq!(configured, 1, "{instant}: but for `deed.toml`, nothing is left over");
    }
}

#[test]
fn c23_a_compiled_plugin_that_was_not_written_whole_is_compiled_again() {
    let sandbox = Sandbox::bare();
    let file = made(&sandbox, "greet", guests::GREET);
    let _ = plugin(&sandbox, "add", &file).run().expect_code(0);
    // A cache of its own, which has everything compiled already.
    let cache = sandbox.root().join("cache");
    DirBuilder::new().recursive(true).mode(0o700).create(cache.join("deed")).unwrap();
    copy_tree(&shared_cache_dir().join("deed"), &cache.join("deed")).unwrap();
    let in_cache = |deed: Deed| deed.env("XDG_CACHE_HOME", cache.to_str().unwrap()).run().expect_code(0);
    let compiled: Vec<_> = fs::read_dir(cache.join("deed"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&digest(guests::GREET)))
        .collect();
    // The code, and what the plugin said of itself. Of the former several, where builds with other settings were there before.
    for ending in ["compiled", "facts"] {
        let files: Vec<_> =
            compiled.iter().filter(|path| path.extension().is_some_and(|found| found == ending)).collect();
        let whole: Vec<_> = files.iter().map(|path| fs::metadata(path).unwrap().len()).collect();
        assert!(!files.is_empty(), "{compiled:?}");
        for part in [0, 1, 2] {
            for (path, whole) in files.iter().zip(&whole) {
                File::options().write(true).open(path).unwrap().set_len(whole * part / 2 - part / 2).unwrap();
            }
            let called = in_cache(sandbox.call("greet", &json!({ "name": "you" })));
            assert_eq!(called.stderr, "", "{called}");
            let is_whole = |(path, whole): (&&PathBuf, &u64)| fs::metadata(path).unwrap().len() == *whole;
            assert!(files.iter().zip(&whole).any(is_whole), "it is made again");
        }
    }
}

#[test]
fn what_is_known_is_listed_before_what_must_be_compiled_for_it() {
    let sandbox = Sandbox::bare();
    // Bytes that nobody has seen before.
    let mut unseen = guests::GREET.to_vec();
    let name = format!("{:?}", sandbox.root());
    unseen.push(0);
    unseen.push(u8::try_from(name.len() + 1).unwrap());
    unseen.push(u8::try_from(name.len()).unwrap());
    unseen.extend_from_slice(name.as_bytes());
    sandbox.install("greet", &unseen);
    let list = || sandbox.deed(["tools", "--format", "text"]).run().expect_code(0).stdout;
    let heads = |listed: &str| listed.lines().filter(|line| line.trim_start().starts_with("tool ")).count();
    let first = list();
    assert_eq!(heads(&first), 2, "{first}");
    let at = |name: &str| first.find(&format!("{name} ")).unwrap_or_else(|| panic!("{name}: {first}"));
    assert!(at("write_file") < at("greet"), "{first}");
    let again = list();
    assert_eq!(heads(&again), 1, "{again}");
}

#[test]
fn c25_an_update_that_claims_more_is_said_and_refused_until_it_is_confirmed() {
    let sandbox = Sandbox::bare();
    let file = made(&sandbox, "greet", guests::GREET);
    let _ = plugin(&sandbox, "add", &file).run().expect_code(0);
    made(&sandbox, "greet", guests::BOLD);
    let refused = plugin(&sandbox, "add", &file).run().expect_code(1);
    for said in ["`greet` is non-idempotent, and was pure", "it needs `commands`, and did not", "--yes"] {
        assert!(refused.stderr.contains(said), "{said}: {refused}");
    }
    let told: Value = refused.json();
    assert_eq!(told[0]["status"], "refused");
    assert_eq!(told[0]["further"][1], json!({ "more-needs": { "need": "commands" } }));
    greets(&sandbox, "Hello, you!");

    let confirmed: Value = plugin(&sandbox, "add", &file).args(["--yes"]).run().expect_code(0).json();
    assert_eq!(confirmed[0]["status"], "updated");
    greets(&sandbox, "HELLO, YOU!");
    // What claims less needs no word of the owner.
    made(&sandbox, "greet", guests::GREET);
    let _ = plugin(&sandbox, "add", &file).run().expect_code(0);
    greets(&sandbox, "Hello, you!");

    // Of a version that nobody can read, nobody can tell what it claimed.
    fs::write(directory(&sandbox).join(digest(guests::GREET)).with_extension("wasm"), b"torn").unwrap();
    made(&sandbox, "greet", guests::BOLD);
    let refused = plugin(&sandbox, "add", &file).run().expect_code(1);
    assert!(refused.stderr.contains("nobody can tell"), "{refused}");
}

#[test]
fn a_workspace_does_not_decide_which_code_runs() {
    let sandbox = Sandbox::bare();
    let pin = format!("[plugins.greet]\ndigest = \"{}\"\n", digest(guests::GREET));
    fs::write(sandbox.workspace().join("deed.toml"), pin).unwrap();
    let refused = sandbox.call("list_dir", &json!({})).run().expect_code(2);
    assert!(refused.stderr.contains("holds plugins"), "{refused}");
}

#[test]
fn what_cannot_be_installed_is_refused_with_the_next_step() {
    let sandbox = Sandbox::bare();
    let greet = made(&sandbox, "greet", guests::GREET);
    let missing = plugin(&sandbox, "add", &sandbox.root().join("nothing.wasm")).run().expect_code(2);
    assert!(missing.stderr.contains("nothing.wasm"), "{missing}");
    let name = plugin(&sandbox, "add", &greet).args(["--name", "a b"]).run().expect_code(2);
    assert!(name.stderr.contains("`a b`") && name.stderr.contains("--name"), "{name}");
    let standard = plugin(&sandbox, "add", &greet).args(["--name", "fs"]).run().expect_code(1);
    assert!(standard.stderr.contains("`fs` comes with deed"), "{standard}");
    let empty = plugin(&sandbox, "add", &sandbox.workspace()).run().expect_code(2);
    assert!(empty.stderr.contains("deed plugin build"), "{empty}");
    let _ = plugin(&sandbox, "add", &greet).args(["--name", "hello"]).run().expect_code(0);
    assert_eq!(tools(&sandbox).0.iter().find(|row| row.name == "greet").unwrap().plugin, "hello");
}
