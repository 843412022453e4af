//! The limits that `README.md` lists: each is provoked by a small setting, says what it is called, and is as it is said to be
//! without one.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use deed::engine::limits::{PARALLEL_CALLS, WASM_STACK_BYTES};
use deed::engine::{
    CallContext, CallEnd, CallObserver, CallRequest, CancelToken, EffectClass, Engine, EngineConfig, Grants,
    Limit, Limits, LogLevel,
};
use deed_tests::guests::MISBEHAVE;
use deed_tests::receiver::{Reaction, Receiver};
use deed_tests::{Deed, Sandbox, project_root};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// A row of the table: default, setting, message.
struct Row {
    default: String,
    setting: String,
    message: String,
}

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let readme = fs::read_to_string(project_root().join("README.md")).unwrap();
    let (_, section) = readme.split_once("\n## Limits of a call\n").unwrap();
    let rows = section.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| "));
    rows.skip(1)
        .map(|line| {
            let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [_, default, setting, message] = cells.try_into().unwrap();
            let own = |text: &str| text.to_owned();
            Row { default: own(default), setting: own(setting.trim_matches('`')), message: own(message) }
        })
        .collect()
});

/// Without its numbers and their units, which differ by what was set.
fn masked(text: &str) -> String {
    let mut masked = String::new();
    for c in text.chars() {
        let in_number = c.is_ascii_digit() || c == '.' && masked.ends_with('#');
        if !in_number {
            masked.push(c);
        } else if !masked.ends_with('#') {
            masked.push('#');
        }
    }
    masked.replace("KiB", "MiB")
}

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::bare();
    sandbox.install("misbehave", MISBEHAVE);
    fs::write(sandbox.workspace().join("a.txt"), "alpha\n").unwrap();
    sandbox
}

/// One call by the binary, told in full.
fn call(sandbox: &Sandbox, tool: &str, input: &Value) -> Deed {
    let tools = sandbox.tools();
    sandbox.call(tool, input).args(["--tools", tools.to_str().unwrap(), "-v", "--format", "text"])
}

fn grant(sandbox: &Sandbox, settings: &str) {
    sandbox.set_operator(&format!("[[grants]]\ntool = \"*\"\n{settings}\n"));
}

