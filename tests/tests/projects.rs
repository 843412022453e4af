//! Projects of plugins, from nothing to a call that is killed and taken on: made by `deed plugin new`, outside of this
//! repository, and built by the ordinary tools of their language.
//!
//! A language whose tools are not installed is left out, which is said (`--nocapture` shows it). For JavaScript,
//! `DEED_NODE_MODULES` names a `node_modules` with componentize-js in it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

use deed::plugin::project::Language;
use deed_tests::{Ending, Envelope, Kill, Point, Project, Sandbox, project_target};
use serde_json::{Value, json};

/// The step of a call: the policy is the first one.
const CALL: u64 = 2;

/// What every project here is called.
const NAME: &str = "my-greeter";

/// Check, add, call, kill, resume: whatever it is written in.
fn lives_through_a_crash(sandbox: &Sandbox, component: &Path) {
    let component = component.to_str().unwrap();
    let report: Value = sandbox.deed(["plugin", "check", component]).run_patiently().json();
    let findings = report["findings"].as_array().unwrap();
    assert!(findings.iter().all(|finding| finding["level"] == "ok"), "{report}");
    let _ = sandbox.deed(["plugin", "add", component]).run_patiently();

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

/// Run the project's own tests.
fn passes_its_own_tests(project: &Project, program: &str, args: &[&str]) {
    let mut own = Command::new(program);
    own.args(args).current_dir(project.directory()).env("CARGO_TARGET_DIR", project_target());
    let own = own.output().unwrap();
    let told = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(own.status.success(), "{}{}", told(&own.stdout), told(&own.stderr));
}

#[test]
fn a_project_in_rust_builds_passes_its_own_test_and_lives_through_a_crash() {
    let sandbox = Sandbox::bare();
    let project = Project::new(&sandbox, NAME, Language::Rust).unwrap();
    let component = project.build(&sandbox);
    assert_eq!(component, sandbox.home().join("my-greeter/my-greeter.wasm"));
    lives_through_a_crash(&sandbox, &component);
    // With what the build has compiled already.
    passes_its_own_tests(&project, "cargo", &["test", "--release"]);
    let again = sandbox.deed(["plugin", "new", NAME, "--lang", "rust"]).run().expect_code(2);
    assert!(again.stderr.contains("`my-greeter` is there already"), "{again}");
}

#[test]
fn a_project_in_python_builds_passes_its_own_test_and_lives_through_a_crash() {
    let sandbox = Sandbox::bare();
    let Some(project) = Project::new(&sandbox, NAME, Language::Python) else { return };
    lives_through_a_crash(&sandbox, &project.build(&sandbox));
    passes_its_own_tests(&project, "python3", &["-m", "unittest"]);
}

#[test]
fn a_project_in_javascript_builds_passes_its_own_test_and_lives_through_a_crash() {
    let sandbox = Sandbox::bare();
    let Some(project) = Project::new(&sandbox, NAME, Language::JavaScript) else { return };
    lives_through_a_crash(&sandbox, &project.build(&sandbox));
    passes_its_own_tests(&project, "node", &["--test"]);
}

#[test]
fn what_is_no_project_is_not_built() {
    let sandbox = Sandbox::bare();
    let refused = sandbox.deed(["plugin", "build", sandbox.root().to_str().unwrap()]).run().expect_code(2);
    assert!(refused.stderr.contains("deed plugin new"), "{refused}");
}
