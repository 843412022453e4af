//! Reports from people who run such systems, as whole processes.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use deed_tests::{CallReply, Envelope, Message, RunRow, Sandbox, StepRow};
use serde_json::{Value, json};

use super::system::{FIRST, batch, call, calls_of, message, results, resume, run, sandbox, show, with_tools};

fn act(act: &str, path: &str) -> Value {
    json!({ "act": act, "path": path })
}

#[test]
fn c06_a_tool_that_claims_to_be_pure_is_held_to_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let insist = |name: &str, path: &str| {
        let mut input = act(name, path);
        input["insist"] = json!(true);
        call("try_pure", &input)
    };
    let calls = [
        insist("create", "b.txt"),
        insist("replace", "b.txt"),
        insist("run", "true"),
        insist("commit", ""),
        insist("connect", &address),
        insist("send-datagram", &address),
        insist("look-up", "localhost"),
        call("try_pure", &act("time", "")),
    ];
    let all = json!([{ "tool": "*", "files": "write", "commands": ["true"], "network": "open" }]);
    let mut mission = batch(&calls, &all);
    mission["network"] = json!("open");
    let sandbox = sandbox(&mission);
    let (ran, steps) = calls_of(&sandbox, 3);
    let (refused, time) = steps.split_at(7);
    for (step, named) in
        refused.iter().zip(["files", "files", "process", "git", "network", "network", "network"])
    {
        assert_eq!(step.effect.as_deref(), Some("pure"));
        let message = message(step, "denied");
        let held = format!("{named}: to ");
        assert!(message.contains(&held) && message.contains("`try_pure`, called as `pure`, "), "{message}");
        let hint = if named == "network" { "by HTTP" } else { "declares `idempotent` or `non-idempotent`" };
        assert!(message.contains(hint), "{message}");
    }
    assert_eq!(sandbox.files().paths(), ["a.txt"]);
    assert!(listener.accept().is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "nobody came");

    // The recorded clock stands still between two readings; the real one is somewhere else.
    assert_eq!(time[0].status, "completed");
    let told = results(&sandbox, &ran).pop().unwrap().text;
    let seconds: u64 = told.strip_prefix("done: ").unwrap().split(' ').next().unwrap().parse().unwrap();
    let recorded = show(&sandbox, &ran, FIRST + 7)["events"].to_string();
    assert!(recorded.contains(&seconds.to_string()), "`{seconds}` is recorded: {recorded}");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    assert_ne!(seconds, now, "the sandbox's processes have a clock of their own");
}

#[test]
fn c16_no_tool_sees_the_hosts_environment_or_a_file_outside() {
    let outside = Sandbox::bare();
    let secret = outside.root().join("secret");
    fs::write(&secret, "a secret of the host's\n").unwrap();
    let acts = [
        act("environment", ""),
        act("read", "../secret"),
        act("read", "full/../../secret"),
        act("read", secret.to_str().unwrap()),
        act("read", "relative"),
        act("read", "absolute"),
        act("read", "directory/secret"),
        act("list", ".."),
        act("list", "directory"),
        act("digest", "absolute"),
        act("overwrite", "relative"),
        act("overwrite", "directory/secret"),
        act("replace", "directory/secret"),
        act("remove", "directory/secret"),
    ];
    for tool in ["try_pure", "try_idempotent", "try_non_idempotent"] {
        let sandbox = sandbox(&batch(&acts.clone().map(|input| call(tool, &input)), &json!([])));
        let beside = sandbox.root().join("secret");
        fs::copy(&secret, &beside).unwrap();
        fs::create_dir(sandbox.workspace().join("full")).unwrap();
        for (link, target) in
            [("relative", Path::new("../secret")), ("absolute", &secret), ("directory", outside.root())]
        {
            std::os::unix::fs::symlink(target, sandbox.workspace().join(link)).unwrap();
        }
        let (ran, _) = calls_of(&sandbox, 0);
        let results = results(&sandbox, &ran);
        assert_eq!(results[0].text, "done: [] []", "{tool}");
        for (result, act) in results.iter().zip(&acts).skip(1) {
            assert!(result.text.starts_with("refused: "), "{tool} {act}: {result:?}");
        }
        let told = format!("{results:?}");
        assert!(!told.contains("a secret of"), "{told}");
        for file in [&secret, &beside] {
            assert_eq!(fs::read_to_string(file).unwrap(), "a secret of the host's\n", "{tool}");
        }
    }
}

