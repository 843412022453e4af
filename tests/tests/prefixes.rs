//! Every prefix of a run's commits: a run whose journal ends after any of them comes to the same end.
//!
//! The reference mission runs in this process on a store that keeps a copy of itself, and of the workspace, at every
//! commit, riding ones included. Then each prefix is taken on, twice: with the workspace as it was when the prefix was
//! committed, and as it was when the next commit began. The first is a crash before the call that the prefix leads to,
//! the second a crash after it, before its outcome was recorded. There are no start marks, as after a reboot: an intent
//! without an outcome may have run.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::{fs, io};

use deed::boundary::Unarmed;
use deed::engine::{CancelToken, Engine, EngineConfig, Limits};
use deed::mission::Spec;
use deed::runner::{Host, RunOptions, Runner};
use deed::sources::{FixedClock, SeededEntropy};
use deed::standard::standard_plugins;
use deed::toolbox::{PluginSource, Toolbox};
use deed::watch::{Owner, Reply, Unwatched};
use deed_journal::test_support::{MemoryStore, Snapshot, Storage, Transaction};
use deed_journal::{
    Asked, Durability, Idle, IoCounts, Journal, MessageBody, Options, RunId, RunStatus, StepKind, StepStatus,
    StorageError, WaitKind,
};
use deed_tests::{Repository, Tree, project_root, read_tree};
use walkdir::WalkDir;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// A store that keeps a copy of everything at each commit.
struct Recording {
    inner: MemoryStore,
    workspace: std::path::PathBuf,
    copies: Arc<Mutex<Vec<Copy>>>,
}

/// What was there after a commit, and how the workspace was when it began.
struct Copy {
    pairs: Pairs,
    workspace: tempfile::TempDir,
}

impl Storage for Recording {
    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, StorageError> {
        self.inner.snapshot()
    }

    fn begin(&self) -> Result<Box<dyn Transaction + '_>, StorageError> {
        Ok(Box::new(RecordingTransaction { inner: self.inner.begin()?, store: self }))
    }

    fn io_counts(&self) -> IoCounts {
        self.inner.io_counts()
    }
}

struct RecordingTransaction<'a> {
    inner: Box<dyn Transaction + 'a>,
    store: &'a Recording,
}

impl Snapshot for RecordingTransaction<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.inner.get(key)
    }

    fn scan(&self, prefix: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StorageError> {
        self.inner.scan(prefix, each)
    }
}

impl Transaction for RecordingTransaction<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StorageError> {
        self.inner.put(key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), StorageError> {
        self.inner.delete(key)
    }

    fn commit(self: Box<Self>, durability: Durability) -> Result<(), StorageError> {
        let mut pairs = Vec::new();
        self.inner.scan(&[], &mut |key, value| {
            pairs.push((key.to_vec(), value.to_vec()));
            true
        })?;
        let workspace = tempfile::tempdir().unwrap();
        copy_all(&self.store.workspace, workspace.path()).unwrap();
        self.store.copies.lock().unwrap().push(Copy { pairs, workspace });
        self.inner.commit(durability)
    }
}

