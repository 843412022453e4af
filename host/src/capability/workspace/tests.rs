//! The expectations of `replace`, which no standard tool uses all of.

use std::fs;
use std::path::Path;

use tokio::runtime::Builder;

use super::*;
use crate::engine::request::Grants;
use crate::engine::types::EffectClass;

fn replace(workspace: &Path, path: &str, content: &str, expected: Expectation) -> Result<String, Error> {
    let directory = Dir::open_ambient_dir(workspace, cap_std::ambient_authority()).unwrap();
    let gate = Gate::new("test", &Grants::workspace(EffectClass::Idempotent, "/"));
    let mut ctx = WorkspaceCtx::builder(gate).directory(Some(Arc::new(directory))).build();
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.block_on(WorkspaceCtxView(&mut ctx).replace_with(path, content.as_bytes(), expected))
}

fn digest_of(content: &str) -> String {
    Digest::of(content.as_bytes()).to_string()
}

#[test]
fn a_file_is_replaced_only_in_the_state_expected() {
    let workspace = tempfile::tempdir().unwrap();
    let file = workspace.path().join("a");
    let replace = |content: &str, expected| replace(workspace.path(), "a", content, expected);

    let digest = Expectation::Digest(digest_of("other"));
    assert!(matches!(replace("one", digest), Err(Error::Conflict(_))));
    assert!(!file.exists());
    assert_eq!(replace("one", Expectation::Absent).unwrap(), digest_of("one"));
    assert!(matches!(replace("two", Expectation::Absent), Err(Error::Conflict(_))));
    let stale = Expectation::Digest(digest_of("zero"));
    assert!(
        matches!(replace("two", stale), Err(Error::Conflict(message)) if message.contains(&digest_of("one")))
    );
    assert!(matches!(replace("two", Expectation::Digest("12".to_owned())), Err(Error::Conflict(_))));
    assert_eq!(fs::read_to_string(&file).unwrap(), "one");
    replace("two", Expectation::Digest(digest_of("one").to_uppercase())).unwrap();
    replace("three", Expectation::Whatever).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "three");
}

#[test]
fn a_refused_replacement_leaves_no_directory_behind() {
    let workspace = tempfile::tempdir().unwrap();
    let expected = Expectation::Digest(digest_of("other"));
    assert!(replace(workspace.path(), "a/b/c", "x", expected).is_err());
    assert!(replace(workspace.path(), "a/b/..", "x", Expectation::Whatever).is_err());
    assert_eq!(workspace.path().read_dir().unwrap().count(), 0);
}

#[test]
fn directories_and_the_workspace_itself_are_no_files() {
    let workspace = tempfile::tempdir().unwrap();
    fs::create_dir(workspace.path().join("d")).unwrap();
    for path in ["d", "/", ".", "d/."] {
        let error = replace(workspace.path(), path, "x", Expectation::Whatever).unwrap_err();
        assert!(matches!(error, Error::NotAFile(_)), "{path}: {error:?}");
    }
    assert!(matches!(replace(workspace.path(), "", "x", Expectation::Whatever), Err(Error::NotFound(_))));
    fs::write(workspace.path().join("f"), "").unwrap();
    let error = replace(workspace.path(), "f/x", "x", Expectation::Whatever).unwrap_err();
    assert!(matches!(error, Error::NotAFile(_)), "{error:?}");
}

#[test]
fn a_link_within_the_workspace_is_followed_on_the_way() {
    let workspace = tempfile::tempdir().unwrap();
    fs::create_dir_all(workspace.path().join("real/deep")).unwrap();
    std::os::unix::fs::symlink("../real/deep", workspace.path().join("real/link")).unwrap();
    replace(workspace.path(), "real/link/new/a", "x", Expectation::Absent).unwrap();
    assert_eq!(fs::read_to_string(workspace.path().join("real/deep/new/a")).unwrap(), "x");
}
