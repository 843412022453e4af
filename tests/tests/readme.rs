//! What `README.md` says is so: the tests it names are there, what it shows can be run.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, path::Path, sync::LazyLock};

use deed::operator::OperatorFile;
use deed_tests::page;
use deed_tests::{CallReply, Envelope, Sandbox, Wait, guests, never_asked, project_root};
use serde_json::{Value, json};

static README: LazyLock<String> = LazyLock::new(|| page::read_page("README.md"));

/// The text below a heading, up to the next one.
fn section(heading: &str) -> &'static str {
    page::section(&README, heading)
}

/// The blocks of code in one language, in order.
fn blocks(language: &str) -> Vec<String> {
    blocks_of(&README, language)
}

fn blocks_of(text: &str, language: &str) -> Vec<String> {
    let blocks = page::blocks(text).into_iter().filter(|block| block.language == language);
    blocks.map(|block| block.text).collect()
}

/// What stands in backticks within a line.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// Whether the test `FILE`, one file or a directory of them, has a function whose name begins so.
fn has_test(file: &str, start: &str) -> bool {
    let places =
        ["tests/tests", "journal/tests", "host/tests"].map(|place| project_root().join(place).join(file));
    let sources = places.iter().flat_map(|place| {
        let parts = fs::read_dir(place).into_iter().flatten().map(|entry| entry.unwrap().path());
        parts.chain([place.with_extension("rs")])
    });
    let test = format!("#[test]\nfn {start}");
    sources.into_iter().any(|path| fs::read_to_string(path).is_ok_and(|text| text.contains(&test)))
}

/// `FILE START`, as the section about guarantees names a test.
fn named_test(quoted: &str) -> Option<(&str, &str)> {
    let (file, start) = quoted.split_once(' ')?;
    let is_word = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    (is_word(file) && is_word(start)).then_some((file, start))
}

#[test]
fn every_guarantee_names_a_test_that_is_there() {
    let section = section("Guarantees");
    let mut rows = 0;
    for line in section.lines().filter(|line| line.starts_with("| ")).skip(1) {
        rows += 1;
        for cell in line.trim_matches('|').split('|').skip(1) {
            let proved = quoted(cell).any(|text| named_test(text).is_some());
            assert!(proved || cell.trim() == "not there yet", "no test in the cell `{cell}` of `{line}`");
        }
    }
    assert_eq!(rows, 9, "one for each point, and one for a process that lives");
    for text in quoted(section) {
        if let Some((file, start)) = named_test(text) {
            assert!(has_test(file, start), "`{text}`: there is no such test");
        } else if text.starts_with('b') && text[1..].chars().all(|c| c.is_ascii_digit()) {
            assert!(has_test("sweep", &format!("{text}_")), "`{text}`: the sweep has no such test");
        }
    }
    assert!(!has_test("sweep", "b99"), "the control: a test that is not there is noticed");
}

#[test]
fn every_path_is_there() {
    let ours = ["host/", "journal/", "plugins/", "tests/", "wit/"];
    let is_page = |text: &str| Path::new(text).extension().is_some_and(|extension| extension == "md");
    let is_ours = |text: &&str| ours.iter().any(|start| text.starts_with(start)) || is_page(text);
    for page in [
        "README.md",
        "DECISIONS.md",
        "host/ARCHITECTURE.md",
        "journal/FORMAT.md",
        "plugins/GUIDE.md",
        "wit/REFERENCE.md",
    ] {
        let text = fs::read_to_string(project_root().join(page)).unwrap();
        for path in quoted(&text).filter(is_ours) {
            assert!(project_root().join(path).exists(), "`{path}`, named in `{page}`, is not there");
        }
    }
}

/// Without what a formatter decides.
fn bare(code: &str) -> String {
    code.split_whitespace().collect::<String>().replace(",}", "}")
}

#[test]
fn the_first_plugin_has_ten_lines_builds_and_greets() {
    let [code] = blocks("rust").try_into().unwrap();
    assert_eq!(code.lines().count(), 10);
    let guest = fs::read_to_string(project_root().join("tests/guests/greet/src/lib.rs")).unwrap();
    assert!(bare(&guest).ends_with(&bare(&code)), "`tests/guests/greet` is another plugin");

    let sandbox = Sandbox::bare();
    let tools = sandbox.root().join("tools");
    fs::create_dir(&tools).unwrap();
    fs::write(tools.join("greet.wasm"), guests::GREET).unwrap();
    let with_tools = ["--tools", tools.to_str().unwrap()];
    let greeted = sandbox.call("greet", &json!({ "name": "you" })).args(with_tools).run().expect_code(0);
    assert_eq!(greeted.json::<CallReply>().text(), "Hello, you!");
    let refused = sandbox.call("greet", &json!({ "nam": "you" })).args(with_tools).run().expect_code(2);
    assert!(README.contains(refused.stderr.lines().next().unwrap().split(';').next().unwrap()), "{refused}");
}

