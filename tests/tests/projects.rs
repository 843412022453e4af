//! Projects of plugins, from nothing to a call that is killed and taken on: made by `deed plugin new`, outside of this
//! repository, and built by the ordinary tools of their language.
//!
//! A language whose tools are not installed is left out, which is said (`--nocapture` shows it).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use deed_tests::{Deed, Ending, Envelope, Kill, Outcome, Point, Sandbox};
use serde_json::{Value, json};

/// The step of a call: the policy is the first one.
const CALL: u64 = 2;

/// A tool of the user's, not of the sandbox's.
fn home(variable: &str, place: &str) -> PathBuf {
    std::env::var_os(variable).map_or_else(|| std::env::home_dir().unwrap().join(place), PathBuf::from)
}

/// With what rustup's programs look for, and a target folder that the next run of the tests finds again.
fn with_rust(deed: Deed) -> Deed {
    deed.env("CARGO_HOME", home("CARGO_HOME", ".cargo").to_str().unwrap())
        .env("RUSTUP_HOME", home("RUSTUP_HOME", ".rustup").to_str().unwrap())
        .env("CARGO_TARGET_DIR", target().to_str().unwrap())
}

fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("project-target")
}

/// Check, add, call, kill, resume: whatever it is written in.
fn lives_through_a_crash(sandbox: &Sandbox, component: &Path) {
    let component = component.to_str().unwrap();
    let report: Value = patiently(sandbox.deed(["plugin", "check", component])).json();
    let findings = report["findings"].as_array().unwrap();
    assert!(findings.iter().all(|finding| finding["level"] == "ok"), "{report}");
    patiently(sandbox.deed(["plugin", "add", component]));

    let greet = |name: &str| sandbox.call("my_greeter", &json!({ "name": name }));
    let _ = greet("you").run().expect_code(0);
    assert_eq!(sandbox.files().text("greeting.txt"), "Hello, you!\n");
    for point in [Point::AfterIntent, Point::MidExec, Point::AfterExec, Point::AfterCommit] {
        let name = format!("{point:?}");
        let killed = greet(&name).args(["--kill-at", &Kill::new(CALL, point).to_string()]).run();
        assert_eq!(killed.ending, Ending::KILLED, "{killed}");
        let resumed: Envelope = sandbox.resume(None).run().expect_code(0).json();
        assert_eq!(resumed.status, "done", "{name}");
        assert_eq!(sandbox.files().text("greeting.txt"), format!("Hello, {name}!\n"));
    }
}

/// Run what compiles: an interpreter of 18 MB, or all that an SDK is made of. Half a minute on a machine with nothing else
/// to do.
#[track_caller]
fn patiently(deed: Deed) -> Outcome {
    deed.start().wait_within(Duration::from_mins(15)).expect_code(0)
}

fn new(sandbox: &Sandbox, language: &str) {
    let _ = sandbox.deed(["plugin", "new", "my-greeter", "--lang", language]).run().expect_code(0);
}

/// Say that a language is left out, and see that whoever builds it is told what to install.
#[expect(clippy::print_stdout, reason = "a test that does not run is to be seen")]
fn left_out(language: &str, install: &str) {
    println!("LEFT OUT: the tools for {language} are not installed; {install} installs them");
    let sandbox = Sandbox::bare();
    new(&sandbox, language);
    let missing = sandbox.deed(["plugin", "build", "my-greeter"]).run().expect_code(2);
    assert!(missing.stderr.contains(install), "{missing}");
}

/// Build a project; where its component is.
fn built(sandbox: &Sandbox) -> PathBuf {
    let built: Value = patiently(with_rust(sandbox.deed(["plugin", "build", "my-greeter"]))).json();
    sandbox.home().join(built["component"].as_str().unwrap())
}

#[test]
fn a_project_in_rust_builds_passes_its_own_test_and_lives_through_a_crash() {
    let sandbox = Sandbox::bare();
    new(&sandbox, "rust");
    let component = built(&sandbox);
    assert_eq!(component, sandbox.home().join("my-greeter/my-greeter.wasm"));
    lives_through_a_crash(&sandbox, &component);
    let own = Command::new("cargo")
        // With what the build has compiled already.
        .args(["test", "--release"])
        .current_dir(component.parent().unwrap())
        .env("CARGO_TARGET_DIR", target())
        .output()
        .unwrap();
    assert!(own.status.success(), "{}", String::from_utf8_lossy(&own.stderr));
    let again = sandbox.deed(["plugin", "new", "my-greeter", "--lang", "rust"]).run().expect_code(2);
    assert!(again.stderr.contains("`my-greeter` is there already"), "{again}");
}

#[test]
fn a_project_in_python_builds_passes_its_own_test_and_lives_through_a_crash() {
    if Command::new("componentize-py").arg("--version").output().is_err() {
        return left_out("python", "pip install componentize-py");
    }
    let sandbox = Sandbox::bare();
    new(&sandbox, "python");
    let component = built(&sandbox);
    lives_through_a_crash(&sandbox, &component);
    let own = Command::new("python3")
        .args(["-m", "unittest"])
        .current_dir(component.parent().unwrap())
        .output()
        .unwrap();
    assert!(own.status.success(), "{}", String::from_utf8_lossy(&own.stderr));
}

/// npm installs into each project anew, from the network. So the tests take what is there already: `DEED_NODE_MODULES` names a
/// `node_modules` with componentize-js in it.
#[test]
fn a_project_in_javascript_builds_passes_its_own_test_and_lives_through_a_crash() {
    let Some(modules) = std::env::var_os("DEED_NODE_MODULES") else {
        return left_out("js", "npm install");
    };
    let sandbox = Sandbox::bare();
    new(&sandbox, "js");
    std::os::unix::fs::symlink(modules, sandbox.home().join("my-greeter/node_modules")).unwrap();
    let component = built(&sandbox);
    lives_through_a_crash(&sandbox, &component);
    let own = Command::new("node").arg("--test").current_dir(component.parent().unwrap()).output().unwrap();
    assert!(own.status.success(), "{}", String::from_utf8_lossy(&own.stdout));
}

#[test]
fn what_is_no_project_is_not_built() {
    let sandbox = Sandbox::bare();
    let refused = sandbox.deed(["plugin", "build", sandbox.root().to_str().unwrap()]).run().expect_code(2);
    assert!(refused.stderr.contains("deed plugin new"), "{refused}");
}
