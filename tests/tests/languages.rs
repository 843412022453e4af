//! Components that the toolchains of Python and JavaScript make are held to the class of the tool that is called.
//!
//! Python imports files, sockets and clocks whether a tool uses them or not, and JavaScript all that its project turns on. So
//! nothing is kept from them by leaving it out, and what the host refuses is all there is. A language whose tools are not
//! installed is left out, as in `projects.rs`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;

use deed::plugin::project::Language;
use deed_tests::{Ending, Envelope, Kill, Message, MessageResult, Point, Project, Sandbox, StepRow};
use serde_json::{Value, json};

/// The step of a single call: the policy is the first one.
const CALL: u64 = 2;

/// What a language calls reaching a server, and what the host says of that, before and after it names the tool.
struct Reach {
    action: fn(address: &str) -> String,
    pure: &'static str,
    idempotent: fn(address: &str) -> String,
}

const SOCKETS: &str =
    "gets no sockets, whatever it is granted: servers are reached by HTTP, through the host";

/// Python has sockets.
const PYTHON: Reach = Reach {
    action: |_| "network: to open a socket".to_owned(),
    pure: SOCKETS,
    idempotent: |_| SOCKETS.to_owned(),
};

/// JavaScript has `fetch`.
const JAVASCRIPT: Reach = Reach {
    action: |address| format!("http: to send GET to `http://{address}`"),
    pure: "reaches no network; a tool that does is at least `idempotent`",
    idempotent: |address| {
        let grant = json!({ "tool": "try_idempotent", "hosts": [format!("http://{address}")] });
        format!("is not granted this server; this line, first under `grants`, would allow it: {grant}")
    },
};

/// The component of a project whose tools try what a class may forbid.
fn component(sandbox: &Sandbox, language: Language) -> Option<Vec<u8>> {
    let project = Project::new(sandbox, "tries", language)?;
    let own = |file: &str, text: &str| fs::write(project.directory().join(file), text).unwrap();
    match language {
        // C is held to what Rust is, by the same imports.
        Language::Rust | Language::C => unreachable!("`enforcement.rs` tries all of it in Rust"),
        Language::Python => own("app.py", include_str!("../projects/app.py")),
        Language::JavaScript => {
            own("app.js", include_str!("../projects/app.js"));
            let unused = "['random', 'stdio', 'clocks', 'http', 'fetch-event']";
            project.edit("build.js", unused, "['stdio', 'fetch-event']");
        }
    }
    Some(fs::read(project.build(sandbox)).unwrap())
}

/// A sandbox with the component among its plugins, compiled.
fn with_tries(component: &[u8], calls: &[Value]) -> Sandbox {
    let sandbox = Sandbox::bare();
    sandbox.set_mission(&json!({ "objective": "Try it", "calls": calls }));
    sandbox.install("tries", component);
    let _ = sandbox.deed(["tools"]).run_patiently();
    sandbox
}

fn call(tool: &str, act: &str, address: &str) -> Value {
    json!({ "tool": tool, "input": { "act": act, "address": address } })
}

/// Run its batch to its end: the calls' steps, and their results as the model reads them.
fn calls_of(sandbox: &Sandbox, code: i32) -> Vec<(StepRow, MessageResult)> {
    let ended: Envelope = sandbox.run(None).run().expect_code(code).json();
    let transcript: Vec<Message> = sandbox.deed(["transcript", &ended.run]).run().expect_code(0).json();
    let results = transcript.into_iter().filter_map(|message| message.result);
    let steps = sandbox.steps(&ended.run).into_iter().filter(|step| step.kind == "tool_call");
    steps.zip(results).collect()
}

/// The recorded failure of a step, which changed nothing.
#[track_caller]
fn refusal(step: &StepRow) -> String {
    let error = step.error.as_ref().unwrap_or_else(|| panic!("it was not refused: {step:?}"));
    assert_eq!((&error["kind"], &error["effect"]), (&json!("denied"), &json!("not-applied")), "{error}");
    error["message"].as_str().unwrap().to_owned()
}

/// Two readings of the clock, in nanoseconds, and two of randomness.
#[track_caller]
fn seen(text: &str) -> ([u64; 2], [&str; 2]) {
    let [first, random, second, other] = text.split(' ').collect::<Vec<_>>().try_into().unwrap();
    ([first, second].map(|reading| reading.parse().unwrap()), [random, other])
}