#[test]
fn b31_what_runs_commands_on_an_open_network_is_recorded_as_non_idempotent() {
    let open = json!([{ "tool": "*", "network": "open" }]);
    let calls = [
        call("shell", &json!({ "command": "true" })),
        call("try_idempotent", &act("run", "true")),
        call("try_pure", &act("nothing", "")),
        call("write_file", &json!({ "path": "b.txt", "content": "" })),
    ];
    let classes = |mission: &Value| {
        let (_, steps) = calls_of(&sandbox(mission), 0);
        steps.into_iter().map(|step| step.effect.unwrap()).collect::<Vec<_>>()
    };
    let closed = batch(&calls, &json!([]));
    assert_eq!(classes(&closed), ["non-idempotent", "idempotent", "pure", "idempotent"]);
    // A tool that declares `idempotent` is raised too, and one that stays in the workspace is not.
    let raised = ["non-idempotent", "non-idempotent", "pure", "idempotent"];
    let mut by_mission = closed.clone();
    by_mission["network"] = json!("open");
    assert_eq!(classes(&by_mission), raised);
    assert_eq!(classes(&batch(&calls, &open)), raised);
    // A grant for one tool says nothing of the other.
    let one = json!([{ "tool": "shell", "network": "open" }]);
    assert_eq!(classes(&batch(&calls, &one))[..2], ["non-idempotent", "idempotent"]);
}

