//! Loading components, and keeping them compiled.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use deed::engine::{CompileObserver, EffectClass, Engine, EngineConfig, Foreign, LoadError};

use crate::support::{component, engine, plugin};

#[test]
fn a_plugin_has_its_tools_its_digest_and_its_schemas() {
    let shell = plugin("shell");
    assert_eq!(shell.digest(), deed::engine::Digest::of(component("shell")));
    let tool = shell.tool("shell").unwrap();
    assert_eq!(tool.effect, EffectClass::NonIdempotent);
    assert_eq!(tool.input_schema["type"], "object");
    assert!(tool.traits.destructive);
}

#[test]
fn bytes_that_are_no_component_are_refused_by_name_and_the_others_work() {
    for garbage in [&b"garbage"[..], b"", b"(component)"] {
        let error = engine().load("rubbish", garbage).unwrap_err();
        assert!(matches!(&error, LoadError::NotAComponent { name, .. } if name == "rubbish"), "{error}");
    }
    assert!(!plugin("shell").tools().is_empty());
}

/// A component that imports `imports`, each with one function.
fn importing(imports: &[&str]) -> Vec<u8> {
    let import = |name: &&str| format!(r#"(import "{name}" (instance (export "f" (func))))"#);
    let imports: Vec<String> = imports.iter().map(import).collect();
    wat::parse_str(format!("(component {})", imports.join(" "))).unwrap()
}

#[test]
fn every_missing_import_is_named() {
    let bytes = importing(&["wasi:keyvalue/store@0.2.0", "deed:tool/run@0.1.0", "acme:db/query@1.0.0"]);
    let error = engine().load("needy", &bytes).unwrap_err();
    let LoadError::MissingImports { missing, .. } = &error else { panic!("{error}") };
    assert_eq!(missing, &["wasi:keyvalue/store@0.2.0", "acme:db/query@1.0.0"]);
    assert!(error.to_string().contains("`acme:db/query@1.0.0`"), "{error}");
}

#[test]
fn a_later_version_of_an_interface_is_missing_and_another_shape_is_unusable() {
    let error = engine().load("new", &importing(&["deed:git/repository@0.2.0"])).unwrap_err();
    assert!(matches!(error, LoadError::MissingImports { .. }), "{error}");
    let error = engine().load("odd", &importing(&["deed:git/repository@0.1.0"])).unwrap_err();
    assert!(matches!(error, LoadError::UnusableImport { .. }), "{error}");
    assert!(error.to_string().contains("deed:git/repository"), "{error}");
}

#[test]
fn a_component_without_tools_says_which_export_is_missing() {
    let error = engine().load("empty", &importing(&[])).unwrap_err();
    assert!(matches!(error, LoadError::NoTools { .. }), "{error}");
    assert!(error.to_string().contains("deed:tool/tools"), "{error}");
}

fn engine_with_cache(directory: &Path) -> Engine {
    Engine::new(EngineConfig { cache_dir: Some(directory.to_owned()), ..EngineConfig::default() }).unwrap()
}

/// The compiled code of a component, and what it said of itself.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = directory.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn a_compiled_component_is_kept_for_its_owner_alone_and_used_again() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("new").join("compiled");
    let first = engine_with_cache(&directory).load("shell", component("shell")).unwrap();
    assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
    let written = || -> Vec<_> {
        files(&directory).iter().map(|file| fs::metadata(file).unwrap().modified().unwrap()).collect()
    };
    let before = written();
    assert_eq!(before.len(), 2);

    let second = engine_with_cache(&directory).load("shell", component("shell")).unwrap();
    assert_eq!(first.tools(), second.tools());
    assert_eq!(written(), before, "it was compiled again");
}

/// Counts what is compiled.
#[derive(Debug, Default)]
struct Compiled(Mutex<Vec<String>>);

impl CompileObserver for Compiled {
    fn began(&self, name: &str, bytes: usize) {
        assert!(bytes > 1000, "{bytes}");
        self.0.lock().unwrap().push(name.to_owned());
    }

    fn ended(&self, name: &str) {
        assert_eq!(self.0.lock().unwrap().last().map(String::as_str), Some(name));
    }
}