/// Copy a directory with its git directory and its empty directories. Copying nothing but files would lose refs' places.
fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    for entry in WalkDir::new(from) {
        let entry = entry?;
        let target = to.join(entry.path().strip_prefix(from).unwrap());
        if entry.file_type().is_dir() {
            fs::create_dir_all(target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Says yes, and knows whether the command happened.
struct Knowing {
    happened: bool,
    asked: Mutex<Vec<WaitKind>>,
}

impl Owner for Knowing {
    fn ask(&self, question: &Asked) -> Option<Reply> {
        self.asked.lock().unwrap().push(question.kind);
        let option = match (question.kind, self.happened) {
            (WaitKind::Reconcile, true) => "happened",
            (WaitKind::Reconcile, false) => "did-not-happen",
            _ => "yes",
        };
        Some(Reply { option: option.to_owned(), text: None })
    }
}

struct Lab {
    engine: Arc<Engine>,
    root: tempfile::TempDir,
}

impl Lab {
    fn new() -> Self {
        let cache_dir = Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled"));
        let engine = Engine::new(EngineConfig { cache_dir, ..EngineConfig::default() }).unwrap();
        Self { engine: Arc::new(engine), root: tempfile::tempdir().unwrap() }
    }

    /// The same path in every case: the run remembers it.
    fn workspace(&self) -> std::path::PathBuf {
        self.root.path().join("workspace")
    }

    fn restore(&self, from: &Path) {
        let workspace = self.workspace();
        if workspace.exists() {
            fs::remove_dir_all(&workspace).unwrap();
        }
        copy_all(from, &workspace).unwrap();
    }

    fn host(&self, storage: Arc<dyn Storage>, owner: Arc<dyn Owner>) -> Host {
        let sources = standard_plugins().map(|(name, bytes)| PluginSource::new(name, bytes));
        let options = Options { entropy: Arc::new(SeededEntropy::new(7, 0)), boot: None, idle: Idle::Never };
        Host {
            journal: Arc::new(Journal::open_storage(storage, options).unwrap()),
            toolbox: Toolbox::load(Arc::clone(&self.engine), &sources),
            clock: Arc::new(FixedClock),
            entropy: Arc::new(SeededEntropy::new(7, 1)),
            boundaries: Arc::new(Unarmed),
            watcher: Arc::new(Unwatched),
            owner,
            config_dir: None,
            beside: None,
            locks_dir: None,
            on_unknown: deed::runner::OnUnknown::Ask,
            limits: Limits::default(),
            cancel: CancelToken::new(),
            stop: Arc::default(),
        }
    }
}

/// Everything that must come out the same.
#[derive(Debug, Clone, PartialEq)]
struct End {
    status: RunStatus,
    result: Option<String>,
    turns: u64,
    calls: u64,
    transcript: Vec<MessageBody>,
    shape: Vec<(StepKind, String, StepStatus)>,
    files: Tree,
    history: Vec<String>,
    changes: Vec<String>,
}

impl End {
    fn of(host: &Host, run: RunId, workspace: &Path) -> Self {
        let reader = host.journal.read();
        let record = reader.run(run).unwrap().unwrap();
        let repository = Repository::open(workspace).unwrap();
        Self {
            status: record.status,
            result: record.result.clone(),
            turns: record.usage.turns,
            calls: record.usage.calls,
            transcript: reader
                .transcript(record.session)
                .unwrap()
                .into_iter()
                .map(|message| message.body)
                .collect(),
            shape: reader
                .steps(run)
                .unwrap()
                .into_iter()
                .map(|step| (step.planned.kind, step.planned.name.clone(), step.status()))
                .collect(),
            files: read_tree(workspace).unwrap(),
            history: repository.history().unwrap().iter().map(|commit| commit.id.to_string()).collect(),
            changes: repository.status().unwrap(),
        }
    }

    /// The command's result, which the owner words after a crash that left it unknown.
    fn without_the_command(mut self) -> Self {
        for body in &mut self.transcript {
            if let Some(result) = body.result.as_mut().filter(|result| result.tool == "shell") {
                result.text.clear();
                body.text.clear();
            }
        }
        self
    }
}

#[test]
fn every_prefix_of_the_commits_comes_to_the_same_end() {
    let lab = Lab::new();
    let mission = project_root().join("tests/missions/fix-add");
    let workspace = lab.workspace();
    copy_all(&mission.join("workspace"), &workspace).unwrap();
    drop(Repository::init(&workspace));

    let copies = Arc::new(Mutex::new(Vec::new()));
    let recording =
        Recording { inner: MemoryStore::new(), workspace: workspace.clone(), copies: Arc::clone(&copies) };
    let owner = Arc::new(Knowing { happened: true, asked: Mutex::default() });
    let host = lab.host(Arc::new(recording), Arc::clone(&owner) as _);
    let spec = Spec::read(&mission.join("mission.json")).unwrap();
    let run = host.create_run(&RunOptions { spec, workspace: workspace.clone() }).unwrap();
    Runner::load(&host, run).unwrap().drive().unwrap();
    assert_eq!(*owner.asked.lock().unwrap(), [WaitKind::Question]);
    let reference = End::of(&host, run, &workspace);
    assert_eq!(reference.status, RunStatus::Done);
    drop(host);
    let copies = std::mem::take(&mut *copies.lock().unwrap());

    // Until the run is created there is nothing to take on; the last commit ends it, the one after closes the store.
    let created = copies.iter().position(|copy| copy.pairs.iter().any(|(key, _)| key[0] == b'R')).unwrap();
    let mut table = Vec::new();
    for index in created..copies.len() {
        for later in [false, true] {
            let Some(seen) = copies.get(index + usize::from(later)) else { continue };
            lab.restore(seen.workspace.path());
            table.push(take_on(&lab, run, &copies[index].pairs, later, &reference));
        }
    }
    for line in &table {
        println!("{line}");
    }
    assert_eq!(table, TABLE, "which steps ran again, by prefix");
}

/// Take one prefix on, compare its end, and say which steps ran again and what the owner was asked.
fn take_on(lab: &Lab, run: RunId, pairs: &Pairs, later: bool, reference: &End) -> String {
    let store = MemoryStore::new();
    let mut transaction = store.begin().unwrap();
    for (key, value) in pairs {
        transaction.put(key, value).unwrap();
    }
    transaction.commit(Durability::Durable).unwrap();
    let owner = Arc::new(Knowing { happened: later, asked: Mutex::default() });
    let host = lab.host(Arc::new(store), Arc::clone(&owner) as _);
    let settled =
        host.journal.read().steps(run).unwrap().iter().filter(|step| step.outcome.is_some()).count();
    Runner::load(&host, run).unwrap().drive().unwrap();

    let end = End::of(&host, run, &lab.workspace());
    let asked = owner.asked.lock().unwrap().clone();
    if asked.contains(&WaitKind::Reconcile) && later {
        assert_eq!(end.without_the_command(), reference.clone().without_the_command());
    } else {
        assert_eq!(end, *reference);
    }
    let steps = host.journal.read().steps(run).unwrap();
    let again: Vec<_> = steps
        .iter()
        .filter(|step| step.attempt() > 1)
        .map(|step| format!("{} {}", step.seq, step.planned.name))
        .collect();
    let asked = if asked.contains(&WaitKind::Reconcile) { ", the owner asked" } else { "" };
    let crash = if later { "after" } else { "before" };
    format!("{settled} {crash}: [{}]{asked}", again.join(", "))
}

/// By prefix: how many steps it settles, whether the crash came before or after the call it leads to, and what ran again.
/// A step runs again when its intent is there and its outcome is not; the command is asked about instead, and runs again
/// when it did not happen. Two prefixes settle ten steps: the second has the receipt of the edit.
const TABLE: &[&str] = &[
    "0 before: []",
    "0 after: []",
    "1 before: [2 git_branch]",
    "1 after: [2 git_branch]",
    "3 before: [4 scripted]",
    "3 after: [4 scripted]",
    "4 before: []",
    "4 after: []",
    "5 before: []",
    "5 after: []",
    "6 before: []",
    "6 after: []",
    "7 before: []",
    "7 after: []",
    "8 before: [9 scripted]",
    "8 after: [9 scripted]",
    "9 before: [10 write_file]",
    "9 after: [10 write_file]",
    "10 before: [11 edit_file]",
    "10 after: [11 edit_file]",
    "10 before: [11 edit_file]",
    "10 after: [11 edit_file]",
    "12 before: [13 scripted]",
    "12 after: [13 scripted]",
    "13 before: [14 shell], the owner asked",
    "13 after: [], the owner asked",
    "15 before: [16 scripted]",
    "15 after: [16 scripted]",
    "16 before: [17 git_commit]",
    "16 after: [17 git_commit]",
    "18 before: [19 scripted]",
    "18 after: [19 scripted]",
    "19 before: []",
    "19 after: []",
    "19 before: []",
    "19 after: []",
    "23 before: [24 scripted]",
    "23 after: [24 scripted]",
    "25 before: []",
    "25 after: []",
    "27 before: [28 scripted]",
    "27 after: [28 scripted]",
    "29 before: []",
    "29 after: []",
    "29 before: []",
];
