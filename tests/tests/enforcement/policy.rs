//! Rules, wherever they are written: in the mission, in the workspace's `deed.toml`, in the user's.

use std::fs;
use std::path::PathBuf;

use deed_tests::{Ending, Envelope, Kill, Point, Sandbox, StepRow};
use serde_json::{Value, json};

use super::system::{FIRST, batch, call, calls_of, message, resume, run, sandbox, with_tools};

fn write(path: &str) -> Value {
    call("write_file", &json!({ "path": path, "content": "beta\n" }))
}

fn with_policy(calls: &[Value], policy: Value) -> Value {
    let mut batch = batch(calls, &json!([]));
    batch["policy"] = policy;
    batch
}

fn workspace_file(sandbox: &Sandbox) -> PathBuf {
    sandbox.workspace().join("deed.toml")
}

fn user_file(sandbox: &Sandbox) -> PathBuf {
    let directory = sandbox.home().join("config/deed");
    fs::create_dir_all(&directory).unwrap();
    directory.join("deed.toml")
}

fn statuses(steps: &[StepRow]) -> Vec<&str> {
    steps.iter().map(|step| step.status.as_str()).collect()
}

#[test]
fn a_pattern_denies_what_it_matches_by_whatever_way() {
    let policy = json!([
        { "tool": "*", "glob": { "path": "private/**" }, "decision": "deny" },
        { "tool": "write_file", "glob": { "path": "**/*.md" }, "decision": "deny" },
    ]);
    let calls =
        ["private/key", "src/../private/key", "./private//key", "notes.md", "src/notes.md", "src/main.rs"];
    let sandbox = sandbox(&with_policy(&calls.map(write), policy));
    let (_, steps) = calls_of(&sandbox, 3);
    assert_eq!(statuses(&steps), ["failed", "failed", "failed", "failed", "failed", "completed"]);
    let message = message(&steps[1], "denied");
    assert_eq!(
        message,
        r#"the policy denies this call of `write_file` (idempotent): {"tool":"*","glob":{"path":"private/**"},"decision":"deny"} (mission)"#
    );
    assert_eq!(sandbox.files().paths(), ["a.txt", "src/main.rs"]);
}

#[test]
fn a_rule_raises_a_class_and_never_lowers_one() {
    let policy = json!([
        { "tool": "write_file", "args": { "path": "b.txt" }, "decision": "allow", "effect": "non-idempotent" },
        { "tool": "shell", "decision": "allow", "effect": "pure" },
        { "tool": "read_file", "decision": "allow", "effect": "idempotent" },
    ]);
    let calls = [
        write("b.txt"),
        write("c.txt"),
        call("shell", &json!({ "command": "true" })),
        call("read_file", &json!({ "path": "a.txt" })),
    ];
    let sandbox = sandbox(&with_policy(&calls, policy));
    let (_, steps) = calls_of(&sandbox, 0);
    let classes: Vec<_> = steps.iter().map(|step| step.effect.as_deref().unwrap()).collect();
    assert_eq!(classes, ["non-idempotent", "idempotent", "non-idempotent", "idempotent"]);
}

