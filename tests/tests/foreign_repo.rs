//! A mission on files that are not ours: thousands of them, as other people wrote them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, path::Path};

use cargo_metadata::MetadataCommand;
use deed_tests::{Message, Repository, Sandbox, Snapshot, copy_tree, never_asked, project_root};
use serde_json::json;

/// Several thousand.
const FILES: usize = 3000;

/// Packages to begin with: a compiler's worth of Rust, and a library in C with its tests and documents.
const PREFERRED: [&str; 4] = ["wasmtime", "cranelift-codegen", "libgit2-sys", "redb"];

/// Fill `workspace` with the sources of packages that this project is built from, as the registry ships them.
fn plant(workspace: &Path) -> usize {
    let metadata = MetadataCommand::new()
        .manifest_path(project_root().join("Cargo.toml"))
        .other_options([
            "--locked".to_owned(),
            "--filter-platform".to_owned(),
            "x86_64-unknown-linux-gnu".to_owned(),
        ])
        .exec()
        .unwrap();
    let mut packages: Vec<_> = metadata.packages.iter().filter(|package| package.source.is_some()).collect();
    packages.sort_by_key(|package| {
        let preferred = PREFERRED.iter().position(|name| **name == *package.name);
        (preferred.unwrap_or(PREFERRED.len()), package.name.to_string(), package.version.clone())
    });
    let mut planted = 0;
    for package in packages {
        if planted >= FILES {
            break;
        }
        let sources = package.manifest_path.parent().unwrap();
        let target = workspace.join(format!("{}-{}", package.name, package.version));
        planted += copy_tree(sources.as_std_path(), &target).unwrap();
    }
    planted
}

#[test]
fn a_mission_reads_searches_edits_and_commits_in_a_repository_of_thousands_of_files() {
    let sandbox = Sandbox::bare();
    let planted = plant(&sandbox.workspace());
    assert!(planted >= FILES, "the packages hold only {planted} files");
    let manifest = sandbox
        .files()
        .paths()
        .into_iter()
        .find(|path| path.starts_with("wasmtime-") && path.ends_with("/Cargo.toml.orig"))
        .unwrap()
        .to_owned();
    let package = manifest.split('/').next().unwrap().to_owned();
    let text = fs::read_to_string(sandbox.workspace().join(&manifest)).unwrap();
    assert!(text.contains("[dependencies]"));
    Repository::init(&sandbox.workspace());
    let before = sandbox.files();

    sandbox.set_mission(&json!({
        "objective": "Leave a note in somebody else's sources",
        "criteria": ["noted"],
        "tools": ["fs", "git"],
        "model": { "script": [
            { "say": "Looking around.", "calls": [
                { "tool": "list_dir", "input": { "path": "." } },
                { "tool": "search", "input": { "pattern": "pub struct InstancePre", "path": package } },
                { "tool": "read_file", "input": { "path": manifest } } ] },
            { "say": "Leaving a note.", "calls": [
                { "tool": "edit_file", "input": { "path": manifest, "old": "[dependencies]", "new": "# A note.\n[dependencies]" } },
                { "tool": "write_file", "input": { "path": "NOTES.md", "content": "# Notes\n" } },
                { "tool": "git_commit", "input": { "message": "Leave a note" } },
                { "tool": "git_status", "input": {} } ] },
            { "say": "Done.", "calls": [
                { "tool": "update_criteria", "input": { "met": ["noted"] } },
                { "tool": "finish", "input": { "summary": "A note is there." } } ] }
        ] }
    }));
    let passage = sandbox.run_to_end(None, &never_asked).unwrap();
    assert_eq!(passage.envelope.status, "done");
    let snapshot = Snapshot::take(&sandbox, &passage).unwrap();

    let results: Vec<_> =
        snapshot.typed_messages().into_iter().filter_map(|message: Message| message.result).collect();
    assert!(results.iter().all(|result| result.ok), "{results:?}");
    let searched = results.iter().find(|result| result.tool == "search").unwrap();
    assert!(searched.text.contains("pub struct InstancePre"), "{searched:?}");

    let mut expected = before;
    expected.0.insert("NOTES.md".into(), b"# Notes\n".to_vec());
    expected.0.insert(
        manifest.clone(),
        text.replacen("[dependencies]", "# A note.\n[dependencies]", 1).into_bytes(),
    );
    assert!(snapshot.files == expected, "files other than the two have changed");

    let repository = sandbox.repository();
    assert_eq!(snapshot.history.len(), 2);
    assert_eq!(snapshot.history[0].subject(), "Leave a note");
    assert_eq!(repository.changed_paths(snapshot.history[0].id).unwrap(), ["NOTES.md".to_owned(), manifest]);
    assert_eq!(snapshot.status, Vec::<String>::new());
}
