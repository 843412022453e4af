//! Files of the workspace.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use deed::engine::FailureKind;
use serde_json::json;

use crate::support::{Call, text};

#[test]
fn a_written_file_has_its_content_and_its_directories() {
    let workspace = tempfile::tempdir().unwrap();
    let args = json!({"path": "a/b/c.txt", "content": "hello\n"});
    Call::new("fs", "write_file", args, workspace.path()).output();
    assert_eq!(fs::read_to_string(workspace.path().join("a/b/c.txt")).unwrap(), "hello\n");
    let read = Call::new("fs", "read_file", json!({"path": "a/b/c.txt"}), workspace.path()).output();
    assert!(text(&read).contains("hello"), "{}", text(&read));
    assert_eq!(workspace.path().join("a/b").read_dir().unwrap().count(), 1, "something was left beside it");
}

#[test]
fn a_replaced_file_keeps_its_mode() {
    let workspace = tempfile::tempdir().unwrap();
    let script = workspace.path().join("run.sh");
    fs::write(&script, "old").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o751)).unwrap();
    Call::new("fs", "write_file", json!({"path": "/run.sh", "content": "new"}), workspace.path()).output();
    assert_eq!(fs::read_to_string(&script).unwrap(), "new");
    assert_eq!(fs::metadata(&script).unwrap().permissions().mode() & 0o7777, 0o751);
}

/// A kill between write and rename leaves the file beside the target, which the next commit would have taken along. The
/// next attempt of the call finds it by its name.
#[test]
fn what_a_killed_attempt_left_beside_a_file_is_gone_after_the_next() {
    let workspace = tempfile::tempdir().unwrap();
    let left = workspace.path().join(".deed-0123456789abcdef.tmp");
    for left_as in
        [|path: &Path| fs::write(path, "hal").unwrap(), |path: &Path| symlink("a.txt", path).unwrap()]
    {
        fs::write(workspace.path().join("a.txt"), "old").unwrap();
        left_as(&left);
        let args = json!({"path": "a.txt", "content": "half and half"});
        let mut call = Call::new("fs", "write_file", args, workspace.path());
        (call.key, call.attempt) = ("0123456789abcdef0123", 2);
        call.output();
        assert_eq!(fs::read_to_string(workspace.path().join("a.txt")).unwrap(), "half and half");
        assert_eq!(workspace.path().read_dir().unwrap().count(), 1);
    }
}

#[test]
fn a_link_is_not_written_through_even_within_the_workspace() {
    let workspace = tempfile::tempdir().unwrap();
    fs::write(workspace.path().join("real"), "real").unwrap();
    symlink("real", workspace.path().join("link")).unwrap();
    let failure =
        Call::new("fs", "write_file", json!({"path": "link", "content": "x"}), workspace.path()).failure();
    assert!(failure.message.contains("symbolic link"), "{}", failure.message);
    assert_eq!(fs::read_to_string(workspace.path().join("real")).unwrap(), "real");
}

#[test]
fn nothing_outside_the_workspace_is_written() {
    let place = tempfile::tempdir().unwrap();
    let (workspace, outside) = (place.path().join("workspace"), place.path().join("outside"));
    fs::create_dir(&workspace).unwrap();
    fs::create_dir(&outside).unwrap();
    symlink("../outside", workspace.join("relative")).unwrap();
    symlink(&outside, workspace.join("absolute")).unwrap();
    for path in ["../outside/a", "relative/a", "absolute/a", "relative/new/a"] {
        let args = json!({"path": path, "content": "x"});
        let failure = Call::new("fs", "write_file", args, &workspace).failure();
        assert_eq!(failure.kind, FailureKind::Denied, "{path}: {}", failure.message);
    }
    assert_eq!(outside.read_dir().unwrap().count(), 0);
}

/// Opening a FIFO for reading waits for a writer, in the kernel, where no time limit reaches.
#[test]
fn a_pipe_in_the_workspace_hangs_nobody() {
    let workspace = tempfile::tempdir().unwrap();
    let fifo = workspace.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    Call::new("fs", "read_file", json!({"path": "fifo"}), workspace.path()).failure();
    Call::new("fs", "write_file", json!({"path": "fifo", "content": "x"}), workspace.path()).failure();
}
