//! Projects of plugins, from nothing to a call that is killed and taken on: made by `deed plugin new`, outside of this
//! repository, and built by the ordinary tools of their language.
//!
//! A language whose tools are not installed is left out, which is said (`--nocapture` shows it). For JavaScript,
//! `DEED_NODE_MODULES` names a `node_modules` with componentize-js in it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use deed::plugin::project::Language;
use deed_tests::{Ending, Envelope, Kill, Point, Project, Sandbox, project_target};
use serde_json::{Value, json};

/// The step of a call: the policy is the first one.
const CALL: u64 = 2;

/// For whatever compiles.
const PATIENCE: Duration = Duration::from_mins(15);

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

/// The C library that Zig builds lies in the cache that the tests share, where the next run of the tests finds it again.
#[test]
fn a_project_in_c_builds_passes_its_own_test_and_lives_through_a_crash() {
    let sandbox = Sandbox::bare();
    let Some(project) = Project::new(&sandbox, NAME, Language::C) else { return };
    let component = project.build(&sandbox);
    lives_through_a_crash(&sandbox, &component);
    let read = |file: &str| fs::read_to_string(project.directory().join(file)).unwrap();
    let own = Command::new("cc")
        .args(read("compile_flags.txt").lines())
        .args(["-Werror", "greeting.c", "greeting_test.c", "-o", "greeting_test"])
        .current_dir(project.directory())
        .output()
        .unwrap();
    assert!(own.status.success(), "{}", String::from_utf8_lossy(&own.stderr));
    assert!(Command::new(project.directory().join("greeting_test")).status().unwrap().success());
    // The same sources are the same bytes: a digest is what a plugin is known by.
    let before = fs::read(&component).unwrap();
    assert_eq!(project.build(&sandbox), component);
    assert!(fs::read(&component).unwrap() == before, "built again, it is another component");

    // What does not compile, and what does not fit, is told where it is.
    project.edit("plugin.c", "exports_deed_tool_tools_refine", "exports_deed_tool_tools_refined");
    let refused =
        sandbox.deed(["plugin", "build", "my-greeter"]).start().wait_within(PATIENCE).expect_code(1);
    assert!(refused.stderr.contains("exports_deed_tool_tools_refine"), "{refused}");
    project.edit("wit/plugin.wit", "deed:tool/tool@", "deed:tool/no-such-world@");
    let refused = sandbox.deed(["plugin", "build", "my-greeter"]).run().expect_code(1);
    assert!(
        refused.stderr.contains("`my-greeter/wit`") && refused.stderr.contains("no-such-world"),
        "{refused}"
    );
    assert!(fs::read(&component).unwrap() == before, "what failed leaves the component as it was");
}

/// What a probe says that can tell.
const TELLS: [(Point, &str); 2] = [(Point::MidExec, "not-landed"), (Point::AfterExec, "landed")];

/// The README of a project shows a probe. With it, a call that must not happen twice is taken on without a question.
///
/// `file` gets the code of the README, and is changed by `edits`, which make a tool that is not idempotent and has the trait.
fn settles_a_call_by_its_probe(
    sandbox: &Sandbox,
    project: &Project,
    file: &str,
    edits: &[(&str, &str)],
    verdicts: &[(Point, &str)],
) {
    let readme = fs::read_to_string(project.directory().join("README.md")).unwrap();
    let (_, shown) = readme.split_once("## A probe").unwrap();
    let (_, code) = shown.split_once("```").unwrap().1.split_once('\n').unwrap();
    let (probe, _) = code.split_once("```").unwrap();
    let path = project.directory().join(file);
    let tools = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{tools}\n{probe}")).unwrap();
    for (old, new) in edits {
        project.edit(file, old, new);
    }
    project.edit("wit/plugin.wit", "deed:tool/tool@", "deed:tool/tool-with-probe@");
    let component = project.build(sandbox);
    let component = component.to_str().unwrap();
    let report: Value = sandbox.deed(["plugin", "check", component]).run_patiently().json();
    assert!(report["findings"].to_string().contains("the tools, and a probe"), "{report}");
    let _ = sandbox.deed(["plugin", "add", component, "--yes"]).run_patiently();

    for (point, verdict) in verdicts {
        let name = format!("{point:?}");
        let call = sandbox.call("my_greeter", &json!({ "name": name }));
        let killed = call.args(["--kill-at", &Kill::new(CALL, *point).to_string()]).run();
        assert_eq!(killed.ending, Ending::KILLED, "{killed}");
        let resumed: Envelope = sandbox.resume(None).run().expect_code(0).json();
        assert_eq!(resumed.status, "done", "{name}");
        assert_eq!(sandbox.files().text("greeting.txt"), format!("Hello, {name}!\n"));
        let step: Value = sandbox.deed(["show", &resumed.run, &CALL.to_string()]).run().expect_code(0).json();
        let events = step["events"].as_array().unwrap().iter();
        let given: Vec<_> =
            events.filter(|event| event["event"] == "probed").map(|event| &event["verdict"]).collect();
        assert_eq!(given, [verdict], "{step}");
    }
}

