//! What a class lets a call do.

use deed::engine::{CallEnd, EffectClass, FailureKind};
use serde_json::json;

use crate::support::{Call, engine, plugin};

#[test]
fn a_call_held_to_pure_changes_no_file_and_says_why() {
    let workspace = tempfile::tempdir().unwrap();
    let mut call = Call::new("fs", "write_file", json!({"path": "a.txt", "content": "x"}), workspace.path());
    call.class = EffectClass::Pure;
    let failure = call.failure();
    assert_eq!(failure.kind, FailureKind::Denied);
    let refusal = &failure.refusals[0].to_string();
    for part in ["files", "`a.txt`", "`write_file`", "`pure`"] {
        assert!(refusal.contains(part), "`{refusal}` does not name {part}");
    }
    assert_eq!(workspace.path().read_dir().unwrap().count(), 0);
}

#[test]
fn a_call_held_to_pure_runs_no_command_and_commits_nothing() {
    let workspace = tempfile::tempdir().unwrap();
    for (plugin, tool, args, capability) in [
        ("shell", "shell", json!({"command": "touch made"}), "process"),
        ("git", "git_commit", json!({"message": "Nothing"}), "git"),
    ] {
        let mut call = Call::new(plugin, tool, args, workspace.path());
        call.class = EffectClass::Pure;
        let failure = call.failure();
        assert_eq!(failure.kind, FailureKind::Denied, "{tool}");
        assert_eq!(failure.refusals[0].capability, capability, "{tool}");
    }
    assert_eq!(workspace.path().read_dir().unwrap().count(), 0);
}

#[test]
fn a_tool_the_plugin_does_not_have_is_named_with_those_it_has() {
    let workspace = tempfile::tempdir().unwrap();
    let mut call = Call::new("fs", "read_file", json!({}), workspace.path());
    call.tool = "read_fiel";
    let failure = call.failure();
    assert_eq!(failure.kind, FailureKind::NotFound);
    assert!(failure.message.contains("`read_file`"), "{}", failure.message);
}

#[test]
fn nothing_is_narrowed_for_a_tool_that_does_not_refine() {
    assert_eq!(engine().refine(&plugin("fs"), "write_file", r#"{"path":"a","content":""}"#), None);
}

#[test]
fn a_workspace_that_is_not_there_is_the_hosts_fault_and_changes_nothing() {
    let workspace = tempfile::tempdir().unwrap();
    let gone = workspace.path().join("gone");
    let end = Call::new("fs", "write_file", json!({"path": "a", "content": ""}), &gone).run();
    let CallEnd::Aborted(abort) = end else { panic!("{end:?}") };
    assert_eq!(abort.reason, deed::engine::AbortReason::Host);
    assert!(!abort.may_have_effect);
    assert!(abort.message.contains("gone"), "{}", abort.message);
}
