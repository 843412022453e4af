//! Grants hold, and a refusal says which one would have allowed it.

use deed_tests::{Envelope, StepRow};
use serde_json::{Value, json};

use super::system::{batch, call, calls_of, message, results, sandbox, show};

/// The grant that a refusal says would allow the call.
fn offered(message: &str) -> Option<Value> {
    // The last time: before that the tool may have quoted it.
    let (_, rest) = message.rsplit_once("this line, first under `grants`, would allow it: ")?;
    Some(serde_json::from_str(rest.lines().next().unwrap()).unwrap())
}

/// The rule that a refusal says would raise the class of the tool.
fn offered_rule(message: &str) -> Option<Value> {
    let (_, rest) =
        message.rsplit_once("this rule, first under `policy`, would raise its class and ask: ")?;
    Some(serde_json::from_str(rest.lines().next().unwrap()).unwrap())
}

/// One call under these grants, and its step.
#[track_caller]
fn try_with(call: &Value, grants: &Value, code: i32) -> StepRow {
    let sandbox = sandbox(&batch(std::slice::from_ref(call), grants));
    let (_, steps) = calls_of(&sandbox, code);
    let [step] = steps.try_into().unwrap();
    step
}

#[test]
fn a_refusal_names_tool_class_and_the_grant_that_allows_it() {
    let insist = |act: &str, path: &str| json!({ "act": act, "path": path, "insist": true });
    let write = || call("write_file", &json!({ "path": "b.txt", "content": "beta\n" }));
    let read = || call("read_file", &json!({ "path": "a.txt" }));
    let shell = || call("shell", &json!({ "command": "true" }));
    let commit = || call("git_commit", &json!({ "message": "Nothing yet" }));
    let status = || call("git_status", &json!({}));
    let cases = [
        (write(), json!([{ "tool": "write_file", "files": "read" }]), json!({ "files": "write" })),
        (write(), json!([{ "tool": "*", "files": "none" }]), json!({ "files": "write" })),
        (read(), json!([{ "tool": "read_file", "files": "none" }]), json!({ "files": "read" })),
        (status(), json!([{ "tool": "*", "files": "none" }]), json!({ "files": "read" })),
        (shell(), json!([{ "tool": "shell", "commands": ["make"] }]), json!({ "commands": ["make", "sh"] })),
        (shell(), json!([{ "tool": "shell", "files": "read" }]), json!({ "files": "write" })),
        (
            shell(),
            json!([{ "tool": "*", "commands": [] }, { "tool": "shell", "files": "none" }]),
            json!({ "files": "write", "commands": ["sh"] }),
        ),
        (
            call("try_idempotent", &insist("digest", "a.txt")),
            json!([{ "tool": "*", "files": "none" }]),
            json!({ "files": "read" }),
        ),
        (
            call("try_non_idempotent", &insist("append", "a.txt")),
            json!([{ "tool": "*", "files": "read" }]),
            json!({ "files": "write" }),
        ),
        (
            call("try_idempotent", &insist("run", "/bin/true")),
            json!([{ "tool": "*", "commands": ["true"] }]),
            json!({ "commands": ["true", "/bin/true"] }),
        ),
    ];
    for (made, grants, mut expected) in cases {
        let tool = made["tool"].as_str().unwrap();
        expected["tool"] = json!(tool);
        let refused = try_with(&made, &grants, 3);
        // A tool without files looks for one where there are none.
        let kind = if tool == "read_file" { "not-found" } else { "denied" };
        let message = message(&refused, kind);
        let class = refused.effect.unwrap();
        assert!(message.contains(&format!("`{tool}`, called as `{class}`, is granted ")), "{message}");
        let line = offered(&message).unwrap_or_else(|| panic!("no grant is named: {message}"));
        assert_eq!(line, expected, "{message}");

        // Pasted as it is, in front of what was there.
        let mut pasted = grants.clone();
        pasted.as_array_mut().unwrap().insert(0, line);
        assert_eq!(try_with(&made, &pasted, 0).status, "completed", "{message}");
    }
    // What is pushed is read first, whatever remotes are granted.
    let push = call("git_push", &json!({ "remote": "/nowhere" }));
    let grants = json!([{ "tool": "git_push", "remotes": ["/nowhere"], "files": "none" }]);
    let told = message(&try_with(&push, &grants, 3), "denied");
    assert_eq!(offered(&told), Some(json!({ "tool": "git_push", "files": "read" })), "{told}");
    // A commit that finds nothing to commit was allowed to look.
    let grants = json!([{ "tool": "git_commit", "files": "read" }]);
    let message = message(&try_with(&commit(), &grants, 3), "denied");
    assert_eq!(offered(&message), Some(json!({ "tool": "git_commit", "files": "write" })), "{message}");
    let allowed = try_with(&commit(), &json!([{ "tool": "git_commit", "files": "write" }]), 3);
    assert_eq!(allowed.error.unwrap()["kind"], "conflict");
}

