//! Commands.

use std::fs;
use std::path::Path;

use deed::engine::{AbortReason, CallEnd, CancelToken, FailureKind};
use serde_json::{Value, json};

use crate::support::{Call, text};

fn shell(command: &str, workspace: &Path) -> Value {
    Call::new("shell", "shell", json!({"command": command}), workspace).output().structured.unwrap()
}

#[test]
fn a_command_runs_in_the_workspace_and_its_code_is_an_ordinary_outcome() {
    let workspace = tempfile::tempdir().unwrap();
    let outcome = shell("pwd; echo problem >&2; exit 3", workspace.path());
    assert_eq!(outcome["exit_code"], 3);
    let directory = workspace.path().canonicalize().unwrap();
    assert_eq!(outcome["stdout"], format!("{}\n", directory.display()));
    assert_eq!(outcome["stderr"], "problem\n");
}

#[test]
fn a_command_sees_nothing_of_the_hosts_environment() {
    let workspace = tempfile::tempdir().unwrap();
    let outcome = shell("env | cut -d= -f1 | sort | tr '\\n' ' '", workspace.path());
    let seen: Vec<&str> = outcome["stdout"].as_str().unwrap().split_whitespace().collect();
    // `sh` itself sets some.
    let allowed = ["LANG", "OLDPWD", "PATH", "PWD", "SHLVL", "_"];
    assert!(seen.iter().all(|name| allowed.contains(name)), "{seen:?}");
}

#[test]
fn a_directory_is_resolved_beneath_the_workspace() {
    let workspace = tempfile::tempdir().unwrap();
    fs::create_dir(workspace.path().join("inner")).unwrap();
    let call = |directory: &str| {
        let args = json!({"command": "basename \"$(pwd)\"", "directory": directory});
        Call::new("shell", "shell", args, workspace.path())
    };
    assert_eq!(call("inner").output().structured.unwrap()["stdout"], "inner\n");
    assert_eq!(call("/inner/").output().structured.unwrap()["stdout"], "inner\n");
    assert_eq!(call("..").failure().kind, FailureKind::Denied);
    assert_eq!(call("missing").failure().kind, FailureKind::NotFound);
}

#[test]
fn output_beyond_the_limit_is_cut_and_counted() {
    let workspace = tempfile::tempdir().unwrap();
    let outcome = shell("head -c 10000000 /dev/zero | tr '\\0' x", workspace.path());
    let kept = outcome["stdout"].as_str().unwrap().len();
    assert_eq!(kept as u64 + outcome["stdout_cut_bytes"].as_u64().unwrap(), 10_000_000);
    assert!(kept < 1_000_000, "{kept}");
}

/// Wait until the process whose id is in `file` is gone, or a zombie: a kill is certain, but not instant.
fn wait_until_dead(file: &Path) {
    let pid = fs::read_to_string(file).unwrap();
    let stat = format!("/proc/{}/stat", pid.trim());
    let is_zombie = |stat: &str| stat.rsplit(')').next().unwrap().trim_start().starts_with('Z');
    while fs::read_to_string(&stat).is_ok_and(|stat| !is_zombie(&stat)) {
        std::thread::yield_now();
    }
}

/// Neither the command's own group nor a descendant that made a group of its own is left.
#[test]
fn a_command_out_of_time_is_killed_with_everything_it_started() {
    let workspace = tempfile::tempdir().unwrap();
    let command = "sleep 600 & echo $! > child; setsid sh -c 'echo $$ > away; exec sleep 600' & \
                   while ! test -s away; do :; done; echo $$ > shell; sleep 600";
    let args = json!({"command": command, "timeout_ms": 2_000});
    let failure = Call::new("shell", "shell", args, workspace.path()).failure();
    assert!(failure.message.contains("time"), "{}", failure.message);
    for process in ["child", "away", "shell"] {
        wait_until_dead(&workspace.path().join(process));
    }
}

#[test]
fn a_background_process_does_not_outlive_the_command_nor_hold_it_up() {
    let workspace = tempfile::tempdir().unwrap();
    let outcome = shell("sleep 600 & echo $! > child; echo done", workspace.path());
    assert_eq!(outcome["stdout"], "done\n");
    wait_until_dead(&workspace.path().join("child"));
}

/// The call's own limit ends a command, too, and then the call is over.
#[test]
fn a_call_out_of_time_takes_its_command_along() {
    let workspace = tempfile::tempdir().unwrap();
    let args = json!({"command": "echo $$ > shell; sleep 600"});
    let mut call = Call::new("shell", "shell", args, workspace.path());
    call.timeout = std::time::Duration::from_secs(2);
    let end = call.run();
    let CallEnd::Aborted(abort) = end else { panic!("{end:?}") };
    assert_eq!(abort.reason, AbortReason::Timeout);
    assert!(abort.may_have_effect);
    wait_until_dead(&workspace.path().join("shell"));
}

#[test]
fn a_cancelled_command_is_killed_and_the_tool_says_so() {
    let workspace = tempfile::tempdir().unwrap();
    let cancel = CancelToken::new();
    let mut call =
        Call::new("shell", "shell", json!({"command": "echo $$ > shell; sleep 600"}), workspace.path());
    call.cancel = cancel.clone();
    let shell = workspace.path().join("shell");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !fs::read_to_string(&shell).is_ok_and(|pid| pid.ends_with('\n')) {
                std::thread::yield_now();
            }
            cancel.cancel();
        });
        let end = call.run();
        assert!(matches!(&end, CallEnd::Failed(_)), "{end:?}");
    });
    wait_until_dead(&shell);
}

#[test]
fn a_command_inherits_no_descriptor() {
    let workspace = tempfile::tempdir().unwrap();
    let inheritable = fs::File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&inheritable, rustix::io::FdFlags::empty()).unwrap();
    let outcome = shell("ls /proc/$$/fd | sort -n | tail -n 1", workspace.path());
    let highest: u32 = outcome["stdout"].as_str().unwrap().trim().parse().unwrap();
    assert!(highest <= 2 || highest == 10 || highest == 255, "descriptor {highest} was inherited");
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let workspace = tempfile::tempdir().unwrap();
    let outcome = Call::new("shell", "shell", json!({"command": "nosuchprogram"}), workspace.path()).output();
    assert!(text(&outcome).contains("nosuchprogram"));
}
