//! The `http` plugin: which servers it reaches, what it sends them, and what a kill, a broken connection and a server that
//! never answers make of it. Every server is a real one on the loopback interface.
//!
//! Fault model: as in `kills.rs`; a receiver lives on when a process dies.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::net::TcpListener;

use deed_tests::receiver::{Answer, Reaction, Receiver};
use deed_tests::{
    CallReply, Ending, Envelope, Kill, Message, Outcome, Point, Sandbox, StepRow, Wait, guests, read_tree,
};
use serde_json::{Value, json};

/// The first call of a batch in a git workspace: two setup steps and the policy come first.
const FIRST: u64 = 4;

/// A batch of `calls` with `grants`.
fn batch(calls: &[Value], grants: &Value) -> Sandbox {
    Sandbox::with(&json!({ "objective": "Ask around", "calls": calls, "grants": grants }), &[])
}

fn get(url: &str) -> Value {
    json!({ "tool": "http_get", "input": { "url": url } })
}

fn post(url: &str) -> Value {
    json!({ "tool": "http_send", "input": { "method": "POST", "url": url, "body": "a letter" } })
}

/// A sandbox whose user grants `hosts` to every tool.
fn granted(hosts: &[&Receiver]) -> Sandbox {
    let sandbox = batch(&[], &json!([]));
    let hosts: Vec<String> = hosts.iter().map(|receiver| receiver.origin()).collect();
    sandbox.set_operator(&format!("[[grants]]\ntool = \"*\"\nhosts = {hosts:?}\n"));
    sandbox
}

fn honours_key(receiver: &Receiver) -> Value {
    json!([{ "tool": "http_send", "hosts": [{ "origin": receiver.origin(), "honours_key": true }] }])
}

fn plain_grant(receiver: &Receiver) -> Value {
    json!([{ "tool": "*", "hosts": [receiver.origin()] }])
}

/// A call that must complete.
#[track_caller]
fn completed(sandbox: &Sandbox, tool: &str, input: &Value) -> (String, Value) {
    let reply: CallReply = sandbox.call(tool, input).run().expect_code(0).json();
    (reply.text(), reply.output.unwrap().structured.unwrap())
}

/// The message of a call that must fail with nothing changed and nobody asked.
#[track_caller]
fn failed(sandbox: &Sandbox, tool: &str, input: &Value, kind: &str) -> String {
    let reply: CallReply = sandbox.call(tool, input).run().expect_code(1).json();
    let error = reply.error.unwrap();
    assert_eq!((error.kind.as_str(), error.effect.as_str()), (kind, "not-applied"), "{}", error.message);
    assert!(reply.waits.is_empty(), "{:?}", reply.waits);
    error.message
}

fn first_step(sandbox: &Sandbox, run: &str) -> StepRow {
    sandbox.steps(run).into_iter().find(|step| step.seq == FIRST).unwrap()
}

fn results(sandbox: &Sandbox, run: &str) -> Vec<String> {
    let transcript: Vec<Message> = sandbox.deed(["transcript", run]).run().expect_code(0).json();
    transcript.into_iter().filter_map(|message| Some(message.result?.text)).collect()
}

/// The run asks the owner about its first call, which is held to be non-idempotent and has run once.
#[track_caller]
fn asks_about_the_first(sandbox: &Sandbox, outcome: Outcome) -> Wait {
    let envelope: Envelope = outcome.expect_code(4).json();
    let [wait] = envelope.waits.try_into().expect("it asks one thing");
    assert_eq!((wait.kind.as_str(), wait.name.as_str(), wait.seq), ("reconcile", "http_send", FIRST));
    let step = first_step(sandbox, &wait.run);
    assert_eq!((step.status.as_str(), step.effect.as_deref()), ("needs_reconcile", Some("non-idempotent")));
    assert_eq!(step.attempt, 1);
    wait
}