#[test]
fn what_no_grant_allows_is_said_and_another_class_is_named() {
    let insist = |act: &str, path: &str| json!({ "act": act, "path": path, "insist": true });
    for (tool, act, path, named) in [
        ("try_pure", "overwrite", "b.txt", "declares `idempotent` or `non-idempotent`"),
        ("try_pure", "run", "true", "declares `idempotent` or `non-idempotent`"),
        ("try_pure", "commit", "", "declares `idempotent` or `non-idempotent`"),
        ("try_non_idempotent", "connect", "127.0.0.1:9", "gets no sockets, whatever it is granted"),
        ("try_pure", "read", "../mission.json", "may not leave the workspace, whatever it is granted"),
        ("try_idempotent", "overwrite", "deed.toml", "the operator's `deed.toml`, whatever it is granted"),
    ] {
        let all = json!([{ "tool": "*", "files": "write", "commands": ["true"], "network": "open" }]);
        let refused = try_with(&call(tool, &insist(act, path)), &all, 3);
        let message = message(&refused, "denied");
        assert!(message.contains(named) && message.contains(&format!("`{tool}`, called as ")), "{message}");
        assert_eq!(offered(&message), None);
        assert_eq!(offered_rule(&message).is_some(), named.starts_with("declares"), "{message}");
    }
    let other = try_with(&call("try_idempotent", &insist("overwrite", "b.txt")), &json!([]), 0);
    assert_eq!(other.status, "completed", "the class that was named");
}

#[test]
fn the_rule_that_a_refusal_offers_asks_the_owner_and_lets_the_call_do_what_it_tried() {
    let input = json!({ "act": "overwrite", "path": "b.txt", "insist": true });
    let mut mission = batch(&[call("try_pure", &input)], &json!([]));
    let (_, steps) = calls_of(&sandbox(&mission), 3);
    let rule = offered_rule(&message(&steps[0], "denied")).unwrap();

    // Pasted as it is, in front of a rule that would have allowed the call unasked.
    mission["policy"] = json!([rule, { "tool": "*", "decision": "allow" }]);
    let sandbox = sandbox(&mission);
    let waiting: Envelope = super::system::run(&sandbox).run().expect_code(4).json();
    let [wait] = waiting.waits.try_into().unwrap();
    assert_eq!(wait.kind, "approval");
    sandbox.answer(&wait.wait, "approve").unwrap();
    let done: Envelope = super::system::resume(&sandbox).run().expect_code(0).json();
    assert_eq!(sandbox.files().text("b.txt"), "written\n");
    let made = sandbox.steps(&done.run).into_iter().find(StepRow::runs_component).unwrap();
    assert_eq!(made.effect.as_deref(), Some("non-idempotent"));
}

