//! Loading components, and keeping them compiled.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use deed::engine::{EffectClass, Engine, EngineConfig, LoadError};

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
    assert!(matches!(error, LoadError::MissingExport { .. }), "{error}");
    assert!(error.to_string().contains("deed:tool/tools"), "{error}");
}

fn engine_with_cache(directory: &Path) -> Engine {
    Engine::new(EngineConfig { cache_dir: Some(directory.to_owned()), ..EngineConfig::default() }).unwrap()
}

fn files(directory: &Path) -> Vec<PathBuf> {
    directory.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_compiled_component_is_kept_for_its_owner_alone_and_used_again() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("new").join("compiled");
    let first = engine_with_cache(&directory).load("shell", component("shell")).unwrap();
    assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
    let kept = files(&directory);
    assert_eq!(kept.len(), 1);
    let written = fs::metadata(&kept[0]).unwrap().modified().unwrap();

    let second = engine_with_cache(&directory).load("shell", component("shell")).unwrap();
    assert_eq!(first.tools(), second.tools());
    assert_eq!(fs::metadata(&kept[0]).unwrap().modified().unwrap(), written, "it was compiled again");
}

/// A kill or a power loss in the middle of a write could leave half a file, or zeros. Machine code from such a file would
/// be executed. So a file that is not whole is compiled again, and replaced.
#[test]
fn a_torn_file_is_noticed_and_repaired() {
    let directory = tempfile::tempdir().unwrap();
    engine_with_cache(directory.path()).load("shell", component("shell")).unwrap();
    let file = &files(directory.path())[0];
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
