//! Commands.

use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};
use std::time::Duration;

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

/// Wait until no process names `mark` in its arguments or its environment: a kill is certain, but not instant.
fn wait_until_gone(mark: &str) {
    let names_it = |file: PathBuf| {
        fs::read(file).is_ok_and(|bytes| bytes.windows(mark.len()).any(|window| window == mark.as_bytes()))
    };
    // A zombie has neither any more.
    let lives = |process: DirEntry| {
        let process = process.path();
        names_it(process.join("cmdline")) || names_it(process.join("environ"))
    };
    while fs::read_dir("/proc").unwrap().flatten().any(lives) {
        std::thread::yield_now();
    }
}

/// A word that no other process names.
fn mark(workspace: &Path) -> String {
    format!("MARK={}", workspace.file_name().unwrap().to_str().unwrap())
}

/// A command that starts a child, and a descendant in a session of its own, and lasts for ever.
fn tree(mark: &str) -> String {
    format!(
        "export {mark}; sleep 600 & setsid sh -c 'echo started > away; exec sleep 600' & \
         while ! test -s away; do :; done; echo started > ready; sleep 600"
    )
}

#[test]
fn a_command_out_of_time_is_killed_with_everything_it_started() {
    let workspace = tempfile::tempdir().unwrap();
    let mark = mark(workspace.path());
    let args = json!({"command": tree(&mark), "timeout_ms": 500});
    let failure = Call::new("shell", "shell", args, workspace.path()).failure();
    assert!(failure.message.contains("time"), "{}", failure.message);
    wait_until_gone(&mark);
}

/// Neither the command's own group nor a descendant that made a group of its own is left.
#[test]
fn a_cancelled_command_is_killed_with_everything_it_started() {
    let workspace = tempfile::tempdir().unwrap();
    let mark = mark(workspace.path());
    let cancel = CancelToken::new();
    let mut call = Call::new("shell", "shell", json!({"command": tree(&mark)}), workspace.path());
    call.cancel = cancel.clone();
    let ready = workspace.path().join("ready");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ready.exists() {
                std::thread::yield_now();
            }
            cancel.cancel();
        });
        let end = call.run();
        assert!(matches!(&end, CallEnd::Failed(_)), "{end:?}");
    });
    wait_until_gone(&mark);
}

#[test]
fn a_background_process_does_not_outlive_the_command_nor_hold_it_up() {
    let workspace = tempfile::tempdir().unwrap();
    let mark = mark(workspace.path());
    let outcome = shell(&format!("export {mark}; sleep 600 & echo done"), workspace.path());
    assert_eq!(outcome["stdout"], "done\n");
    wait_until_gone(&mark);
}

/// The call's own limit ends a command, too, and then the call is over.
#[test]
fn a_call_out_of_time_takes_its_command_along() {
    let workspace = tempfile::tempdir().unwrap();
    let mark = mark(workspace.path());
    let mut call = Call::new("shell", "shell", json!({"command": tree(&mark)}), workspace.path());
    call.timeout = Duration::from_millis(500);
    let end = call.run();
    let CallEnd::Aborted(abort) = end else { panic!("{end:?}") };
    assert_eq!(abort.reason, AbortReason::Timeout);
    wait_until_gone(&mark);
}

#[test]
fn a_command_inherits_no_descriptor() {
    let workspace = tempfile::tempdir().unwrap();
    let inheritable = fs::File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&inheritable, rustix::io::FdFlags::empty()).unwrap();
    // The fourth is the one that `ls` opens to look: the lowest that is free.
    let outcome = shell("ls /proc/self/fd", workspace.path());
    let open: Vec<&str> = outcome["stdout"].as_str().unwrap().split_whitespace().collect();
    assert_eq!(open, ["0", "1", "2", "3"]);
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let workspace = tempfile::tempdir().unwrap();
    let outcome = Call::new("shell", "shell", json!({"command": "nosuchprogram"}), workspace.path()).output();
    assert!(text(&outcome).contains("nosuchprogram"));
}