#[test]
fn what_was_refused_reads_the_same_wherever_it_is_shown() {
    let input = json!({ "act": "overwrite", "path": "b.txt" });
    let mut insisting = input.clone();
    insisting["insist"] = json!(true);
    let sandbox = sandbox(&batch(&[call("try_pure", &input), call("try_pure", &insisting)], &json!([])));
    let outcome = super::system::run(&sandbox).run().expect_code(3);
    let run = outcome.json::<Envelope>().run;
    let refusal = r#"files: to write `b.txt` was refused: `try_pure`, called as `pure`, may change nothing; a tool that does declares `idempotent` or `non-idempotent`; this rule, first under `policy`, would raise its class and ask: {"decision":"ask","effect":"non-idempotent","tool":"try_pure"}"#;

    // One tool swallowed it, and its call completed; the operator is warned all the same.
    for step in [4, 5] {
        assert!(outcome.stderr.contains(&format!("warning: step {step}: {refusal}")), "{outcome}");
    }
    let results = results(&sandbox, &run);
    assert!(results[0].ok && !results[0].text.contains(refusal), "{results:?}");
    assert!(!results[1].ok && results[1].text.contains(refusal), "{results:?}");
    assert!(show(&sandbox, &run, 5)["error"]["message"].as_str().unwrap().contains(refusal));
    let text = sandbox.deed(["show", &run, "5", "--format", "text"]).run().expect_code(0);
    assert!(text.stdout.contains(refusal), "{text}");
}

#[test]
fn files_none_shows_no_file_and_read_writes_none() {
    let look = |act: &str, path: &str| call("try_idempotent", &json!({ "act": act, "path": path }));
    let acts = [
        look("read", "a.txt"),
        look("list", "."),
        look("stat", "a.txt"),
        look("digest", "a.txt"),
        look("status", ""),
        look("overwrite", "a.txt"),
        look("replace", "a.txt"),
        look("run", "true"),
        look("commit", ""),
    ];
    for (granted, reads, writes) in [("none", false, false), ("read", true, false), ("write", true, true)] {
        let sandbox = sandbox(&batch(&acts, &json!([{ "tool": "*", "files": granted }])));
        let (run, _) = calls_of(&sandbox, 0);
        let told: Vec<_> = results(&sandbox, &run).into_iter().map(|result| result.text).collect();
        for (text, allowed) in told.iter().zip([[reads; 5].as_slice(), &[writes; 4]].concat()) {
            assert_eq!(text.starts_with("done: "), allowed, "{granted}: {told:?}");
            assert!(allowed || text.starts_with("refused: "), "{granted}: {told:?}");
        }
        assert_eq!(sandbox.files().text("a.txt"), if writes { "written\n" } else { "alpha\n" });
    }
}

#[test]
fn a_command_goes_by_the_name_that_the_tool_uses() {
    let run =
        |program: &str| call("try_idempotent", &json!({ "act": "run", "path": program, "other": "-c" }));
    let calls = [run("true"), run("/bin/true"), run("sh"), run("TRUE"), run("true ")];
    let sandbox = sandbox(&batch(&calls, &json!([{ "tool": "try_idempotent", "commands": ["true"] }])));
    let (ran, _) = calls_of(&sandbox, 0);
    let told: Vec<_> =
        results(&sandbox, &ran).iter().map(|result| result.text.starts_with("done: ")).collect();
    assert_eq!(told, [true, false, false, false, false]);
}

#[test]
fn memory_and_time_are_what_the_grant_says() {
    let hog = || call("hog", &json!({}));
    for (grants, limit) in
        [(json!([{ "tool": "*", "memory_bytes": 20_971_520 }]), "20.00 MiB"), (json!([]), "256.00 MiB")]
    {
        let refused = try_with(&hog(), &grants, 3);
        let message = message(&refused, "memory");
        assert!(message.contains("`hog`") && message.contains(&format!("may take {limit}")), "{message}");
    }
    // Shorter than what the tool says for itself, and longer.
    let hang = call("hangs_in_host_call", &json!({ "duration_ms": 60_000 }));
    let step = try_with(&hang, &json!([{ "tool": "hangs_in_host_call", "timeout_ms": 50 }]), 3);
    assert!(message(&step, "timeout").contains("ran out of time after 50 ms"), "{step:?}");
    let step = try_with(&call("spin", &json!({})), &json!([{ "tool": "spin", "timeout_ms": 150 }]), 3);
    assert!(message(&step, "timeout").contains("ran out of time after 150 ms"), "{step:?}");
}
