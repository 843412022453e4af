//! A component whose author knew nothing of deed, from its inspection to a call of it that is killed: each of its plain
//! functions is a tool.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use deed_tests::guests::{FOREIGN, FOREIGN_WIT, GREET};
use deed_tests::{CallReply, Deed, Ending, Envelope, Kill, Outcome, Point, Sandbox};
use serde_json::{Value, json};

/// The step of a call: the policy is the first one.
const CALL: u64 = 2;

/// The import that nobody offers.
const RATES: &str = "local:calculator/rates@1.2.0";

struct Foreign {
    sandbox: Sandbox,
    component: PathBuf,
    wit: PathBuf,
}

impl Foreign {
    fn new() -> Self {
        let sandbox = Sandbox::bare();
        let made = sandbox.root().join("made");
        fs::create_dir(&made).unwrap();
        let (component, wit) = (made.join("calc.wasm"), made.join("calculator.wit"));
        fs::write(&component, FOREIGN).unwrap();
        fs::write(&wit, FOREIGN_WIT).unwrap();
        Self { sandbox, component, wit }
    }

    /// Installed with a stub, described by its WIT, and with these classes.
    fn installed(effects: &[&str]) -> Self {
        let foreign = Self::new();
        let wit = foreign.wit.to_str().unwrap().to_owned();
        let effects = effects.iter().flat_map(|effect| ["--effect", effect]);
        let _ =
            foreign.plugin("add").args(["--stub-missing", "--wit", &wit]).args(effects).run().expect_code(0);
        foreign
    }

    fn plugin(&self, command: &str) -> Deed {
        self.sandbox.deed(["plugin", command, self.component.to_str().unwrap()])
    }

    fn call(&self, tool: &str, input: &Value) -> Outcome {
        self.sandbox.call(tool, input).run()
    }

    #[track_caller]
    fn gives(&self, tool: &str, input: &Value, text: &str) {
        let called = self.call(tool, input).expect_code(0);
        assert_eq!(called.json::<CallReply>().text(), text, "{called}");
    }

    #[track_caller]
    fn fails(&self, tool: &str, input: &Value, with: &str) {
        let called = self.call(tool, input).expect_code(1);
        let reply: Value = called.json();
        assert!(reply["error"]["message"].as_str().unwrap().contains(with), "{called}");
    }

    /// Before it runs, with the place, what was expected, and what came.
    #[track_caller]
    fn refuses(&self, tool: &str, input: &Value, with: &str) {
        let called = self.call(tool, input).expect_code(2);
        assert!(called.stderr.contains(with), "{called}");
    }

    fn tool(&self, name: &str) -> Value {
        let listed: Value = self.sandbox.deed(["tools"]).run().expect_code(0).json();
        listed.as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap().clone()
    }

    fn operator(&self) -> String {
        fs::read_to_string(self.sandbox.config().join("deed.toml")).unwrap()
    }

    fn notes(&self) -> String {
        fs::read_to_string(self.sandbox.workspace().join("notes.txt")).unwrap_or_default()
    }
}