#[test]
fn the_probe_in_the_readme_of_a_project_in_c_settles_a_call() {
    let sandbox = Sandbox::bare().uncontained();
    let Some(project) = Project::new(&sandbox, NAME, Language::C) else { return };
    let declared = "tool->effect = DEED_TOOL_TYPES_EFFECT_CLASS_IDEMPOTENT;";
    let probed = "tool->effect = DEED_TOOL_TYPES_EFFECT_CLASS_NON_IDEMPOTENT;\n    \
                  tool->traits = DEED_TOOL_TYPES_TOOL_TRAITS_PROBES;";
    settles_a_call_by_its_probe(&sandbox, &project, "plugin.c", &[(declared, probed)], &TELLS);
}

#[test]
fn the_probe_in_the_readme_of_a_project_in_python_settles_a_call() {
    let sandbox = Sandbox::bare().uncontained();
    let Some(project) = Project::new(&sandbox, NAME, Language::Python) else { return };
    let edits = [
        ("EffectClass.IDEMPOTENT", "EffectClass.NON_IDEMPOTENT"),
        ("traits=ToolTraits(0)", "traits=ToolTraits.PROBES"),
    ];
    settles_a_call_by_its_probe(&sandbox, &project, "app.py", &edits, &TELLS);
}

/// It knows that the file is not there. Of one that is there it cannot say whose it is, and so the owner is asked.
#[test]
fn the_probe_in_the_readme_of_a_project_in_javascript_settles_a_call() {
    let sandbox = Sandbox::bare().uncontained();
    let Some(project) = Project::new(&sandbox, NAME, Language::JavaScript) else { return };
    let edits =
        [("effect: 'idempotent'", "effect: 'non-idempotent'"), ("traits: {}", "traits: { probes: true }")];
    settles_a_call_by_its_probe(&sandbox, &project, "app.js", &edits, &TELLS[..1]);
}

#[test]
fn what_compiles_c_is_told_where_it_is_missing() {
    let sandbox = Sandbox::bare();
    let _ = sandbox.deed(["plugin", "new", NAME, "--lang", "c"]).run().expect_code(0);
    let build = || sandbox.deed(["plugin", "build", "my-greeter"]);
    let nothing = sandbox.home().join("nothing");
    for (variable, value, told) in [
        ("PATH", nothing.to_str().unwrap(), "`zig` is not installed: `pip install ziglang`"),
        ("WASI_SDK_PATH", "no-such-sdk", "`no-such-sdk/bin/clang` is not installed: `WASI_SDK_PATH`"),
    ] {
        let missing = build().env(variable, value).run().expect_code(2);
        assert!(missing.stderr.contains(told), "{missing}");
        assert!(!sandbox.home().join("my-greeter/gen").exists(), "with code 2, nothing was written");
    }
}

#[test]
fn what_is_no_project_is_not_built() {
    let sandbox = Sandbox::bare();
    let refused = sandbox.deed(["plugin", "build", sandbox.root().to_str().unwrap()]).run().expect_code(2);
    assert!(refused.stderr.contains("deed plugin new"), "{refused}");
}
