//! Projects of plugins, from nothing to a call that is killed and taken on: made by `deed plugin new`, outside of this
//! repository, and built by the ordinary tools of their language.
//!
//! A language whose tools are not installed is left out, which is said (`--nocapture` shows it).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use deed_tests::{Deed, Ending, Envelope, Kill, Outcome, Point, Sandbox};
use serde_json::{Value, json};

/// The step of a call: the policy is the first one.
const CALL: u64 = 2;

/// For whatever compiles.
const PATIENCE: Duration = Duration::from_mins(15);

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
    deed.start().wait_within(PATIENCE).expect_code(0)
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

fn componentize_py() -> bool {
    Command::new("componentize-py").arg("--version").output().is_ok()
}

#[test]
fn a_project_in_python_builds_passes_its_own_test_and_lives_through_a_crash() {
    if !componentize_py() {
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

/// What `deed plugin build` takes for C, in its order; what it is asked, and how an answer begins that says it is there.
const C_COMPILERS: [(&str, &[&str], &str); 3] = [
    ("zig", &["version"], "0."),
    ("python3", &["-m", "ziglang", "version"], "0."),
    ("clang", &["--target=wasm32-wasi", "-print-file-name=crt1-reactor.o"], "/"),
];

/// Whether one of them is installed.
fn c_compiler() -> bool {
    C_COMPILERS.iter().any(|(program, arguments, beginning)| {
        let asked = Command::new(program).args(*arguments).output();
        asked.is_ok_and(|output| output.status.success() && output.stdout.starts_with(beginning.as_bytes()))
    })
}

/// The C library that Zig builds lies in the cache that the tests share, where the next run of the tests finds it again.
#[test]
fn a_project_in_c_builds_passes_its_own_test_and_lives_through_a_crash() {
    if !c_compiler() {
        return left_out("c", "pip install ziglang");
    }
    let sandbox = Sandbox::bare();
    new(&sandbox, "c");
    let component = built(&sandbox);
    lives_through_a_crash(&sandbox, &component);
    let project = component.parent().unwrap();
    let read = |file: &str| fs::read_to_string(project.join(file)).unwrap();
    let own = Command::new("cc")
        .args(read("compile_flags.txt").lines())
        .args(["-Werror", "greeting.c", "greeting_test.c", "-o", "greeting_test"])
        .current_dir(project)
        .output()
        .unwrap();
    assert!(own.status.success(), "{}", String::from_utf8_lossy(&own.stderr));
    assert!(Command::new(project.join("greeting_test")).status().unwrap().success());
    // The same sources are the same bytes: a digest is what a plugin is known by.
    let before = fs::read(&component).unwrap();
    assert_eq!(built(&sandbox), component);
    assert!(fs::read(&component).unwrap() == before, "built again, it is another component");

    // What does not compile, and what does not fit, is told where it is.
    edit(project, "plugin.c", "exports_deed_tool_tools_refine", "exports_deed_tool_tools_refined");
    let refused =
        sandbox.deed(["plugin", "build", "my-greeter"]).start().wait_within(PATIENCE).expect_code(1);
    assert!(refused.stderr.contains("exports_deed_tool_tools_refine"), "{refused}");
    edit(project, "wit/plugin.wit", "deed:tool/tool@", "deed:tool/no-such-world@");
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
    file: &str,
    edits: &[(&str, &str)],
    verdicts: &[(Point, &str)],
) {
    let project = sandbox.home().join("my-greeter");
    let readme = fs::read_to_string(project.join("README.md")).unwrap();
    let (_, shown) = readme.split_once("## A probe").unwrap();
    let (_, code) = shown.split_once("```").unwrap().1.split_once('\n').unwrap();
    let (probe, _) = code.split_once("```").unwrap();
    let tools = fs::read_to_string(project.join(file)).unwrap();
    fs::write(project.join(file), format!("{tools}\n{probe}")).unwrap();
    for (old, new) in edits {
        edit(&project, file, old, new);
    }
    edit(&project, "wit/plugin.wit", "deed:tool/tool@", "deed:tool/tool-with-probe@");
    let component = built(sandbox);
    let component = component.to_str().unwrap();
    let report: Value = patiently(sandbox.deed(["plugin", "check", component])).json();
    assert!(report["findings"].to_string().contains("the tools, and a probe"), "{report}");
    patiently(sandbox.deed(["plugin", "add", component, "--yes"]));

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
    if !c_compiler() {
        return left_out("c", "pip install ziglang");
    }
    let sandbox = Sandbox::bare().uncontained();
    new(&sandbox, "c");
    let declared = "tool->effect = DEED_TOOL_TYPES_EFFECT_CLASS_IDEMPOTENT;";
    let probed = "tool->effect = DEED_TOOL_TYPES_EFFECT_CLASS_NON_IDEMPOTENT;\n    \
                  tool->traits = DEED_TOOL_TYPES_TOOL_TRAITS_PROBES;";
    settles_a_call_by_its_probe(&sandbox, "plugin.c", &[(declared, probed)], &TELLS);
}

#[test]
fn the_probe_in_the_readme_of_a_project_in_python_settles_a_call() {
    if !componentize_py() {
        return left_out("python", "pip install componentize-py");
    }
    let sandbox = Sandbox::bare().uncontained();
    new(&sandbox, "python");
    let edits = [
        ("EffectClass.IDEMPOTENT", "EffectClass.NON_IDEMPOTENT"),
        ("traits=ToolTraits(0)", "traits=ToolTraits.PROBES"),
    ];
    settles_a_call_by_its_probe(&sandbox, "app.py", &edits, &TELLS);
}

/// It knows that the file is not there. Of one that is there it cannot say whose it is, and so the owner is asked.
#[test]
fn the_probe_in_the_readme_of_a_project_in_javascript_settles_a_call() {
    let Some(modules) = std::env::var_os("DEED_NODE_MODULES") else {
        return left_out("js", "npm install");
    };
    let sandbox = Sandbox::bare().uncontained();
    new(&sandbox, "js");
    std::os::unix::fs::symlink(modules, sandbox.home().join("my-greeter/node_modules")).unwrap();
    let edits =
        [("effect: 'idempotent'", "effect: 'non-idempotent'"), ("traits: {}", "traits: { probes: true }")];
    settles_a_call_by_its_probe(&sandbox, "app.js", &edits, &TELLS[..1]);
}

#[test]
fn what_compiles_c_is_told_where_it_is_missing() {
    let sandbox = Sandbox::bare();
    new(&sandbox, "c");
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

/// Replace what stands in a file of a project.
#[track_caller]
fn edit(project: &Path, file: &str, old: &str, new: &str) {
    let path = project.join(file);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(old), "`{file}` has no `{old}`");
    fs::write(path, text.replace(old, new)).unwrap();
}

#[test]
fn what_is_no_project_is_not_built() {
    let sandbox = Sandbox::bare();
    let refused = sandbox.deed(["plugin", "build", sandbox.root().to_str().unwrap()]).run().expect_code(2);
    assert!(refused.stderr.contains("deed plugin new"), "{refused}");
}