#[test]
fn a_command_is_cut_off_the_network_unless_it_is_open() {
    let workspace = tempfile::tempdir().unwrap();
    let namespace = |open| {
        let input = json!({"command": "readlink /proc/self/ns/net"});
        let mut call = Call::new("shell", "shell", input, workspace.path());
        call.network = open;
        call.output().structured.unwrap()["stdout"].as_str().unwrap().trim().to_owned()
    };
    let own = fs::read_link("/proc/self/ns/net").unwrap();
    assert_eq!(namespace(true), own.to_str().unwrap());
    assert_ne!(namespace(false), own.to_str().unwrap());
}

/// Whether this machine denies namespaces of processes: then commands are not held together, and deed says so. Where there is
/// no `unshare` to ask, it is taken to allow them.
#[expect(clippy::print_stdout, reason = "a test that does not run is to be seen")]
fn denies_namespaces() -> bool {
    let tried = |user: &[&str]| {
        let mut unshare = std::process::Command::new("unshare");
        unshare.args(user).args(["--pid", "--fork", "--mount-proc", "true"]).output()
    };
    let allows = |user| tried(user).map_or(true, |output| output.status.success());
    let denied = !allows(&[]) && !allows(&["--user", "--map-root-user"]);
    if denied {
        println!("skipped: this machine denies namespaces of processes");
    }
    denied
}

/// A kept command sees only what it has started; its exits and signals are its own.
#[test]
fn a_command_sees_and_signals_no_process_of_the_machine() {
    if denies_namespaces() {
        return;
    }
    let workspace = tempfile::tempdir().unwrap();
    let host = std::process::id();
    let command = format!("ls /proc | grep '^[0-9]'; kill -9 {host} 2>&1; test -e /proc/{host}; echo $?");
    let outcome = shell(&command, workspace.path());
    let said = outcome["stdout"].as_str().unwrap();
    assert!(said.contains("No such process") && said.ends_with("\n1\n"), "{said}");
    let numbers = said.lines().map_while(|line| line.parse::<u32>().ok());
    assert!(numbers.clone().count() >= 3 && numbers.clone().all(|number| number < 10), "{said}");
}

#[test]
fn a_signal_that_ends_a_command_is_named() {
    let workspace = tempfile::tempdir().unwrap();
    for signal in [1, 6, 9, 15] {
        let outcome = shell(&format!("kill -{signal} $$"), workspace.path());
        assert_eq!((&outcome["signal"], &outcome["exit_code"]), (&json!(signal), &Value::Null));
    }
}

/// A kill of everything in sight ends the command's own processes, and its whole group is no more than those.
#[test]
fn a_command_that_signals_everything_hits_only_itself() {
    if denies_namespaces() {
        return;
    }
    let workspace = tempfile::tempdir().unwrap();
    let outcome = shell("sleep 600 & kill -9 -1; wait; echo alone", workspace.path());
    assert_eq!(outcome["stdout"], "alone\n");
    assert_eq!(shell("kill -9 0", workspace.path())["signal"], 9);
}

#[test]
fn shared_memory_is_the_commands_own_and_other_files_are_not() {
    if denies_namespaces() {
        return;
    }
    let workspace = tempfile::tempdir().unwrap();
    let name = workspace.path().file_name().unwrap().to_str().unwrap().to_owned();
    let outcome = shell(&format!("echo kept > /dev/shm/{name} && ls -A /dev/shm"), workspace.path());
    assert_eq!(outcome["stdout"], format!("{name}\n"));
    assert!(!Path::new("/dev/shm").join(&name).exists());

    let there = tempfile::tempdir_in("/dev/shm").unwrap();
    let outcome = shell("echo kept > file; cat \"$(pwd)/file\"", there.path());
    assert_eq!(outcome["stdout"], "kept\n");
    assert!(there.path().join("file").exists());
}