#[test]
fn the_first_rule_wins_over_mission_workspace_and_user() {
    let policy = json!([{ "tool": "write_file", "args": { "path": "mission" }, "decision": "allow" }]);
    let calls = ["mission", "workspace", "denied", "user"].map(write);
    let sandbox = sandbox(&with_policy(&calls, policy));
    let (ours, users) = (workspace_file(&sandbox), user_file(&sandbox));
    let rules = |rules: &[(&str, &str)]| {
        let rule = |(path, decision): &(&str, &str)| {
            format!(
                "[[policy]]\ntool = \"write_file\"\nargs = {{ path = \"{path}\" }}\ndecision = \"{decision}\"\n"
            )
        };
        rules.iter().map(rule).collect::<String>()
    };
    let all = "[[policy]]\ntool = \"write_file\"\ndecision = \"deny\"\n";
    fs::write(&ours, rules(&[("mission", "deny"), ("workspace", "allow"), ("denied", "deny")])).unwrap();
    fs::write(&users, rules(&[("denied", "allow")]) + all).unwrap();

    let (_, steps) = calls_of(&sandbox, 3);
    assert_eq!(statuses(&steps), ["completed", "completed", "failed", "failed"]);
    for (step, rule, file) in [
        (&steps[2], r#"{"tool":"write_file","args":{"path":"denied"},"decision":"deny"}"#, &ours),
        (&steps[3], r#"{"tool":"write_file","decision":"deny"}"#, &users),
    ] {
        let message = message(step, "denied");
        assert!(message.ends_with(&format!(": {rule} ({})", file.display())), "{message}");
    }
}

#[test]
fn grants_of_the_files_count_after_those_of_the_mission() {
    let input = json!({ "act": "run", "path": "true", "insist": true });
    let calls = [
        call("try_idempotent", &input),
        call("try_non_idempotent", &input),
        call("shell", &json!({ "command": "true" })),
    ];
    let grants = json!([{ "tool": "try_idempotent", "commands": ["true"] }]);
    let sandbox = sandbox(&batch(&calls, &grants));
    fs::write(workspace_file(&sandbox), "[[grants]]\ntool = \"try_non_idempotent\"\ncommands = [\"true\"]\n")
        .unwrap();
    fs::write(user_file(&sandbox), "[[grants]]\ntool = \"*\"\ncommands = []\n").unwrap();
    let (_, steps) = calls_of(&sandbox, 3);
    assert_eq!(statuses(&steps), ["completed", "completed", "failed"]);
}

#[test]
fn a_file_that_cannot_be_used_ends_with_2_and_names_its_place() {
    let sandbox = sandbox(&batch(&[write("b.txt")], &json!([])));
    let (ours, users) = (workspace_file(&sandbox), user_file(&sandbox));
    let bad = "[[policy]]\ntool = \"shell\"\ndecision = \"maybe\"\n";
    for (file, text, named) in [
        (&ours, bad, vec!["line 3", "maybe"]),
        (&users, bad, vec!["line 3", "maybe"]),
        (&ours, "answer_within_ms = \n", vec!["line 1"]),
        (&ours, "[[grants]]\ntool = \"*\"\nfile = \"none\"\n", vec!["line 3", "file"]),
        (&ours, "[credentials.hub]\norigins = [\"https://a.test\"]\nenv = \"HUB\"\n", vec!["credentials"]),
    ] {
        fs::write(file, text).unwrap();
        let place = file.display().to_string();
        let called = sandbox.call("read_file", &json!({ "path": "a.txt" }));
        for refused in [run(&sandbox), called].map(|deed| deed.run().expect_code(2)) {
            for named in named.iter().chain(&["error: ", &place]) {
                assert!(refused.stderr.contains(named), "`{named}` is not named: {refused}");
            }
        }
        fs::remove_file(file).unwrap();
    }
    // What a tool could change is no word of the operator's.
    fs::write(sandbox.workspace().join("policy.toml"), "").unwrap();
    std::os::unix::fs::symlink("policy.toml", &ours).unwrap();
    let refused = run(&sandbox).run().expect_code(2);
    assert!(refused.stderr.contains("symbolic link to `policy.toml`"), "{refused}");
    assert_eq!(sandbox.files().paths(), ["a.txt", "deed.toml", "policy.toml"], "nothing ran");
    // The story: the run was created before the file was read, and held the workspace from then on.
    fs::remove_file(&ours).unwrap();
    let _ = run(&sandbox).run().expect_code(0);
}

/// A run that was begun waits for the file to be put right.
#[test]
fn a_file_that_went_bad_stops_a_resume_and_loses_nothing() {
    let sandbox = sandbox(&batch(&[write("b.txt"), write("c.txt")], &json!([])));
    let killed = with_tools(&sandbox, sandbox.run(Some(Kill::new(FIRST, Point::AfterExec)))).run();
    assert_eq!(killed.ending, Ending::KILLED, "{killed}");
    fs::write(workspace_file(&sandbox), "[[policy]]\n").unwrap();
    let refused = resume(&sandbox).run().expect_code(2);
    assert!(refused.stderr.contains("deed.toml"), "{refused}");
    fs::remove_file(workspace_file(&sandbox)).unwrap();
    let done: Envelope = resume(&sandbox).run().expect_code(0).json();
    assert_eq!(statuses(&sandbox.steps(&done.run)[3..]), ["completed", "completed"]);
}

/// The operator tightens the policy between a crash and the resume. What had started is settled as it was planned; what
/// had not is held to today's rules.
#[test]
fn a_policy_that_became_stricter_holds_for_what_has_not_started() {
    let calls = ["b.txt", "c.txt", "d.txt"].map(write);
    let sandbox = sandbox(&batch(&calls, &json!([])));
    let killed = with_tools(&sandbox, sandbox.run(Some(Kill::new(FIRST + 1, Point::MidExec)))).run();
    assert_eq!(killed.ending, Ending::KILLED, "{killed}");
    let file = workspace_file(&sandbox);
    fs::write(&file, "[[policy]]\ntool = \"write_file\"\ndecision = \"deny\"\n").unwrap();

    let partial: Envelope = resume(&sandbox).run().expect_code(3).json();
    let steps = sandbox.steps(&partial.run);
    let calls: Vec<_> = steps.into_iter().filter(|step| step.seq >= FIRST).collect();
    assert_eq!(statuses(&calls), ["completed", "completed", "failed"]);
    let message = message(&calls[2], "denied");
    assert!(message.contains(&format!("({})", file.display())), "{message}");
    assert_eq!(sandbox.files().paths(), ["a.txt", "b.txt", "c.txt", "deed.toml"]);

    // A rule that became looser allows nothing that was planned as denied.
    let policy = json!([{ "tool": "write_file", "args": { "path": "c.txt" }, "decision": "deny" }]);
    let sandbox = super::system::sandbox(&with_policy(&["b.txt", "c.txt"].map(write), policy));
    let killed = with_tools(&sandbox, sandbox.run(Some(Kill::new(FIRST, Point::AfterIntent)))).run();
    assert_eq!(killed.ending, Ending::KILLED, "{killed}");
    fs::write(workspace_file(&sandbox), "[[policy]]\ntool = \"write_file\"\ndecision = \"allow\"\n").unwrap();
    let _ = resume(&sandbox).run().expect_code(3);
    assert_eq!(sandbox.files().paths(), ["a.txt", "b.txt", "deed.toml"]);
}
