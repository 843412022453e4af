//! A directory of a test's own, with everything a run needs.

use std::{
    ffi::OsStr,
    fs::{self, File},
    path::{Path, PathBuf},
};

use deed::crash_test::CrashTest;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    Deed, Kill, Repository, StepRow, Tree, Wait, binary::shared_cache_dir, copy_tree, deed_binary,
    project_root, read_tree,
};

/// The seed of every sandbox that does not choose its own: two runs of one mission give equal bytes.
const SEED: &str = "7";

/// A workspace that is a git repository, a mission, and room for a journal. Everything goes when it is dropped.
pub struct Sandbox {
    root: TempDir,
    seed: String,
}

impl Sandbox {
    /// With a copy of a mission from `tests/missions`.
    pub fn of(mission: &str) -> Self {
        let source = project_root().join("tests/missions").join(mission);
        let sandbox = Self::bare();
        copy_tree(&source.join("workspace"), &sandbox.workspace())
            .unwrap_or_else(|error| panic!("failed to copy the mission `{mission}`: {error}"));
        fs::copy(source.join("mission.json"), sandbox.mission()).expect("a mission has a file of its own");
        Repository::init(&sandbox.workspace());
        sandbox
    }

    /// With a mission given as JSON and the files of its workspace.
    pub fn with(mission: &Value, files: &[(&str, &str)]) -> Self {
        let sandbox = Self::bare();
        for (path, content) in files {
            let path = sandbox.workspace().join(path);
            fs::create_dir_all(path.parent().expect("it is below the workspace"))
                .expect("a fresh directory is writable");
            fs::write(path, content).expect("a fresh directory is writable");
        }
        sandbox.set_mission(mission);
        Repository::init(&sandbox.workspace());
        sandbox
    }

    /// With an empty workspace that is no repository yet, and no mission.
    pub fn bare() -> Self {
        // The system's own place for such things: below the project, git would take the project for the repository.
        let root = tempfile::Builder::new()
            .prefix("deed-test-")
            .tempdir()
            .expect("the system has room for a directory");
        let sandbox = Self { root, seed: SEED.to_owned() };
        for dir in [sandbox.workspace(), sandbox.home()] {
            fs::create_dir(dir).expect("a fresh directory is writable");
        }
        sandbox
    }

    /// Take another seed for the ids.
    #[must_use]
    pub fn seeded(mut self, seed: &str) -> Self {
        seed.clone_into(&mut self.seed);
        self
    }

    /// Its directory.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// The workspace.
    pub fn workspace(&self) -> PathBuf {
        self.root().join("workspace")
    }

    /// The mission's file.
    pub fn mission(&self) -> PathBuf {
        self.root().join("mission.json")
    }

    /// The journal's file; it is not there before the first run.
    pub fn journal(&self) -> PathBuf {
        self.root().join("journal.redb")
    }

    /// Where every request to the model is written down.
    pub fn model_log(&self) -> PathBuf {
        self.root().join("model.jsonl")
    }

    /// What the processes take for the user's home.
    pub fn home(&self) -> PathBuf {
        self.root().join("home")
    }

    /// Write the user's own `deed.toml`.
    pub fn set_operator(&self, text: &str) {
        let directory = self.config();
        fs::create_dir_all(&directory).expect("the sandbox is writable");
        fs::write(directory.join("deed.toml"), text).expect("the sandbox is writable");
    }

    /// Let no call be contained: what a command does is there at once, and after a crash nobody knows of it.
    #[must_use]
    pub fn uncontained(self) -> Self {
        self.contain_nothing();
        self
    }

    /// The same, in addition to what the user's own `deed.toml` says.
    pub(crate) fn contain_nothing(&self) {
        const RULE: &str = "[[policy]]\ntool = \"*\"\ndecision = \"allow\"\ncontain = \"never\"\n";
        let said = fs::read_to_string(self.config().join("deed.toml")).unwrap_or_default();
        if !said.contains(RULE) {
            self.set_operator(&format!("{said}{RULE}"));
        }
    }

    /// Where the processes find the user's own settings.
    pub fn config(&self) -> PathBuf {
        self.home().join("config/deed")
    }

    /// Write another mission.
    pub fn set_mission(&self, mission: &Value) {
        let text = serde_json::to_string_pretty(mission).expect("a JSON value can be printed");
        fs::write(self.mission(), text).expect("the sandbox is writable");
    }