/// How each limit is reached: what is set to what, and the call that does it.
const PROVOKED: [(&str, u64, &str, &str); 11] = [
    ("memory_bytes", 16 << 20, "hog", "{}"),
    ("timeout_ms", 50, "spin", "{}"),
    ("stack_bytes", 64 << 10, "recurse", "{}"),
    ("table_elements", 1, "clock", "{}"),
    ("input_bytes", 10, "escape", r#"{"path":"a.txt"}"#),
    ("output_bytes", 100, "big_result", r#"{"size_bytes":101}"#),
    ("stdio_bytes", 1 << 20, "flood", "{}"),
    ("log_lines", 5, "progress_flood", "{}"),
    ("handles", 16, "open_files", r#"{"path":"a.txt","count":17}"#),
    ("host_call_bytes", 64 << 10, "big_result", r#"{"size_bytes":65537}"#),
    ("cancel_grace_ms", 10, "wait_for", r#"{"path":"never"}"#),
];

#[test]
fn each_limit_that_is_reached_says_which_it_is_in_the_words_of_the_page() {
    let sandbox = sandbox();
    for (setting, value, tool, input) in PROVOKED {
        let row =
            ROWS.iter().find(|row| row.setting == setting).unwrap_or_else(|| panic!("no row `{setting}`"));
        if setting == "stack_bytes" {
            sandbox.set_operator(&format!("[engine]\n{setting} = {value}\n"));
        } else {
            grant(&sandbox, &format!("{setting} = {value}"));
        }
        let deed = call(&sandbox, tool, &serde_json::from_str(input).unwrap());
        let ended = if setting == "cancel_grace_ms" {
            let mut running = deed.start();
            running.until_said("waiting");
            let pid = Pid::from_raw(running.pid().cast_signed()).unwrap();
            // The second signal of one kind could be lost in the first; of two kinds none is.
            for signal in [Signal::INT, Signal::TERM] {
                kill_process(pid, signal).unwrap();
            }
            running.wait()
        } else {
            deed.run()
        };
        let ended = ended.expect_code(1);
        assert!(row.message.contains(&format!("`{setting}`")), "{}", row.message);
        assert!(masked(&ended.stderr).contains(&masked(&row.message)), "`{}` is not in {ended}", row.message);
        assert!(!ended.stderr.contains("panicked at"), "{ended}");
    }
    let told: Vec<_> = PROVOKED.iter().map(|(setting, ..)| *setting).collect();
    for row in ROWS.iter().filter(|row| row.setting != "parallel_calls") {
        assert!(
            told.contains(&row.setting.as_str()),
            "`{}` is on the page, and nobody tries it",
            row.setting
        );
    }
    for limit in Limit::ALL.into_iter().filter(|limit| *limit != Limit::CommandMemory) {
        assert!(ROWS.iter().any(|row| row.setting == limit.name()), "{limit} is not on the page");
    }
}

#[test]
fn each_default_is_what_the_page_says() {
    let Limits { memory_bytes, table_elements, output_bytes, stdio_bytes, .. } = Limits::default();
    let Limits { log_lines, handles, host_call_bytes, cancel_grace, .. } = Limits::default();
    let mib = |bytes: usize| format!("{} MiB", bytes >> 20);
    for (setting, default) in [
        ("memory_bytes", mib(memory_bytes)),
        ("stack_bytes", mib(WASM_STACK_BYTES)),
        ("table_elements", table_elements.to_string()),
        ("input_bytes", mib(deed::arguments::ARGUMENT_BYTES)),
        ("output_bytes", mib(output_bytes)),
        ("stdio_bytes", mib(usize::try_from(stdio_bytes).unwrap())),
        ("log_lines", log_lines.to_string()),
        ("handles", handles.to_string()),
        ("host_call_bytes", mib(host_call_bytes)),
        ("cancel_grace_ms", format!("{} s", cancel_grace.as_secs())),
        ("parallel_calls", PARALLEL_CALLS.to_string()),
    ] {
        let row = ROWS.iter().find(|row| row.setting == setting).unwrap();
        assert_eq!(row.default, default, "{setting}");
    }
}

#[test]
fn a_setting_that_cannot_be_is_refused_with_what_it_may_be_before_anything_is_written() {
    let sandbox = sandbox();
    for (file, told) in [
        (
            "[[grants]]\ntool = \"hog\"\nmemory_bytes = 4294967297\n",
            "the grant of `hog`: `memory_bytes` is 4294967297; it may be from 65536 to 4294967296",
        ),
        ("[[grants]]\ntool = \"*\"\nhandles = 3\n", "`handles` is 3; it may be from 16 to 65536"),
        ("[engine]\nparallel_calls = 0\n", "`engine`: `parallel_calls` is 0; it may be from 1 to 1000"),
        ("[engine]\nstack_bytes = 1\n", "`stack_bytes` is 1; it may be from 65536 to 67108864"),
    ] {
        sandbox.set_operator(file);
        let refused = call(&sandbox, "clock", &json!({})).run().expect_code(2);
        assert!(refused.stderr.contains(told) && refused.stderr.contains("deed.toml"), "{refused}");
    }
    sandbox.set_operator("");
    let grants = json!([{ "tool": "*", "timeout_ms": 0 }]);
    sandbox.set_mission(&json!({ "objective": "", "calls": [], "grants": grants }));
    let refused = sandbox.run(None).run().expect_code(2);
    assert!(refused.stderr.contains("`timeout_ms` is 0; it may be from 1 to 604800000"), "{refused}");
    assert!(!sandbox.journal().exists());
}

#[test]
fn of_each_limit_the_first_grant_that_names_it_decides_and_a_workspace_sets_up_no_engine() {
    let sandbox = sandbox();
    grant(&sandbox, "output_bytes = 100");
    let big = |size: usize| call(&sandbox, "big_result", &json!({ "size_bytes": size })).run();
    let _ = big(101).expect_code(1);
    // The workspace's own file counts before the user's.
    let own = sandbox.workspace().join("deed.toml");
    let mut text = "[[grants]]\ntool = \"big_result\"\noutput_bytes = 1000\n".to_owned();
    fs::write(&own, &text).unwrap();
    let _ = big(101).expect_code(0);
    let _ = big(1_001).expect_code(1);
    writeln!(text, "[engine]\nparallel_calls = 2").unwrap();
    fs::write(&own, &text).unwrap();
    let refused = big(1).expect_code(2);
    assert!(refused.stderr.contains("move `engine` to the `deed.toml` of your configuration"), "{refused}");
}

#[test]
fn the_time_that_a_command_or_a_server_takes_is_the_calls_own() {
    let sandbox = sandbox();
    let receiver = Receiver::scripted(false, |_, _| Reaction::Silence);
    grant(&sandbox, &format!("timeout_ms = 500\nhosts = [\"{}\"]", receiver.origin()));
    for (tool, input) in [
        ("shell", json!({ "command": "exec sleep 600" })),
        ("http_get", json!({ "url": receiver.url("/") })),
        ("hangs_in_host_call", json!({ "duration_ms": 600_000 })),
    ] {
        let ended = call(&sandbox, tool, &input).run().expect_code(1);
        let told = format!("`{tool}` ran out of time after 500 ms (`timeout_ms`)");
        assert!(ended.stderr.contains(&told), "{ended}");
    }
}

/// Counts who is asleep.
#[derive(Default)]
struct Asleep {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl CallObserver for Asleep {
    fn log(&self, _: LogLevel, message: &str) {
        match message {
            "sleeps" => {
                let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
                self.most.fetch_max(now, Ordering::SeqCst);
            }
            "slept" => {
                self.now.fetch_sub(1, Ordering::SeqCst);
            }
            _ => {}
        }
    }

    fn progress(&self, _: u64, _: Option<u64>, _: &str) {}

    fn checkpoint(&self, _: &[u8]) -> Result<(), String> {
        Ok(())
    }
}

/// Twice as many calls as there is time for in what one of them may take: were the wait a part of it, the last would fail.
#[test]
fn calls_beyond_the_limit_wait_for_their_instance_which_takes_none_of_their_time() {
    const LIMIT: u32 = 2;
    const CALLS: u64 = 80;
    const SLEEP_MS: u64 = 50;
    let cache_dir = Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled"));
    let config = EngineConfig { cache_dir, parallel_calls: LIMIT, ..EngineConfig::default() };
    let engine = Engine::new(config).unwrap();
    let plugin = engine.load("misbehave", MISBEHAVE).unwrap();
    let asleep = Arc::new(Asleep::default());
    let observer: Arc<dyn CallObserver> = asleep.clone();
    let timeout = Duration::from_millis(CALLS * SLEEP_MS / u64::from(LIMIT) / 2);
    std::thread::scope(|scope| {
        for _ in 0..CALLS {
            scope.spawn(|| {
                let end = engine.invoke(
                    &plugin,
                    &CallRequest {
                        tool: "hangs_in_host_call",
                        args: &json!({ "duration_ms": SLEEP_MS }).to_string(),
                        grants: &Grants { class: EffectClass::Pure, ..Grants::nothing() },
                        context: CallContext { idempotency_key: "k", attempt: 1, session: "", receipt: None },
                        seed: [7; 32],
                        clock_ms: 0,
                        timeout,
                        limits: &Limits::default(),
                        observer: &observer,
                        cancel: &CancelToken::new(),
                        stage: None,
                        lock: None,
                    },
                );
                assert!(matches!(end, CallEnd::Completed(_)), "{end:?}");
            });
        }
    });
    assert_eq!(asleep.most.load(Ordering::SeqCst), LIMIT as usize);
}
