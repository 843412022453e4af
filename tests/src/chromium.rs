//! A headless Chromium, driven by its own protocol over two pipes: a page as people see it, and what it asks for.

use std::{
    env,
    fs::File,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use wait_timeout::ChildExt as _;

use crate::{Sandbox, process::PATIENCE};

/// Names the browser, where it is not at one of the usual places.
const NAMED: &str = "DEED_CHROMIUM";

/// The usual places.
const PLACES: [&str; 4] = [
    "/usr/bin/chromium",
    "/usr/bin/chromium-browser",
    "/usr/bin/google-chrome",
    "/usr/bin/google-chrome-stable",
];

/// Reaches nothing by itself, and asks the machine for nothing that it may not have.
const FLAGS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1280,1000",
    "--remote-debugging-pipe",
];

/// The browser of this machine, if there is one.
pub fn find_chromium() -> Option<PathBuf> {
    let named = env::var_os(NAMED).map(PathBuf::from);
    named.into_iter().chain(PLACES.map(PathBuf::from)).find(|path| path.is_file())
}

/// A browser with one page. Dropped, it is ended.
pub struct Chromium {
    child: Child,
    input: File,
    messages: Receiver<Value>,
    session: Option<String>,
    sent: u64,
    /// What happened on the page, in order: everything that was no answer.
    pub events: Vec<Value>,
}

impl Chromium {
    /// Start `program`, with everything of its own in the sandbox.
    pub fn start(program: &Path, sandbox: &Sandbox) -> Self {
        let (to, input) = sandbox.fifo("to-chromium");
        let (from, output) = sandbox.fifo("from-chromium");
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"exec "$@" 3< "$0" 4> "$FROM""#])
            .arg(to)
            .arg(program)
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", sandbox.root().join("chromium").display()))
            .env("FROM", from)
            .env("HOME", sandbox.home())
            .env("XDG_CONFIG_HOME", sandbox.config())
            .env("XDG_CACHE_HOME", sandbox.home().join("chromium-cache"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        let child = command.spawn().unwrap_or_else(|error| panic!("failed to start the browser: {error}"));
        let (tell, messages) = channel();
        thread::spawn(move || {
            for message in BufReader::new(output).split(0) {
                let Ok(message) = message else { break };
                let value = serde_json::from_slice(&message).expect("the browser speaks JSON");
                if tell.send(value).is_err() {
                    break;
                }
            }
        });
        let mut browser = Self { child, input, messages, session: None, sent: 0, events: Vec::new() };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", &attach);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network", "Accessibility"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    /// Send a command and wait for its result. Panics when it fails, or the browser says nothing.
    #[track_caller]
    pub fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.sent += 1;
        let number = self.sent;
        let mut message = json!({ "id": number, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.input.write_all(format!("{message}\0").as_bytes()).expect("the pipe is open");
        loop {
            let mut message = self.next();
            if message["id"] == number {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].take();
            }
            self.events.push(message);
        }
    }

    #[track_caller]
    fn next(&mut self) -> Value {
        self.messages.recv_timeout(PATIENCE).expect("the browser answers")
    }

    /// Go to a file, and wait until it is loaded.
    #[track_caller]
    pub fn open(&mut self, page: &Path) {
        self.call("Page.navigate", &json!({ "url": format!("file://{}", page.display()) }));
        let is_loaded = |event: &Value| event["method"] == "Page.loadEventFired";
        while !self.events.iter().any(is_loaded) {
            let event = self.next();
            self.events.push(event);
        }
    }

    /// The value of an expression on the page.
    #[track_caller]
    pub fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut result = self.call("Runtime.evaluate", &parameters);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].take()
    }

    /// Press and release a key.
    pub fn press(&mut self, key: &str, code: u32) {
        for kind in ["rawKeyDown", "keyUp"] {
            let text = json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code });
            self.call("Input.dispatchKeyEvent", &text);
            if kind == "rawKeyDown" && key == "Enter" {
                self.call("Input.dispatchKeyEvent", &json!({ "type": "char", "key": key, "text": "\r" }));
            }
        }
    }

    /// The parameters of every event of this name so far.
    pub fn events_of<'a>(&'a self, method: &'a str) -> impl Iterator<Item = &'a Value> {
        self.events.iter().filter(move |event| event["method"] == method).map(|event| &event["params"])
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // Asked to, it takes its own processes along. What fails here has ended already, or is killed below.
        self.session = None;
        let message = json!({ "id": 0, "method": "Browser.close" });
        self.input.write_all(format!("{message}\0").as_bytes()).ok();
        if !matches!(self.child.wait_timeout(PATIENCE), Ok(Some(_))) {
            kill_process_group(Pid::from_child(&self.child), Signal::KILL).ok();
            self.child.wait().ok();
        }
    }
}