#[test]
fn the_policy_and_the_grants_do_what_is_said_of_them() {
    let sandbox = Sandbox::bare();
    let path = sandbox.workspace().join("deed.toml");
    // Every file that is shown reads; the first of this section is tried.
    for file in blocks("toml").into_iter().filter(|block| !block.starts_with("[package]")) {
        fs::write(&path, file).unwrap();
        OperatorFile::read(&path).unwrap();
    }
    let section = section("Policy and grants");
    let [file] = blocks_of(section, "toml").try_into().unwrap();
    fs::write(&path, file).unwrap();
    let shown = section.split_whitespace().collect::<Vec<_>>().join(" ");
    let call = |tool: &str, input: Value| sandbox.call(tool, &input).args(["--format", "text"]).run();
    let typed: Vec<_> = section.lines().filter_map(|line| line.strip_prefix("$ deed call ")).collect();
    assert_eq!(typed.len(), 2);
    for (tool, input) in typed.iter().map(|typed| typed.split_once(' ').unwrap()) {
        let input = serde_json::from_str(input.trim_matches('\'')).unwrap();
        let refused = call(tool, input).expect_code(1);
        // The refusal comes again on a line of its own.
        let told = refused.stderr.lines().find(|line| line.starts_with("error: ")).unwrap();
        let told = told.replace(sandbox.workspace().to_str().unwrap(), "/home/you/project");
        assert!(shown.contains(&told), "{refused}");
    }
    let _ = call("shell", json!({ "command": "make check" })).expect_code(0);
    let _ = call("shell", json!({ "command": "make clean" })).expect_code(4);
}

#[test]
fn the_file_about_servers_grants_those_and_refuses_another_one() {
    let [file] = blocks_of(section("Reaching servers"), "toml").try_into().unwrap();
    let sandbox = Sandbox::bare();
    sandbox.set_operator(&file);
    let section = section("Reaching servers");
    let typed: Vec<_> =
        section.lines().filter_map(|line| line.strip_prefix("$ deed call http_get ")).collect();
    let [input] = typed.try_into().unwrap();
    let input = serde_json::from_str(input.trim_matches('\'')).unwrap();
    let call = sandbox.call("http_get", &input).args(["--format", "text"]).env("EXAMPLE_TOKEN", "secret");
    let refused = call.run().expect_code(1);
    let (_, told) = refused.stderr.split_once("error: ").unwrap();
    assert!(bare(section).contains(&bare(told)), "{refused}");
}

#[test]
fn the_mission_and_the_batch_run() {
    let [mission, batch] = blocks("json").try_into().unwrap();
    let sandbox = Sandbox::with(&serde_json::from_str(&mission).unwrap(), &[("a.txt", "alpha\n")]);
    let first: Envelope = sandbox.run(None).run().expect_code(4).json();
    let approves = |wait: &Wait| match wait.kind.as_str() {
        "approval" => Ok("approve"),
        other => Err(format!("a wait of kind `{other}` was not expected: {wait:?}")),
    };
    for wait in &first.waits {
        sandbox.answer(&wait.wait, approves(wait).unwrap()).unwrap();
    }
    let done: Envelope = sandbox.resume(None).run().expect_code(0).json();
    assert_eq!(done.result.as_deref(), Some("Noted."));
    assert_eq!(sandbox.repository().history().unwrap()[0].subject(), "Add a note");

    let batch: Value = serde_json::from_str(&batch).unwrap();
    let sandbox = Sandbox::with(&batch, &[]);
    let passage = sandbox.run_to_end(None, &never_asked).unwrap();
    assert_eq!(passage.envelope.status, "done");
    assert_eq!(sandbox.files().text("count.txt"), "one\n");
}

#[test]
fn the_crash_test_finds_what_is_shown() {
    let [batch, shown, test] = blocks_of(section("Crash-test your plugin"), "").try_into().unwrap();
    assert!(test.starts_with("#[test]") && test.lines().count() == 4);
    let sandbox = Sandbox::bare();
    fs::write(sandbox.workspace().join("a.txt"), "hello\n").unwrap();
    sandbox.set_mission(&serde_json::from_str(&batch).unwrap());
    sandbox.install("claims", guests::CLAIMS);
    let deed = sandbox.deed(["crash-test", sandbox.mission().to_str().unwrap(), "--format", "text"]);
    let found = deed.args(["--workspace", sandbox.workspace().to_str().unwrap()]).run().expect_code(1);
    let mut lines = shown.lines();
    assert_eq!(lines.next(), Some("$ deed crash-test batch.json --tools tools"));
    // Another place and another machine.
    let is_the_same_here =
        |line: &&str| !["  again:", "  kept:", "23 cases"].iter().any(|it| line.starts_with(it));
    for line in lines.filter(is_the_same_here) {
        assert!(found.stdout.lines().any(|printed| printed == line), "`{line}` in {found}");
    }
}