#[test]
fn without_a_grant_nothing_is_sent_and_the_line_that_is_named_allows_it() {
    let receiver = Receiver::appending();
    let url = receiver.url("/a");
    let sandbox = batch(&[get(&url)], &json!([]));
    let message = failed(&sandbox, "http_get", &json!({ "url": url }), "denied");
    let line = format!(r#"{{"hosts":["{}"],"tool":"http_get"}}"#, receiver.origin());
    let refusal = format!(
        "failed to GET `{url}`: the host refused to send the request\nhttp: to send GET to `{}` was refused: `http_get`, called as `idempotent`, is not granted this server; this line, first under `grants`, would allow it: {line}",
        receiver.origin()
    );
    assert_eq!(message, refusal);
    assert_eq!(receiver.received(), []);

    let grant: Value = serde_json::from_str(&line).unwrap();
    let sandbox = batch(&[get(&url)], &json!([grant]));
    let done: Envelope = sandbox.run(None).run().expect_code(0).json();
    assert!(results(&sandbox, &done.run)[0].starts_with("status 200\n"));
    assert_eq!(receiver.received().len(), 1);
}

#[test]
fn the_line_that_is_named_keeps_what_was_granted() {
    let (one, other) = (Receiver::appending(), Receiver::appending());
    let sandbox = granted(&[&one]);
    let message = failed(&sandbox, "http_get", &json!({ "url": other.url("/") }), "denied");
    let line = format!(r#"{{"hosts":["{}","{}"],"tool":"http_get"}}"#, one.origin(), other.origin());
    assert!(message.ends_with(&line), "{message}");
}

#[test]
fn the_users_own_file_grants_it_too() {
    let receiver = Receiver::appending();
    let sandbox = granted(&[&receiver]);
    let (text, outcome) = completed(&sandbox, "http_get", &json!({ "url": receiver.url("/a?b=%20c") }));
    assert_eq!(text, "status 200\ncontent-type: text/plain; charset=utf-8\n\nGET /a?b=%20c\n");
    assert_eq!((outcome["status"].as_u64(), outcome["cut"].as_bool()), (Some(200), Some(false)));
    let came = &receiver.received()[0];
    assert_eq!(came.header("host"), Some(&receiver.origin()["http://".len()..]));
    assert_eq!(came.header("idempotency-key"), None, "a request that changes nothing has none");
}

#[test]
fn another_port_and_another_scheme_are_another_server() {
    let (granted_one, other) = (Receiver::appending(), Receiver::appending());
    let sandbox = granted(&[&granted_one]);
    let encrypted = granted_one.url("/").replace("http:", "https:");
    for url in [other.url("/"), encrypted] {
        let message = failed(&sandbox, "http_get", &json!({ "url": url }), "denied");
        assert!(message.contains("is not granted this server"), "{message}");
    }
    // Another way to write the same server is no other one, and no way around.
    let port = granted_one.origin().rsplit_once(':').unwrap().1.to_owned();
    completed(&sandbox, "http_get", &json!({ "url": format!("http://0x7f.1:{port}/") }));
    let aside = format!("http://127.0.0.1:{port}@{}/", &other.origin()["http://".len()..]);
    let message = failed(&sandbox, "http_get", &json!({ "url": aside }), "invalid-arguments");
    assert!(message.contains("name a credential instead"), "{message}");
    assert_eq!((granted_one.received().len(), other.received().len()), (1, 0));
}

#[test]
fn what_is_no_request_is_refused_and_named() {
    let receiver = Receiver::appending();
    let sandbox = granted(&[&receiver]);
    let with = |headers: Value| json!({ "url": receiver.url("/"), "headers": headers });
    for (input, named) in [
        (with(json!({ "host": "other.test" })), "the header `host` is set by the host"),
        (with(json!({ "x-a": "b\r\nx-c: d" })), "the header `x-a`"),
        (with(json!({ "x a": "b" })), "the header `x a`"),
        (with(json!({ "transfer-encoding": "chunked" })), "the header `transfer-encoding`"),
        (json!({ "url": "ftp://127.0.0.1/" }), "neither `http:` nor `https:`"),
        (json!({ "url": "127.0.0.1" }), "no URL"),
    ] {
        let message = failed(&sandbox, "http_get", &input, "invalid-arguments");
        assert!(message.contains(named), "{message}");
    }
    let both = json!({ "method": "POST", "url": receiver.url("/"), "body": "a", "json": 1 });
    let message = failed(&sandbox, "http_send", &both, "invalid-arguments");
    assert!(message.contains("`body` and `json`"), "{message}");
    assert_eq!(receiver.received(), []);
}

#[test]
fn what_is_sent_arrives_as_it_was_given() {
    let receiver = Receiver::appending();
    let sandbox = granted(&[&receiver]);
    for (method, input, body, media_type) in [
        ("POST", json!({ "json": { "b": [1, "ü"] } }), r#"{"b":[1,"ü"]}"#, Some("application/json")),
        ("PUT", json!({ "body": "text" }), "text", Some("text/plain; charset=utf-8")),
        (
            "PATCH",
            json!({ "body": "a,b", "headers": { "Content-Type": "text/csv" } }),
            "a,b",
            Some("text/csv"),
        ),
        ("DELETE", json!({}), "", None),
    ] {
        let mut input = input;
        input["method"] = json!(method);
        input["url"] = json!(receiver.url("/x"));
        completed(&sandbox, "http_send", &input);
        let came = receiver.received().pop().unwrap();
        assert_eq!((came.method.as_str(), came.text().as_str()), (method, body));
        assert_eq!(came.header("content-type"), media_type);
        assert_eq!(came.header("idempotency-key").map(str::len), Some(32), "{came:?}");
    }
    // More than a command line takes.
    let mut large = post(&receiver.url("/"));
    large["input"]["body"] = json!("x".repeat(1 << 20));
    let sandbox = batch(&[large], &plain_grant(&receiver));
    assert_eq!(sandbox.run(None).run().expect_code(0).json::<Envelope>().status, "done");
    assert_eq!(receiver.received().pop().unwrap().body.len(), 1 << 20);
}

#[test]
fn a_status_that_is_no_success_is_an_ordinary_outcome() {
    let receiver = Receiver::scripted(false, |_, _| Reaction::Answer(Answer::text(404, "no such thing")));
    let sandbox = granted(&[&receiver]);
    let (text, outcome) = completed(&sandbox, "http_get", &json!({ "url": receiver.url("/") }));
    assert!(text.starts_with("status 404\n") && text.ends_with("\nno such thing\n"), "{text}");
    assert_eq!(outcome["body"], "no such thing");
    let head = completed(&sandbox, "http_get", &json!({ "url": receiver.url("/"), "method": "HEAD" })).0;
    assert_eq!(head, "status 404\ncontent-type: text/plain; charset=utf-8\n");
}

#[test]
fn a_large_body_is_cut_and_bytes_are_named() {
    let receiver = Receiver::scripted(false, |request, _| {
        let answer = Answer::text(200, "x".repeat(3 << 20));
        Reaction::Answer(match request.path.as_str() {
            "/image" => answer.bytes("image/png", b"\x89PNG\0\0".to_vec()),
            "/broken" => answer.broken_after(1000),
            _ => answer,
        })
    });
    let sandbox = granted(&[&receiver]);
    let (text, outcome) =
        completed(&sandbox, "http_get", &json!({ "url": receiver.url("/"), "max_bytes": 10 }));
    assert!(text.ends_with("\nxxxxxxxxxx\n[cut: 3145718 more bytes; `max_bytes` reads more]\n"), "{text}");
    assert_eq!((&outcome["read_bytes"], &outcome["cut_bytes"]), (&json!(10), &json!(3_145_718)));
    let (_, outcome) = completed(&sandbox, "http_get", &json!({ "url": receiver.url("/") }));
    assert_eq!(outcome["read_bytes"], 65_536);

    let (text, outcome) = completed(&sandbox, "http_get", &json!({ "url": receiver.url("/image") }));
    assert!(text.ends_with("[6 bytes are not shown: image/png]\n") && outcome["body"].is_null(), "{text}");

    // It was answered, so it is done, whatever becomes of the rest.
    let input = json!({ "method": "POST", "url": receiver.url("/broken") });
    let (text, outcome) = completed(&sandbox, "http_send", &input);
    assert!(text.contains("[incomplete: "), "{text}");
    assert_eq!((&outcome["status"], &outcome["read_bytes"]), (&json!(200), &json!(1000)));
}

/// Answers `/there` with a redirect to `to`.
fn leading(to: impl Fn() -> String + Send + Sync + 'static, status: u16) -> Receiver {
    Receiver::scripted(false, move |request, _| {
        Reaction::Answer(match request.path.as_str() {
            "/there" => Answer::redirect(status, to()),
            _ => Answer::text(200, format!("{} {}", request.method, request.path)),
        })
    })
}

#[test]
fn a_redirect_on_one_server_is_followed_by_its_rules() {
    for status in [303, 307, 308] {
        let receiver = leading(|| "/here?x".to_owned(), status);
        let sandbox = granted(&[&receiver]);
        let (_, outcome) = completed(&sandbox, "http_get", &json!({ "url": receiver.url("/there") }));
        assert_eq!(
            (&outcome["body"], &outcome["url"]),
            (&json!("GET /here?x"), &json!(receiver.url("/here?x")))
        );
        let input = json!({ "method": "POST", "url": receiver.url("/there"), "body": "a" });
        let (text, outcome) = completed(&sandbox, "http_send", &input);
        if status == 303 {
            assert_eq!(outcome["body"], "GET /here?x");
            let [.., first, second] = &receiver.received()[..] else { panic!("two requests came") };
            assert!(first.header("idempotency-key").is_some() && second.header("idempotency-key").is_none());
        } else {
            // To send it again would be a second change with one key.
            assert!(text.contains("which is a call of its own"), "{text}");
            assert_eq!(receiver.effects().len(), 1);
        }
    }
    let receiver = leading(|| "/here".to_owned(), 302);
    let sandbox = granted(&[&receiver]);
    let input = json!({ "method": "POST", "url": receiver.url("/there") });
    let (text, _) = completed(&sandbox, "http_send", &input);
    assert!(text.starts_with("status 302\n") && text.contains("[not followed: status 302"), "{text}");
}

#[test]
fn a_redirect_to_a_server_that_is_not_granted_does_not_reach_it() {
    let other = Receiver::appending();
    let to = other.url("/secret");
    let receiver = leading(move || to.clone(), 302);
    let sandbox = granted(&[&receiver]);
    let message = failed(&sandbox, "http_get", &json!({ "url": receiver.url("/there") }), "denied");
    assert!(message.contains(&format!("which led to `{}`", other.url("/secret"))), "{message}");
    assert!(message.contains(&format!("to send GET to `{}` was refused", other.origin())), "{message}");
    assert_eq!(other.received(), []);
}

#[test]
fn what_was_sent_is_not_followed_to_another_server_though_it_is_granted() {
    let other = Receiver::appending();
    for status in [303, 307, 308] {
        let to = other.url("/");
        let receiver = leading(move || to.clone(), status);
        let sandbox = granted(&[&receiver, &other]);
        let input = json!({ "method": "POST", "url": receiver.url("/there"), "body": "a" });
        let (text, outcome) = completed(&sandbox, "http_send", &input);
        assert!(text.contains("is on another server"), "{text}");
        assert_eq!(
            (&outcome["status"], &outcome["headers"]["location"]),
            (&json!(status), &json!(other.url("/")))
        );
        assert_eq!(other.received(), []);
    }
}

#[test]
fn a_circle_of_redirects_comes_to_an_end() {
    let receiver = Receiver::scripted(false, |_, _| Reaction::Answer(Answer::redirect(302, "/again")));
    let sandbox = granted(&[&receiver]);
    let (text, _) = completed(&sandbox, "http_get", &json!({ "url": receiver.url("/") }));
    assert!(text.contains("[not followed: 10 redirects were followed before this one]"), "{text}");
    assert_eq!(receiver.received().len(), 11);
}

/// Neither the journal nor the settings' neighbours nor anything that was said holds the secret.
#[track_caller]
fn nowhere(sandbox: &Sandbox, secret: &str, said: &[&Outcome]) {
    let files = read_tree(sandbox.root()).unwrap();
    for path in files.paths().into_iter().filter(|path| !path.starts_with("home/config/")) {
        let bytes = fs::read(sandbox.root().join(path)).unwrap();
        let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!found, "`{path}` holds the secret");
    }
    for outcome in said {
        assert!(!outcome.to_string().contains(secret), "{outcome}");
    }
}

/// Sends back all headers, in its own headers and in its body.
fn echo() -> Receiver {
    Receiver::scripted(false, |request, _| {
        let authorization = request.header("authorization").unwrap_or("none");
        Reaction::Answer(
            Answer::text(200, format!("{:?}", request.headers)).header("x-request-id", authorization),
        )
    })
}

const SECRET: &str = "s3cr3t-0123456789";

#[test]
fn a_credential_reaches_its_server_and_nobody_else_sees_it() {
    let (receiver, other) = (echo(), echo());
    let sandbox = batch(&[], &json!([]));
    sandbox.set_operator(&format!(
        "[[grants]]\ntool = \"*\"\nhosts = [\"{origin}\", \"{}\"]\n[credentials.hub]\norigins = [\"{origin}\"]\nprefix = \"Bearer \"\nfile = \"hub.txt\"\n[credentials.gone]\norigins = [\"{origin}\"]\nenv = \"NOT_SET\"\n",
        other.origin(),
        origin = receiver.origin(),
    ));
    fs::write(sandbox.config().join("hub.txt"), format!("{SECRET}\n")).unwrap();
    let ask = |url: String, credential: &str| {
        sandbox.call("http_get", &json!({ "url": url, "credential": credential })).run()
    };

    let outcome = ask(receiver.url("/"), "hub").expect_code(0);
    assert!(
        outcome.stderr.contains("warning: the credential `gone`") && outcome.stderr.contains("`NOT_SET`")
    );
    let came = receiver.received();
    assert_eq!(came[0].header("authorization"), Some(&*format!("Bearer {SECRET}")));
    assert_eq!(came[0].header("deed-credential"), None);
    let reply: CallReply = outcome.json();
    let masked = format!("Bearer {}", "*".repeat(SECRET.len()));
    assert_eq!(reply.text().matches(&masked).count(), 2, "{}", reply.text());

    let refused = [
        (ask(other.url("/"), "hub"), format!("`hub`, which goes to `{}` only", receiver.origin())),
        (ask(receiver.url("/"), "hab"), "`hab`, which is not there; `[credentials.hab]` in the user's `deed.toml` would make it; there is `gone`, `hub`".to_owned()),
        (ask(receiver.url("/"), "gone"), "`gone`, whose secret is not to be had: the variable `NOT_SET`".to_owned()),
    ];
    for (outcome, named) in &refused {
        let reply: CallReply = outcome.clone().expect_code(1).json();
        let error = reply.error.unwrap();
        assert_eq!(error.kind, "denied");
        assert!(error.message.contains(named), "{}", error.message);
    }
    assert_eq!((receiver.received().len(), other.received().len()), (1, 0));

    let run = &reply.run;
    let transcript = sandbox.deed(["transcript", run]).run().expect_code(0);
    let show = sandbox.deed(["show", run, &reply.seq.to_string()]).run().expect_code(0);
    let verbose = sandbox
        .call("http_get", &json!({ "url": receiver.url("/"), "credential": "hub" }))
        .args(["-v"])
        .run()
        .expect_code(0);
    let mut said = vec![&outcome, &transcript, &show, &verbose];
    said.extend(refused.iter().map(|(outcome, _)| outcome));
    nowhere(&sandbox, SECRET, &said);
    // The control: what is there is found.
    fs::write(sandbox.root().join("leak"), format!("a{SECRET}b")).unwrap();
    assert!(std::panic::catch_unwind(|| nowhere(&sandbox, SECRET, &[])).is_err());
}

#[test]
fn a_credential_is_taken_from_the_environment() {
    let receiver = echo();
    let sandbox = batch(&[], &json!([]));
    sandbox.set_operator(&format!(
        "[[grants]]\ntool = \"*\"\nhosts = [\"{origin}\"]\n[credentials.hub]\norigins = [\"{origin}\"]\nheader = \"x-api-key\"\nenv = \"HUB\"\n",
        origin = receiver.origin(),
    ));
    let input = json!({ "method": "POST", "url": receiver.url("/"), "credential": "hub" });
    let outcome = sandbox.call("http_send", &input).env("HUB", SECRET).run().expect_code(0);
    assert_eq!(receiver.received()[0].header("x-api-key"), Some(SECRET));
    nowhere(&sandbox, SECRET, &[&outcome]);
}

#[test]
fn a_credential_does_not_go_on_to_another_server() {
    let other = echo();
    let to = other.url("/");
    let receiver = leading(move || to.clone(), 302);
    let sandbox = granted(&[&receiver, &other]);
    // For both servers, so that only the rule about redirects keeps it from the second one.
    let grants = fs::read_to_string(sandbox.config().join("deed.toml")).unwrap();
    sandbox.set_operator(&format!(
        "{grants}[credentials.hub]\norigins = [\"{}\", \"{}\"]\nenv = \"HUB\"\n",
        receiver.origin(),
        other.origin()
    ));
    let input = json!({ "url": receiver.url("/there"), "credential": "hub", "headers": { "x-own": "1" } });
    let outcome = sandbox.call("http_get", &input).env("HUB", SECRET).run().expect_code(0);
    nowhere(&sandbox, SECRET, &[&outcome]);
    assert_eq!(receiver.received()[0].header("authorization"), Some(SECRET));
    let went_on = &other.received()[0];
    assert_eq!((went_on.header("authorization"), went_on.header("x-own")), (None, None));
}

#[test]
fn a_credential_that_no_request_could_carry_is_named_at_the_start() {
    let sandbox = batch(&[], &json!([]));
    sandbox.set_operator(
        "[credentials.hub]\norigins = [\"https://a.test\"]\nheader = \"host\"\nenv = \"HUB\"\n",
    );
    let outcome = sandbox.call("list_dir", &json!({ "path": "." })).run().expect_code(2);
    assert!(outcome.stderr.contains("`hub`") && outcome.stderr.contains("deed.toml"), "{outcome}");
}

#[test]
fn killed_after_sending_the_next_process_asks_and_sends_nothing() {
    let receiver = Receiver::appending();
    let sandbox = batch(&[post(&receiver.url("/letters"))], &plain_grant(&receiver));
    let killed = sandbox.run(Some(Kill::new(FIRST, Point::AfterExec))).run();
    assert_eq!(killed.ending, Ending::KILLED, "{killed}");
    let wait = asks_about_the_first(&sandbox, sandbox.resume(None).run());
    assert_eq!(receiver.received().len(), 1);
    sandbox.answer(&wait.wait, "happened").unwrap();
    let done: Envelope = sandbox.resume(None).run().expect_code(0).json();
    assert_eq!((done.status.as_str(), receiver.received().len()), ("done", 1));
}

#[test]
fn killed_before_sending_it_is_sent_once() {
    for point in [Point::BeforeIntent, Point::AfterIntent, Point::AfterCommit] {
        let receiver = Receiver::appending();
        let sandbox = batch(&[post(&receiver.url("/letters"))], &plain_grant(&receiver));
        let killed = sandbox.run(Some(Kill::new(FIRST, point))).run();
        assert_eq!(killed.ending, Ending::KILLED, "{killed}");
        let done: Envelope = sandbox.resume(None).run().expect_code(0).json();
        assert_eq!((done.status.as_str(), receiver.effects().len()), ("done", 1), "killed at {point}");
    }
}

#[test]
fn a_server_that_honours_the_key_gets_it_again_and_does_it_once() {
    let receiver = Receiver::honouring();
    let sandbox = batch(&[post(&receiver.url("/letters"))], &honours_key(&receiver));
    let killed = sandbox.run(Some(Kill::new(FIRST, Point::AfterExec))).run();
    assert_eq!(killed.ending, Ending::KILLED, "{killed}");
    let done: Envelope = sandbox.resume(None).run().expect_code(0).json();
    let step = first_step(&sandbox, &done.run);
    assert_eq!((step.effect.as_deref(), step.attempt), (Some("idempotent"), 2));
    let came = receiver.received();
    assert_eq!((came.len(), receiver.effects().len()), (2, 1));
    let key = came[0].header("idempotency-key").unwrap();
    assert_eq!((came[1].header("idempotency-key"), key.len()), (Some(key), 32));
    assert!(results(&sandbox, &done.run)[0].ends_with("\nmade of a letter\n"));
}

#[test]
fn that_a_server_honours_the_key_is_believed_of_that_server_alone() {
    let (honouring, other) = (Receiver::honouring(), Receiver::appending());
    let hosts = json!([{ "origin": honouring.origin(), "honours_key": true }, other.origin()]);
    let calls = [post(&other.url("/")), post(&honouring.url("/"))];
    let sandbox = batch(&calls, &json!([{ "tool": "http_send", "hosts": hosts }]));
    let done: Envelope = sandbox.run(None).run().expect_code(0).json();
    let classes: Vec<_> =
        sandbox.steps(&done.run).into_iter().skip(3).filter_map(|step| step.effect).collect();
    assert_eq!(classes, ["non-idempotent", "idempotent"]);
}

#[test]
fn a_connection_that_breaks_after_the_request_leaves_it_in_doubt() {
    let receiver = Receiver::scripted(false, |_, _| Reaction::Break);
    let sandbox = batch(&[post(&receiver.url("/letters")), get(&receiver.url("/"))], &plain_grant(&receiver));
    let wait = asks_about_the_first(&sandbox, sandbox.run(None).run());
    assert!(wait.question.contains("http_send"), "{}", wait.question);
    assert_eq!(receiver.received().len(), 1);

    // What asks for nothing to be changed fails, and that is all.
    let sandbox = granted(&[&receiver]);
    let message = failed(&sandbox, "http_get", &json!({ "url": receiver.url("/") }), "unavailable");
    assert!(message.contains("before the answer"), "{message}");
}

#[test]
fn what_is_in_doubt_is_sent_again_to_a_server_that_honours_the_key() {
    let receiver = Receiver::scripted(true, |request, number| match number {
        0 | 1 => Reaction::Break,
        _ => Reaction::Answer(Answer::text(201, request.text())),
    });
    let sandbox = batch(&[post(&receiver.url("/letters"))], &honours_key(&receiver));
    let done: Envelope = sandbox.run(None).run().expect_code(0).json();
    let step = first_step(&sandbox, &done.run);
    assert_eq!((step.status.as_str(), step.attempt), ("completed", 3));
    assert_eq!((receiver.received().len(), receiver.effects().len()), (3, 1));
}

#[test]
fn a_server_that_never_answers_ends_with_the_calls_time() {
    let receiver = Receiver::scripted(false, |_, _| Reaction::Silence);
    let grants = json!([{ "tool": "*", "hosts": [receiver.origin()], "timeout_ms": 500 }]);
    let sandbox = batch(&[post(&receiver.url("/letters"))], &grants);
    asks_about_the_first(&sandbox, sandbox.run(None).run());
    assert_eq!(receiver.effects().len(), 1);

    let sandbox = batch(&[get(&receiver.url("/"))], &grants);
    let partial: Envelope = sandbox.run(None).run().expect_code(3).json();
    let step = first_step(&sandbox, &partial.run);
    assert_eq!((step.status.as_str(), &step.error.unwrap()["effect"]), ("failed", &json!("not-applied")));
}

#[test]
fn what_never_left_fails_and_nobody_is_asked() {
    // A port that was free a moment ago, and that nobody listens on.
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let plain = Receiver::appending();
    let encrypted = plain.origin().replace("http:", "https:");
    let sandbox = batch(&[], &json!([]));
    // Longer than a part of a name may be, so that nobody is asked for its address.
    let nowhere = format!("http://{}.test", "a".repeat(64));
    let hosts = [format!("http://{free}"), encrypted.clone(), nowhere.clone()];
    sandbox.set_operator(&format!("[[grants]]\ntool = \"*\"\nhosts = {hosts:?}\n"));
    for (url, named) in [
        (format!("http://{free}/"), "refused the connection"),
        (format!("{nowhere}/"), "its name has no address"),
        (format!("{encrypted}/"), ""),
    ] {
        let input = json!({ "method": "POST", "url": url, "body": "a" });
        let message = failed(&sandbox, "http_send", &input, "unavailable");
        assert!(message.contains(&format!("failed to POST `{url}`")) && message.contains(named), "{message}");
    }
    assert_eq!(plain.received(), []);
}

#[test]
fn a_component_that_asks_no_server_does_not_import_the_means_to() {
    let imports = |bytes: &[u8]| {
        let name = b"wasi:http/";
        bytes.windows(name.len()).any(|window| window == name)
    };
    for (name, bytes) in deed::standard::standard_plugins() {
        assert_eq!(imports(bytes), name == "http", "{name}");
    }
    assert!(!imports(guests::GREET));
}
