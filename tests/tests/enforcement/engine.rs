//! Calls of `tests/guests/forbidden` through the engine, and the world they are made in.

use std::collections::BTreeMap;
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use deed::engine::{
    CallContext, CallEnd, CallObserver, CallRequest, CancelToken, Content, EffectClass, Engine, EngineConfig,
    Grants, Limits, LogLevel, Output, Plugin, Verdict,
};
use deed_tests::Repository;
use deed_tests::guests::FORBIDDEN;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;
use std::sync::Mutex;
use tempfile::TempDir;

/// 2026-01-02T03:04:05Z: no test depends on the real date.
pub const CLOCK_MS: u64 = 1_767_323_045_000;

pub fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let cache_dir = Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled"));
        Engine::new(EngineConfig { cache_dir, ..EngineConfig::default() }).unwrap()
    })
}

pub fn forbidden() -> Plugin {
    engine().load("forbidden", FORBIDDEN).unwrap()
}

/// Keeps what the operator is warned of.
#[derive(Default)]
struct Warnings(Mutex<Vec<String>>);

impl CallObserver for Warnings {
    fn log(&self, level: LogLevel, message: &str) {
        if level >= LogLevel::Warn {
            self.0.lock().unwrap().push(message.to_owned());
        }
    }

    fn progress(&self, _: u64, _: Option<u64>, _: &str) {}

    fn checkpoint(&self, _: &[u8]) -> Result<(), String> {
        Ok(())
    }
}

/// As what a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum As {
    Pure,
    Idempotent,
    NonIdempotent,
    Probe,
}

impl As {
    pub const ALL: [Self; 4] = [Self::Pure, Self::Idempotent, Self::NonIdempotent, Self::Probe];

    pub fn tool(self) -> &'static str {
        match self {
            Self::Pure => "try_pure",
            Self::Idempotent => "try_idempotent",
            Self::NonIdempotent | Self::Probe => "try_non_idempotent",
        }
    }

    /// How the host names tool and class.
    pub fn named(self) -> &'static str {
        match self {
            Self::Pure => "`try_pure`, called as `pure`",
            Self::Idempotent => "`try_idempotent`, called as `idempotent`",
            Self::NonIdempotent => "`try_non_idempotent`, called as `non-idempotent`",
            Self::Probe => "`try_non_idempotent`, asked by its probe",
        }
    }

    pub fn class(self) -> EffectClass {
        match self {
            Self::Pure => EffectClass::Pure,
            Self::Idempotent => EffectClass::Idempotent,
            Self::NonIdempotent | Self::Probe => EffectClass::NonIdempotent,
        }
    }
}

/// What the guest said, and what the host remembers of having refused.
#[derive(Debug, PartialEq, Eq)]
pub struct Tried {
    pub said: String,
    pub refused: Vec<String>,
}

/// Try an act in a workspace, with a seed.
pub fn attempt(who: As, (act, path, other): (&str, &str, &str), grants: &Grants, seed: u8) -> Tried {
    let args = json!({ "act": act, "path": path, "other": other }).to_string();
    let warnings = Arc::new(Warnings::default());
    let observer: Arc<dyn CallObserver> = warnings.clone();
    let request = CallRequest {
        tool: who.tool(),
        args: &args,
        grants,
        context: CallContext { idempotency_key: "0123456789abcdef", attempt: 1, session: "", receipt: None },
        seed: [seed; 32],
        clock_ms: CLOCK_MS,
        timeout: Duration::from_mins(1),
        limits: &Limits::default(),
        observer: &observer,
        cancel: &CancelToken::new(),
        stage: None,
        lock: None,
    };
    let output = match who {
        As::Probe => match engine().probe(&forbidden(), &request) {
            Ok(Verdict::Landed(output)) => output,
            other => panic!("the guest always answers so: {other:?}"),
        },
        _ => match engine().invoke(&forbidden(), &request) {
            CallEnd::Completed(output) => output,
            other => panic!("the guest swallows every refusal: {other:?}"),
        },
    };
    Tried { said: text(&output), refused: warnings.0.lock().unwrap().clone() }
}

fn text(output: &Output) -> String {
    let texts = output.content.iter().map(|part| match part {
        Content::Text(text) => text.as_str(),
        Content::Blob { .. } => "",
    });
    texts.collect()
}

/// A workspace with something of everything, what lies beside it, and somebody who listens.
pub struct World {
    root: TempDir,
    pub tcp: TcpListener,
    pub udp: UdpSocket,
}

impl World {
    pub fn new() -> Self {
        let root = tempfile::Builder::new().prefix("deed-test-").tempdir().unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        tcp.set_nonblocking(true).unwrap();
        udp.set_nonblocking(true).unwrap();
        let world = Self { root, tcp, udp };
        let (workspace, outside) = (world.workspace(), world.outside());
        for directory in [&workspace, &outside, &workspace.join("empty"), &workspace.join("full")] {
            fs::create_dir(directory).unwrap();
        }
        fs::write(outside.join("secret"), "secret\n").unwrap();
        fs::write(workspace.join("a.txt"), "alpha\n").unwrap();
        fs::write(workspace.join("full/b.txt"), "beta\n").unwrap();
        fs::write(workspace.join("deed.toml"), "# the operator's\n").unwrap();
        fs::hard_link(workspace.join("deed.toml"), workspace.join("hard")).unwrap();
        for (link, target) in [
            ("inside", "a.txt"),
            ("relative", "../outside/secret"),
            ("relative-directory", "../outside"),
            ("dangling", "full/nothing"),
            ("soft", "deed.toml"),
        ] {
            symlink(target, workspace.join(link)).unwrap();
        }
        symlink(outside.join("secret"), workspace.join("absolute")).unwrap();
        symlink(&outside, workspace.join("absolute-directory")).unwrap();
        symlink("/dev/zero", workspace.join("device")).unwrap();
        mknodat(CWD, workspace.join("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        world
    }

    pub fn workspace(&self) -> PathBuf {
        self.root.path().join("workspace")
    }

    fn outside(&self) -> PathBuf {
        self.root.path().join("outside")
    }

    /// Make the workspace a repository in which one file differs.
    pub fn with_repository(&self) {
        Repository::init(&self.workspace());
        fs::write(self.workspace().join("a.txt"), "changed\n").unwrap();
    }

    /// Everything below the two directories, with what can be changed of it.
    pub fn look(&self) -> Seen {
        let mut seen = BTreeMap::new();
        look_into(self.root.path(), &mut seen);
        Seen(seen)
    }
}

/// What there was, by path.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen(BTreeMap<PathBuf, String>);

impl Seen {
    /// What lies outside of a directory.
    pub fn outside(&self, directory: &Path) -> Vec<(&PathBuf, &String)> {
        self.0.iter().filter(|(path, _)| !path.starts_with(directory)).collect()
    }
}

fn look_into(directory: &Path, seen: &mut BTreeMap<PathBuf, String>) {
    for entry in directory.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let metadata = path.symlink_metadata().unwrap();
        let what = if metadata.is_dir() {
            look_into(&path, seen);
            "directory".to_owned()
        } else if metadata.is_symlink() {
            format!("link to {}", path.read_link().unwrap().display())
        } else if metadata.is_file() {
            let content = fs::read(&path).unwrap();
            format!("{} {} {}", metadata.mtime_nsec(), metadata.nlink(), String::from_utf8_lossy(&content))
        } else {
            "special".to_owned()
        };
        seen.insert(path, what);
    }
}