#[test]
fn its_functions_are_shown_as_tools_with_their_types_their_words_and_what_is_missing() {
    let foreign = Foreign::new();
    let seen: Value = foreign.plugin("inspect").run().expect_code(0).json();
    let tools: Vec<_> = seen["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    let names = ["version", "ops-add", "ops-mean", "ops-product", "ops-note", "ops-convert", "ops-give-up"];
    for name in names {
        assert!(tools.contains(&json!(name)), "{name}: {tools:?}");
    }
    assert_eq!(tools.len(), names.len(), "{tools:?}");
    assert!(seen["refused"].as_str().unwrap().contains(RATES), "{seen}");
    let unfit = seen["unfit_functions"].as_array().unwrap();
    assert_eq!(unfit.len(), 2, "the constructor and the method: {unfit:?}");
    assert!(unfit[0]["reason"].as_str().unwrap().contains("resource"), "{unfit:?}");

    let wit = foreign.wit.to_str().unwrap();
    let text = foreign.plugin("inspect").args(["--wit", wit, "--format", "text"]).run().expect_code(0);
    for shown in
        ["Write a line at the end of `notes.txt`.", "--stub-missing", "no tool: `local:calculator/ops@1.2.0#"]
    {
        assert!(text.stdout.contains(shown), "{shown}: {text}");
    }
    let checked: Value = foreign.plugin("check").run().expect_code(1).json();
    assert!(checked["findings"].to_string().contains(RATES), "{checked}");
}

#[test]
fn it_is_refused_by_its_missing_import_until_that_is_a_stub_and_then_each_function_is_called() {
    let foreign = Foreign::new();
    let refused = foreign.plugin("add").run().expect_code(1);
    assert!(refused.stderr.contains(RATES), "{refused}");
    let wrong = foreign.plugin("add").args(["--stub", "local:other/rates"]).run().expect_code(1);
    assert!(wrong.stderr.contains("`local:other/rates`") && wrong.stderr.contains(RATES), "{wrong}");
    let added = foreign.plugin("add").args(["--stub", RATES, "--format", "text"]).run().expect_code(0);
    assert!(added.stderr.contains("--effect") && added.stderr.contains("resource"), "{added}");

    foreign.gives("version", &json!({}), "1.2.0");
    foreign.gives("ops-add", &json!({ "x": 2, "y": 40 }), "42");
    foreign.fails("ops-add", &json!({ "x": u32::MAX, "y": 1 }), "4294967295 + 1 is too large");
    let samples = json!([
        { "place": "north", "value": 1.5, "weight": 3 },
        { "place": "south", "value": 5.5, "weight": null },
        { "place": "west", "value": 0.5 },
    ]);
    foreign.gives("ops-mean", &json!({ "samples": samples, "rounding": "up" }), "3.0");
    foreign.gives("ops-mean", &json!({ "samples": [], "rounding": "down" }), "null");
    foreign.gives("ops-product", &json!({ "factors": ["4294967296", "2147483648"] }), "9223372036854775808");
    foreign.fails("ops-give-up", &json!({ "why": "the sky fell" }), "the sky fell");
    foreign.fails("ops-convert", &json!({ "amount": 1, "currency": "EUR" }), &format!("{RATES}#rate"));
    foreign.refuses("ops-add", &json!({ "x": -1, "y": 1 }), "at `/x`: -1 is less than the minimum of 0");
    foreign.refuses("ops-mean", &json!({ "samples": samples, "rounding": "sideways" }), "\"down\" or \"up\"");
    // A number of as many digits, and too large all the same: no schema tells those apart.
    foreign.fails(
        "ops-product",
        &json!({ "factors": ["99999999999999999999"] }),
        "at `/factors/0`: expected",
    );
}

#[test]
fn its_classes_are_what_the_operator_says_and_are_enforced() {
    let foreign = Foreign::installed(&["ops-add=pure", "ops-note=pure"]);
    let (add, product) = (foreign.tool("ops-add"), foreign.tool("ops-product"));
    assert_eq!((&add["effect"], &product["effect"]), (&json!("pure"), &json!("non-idempotent")));
    assert!(add["description"].as_str().unwrap().starts_with("Add two numbers. Fails when"), "{add}");
    let mean = foreign.tool("ops-mean");
    let field = |pointer: &str| mean["input_schema"].pointer(pointer).cloned().unwrap_or_default();
    assert_eq!(field("/properties/samples/items/properties/place/description"), "Where it was measured.");
    assert_eq!(field("/properties/samples/items/required"), json!(["place", "value"]));
    assert_eq!(
        field("/properties/rounding/oneOf/0"),
        json!({ "const": "down", "description": "Towards zero." })
    );

    foreign.fails("ops-note", &json!({ "line": "a" }), "pure");
    assert_eq!(foreign.notes(), "", "a pure call writes nothing");
    let by_hand = foreign.operator().replace("ops-note = \"pure\"", "ops-note = \"idempotent\"");
    fs::write(foreign.sandbox.config().join("deed.toml"), &by_hand).unwrap();
    foreign.gives("ops-note", &json!({ "line": "a" }), "done");
    assert_eq!(foreign.notes(), "a\n");

    // A name that is none would leave a tool in another class than somebody believes.
    fs::write(foreign.sandbox.config().join("deed.toml"), by_hand.replace("ops-note", "ops-notes")).unwrap();
    let refused = foreign.sandbox.deed(["tools"]).run().expect_code(0);
    assert!(
        refused.stderr.contains("`ops-notes`") && refused.stderr.contains("expected one of"),
        "{refused}"
    );
    // And one that speaks for itself is not overruled.
    let greet = foreign.sandbox.root().join("made/greet.wasm");
    fs::write(&greet, GREET).unwrap();
    fs::write(foreign.sandbox.config().join("deed.toml"), &by_hand).unwrap();
    let add = foreign.sandbox.deed(["plugin", "add", greet.to_str().unwrap(), "--effect", "greet=pure"]);
    assert!(add.run().expect_code(1).stderr.contains("describes its tools itself"));
}

#[test]
fn a_call_that_is_killed_takes_effect_once_also_when_its_plugin_is_gone_by_then() {
    let foreign = Foreign::installed(&[]);
    for (number, point) in
        [Point::AfterIntent, Point::MidExec, Point::AfterExec, Point::AfterCommit].iter().enumerate()
    {
        let kill = Kill::new(CALL, *point).to_string();
        let line = json!({ "line": format!("note {number}") });
        let killed = foreign.sandbox.call("ops-note", &line).args(["--kill-at", &kill]).run();
        assert_eq!(killed.ending, Ending::KILLED, "{killed}");
        if *point == Point::AfterExec {
            // What runs again is the component that ran, with the stub that somebody agreed to.
            let _ = foreign.sandbox.deed(["plugin", "remove", "calc"]).run().expect_code(0);
        }
        let resumed: Envelope = foreign.sandbox.resume(None).run().expect_code(0).json();
        assert_eq!(resumed.status, "done", "{point:?}");
        if *point == Point::AfterExec {
            let _ = foreign.plugin("add").args(["--stub-missing"]).run().expect_code(0);
        }
    }
    assert_eq!(foreign.notes(), "note 0\nnote 1\nnote 2\nnote 3\n");
}

#[test]
fn an_update_keeps_what_was_said_as_far_as_it_fits() {
    let foreign = Foreign::installed(&["idempotent", "ops-add=pure"]);
    let before = foreign.operator();
    // Another version of it: a custom section more.
    let mut next = FOREIGN.to_vec();
    next.extend_from_slice(b"\0\x06\x01vnext");
    fs::write(&foreign.component, &next).unwrap();
    let updated: Value = foreign.plugin("add").run().expect_code(0).json();
    assert_eq!(updated[0]["status"], "updated", "{updated}");
    let digest = |component: &[u8]| blake3::hash(component).to_hex().to_string();
    assert_eq!(foreign.operator(), before.replace(&digest(FOREIGN), &digest(&next)));
    let note = foreign.tool("ops-note");
    assert_eq!(note["effect"], "idempotent", "all that are not named");
    assert!(note["description"].as_str().unwrap().starts_with("Write a line"), "{note}");

    // One that is a plugin by itself has no use for any of it.
    fs::write(&foreign.component, GREET).unwrap();
    let _ = foreign.plugin("add").args(["--yes"]).run().expect_code(0);
    assert!(
        !foreign.operator().contains("effects") && !foreign.operator().contains("stubs"),
        "{}",
        foreign.operator()
    );
}

#[test]
fn a_wit_of_something_else_is_refused() {
    let foreign = Foreign::new();
    let wit = |text: &str| {
        fs::write(&foreign.wit, text).unwrap();
        let wit = foreign.wit.to_str().unwrap();
        foreign.plugin("add").args(["--stub-missing", "--wit", wit]).run().expect_code(1)
    };
    let other = wit("package local:other; world other { export add: func(x: u32) -> u32; }");
    assert!(other.stderr.contains("describes none of the functions of `calc`"), "{other}");
    let broken = wit("package local:calculator;\ninterface ops {\n  add: fun()\n}\n");
    assert!(broken.stderr.contains("calculator.wit:3"), "{broken}");
    let older = FOREIGN_WIT.replace("add: func(x: u32, y: u32)", "add: func(x: u32, y: s32)");
    fs::write(&foreign.wit, older).unwrap();
    let wit = foreign.wit.to_str().unwrap();
    let warned = foreign.plugin("add").args(["--stub-missing", "--wit", wit]).run().expect_code(0);
    assert!(warned.stderr.contains("local:calculator/ops@1.2.0#add"), "{warned}");
    let said = |tool| foreign.tool(tool)["description"].as_str().unwrap().to_owned();
    assert!(
        said("ops-add").starts_with("The function `add: func(x: u32, y: u32)"),
        "words of another function"
    );
    assert!(said("ops-note").starts_with("Write a line"), "the others keep theirs");
}

/// A component that nobody here wrote: the one in the wheel `arcjet` of the Python package index. `make third-party` runs this;
/// it needs the network, and Python with pip.
#[test]
#[ignore = "downloads a wheel"]
fn the_component_of_a_third_party_is_inspected_and_its_functions_are_called() {
    const WHEEL: &str = "arcjet==1.4.0";
    const COMPONENT: &str = "arcjet/_analyze/wasm/arcjet_analyze_js_req.component.wasm";
    let sandbox = Sandbox::bare();
    let python = |arguments: &[&str]| {
        let status = Command::new("python3").args(arguments).current_dir(sandbox.root()).status().unwrap();
        assert!(status.success(), "python3 {arguments:?}: {status}");
    };
    python(&["-m", "pip", "download", "--quiet", "--no-deps", WHEEL]);
    let mut downloaded = fs::read_dir(sandbox.root()).unwrap().map(|entry| entry.unwrap().path());
    let wheel = downloaded.find(|path| path.extension().is_some_and(|ending| ending == "whl")).unwrap();
    python(&["-m", "zipfile", "-e", wheel.to_str().unwrap(), "wheel"]);
    let component = sandbox.root().join("wheel").join(COMPONENT);
    let plugin = |command: &str| sandbox.deed(["plugin", command, component.to_str().unwrap()]);

    let seen: Value = plugin("inspect").run().expect_code(0).json();
    let missing: Vec<_> =
        seen["imports"].as_array().unwrap().iter().map(|import| import["name"].as_str().unwrap()).collect();
    assert_eq!((missing.len(), seen["tools"].as_array().unwrap().len()), (5, 6), "{seen}");
    let refused = plugin("add").args(["--name", "arcjet"]).run().expect_code(1);
    for import in missing {
        assert!(refused.stderr.contains(import), "{import}: {refused}");
    }
    let _ =
        plugin("add").args(["--name", "arcjet", "--stub-missing", "--effect", "pure"]).run().expect_code(0);

    let call = |tool: &str, input: &Value| sandbox.call(tool, input).run();
    let request = json!({ "ip": "203.0.113.9" }).to_string();
    let print = call("generate-fingerprint", &json!({ "request": request, "characteristics": [] }));
    assert!(print.expect_code(0).json::<CallReply>().text().starts_with("fp::2::"));
    let entities = json!({ "deny": ["email", "phone-number"] });
    let content = "mail me at a@b.com or call 555-123-4567";
    let found = call(
        "detect-sensitive-info",
        &json!({ "content": content, "options": { "entities": entities, "skip-custom-detect": true } }),
    );
    let found: Value = found.expect_code(0).json();
    let kinds = found["output"]["structured"]["result"]["denied"].as_array().unwrap().clone();
    let kinds: Vec<_> = kinds.iter().map(|found| found["identified-type"].clone()).collect();
    assert_eq!(kinds, ["email", "phone-number"], "{found}");
    let filter = json!({
        "request": json!({ "ip": "1.2.3.4", "method": "GET", "host": "a", "path": "/", "headers": {} }).to_string(),
        "local-fields": "{}",
        "expressions": ["http.request.method eq \"GET\""],
        "allow-if-match": true,
    });
    let stub = call("match-filters", &filter).expect_code(1);
    assert!(stub.stdout.contains("`arcjet:js-req/filter-overrides#ip-lookup`, which is a stub"), "{stub}");
}