/// After an update of the host, say: what was compiled is of no use any more, and what is known of the component is.
#[test]
fn a_component_that_is_known_is_opened_at_once_and_compiled_when_it_is_called_first() {
    let directory = tempfile::tempdir().unwrap();
    let known = engine_with_cache(directory.path()).load("shell", component("shell")).unwrap();
    let code = files(directory.path()).into_iter().find(|file| file.extension().unwrap() == "compiled");
    fs::remove_file(code.unwrap()).unwrap();

    let compiled = Arc::new(Compiled::default());
    let engine = Engine::new(EngineConfig {
        cache_dir: Some(directory.path().to_owned()),
        on_compile: Some(Arc::clone(&compiled) as _),
        ..EngineConfig::default()
    })
    .unwrap();
    assert!(engine.is_known(component("shell"), &Foreign::default()));
    let opened = engine.open("shell", component("shell").into(), &Foreign::default()).unwrap();
    assert_eq!((opened.tools(), opened.runs_commands()), (known.tools(), true));
    assert!(compiled.0.lock().unwrap().is_empty(), "to know its tools takes no code");
    for _ in 0..2 {
        engine.prepare(&opened).unwrap();
        assert_eq!(*compiled.0.lock().unwrap(), ["shell"]);
    }
    assert!(!engine.is_known(component("git"), &Foreign::default()));
}

/// A kill or a power loss in the middle of a write could leave half a file, or zeros. Machine code from such a file would
/// be executed. So a file that is not whole is compiled again, and replaced.
#[test]
fn a_torn_file_is_noticed_and_repaired() {
    let directory = tempfile::tempdir().unwrap();
    engine_with_cache(directory.path()).load("shell", component("shell")).unwrap();
    for file in &files(directory.path()) {
        let whole = fs::read(file).unwrap();
        let middle = whole.len() / 2;
        let mut flipped = whole.clone();
        flipped[middle] ^= 1;
        let zeros = [&whole[..middle], &vec![0; whole.len() - middle]].concat();
        for torn in [&whole[..middle], &whole[..20], &[], &flipped, &zeros] {
            fs::write(file, torn).unwrap();
            let shell = engine_with_cache(directory.path()).load("shell", component("shell")).unwrap();
            assert_eq!(shell.tools().len(), 1);
            assert_eq!(fs::read(file).unwrap().len(), whole.len(), "it was not repaired");
        }
    }
}

#[test]
fn a_directory_that_others_may_write_to_is_not_used_and_this_is_said() {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let engine = engine_with_cache(directory.path());
    let warning = engine.cache_warning().unwrap();
    assert!(warning.contains("777") && warning.contains("chmod"), "{warning}");
    engine.load("shell", component("shell")).unwrap();
    assert!(files(directory.path()).is_empty());
}

/// A tool that writes files could have put machine code there, for the next start to execute.
#[test]
fn a_directory_in_the_workspace_is_neither_used_nor_made_and_this_is_said() {
    let place = tempfile::tempdir().unwrap();
    let workspace = place.path().join("workspace");
    fs::create_dir(&workspace).unwrap();
    std::os::unix::fs::symlink(&workspace, place.path().join("link")).unwrap();
    for inside in ["workspace", "workspace/cache/deed", "link", "link/cache/deed", "other/../workspace"] {
        fs::create_dir_all(place.path().join("other")).unwrap();
        let engine = Engine::new(EngineConfig {
            cache_dir: Some(place.path().join(inside)),
            workspaces: vec![place.path().to_owned().join("gone"), workspace.clone()],
            ..EngineConfig::default()
        });
        let warning = engine.unwrap().cache_warning().unwrap();
        assert!(warning.contains("workspace"), "{inside}: {warning}");
        assert!(files(&workspace).is_empty(), "{inside}");
    }
    let engine = Engine::new(EngineConfig {
        cache_dir: Some(place.path().join("workspace-2")),
        workspaces: vec![workspace],
        ..EngineConfig::default()
    });
    assert_eq!(engine.unwrap().cache_warning(), None);
}

/// Each command that runs tools tells the engine which workspaces they reach.
#[test]
fn no_command_keeps_code_in_its_workspace() {
    let place = tempfile::tempdir().unwrap();
    let workspace = place.path().join("workspace");
    fs::create_dir(&workspace).unwrap();
    let deed = |cache: &Path, args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_deed"));
        command.current_dir(place.path()).env("XDG_CACHE_HOME", cache).args(["--journal", "journal", "-v"]);
        let output = command.args(args).output().unwrap();
        (output.status, String::from_utf8(output.stderr).unwrap())
    };
    let call = ["--workspace", "workspace", "call", "write_file", r#"{"path":"a.txt","content":"x"}"#];
    let beside = place.path().join("cache");
    let (status, errors) = deed(&beside, &[&call[..], &["--kill-at", "2:after_intent"]].concat());
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{errors}");
    assert!(beside.join("deed").exists(), "the cache was not used at all");

    let inside = workspace.join("cache");
    for args in [&["resume"][..], &call, &["--workspace", "workspace", "tools"]] {
        let (status, errors) = deed(&inside, args);
        assert!(status.success(), "{args:?}: {errors}");
        assert!(errors.contains("it lies in the workspace"), "{args:?}: {errors}");
        assert!(!inside.exists(), "{args:?}");
    }
    assert!(workspace.join("a.txt").exists());
}
