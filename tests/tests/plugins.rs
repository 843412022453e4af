//! Plugins from a directory, some of them unusable.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, path::PathBuf};

use deed_tests::{CallReply, Envelope, Message, Sandbox, ToolRow};
use serde_json::json;

/// What the second of the two needs and no host has.
const MISSING: &str = "acme:weather/forecast@1.2.0";

/// A directory with a file that is no component, and a component whose import is missing.
fn unusable_plugins(sandbox: &Sandbox) -> PathBuf {
    let dir = sandbox.root().join("tools");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("garbage.wasm"), b"this is no component\n").unwrap();
    let component =
        format!(r#"(component (import "{MISSING}" (instance (export "tomorrow" (func (result string))))))"#);
    fs::write(dir.join("weather.wasm"), wat::parse_str(component).unwrap()).unwrap();
    dir
}

#[test]
fn c14_unusable_components_are_refused_by_name_and_the_others_work() {
    let sandbox = Sandbox::bare();
    fs::write(sandbox.workspace().join("a.txt"), "alpha\n").unwrap();
    let dir = unusable_plugins(&sandbox);
    let with_tools = ["--tools", dir.to_str().unwrap()];

    let listed = sandbox.deed(["tools"]).args(with_tools).run().expect_code(0);
    let tools: Vec<ToolRow> = listed.json();
    assert!(tools.iter().any(|tool| tool.name == "read_file" && tool.plugin == "fs"), "{listed}");
    assert!(tools.iter().all(|tool| tool.plugin != "garbage" && tool.plugin != "weather"), "{listed}");
    assert!(listed.stderr.contains("`garbage`"), "{listed}");
    assert!(listed.stderr.contains("`weather`") && listed.stderr.contains(MISSING), "{listed}");

    let read = sandbox.call("read_file", &json!({ "path": "a.txt" })).args(with_tools).run().expect_code(0);
    assert_eq!(read.json::<CallReply>().text().trim_end(), "alpha");
}

#[test]
fn c14_a_batch_runs_beside_an_unusable_component() {
    let batch = json!({
        "objective": "Copy by hand",
        "tools": ["fs"],
        "calls": [
            { "tool": "read_file", "input": { "path": "a.txt" } },
            { "tool": "write_file", "input": { "path": "b.txt", "content": "alpha\n" } } ]
    });
    let sandbox = Sandbox::with(&batch, &[("a.txt", "alpha\n")]);
    let dir = unusable_plugins(&sandbox);
    let done: Envelope =
        sandbox.run(None).args(["--tools", dir.to_str().unwrap()]).run().expect_code(0).json();
    assert_eq!(done.status, "done");
    assert_eq!(sandbox.files().text("b.txt"), "alpha\n");
}

#[test]
fn c14_a_call_of_an_unusable_component_fails_with_the_reason_and_the_others_work() {
    let batch = json!({
        "objective": "Take an umbrella?",
        "tools": ["fs", "weather"],
        "calls": [
            { "tool": "forecast", "input": { "town": "Oslo" } },
            { "tool": "read_file", "input": { "path": "a.txt" } } ]
    });
    let sandbox = Sandbox::with(&batch, &[("a.txt", "alpha\n")]);
    let dir = unusable_plugins(&sandbox);
    let partial: Envelope =
        sandbox.run(None).args(["--tools", dir.to_str().unwrap()]).run().expect_code(3).json();
    let transcript: Vec<Message> = sandbox.deed(["transcript", &partial.run]).run().expect_code(0).json();
    let results: Vec<_> = transcript.into_iter().filter_map(|message| message.result).collect();
    let [forecast, read] = &results[..] else { panic!("two results: {results:?}") };
    assert!(!forecast.ok, "{forecast:?}");
    for named in ["`forecast`", "`weather`", MISSING] {
        assert!(forecast.text.contains(named), "{named}: {}", forecast.text);
    }
    assert!(read.ok && read.text.contains("alpha"), "{read:?}");
}