fn is_held_to_its_class(language: Language, reach: &Reach) {
    let project = Sandbox::bare();
    let Some(component) = component(&project, language) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap().to_string();

    let calls = ["write", "reach", "look"].map(|act| call("try_pure", act, &address));
    let sandbox = with_tries(&component, &calls);
    let pure = calls_of(&sandbox, 3);
    let [(write, told), (reached, _), (look, looked)] = pure.try_into().unwrap();
    let message = refusal(&write);
    let rule = json!({ "tool": "try_pure", "decision": "ask", "effect": "non-idempotent" });
    let class = "was refused: `try_pure`, called as `pure`, may change nothing; a tool that does declares `idempotent` or `non-idempotent`";
    let expected = format!("{class}; this rule, first under `policy`, would raise its class and ask: {rule}");
    assert!(message.contains(&expected) && message.contains("files: to "), "{message}");
    assert_eq!((told.ok, told.text.contains(&expected)), (false, true), "{told:?}");
    let held = |tool: &str, class: &str, why: &str| {
        format!("{} was refused: `{tool}`, called as `{class}`, {why}", (reach.action)(&address))
    };
    let (message, expected) = (refusal(&reached), held("try_pure", "pure", reach.pure));
    assert!(message.contains(&expected), "`{expected}` in {message}");
    assert_eq!(sandbox.files().paths(), [""; 0], "nothing was written");

    // It read what was recorded: another journal with the same ids and the same clock has the same to show.
    assert_eq!(look.status, "completed");
    let (clock, random) = seen(&looked.text);
    assert!(clock[0] <= clock[1] && clock[1] - clock[0] < 1_000_000, "a fixed advance: {clock:?}");
    assert_ne!(random[0], random[1]);
    let again = calls_of(&with_tries(&component, &calls), 3);
    assert_eq!(again[2].1.text, looked.text);
    let other = with_tries(&component, &calls).seeded("8");
    assert_ne!(seen(&calls_of(&other, 3)[2].1.text).1, random);

    // The same component, called as a tool of another class.
    let calls = ["write", "reach"].map(|act| call("try_idempotent", act, &address));
    let sandbox = with_tries(&component, &calls);
    let [(write, _), (reached, _)] = calls_of(&sandbox, 3).try_into().unwrap();
    assert_eq!(write.status, "completed");
    assert_eq!(sandbox.files().text("tried.txt"), "tried\n");
    let why = (reach.idempotent)(&address);
    let (message, expected) = (refusal(&reached), held("try_idempotent", "idempotent", &why));
    assert!(message.contains(&expected), "`{expected}` in {message}");
    assert!(listener.accept().is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "nobody came");

    a_second_attempt_sees_what_the_first_one_saw(&component);
}

fn a_second_attempt_sees_what_the_first_one_saw(component: &[u8]) {
    let sandbox = with_tries(component, &[]);
    let note = json!({ "act": "note" });
    let kill = Kill::new(CALL, Point::AfterExec).to_string();
    let killed = sandbox.call("try_idempotent", &note).args(["--kill-at", &kill]).run();
    assert_eq!(killed.ending, Ending::KILLED, "{killed}");
    let resumed: Envelope = sandbox.resume(None).run().expect_code(0).json();
    let made: Vec<_> = sandbox.steps(&resumed.run).into_iter().filter(|step| step.seq == CALL).collect();
    assert_eq!(made[0].attempt, 2);
    let files = sandbox.files();
    let noted: Vec<_> = files.paths().iter().flat_map(|path| files.text(path).lines()).collect();
    assert_eq!(noted.len(), 2, "each attempt left a line: {noted:?}");
    assert_eq!(noted[0], noted[1]);
    // It is the recorded instant, in milliseconds, and none at which the toolchain made the component.
    let recorded = sandbox.deed(["show", &resumed.run, &CALL.to_string()]).run().expect_code(0).stdout;
    let clock_ms = seen(noted[0]).0[0] / 1_000_000;
    assert!(recorded.contains(&clock_ms.to_string()), "`{clock_ms}` is not in {recorded}");
}

#[test]
fn a_tool_in_python_is_held_to_its_class() {
    is_held_to_its_class(Language::Python, &PYTHON);
}

#[test]
fn a_tool_in_javascript_is_held_to_its_class() {
    is_held_to_its_class(Language::JavaScript, &JAVASCRIPT);
}