    /// A process with this sandbox's journal, in JSON.
    pub fn deed<I, S>(&self, args: I) -> Deed
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.deed_on(&self.journal(), args)
    }

    /// A line of the shell, typed in a directory: `deed` in it is the binary under test, in text, with ids that are the same
    /// each time.
    pub fn typed(&self, directory: &Path, line: &str) -> Deed {
        Deed::typed(&self.home(), directory, line, &["--deterministic", &self.seed])
    }

    /// A process with another journal, in JSON.
    pub fn deed_on<I, S>(&self, journal: &Path, args: I) -> Deed
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.timed(journal, args).args(["--deterministic", &self.seed])
    }

    /// The same with the real clock and random ids: later than every instant of the fixed clock.
    pub fn deed_today<I, S>(&self, args: I) -> Deed
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.timed(&self.journal(), args)
    }

    fn timed<I, S>(&self, journal: &Path, args: I) -> Deed
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let deed = Deed::new(&self.home())
            .args([OsStr::new("--journal"), journal.as_os_str()])
            .args(["--format", "json"]);
        let tools = self.tools();
        let deed = if tools.is_dir() { deed.args([OsStr::new("--tools"), tools.as_os_str()]) } else { deed };
        deed.args(args)
    }

    /// Where further plugins are looked for, once there is one.
    pub fn tools(&self) -> PathBuf {
        self.root().join("tools")
    }

    /// Install a plugin, or another version of it.
    pub fn install(&self, name: &str, component: &[u8]) {
        fs::create_dir_all(self.tools()).expect("the sandbox is writable");
        fs::write(self.tools().join(name).with_extension("wasm"), component)
            .expect("the sandbox is writable");
    }

    /// The first process of the mission.
    pub fn run(&self, kill: Option<Kill>) -> Deed {
        let deed = self.deed([OsStr::new("run"), self.mission().as_os_str()]);
        let deed = deed.args([OsStr::new("--workspace"), self.workspace().as_os_str()]);
        self.observed(deed, kill)
    }

    /// A further process, which goes on with the oldest unfinished run.
    pub fn resume(&self, kill: Option<Kill>) -> Deed {
        self.observed(self.deed(["resume"]), kill)
    }

    /// One call in the workspace.
    pub fn call(&self, tool: &str, input: &Value) -> Deed {
        let deed = self.deed(["call", tool, &input.to_string()]);
        deed.args([OsStr::new("--workspace"), self.workspace().as_os_str()])
    }

    /// A crash test of the mission, from within the test's own process.
    pub fn crash_test(&self) -> CrashTest {
        let test = CrashTest::new(deed_binary(), self.mission()).workspace(self.workspace());
        let test = if self.tools().is_dir() { test.tools(self.tools()) } else { test };
        test.variable("HOME", self.home())
            .variable("XDG_CONFIG_HOME", self.home().join("config"))
            .variable("XDG_CACHE_HOME", shared_cache_dir())
    }

    fn observed(&self, deed: Deed, kill: Option<Kill>) -> Deed {
        let deed = deed.args([OsStr::new("--model-log"), self.model_log().as_os_str()]);
        match kill {
            Some(kill) => deed.args(["--kill-at", &kill.to_string()]),
            None => deed,
        }
    }

    /// A named pipe outside the workspace, and both its ends, so that neither waits for the other. A command that reads
    /// from it goes on when the test says so.
    pub fn fifo(&self, name: &str) -> (PathBuf, File) {
        let path = self.root().join(name);
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .expect("a fresh directory is writable");
        let ends = File::options().read(true).write(true).open(&path).expect("it was just made");
        (path, ends)
    }

    /// The open waits.
    #[track_caller]
    pub fn waits(&self) -> Vec<Wait> {
        self.deed(["waits"]).run().expect_code(0).json()
    }

    /// The steps of a run.
    #[track_caller]
    pub fn steps(&self, run: &str) -> Vec<StepRow> {
        self.deed(["steps", run]).run().expect_code(0).json()
    }

    /// The files of the workspace.
    #[track_caller]
    pub fn files(&self) -> Tree {
        read_tree(&self.workspace()).expect("the workspace can be read")
    }

    /// The workspace's repository.
    #[track_caller]
    pub fn repository(&self) -> Repository {
        Repository::open(&self.workspace()).expect("the workspace is a repository")
    }
}