#[test]
fn c04_the_order_of_keys_makes_no_other_input_and_another_run_shares_nothing() {
    let sandbox = sandbox(&batch(&[], &json!([])));
    let texts = [
        r#"{"act":"append","path":"a.txt","other":"x"}"#,
        r#"{ "other": "x",  "path": "a.txt", "act": "append" }"#,
        r#"{"path":"a.txt","other":"\u0078","act":"append"}"#,
    ];
    let made = |text: &str, key: &[&str]| -> CallReply {
        let deed = sandbox.deed(["call", "try_idempotent", text]).args(key);
        let deed = deed.args(["--workspace".as_ref(), sandbox.workspace().as_os_str()]);
        with_tools(&sandbox, deed).run().expect_code(0).json()
    };
    let replies = texts.map(|text| made(text, &[]));
    assert_eq!(sandbox.files().text("a.txt"), format!("alpha\n{}", "written\n".repeat(3)), "each one ran");
    let shown = replies.each_ref().map(|reply| show(&sandbox, &reply.run, reply.seq));
    for other in &shown[1..] {
        assert_eq!(other["args_digest"], shown[0]["args_digest"]);
        assert_ne!(other["key"], shown[0]["key"], "the same input in another run");
        assert_ne!(other["run"], shown[0]["run"]);
    }
    let listed = sandbox.steps(&replies[0].run);
    assert_eq!(listed[1].args_digest, shown[0]["args_digest"].as_str().unwrap());
    assert!(replies.iter().all(|reply| !reply.joined));

    // Another input has another digest; and one key, with its own arguments in another order, is one call.
    let other = made(r#"{"act":"append","path":"a.txt","other":"y"}"#, &[]);
    assert_ne!(show(&sandbox, &other.run, other.seq)["args_digest"], shown[0]["args_digest"]);
    let [first, again] = [texts[0], texts[1]].map(|text| made(text, &["--key", "one"]));
    assert_eq!((first.joined, again.joined, &first.run), (false, true, &again.run));
    assert_eq!(sandbox.files().text("a.txt"), format!("alpha\n{}", "written\n".repeat(5)));
}

#[test]
fn c11_progress_is_told_and_not_recorded_and_a_second_attempt_makes_no_second_result() {
    let progress = "half of it is written";
    let input = json!({ "path": "b.txt", "progress": progress });
    let sandbox = sandbox(&batch(&[call("progress_then_trap", &input)], &json!([])));
    let outcome = run(&sandbox).args(["-v"]).run().expect_code(0);
    let ran = outcome.json::<Envelope>().run;
    let told = format!("step {FIRST}: 1 of 2 {progress}");
    assert_eq!(outcome.stderr.matches(&told).count(), 2, "each attempt told it: {outcome}");

    let step = &sandbox.steps(&ran)[3];
    assert_eq!((step.status.as_str(), step.attempt), ("completed", 2));
    let transcript: Vec<Message> = sandbox.deed(["transcript", &ran]).run().expect_code(0).json();
    let results: Vec<_> = transcript.iter().filter_map(|message| message.result.as_ref()).collect();
    assert_eq!((results.len(), results[0].text.as_str()), (1, "wrote"));
    // The arguments of the call are in the transcript; no message or result repeats them.
    let said = transcript
        .iter()
        .map(|message| message.text.clone())
        .chain(results.iter().map(|result| result.text.clone()));
    assert!(said.into_iter().all(|text| !text.contains(progress)), "{transcript:?}");
    let recorded = show(&sandbox, &ran, FIRST);
    assert!(!recorded["output"].to_string().contains(progress), "{recorded}");
}

/// The steps of the only run, as a process would find them that starts now. A copy is looked at, since the journal is
/// in use; one that was taken in the middle of a write is no journal, and none is returned.
fn durable_steps(sandbox: &Sandbox, copy: &Path) -> Option<Vec<StepRow>> {
    let _ = fs::remove_dir_all(copy.parent().unwrap());
    fs::create_dir(copy.parent().unwrap()).unwrap();
    fs::copy(sandbox.journal(), copy).ok()?;
    let runs: Vec<RunRow> = sandbox.deed_on(copy, ["runs"]).run().try_json().ok()?;
    sandbox.deed_on(copy, ["steps", &runs.first()?.run]).run().try_json().ok()
}

#[test]
fn c19_three_parallel_calls_are_kept_when_a_fourth_stalls_and_the_process_is_killed() {
    let mut calls = [
        call("try_pure", &act("read", "a.txt")),
        call("try_pure", &act("list", ".")),
        call("try_pure", &act("stat", "a.txt")),
        call("wait_for", &json!({ "path": "go" })),
    ];
    // Whichever of them stalls.
    for stalls in [3, 0] {
        calls.swap(3, stalls);
        let sandbox = sandbox(&batch(&calls, &json!([])));
        let mut running = run(&sandbox).args(["-v"]).start();
        let copy = sandbox.root().join("copy/journal.redb");
        let patience = Instant::now() + Duration::from_mins(2);
        loop {
            assert!(running.is_running(), "it ended by itself: {}", running.wait());
            let steps = durable_steps(&sandbox, &copy).unwrap_or_default();
            if steps.iter().filter(|step| step.seq >= FIRST && step.status == "completed").count() == 3 {
                break;
            }
            assert!(Instant::now() < patience, "three outcomes never became durable: {steps:?}");
        }
        let killed = running.kill();
        assert_eq!(killed.stderr.matches(": trying").count(), 3, "{killed}");
        assert_eq!(killed.stderr.matches(": waiting").count(), 1, "{killed}");

        // What they would find now is another world, and nobody looks at it.
        fs::write(sandbox.workspace().join("a.txt"), "changed\n").unwrap();
        fs::write(sandbox.workspace().join("go"), "").unwrap();
        let resumed = resume(&sandbox).args(["-v"]).run().expect_code(0);
        assert!(!resumed.stderr.contains(": trying"), "only the fourth runs again: {resumed}");
        let again = format!("step {}: waiting", FIRST + stalls as u64);
        assert_eq!(resumed.stderr.matches(&again).count(), 1, "{resumed}");
        let ran = resumed.json::<Envelope>().run;
        let mut told: Vec<_> = results(&sandbox, &ran).into_iter().map(|result| result.text).collect();
        told.swap(3, stalls);
        assert_eq!(told[3], "it is there");
        assert_eq!((told[0].as_str(), told[2].as_str()), ("done: alpha\n", "done: 6 bytes"));
    }
}
