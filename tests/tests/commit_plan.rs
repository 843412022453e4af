//! The commit plan, counted: how often a run waits for the disk, turn by turn, against the rules that say when it must.
//!
//! Real plugins and a real journal, in this process. Nobody tells the journal that it is idle, and its file has room, so a
//! sync is one that the plan asked for. (A file that grows is synced once more for it, so that no crash can leave it shorter
//! than it says; it grows by half or more, hence ever more rarely.) The random batches are seeded; the seed is printed, and `DEED_SEED=N` plays them again. The control,
//! that a wrong count is noticed, is the table of counts written out by hand.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use deed::beside::Beside;
use deed::boundary::Unarmed;
use deed::engine::{CancelToken, Engine, EngineConfig, Limits};
use deed::mission::{Call, Network, Spec};
use deed::model::{Model, ModelAnswer, ModelError, ModelRequest};
use deed::runner::{CallOptions, Host, RunError, RunOptions, Runner};
use deed::sources::{FixedClock, SeededEntropy, SystemEntropy};
use deed::standard::standard_plugins;
use deed::toolbox::{PluginSource, Toolbox};
use deed::watch::{Absent, Owner, Reply, Unwatched};
use deed_journal::{
    Asked, Durability, Entropy, Idle, IoCounts, Journal, Op, Options, Run, RunId, RunStatus, SessionId,
    WaitKind,
};
use deed_tests::Repository;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::Kind::{Command, Criteria, Edit, Question, Read, Unfit, Write};

/// Tokens in the file that edits change, one for each edit: more than any test makes.
const TOKENS: usize = 500;

/// Bytes that are in the journal from the start. Its file then has about as many free, which is more than any test writes.
const BALLAST_BYTES: usize = 4 << 20;

/// Random batches, enough that each pair of neighbours occurs many times.
const BATCHES: usize = 60;

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Pure.
    Read,
    /// Idempotent.
    Write,
    /// Idempotent, and saves a receipt.
    Edit,
    /// Non-idempotent.
    Command,
    /// The host's own: changes the run's record and nothing else.
    Criteria,
    /// The host's own: puts a question to the owner.
    Question,
    /// Refused when it is planned: its arguments do not fit.
    Unfit,
}

/// What policy and owner say about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Approval {
    NotNeeded,
    Given,
    Denied,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wish {
    kind: Kind,
    approval: Approval,
}

impl From<Kind> for Wish {
    fn from(kind: Kind) -> Self {
        Self { kind, approval: Approval::NotNeeded }
    }
}

fn approved(kind: Kind) -> Wish {
    Wish { kind, approval: Approval::Given }
}

fn denied(kind: Kind) -> Wish {
    Wish { kind, approval: Approval::Denied }
}

/// A moment in the life of a turn: something must be durable by now, or something happens that needs it so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Durable,
    Happens,
}

/// The rules of the commit plan, in the order of a turn. Only the answer in place has none of its own: an approval must
/// survive a crash during the execution that it allowed.
fn moments(batch: &[Wish]) -> Vec<Moment> {
    use Moment::{Durable, Happens};
    // Rule 1: the model's answer and the plan of its batch.
    let mut moments = vec![Durable];
    for wish in batch {
        if wish.approval != Approval::NotNeeded || wish.kind == Question {
            // The question, before anyone sees it; the answer, before anything comes of it.
            moments.extend([Durable, Happens, Durable]);
        }
        match wish.kind {
            // Nothing runs that could meet a crash.
            _ if wish.approval == Approval::Denied => {}
            Criteria | Question | Unfit => {}
            Read => moments.push(Happens),
            // Rule 2: the intent, before it executes.
            Write => moments.extend([Durable, Happens]),
            // Rule 5: the receipt, before `checkpoint` returns.
            Edit => moments.extend([Durable, Happens, Durable, Happens]),
            // Rule 3: the outcome, right after it.
            Command => moments.extend([Durable, Happens, Durable]),
        }
    }
    // Rule 4: what the model will see, before it is asked.
    moments.extend([Durable, Happens]);
    moments
}

/// Syncs of a turn: neighbouring points merge.
fn expected_syncs(batch: &[Wish]) -> u64 {
    let mut moments = moments(batch);
    moments.dedup();
    moments.iter().filter(|moment| **moment == Moment::Durable).count() as u64
}

/// The calls of turns, each with arguments that make it do what it is for.
fn calls(turns: &[Vec<Wish>]) -> Vec<Vec<Call>> {
    let mut number = 0;
    turns.iter().map(|batch| batch.iter().map(|wish| call(*wish, &mut number)).collect()).collect()
}

fn call(Wish { kind, approval }: Wish, number: &mut usize) -> Call {
    *number += 1;
    assert!(*number < TOKENS, "no token is left to edit");
    // What the policy below knows these by.
    let word = match approval {
        Approval::NotNeeded => "plain",
        Approval::Given => "asked",
        Approval::Denied => "denied",
    };
    let file = format!("{word}.txt");
    let (tool, input) = match kind {
        Read => ("read_file", json!({ "path": file })),
        Write => ("write_file", json!({ "path": format!("written-{number}.txt"), "content": word })),
        Edit => {
            let (old, new) = (format!("<{number}>"), format!("[{number}]"));
            ("edit_file", json!({ "path": file, "old": old, "new": new }))
        }
        Command => ("shell", json!({ "command": format!(": {word}") })),
        Criteria => ("update_criteria", json!({ "met": [] })),
        Question => ("ask_owner", json!({ "question": "Go on?", "options": ["yes", "no"] })),
        Unfit => ("read_file", json!({ "path": 7 })),
    };
    Call { tool: tool.to_owned(), input }
}

fn policy() -> Value {
    let rule = |tool: &str, args: Value| json!({ "tool": tool, "args": args, "decision": "ask" });
    let rules = ["asked", "denied"].map(|word| {
        let file = format!("{word}.txt");
        [
            rule("read_file", json!({ "path": file })),
            rule("write_file", json!({ "content": word })),
            rule("edit_file", json!({ "path": file })),
            rule("shell", json!({ "command": format!(": {word}") })),
        ]
    });
    json!(rules.concat())
}

fn mission(turns: &[Vec<Wish>]) -> Spec {
    let script: Vec<Value> = calls(turns).iter().map(|calls| json!({ "calls": calls })).collect();
    let mission = json!({ "objective": "Count", "policy": policy(), "model": { "script": script } });
    Spec::Mission(serde_json::from_value(mission).unwrap())
}

/// Answers every question at once.
struct AtOnce;

impl Owner for AtOnce {
    fn ask(&self, question: &Asked) -> Option<Reply> {
        let option = match question.kind {
            WaitKind::Approval if question.question.contains("denied") => "deny",
            WaitKind::Approval => "approve",
            WaitKind::Question => "yes",
            WaitKind::Reconcile | WaitKind::Conflict => panic!("nothing is unknown here: {question:?}"),
        };
        Some(Reply { option: option.to_owned(), text: None })
    }
}

/// Notes how often the disk was waited for when it is asked, and gives no answer after some.
struct Counting {
    inner: Box<dyn Model>,
    journal: Arc<Journal>,
    counts: Arc<Mutex<Vec<u64>>>,
    answers: usize,
}

impl Model for Counting {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn respond(&self, request: &ModelRequest<'_>) -> Result<ModelAnswer, ModelError> {
        let mut counts = self.counts.lock().unwrap();
        counts.push(self.journal.read().io_counts().syncs);
        if counts.len() > self.answers {
            return Err(ModelError("it was told to stop here".to_owned()));
        }
        self.inner.respond(request)
    }
}

/// A workspace and a journal, with an owner of the journal in this process.
struct Place {
    host: Host,
    dir: TempDir,
    /// One at a time: what another one's call forks has every open file of this process until it is a command, the lock of a
    /// journal that is closed and opened again meanwhile as well.
    turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

impl Place {
    fn new() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().unwrap();
        let workspace = dir.path().join("workspace");
        fs::create_dir(&workspace).unwrap();
        let tokens = (0..TOKENS).fold(String::new(), |text, number| text + "<" + &number.to_string() + ">\n");
        for name in ["plain.txt", "asked.txt", "denied.txt"] {
            fs::write(workspace.join(name), &tokens).unwrap();
        }
        let place = Self { host: host(dir.path(), Arc::new(AtOnce)), dir, turn };
        let id = |byte| [byte; 16];
        let run = Run::new(RunId::from_bytes(id(1)), SessionId::from_bytes(id(2)), id(3), "take up room", 0);
        let source = Value::String("x".repeat(BALLAST_BYTES));
        let ballast = Op::CreateRun { run: Box::new(run), source };
        place.host.journal.commit(vec![ballast], Durability::Durable).unwrap();
        place
    }

    fn journal_bytes(&self) -> u64 {
        fs::metadata(self.dir.path().join("journal.redb")).unwrap().len()
    }

    /// The journal's next owner, as after the end of the process.
    fn reopened(self, owner: Arc<dyn Owner>) -> Self {
        let Self { host, dir, turn } = self;
        drop(host);
        Self { host: self::host(dir.path(), owner), dir, turn }
    }

    fn create(&self, spec: Spec) -> RunId {
        let workspace = self.dir.path().join("workspace");
        self.host.create_run(&RunOptions { spec, workspace }).unwrap()
    }

    fn io(&self) -> IoCounts {
        self.host.journal.read().io_counts()
    }

    /// Take a run on, for so many answers of its model. The syncs at each request to it, and how it came out.
    fn drive(&self, run: RunId, answers: usize) -> (Vec<u64>, Result<RunStatus, RunError>) {
        let counts = Arc::default();
        let journal = Arc::clone(&self.host.journal);
        let counting = Arc::clone(&counts);
        let runner = Runner::load(&self.host, run).unwrap();
        let runner = runner
            .map_model(move |inner| Box::new(Counting { inner, journal, counts: counting, answers }) as _);
        let room = self.journal_bytes();
        let result = runner.drive().map(|envelope| envelope.status);
        assert!(self.journal_bytes() <= room, "the file has grown, which cost syncs of its own");
        let counts = counts.lock().unwrap().clone();
        (counts, result)
    }
}

fn host(dir: &Path, owner: Arc<dyn Owner>) -> Host {
    static ENGINE: OnceLock<Arc<Engine>> = OnceLock::new();
    let engine = ENGINE.get_or_init(|| {
        let cache_dir = Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled"));
        Arc::new(Engine::new(EngineConfig { cache_dir, ..EngineConfig::default() }).unwrap())
    });
    let sources = standard_plugins().map(|(name, bytes)| PluginSource::new(name, bytes));
    let toolbox = Toolbox::load(Arc::clone(engine), &sources);
    assert!(toolbox.refused().is_empty(), "{:?}", toolbox.refused());
    let options = Options { entropy: Arc::new(SystemEntropy), boot: None, idle: Idle::Never };
    Host {
        journal: Arc::new(Journal::open(&dir.join("journal.redb"), options).unwrap()),
        toolbox,
        clock: Arc::new(FixedClock),
        entropy: Arc::new(SystemEntropy),
        boundaries: Arc::new(Unarmed),
        watcher: Arc::new(Unwatched),
        config_dir: None,
        beside: None,
        locks_dir: None,
        on_unknown: deed::runner::OnUnknown::Ask,
        owner,
        limits: Limits::default(),
        cancel: CancelToken::new(),
        stop: Arc::default(),
    }
}

/// What each turn of a mission costs.
fn counted(turns: &[Vec<Wish>]) -> Vec<u64> {
    let place = Place::new();
    let run = place.create(mission(turns));
    let (counts, result) = place.drive(run, usize::MAX);
    assert_eq!(result.unwrap(), RunStatus::Partial, "the model has nothing more to do");
    assert_eq!(counts.len(), turns.len() + 1);
    let steps = place.host.journal.read().steps(run).unwrap();
    let unsettled: Vec<_> = steps.iter().filter(|step| step.outcome.is_none()).collect();
    assert!(unsettled.is_empty(), "{unsettled:?}");
    counts.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[test]
fn turns_cost_what_the_table_says() {
    fn turn<const N: usize>(kinds: [Kind; N]) -> Vec<Wish> {
        kinds.map(Wish::from).to_vec()
    }
    let table: Vec<(Vec<Wish>, u64)> = vec![
        // Pure calls: the plan before they run, what the model will see.
        (turn([Read]), 2),
        (turn([Read; 3]), 2),
        (turn([Read; 12]), 2),
        // A batch of k effectful calls: k + 1.
        (turn([Write]), 2),
        (turn([Write; 4]), 5),
        (turn([Command]), 2),
        (turn([Command; 4]), 5),
        (turn([Command, Write, Command]), 4),
        (turn([Write, Command, Write]), 4),
        // Mixed ones.
        (turn([Read, Write]), 3),
        (turn([Read, Read, Command]), 3),
        (turn([Write, Read]), 2),
        (turn([Command, Read]), 3),
        (turn([Command, Read, Command]), 4),
        (turn([Write, Read, Write]), 3),
        // One more for a receipt.
        (turn([Edit]), 3),
        (turn([Edit; 3]), 7),
        (turn([Read, Edit, Command]), 5),
        // What runs nothing has no point of its own.
        (turn([Criteria]), 1),
        (turn([Unfit]), 1),
        (turn([Criteria, Command]), 2),
        (turn([Command, Criteria]), 2),
        (turn([Read, Criteria]), 2),
        // One more for an approval, or any other question, answered in place.
        (vec![approved(Read)], 3),
        (vec![approved(Write)], 3),
        (vec![approved(Command)], 3),
        (vec![Read.into(), approved(Write)], 4),
        (vec![Command.into(), approved(Command)], 4),
        (vec![approved(Command), approved(Command)], 5),
        (vec![denied(Command)], 2),
        (turn([Question]), 2),
        (turn([Question, Read]), 3),
        (turn([Question, Command]), 3),
    ];
    let turns: Vec<_> = table.iter().map(|(turn, _)| turn.clone()).collect();
    for ((turn, expected), found) in table.iter().zip(counted(&turns)) {
        assert_eq!(found, *expected, "{turn:?}");
        assert_eq!(expected_syncs(turn), *expected, "the rules say otherwise of {turn:?}");
    }
}

/// Draws from a seed.
struct Draw(SeededEntropy);

impl Draw {
    fn below(&self, end: usize) -> usize {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        usize::try_from(u64::from_be_bytes(bytes) % end as u64).unwrap()
    }

    fn wish(&self) -> Wish {
        let kinds = [Read, Read, Write, Write, Edit, Command, Command, Criteria, Question, Unfit];
        let kind = kinds[self.below(kinds.len())];
        let approval = match self.below(6) {
            _ if matches!(kind, Criteria | Question | Unfit) => Approval::NotNeeded,
            0 => Approval::Given,
            1 => Approval::Denied,
            _ => Approval::NotNeeded,
        };
        Wish { kind, approval }
    }
}

#[test]
fn random_batches_cost_what_the_rules_say() {
    let seed = std::env::var("DEED_SEED").map_or_else(
        |_| u64::from_be_bytes(*SystemEntropy.id().first_chunk().unwrap()),
        |seed| seed.parse().expect("DEED_SEED is a number"),
    );
    println!("play it again: DEED_SEED={seed} cargo test --workspace --test commit_plan random");
    let draw = Draw(SeededEntropy::new(seed, 0));
    let turns: Vec<Vec<Wish>> =
        (0..BATCHES).map(|_| (0..=draw.below(8)).map(|_| draw.wish()).collect()).collect();
    let wrong: Vec<String> = turns
        .iter()
        .zip(counted(&turns))
        .filter(|(turn, found)| expected_syncs(turn) != *found)
        .map(|(turn, found)| format!("{found} syncs, {} by the rules: {turn:?}", expected_syncs(turn)))
        .collect();
    assert!(wrong.is_empty(), "DEED_SEED={seed}: {} of {BATCHES}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_run_begins_with_its_record_and_its_first_request_and_ends_with_one_sync() {
    for (git, before_the_first_request) in [(false, 2), (true, 3)] {
        let place = Place::new();
        if git {
            Repository::init(&place.dir.path().join("workspace"));
        }
        let opened = place.io().syncs;
        let finish = json!({ "tool": "finish", "input": { "summary": "Counted." } });
        let mission = json!({ "objective": "Count", "model": { "script": [{ "calls": [finish] }] } });
        let run = place.create(Spec::Mission(serde_json::from_value(mission).unwrap()));
        assert_eq!(place.io().syncs - opened, 1, "a run is created");
        let (counts, result) = place.drive(run, usize::MAX);
        assert_eq!(result.unwrap(), RunStatus::Done);
        let [asked] = counts[..] else { panic!("it asked once: {counts:?}") };
        assert_eq!(asked - opened, before_the_first_request, "git: {git}");
        assert_eq!(place.io().syncs - asked, 1, "answer, gate and end are one commit");
    }
}

#[test]
fn a_batch_costs_its_record_and_one_more_than_it_has_effects() {
    for (kind, count) in [(Command, 1), (Command, 8), (Write, 8)] {
        let place = Place::new();
        let opened = place.io().syncs;
        let [calls] = &calls(&[vec![kind.into(); count]])[..] else { panic!("one turn") };
        let batch = json!({ "objective": "Count", "calls": calls });
        let run = place.create(Spec::Batch(serde_json::from_value(batch).unwrap()));
        assert_eq!(place.drive(run, 0).1.unwrap(), RunStatus::Done);
        assert_eq!(place.io().syncs - opened, 1 + count as u64 + 1, "{count} of {kind:?}");
    }
}

#[test]
fn a_single_call_costs_three_and_joining_it_nothing() {
    let place = Place::new();
    let opened = place.io().syncs;
    let options = CallOptions {
        call: call(Command.into(), &mut 0),
        workspace: place.dir.path().join("workspace"),
        key: Some("once".to_owned()),
        network: Network::Closed,
    };
    let first = place.host.create_call(&options).unwrap();
    assert_eq!(place.drive(first.run, 0).1.unwrap(), RunStatus::Done);
    assert_eq!(place.io().syncs - opened, 3, "its record, its intent, its outcome with the end");

    let made = place.io();
    let second = place.host.create_call(&options).unwrap();
    assert!(second.joined && second.run == first.run, "{second:?}");
    assert_eq!(place.drive(second.run, 0).1.unwrap(), RunStatus::Done);
    assert_eq!(place.io(), made, "nothing is written");
}

#[test]
fn saving_nothing_costs_nothing() {
    let place = Place::new();
    let run = place.create(mission(&[vec![Read.into(), Command.into()]]));
    let (_, result) = place.drive(run, usize::MAX);
    assert_eq!(result.unwrap(), RunStatus::Partial);
    let ended = place.io();
    place.host.journal.sync().unwrap();
    place.host.journal.commit(Vec::new(), Durability::Durable).unwrap();
    assert_eq!(place.drive(run, usize::MAX).1.unwrap(), RunStatus::Partial, "an ended run stays as it is");
    assert_eq!(place.io(), ended);
}

/// A mission that gets no further than so many turns, and the process that takes it on.
fn interrupted(turns: usize) -> (Place, RunId) {
    let place = Place::new();
    let batches = vec![vec![Read.into(), Edit.into(), Command.into(), Write.into()]; turns + 1];
    let run = place.create(mission(&batches));
    let (counts, result) = place.drive(run, turns);
    assert_eq!(counts.len(), turns + 1);
    assert!(matches!(result, Err(RunError::Model { .. })), "{result:?}");
    (place.reopened(Arc::new(AtOnce)), run)
}

#[test]
fn resuming_reads_and_the_first_sync_is_the_next_intent() {
    for turns in [1, 4, 16] {
        let (place, run) = interrupted(turns);
        let opened = place.io();
        let runner = Runner::load(&place.host, run).unwrap();
        assert_eq!(place.io(), opened, "loading {turns} turns writes nothing");
        drop(runner);
        let (counts, result) = place.drive(run, 1);
        assert!(matches!(result, Err(RunError::Model { .. })), "{result:?}");
        let [asked, again] = counts[..] else { panic!("one turn more: {counts:?}") };
        assert_eq!(asked - opened.syncs, 1, "after {turns} turns: the intent of the repeated request");
        let batch = [Read, Edit, Command, Write].map(Wish::from);
        assert_eq!(
            again - asked,
            expected_syncs(&batch),
            "after {turns} turns: a turn costs what it always does"
        );
    }
}

#[test]
fn looking_at_a_question_that_is_still_open_writes_nothing() {
    let place = Place::new().reopened(Arc::new(Absent));
    let run = place.create(mission(&[vec![Command.into(), Question.into(), Read.into()], vec![Read.into()]]));
    assert_eq!(place.drive(run, usize::MAX).1.unwrap(), RunStatus::Waiting);
    let place = place.reopened(Arc::new(Absent));
    let opened = place.io();
    for _ in 0..3 {
        assert_eq!(place.drive(run, usize::MAX).1.unwrap(), RunStatus::Waiting);
        assert_eq!(place.io(), opened);
    }

    // Answered elsewhere, and durable there: nothing but the next request needs the disk.
    let wait = place.host.journal.read().waits(run).unwrap().remove(0).asked;
    let answer = deed_journal::Answer { option: "yes".to_owned(), text: None, answered_ms: 0 };
    place.host.journal.commit(vec![Op::Answer { id: wait.id, answer }], Durability::Durable).unwrap();
    let answered = place.io().syncs;
    let (counts, result) = place.drive(run, 1);
    assert!(matches!(result, Err(RunError::Model { .. })), "{result:?}");
    assert_eq!(counts[0] - answered, 1);
}

/// The outcome of a contained call that changed something commits before that is published, and the mark of the publication
/// rides with whatever comes next.
#[test]
fn a_contained_call_costs_one_commit_more_if_it_changed_something() {
    let mut place = Place::new();
    place.host.beside = Some(Beside::new(&place.dir.path().join("journal.redb")));
    let shell = |command: &str| json!({ "tool": "shell", "input": { "command": command } });
    let turns = [
        (vec![shell("true")], 2),
        (vec![shell("echo x >> x")], 3),
        (vec![shell("echo x >> x"), shell("true"), shell("echo y >> y")], 6),
        // What runs next must not see what recovery would compare with.
        (vec![shell("echo x >> x"), json!({ "tool": "read_file", "input": { "path": "x" } })], 4),
    ];
    let script: Vec<_> = turns.iter().map(|(calls, _)| json!({ "calls": calls })).collect();
    let mission = json!({ "objective": "Count", "model": { "script": script } });
    let run = place.create(Spec::Mission(serde_json::from_value(mission).unwrap()));
    let (counts, result) = place.drive(run, usize::MAX);
    assert_eq!(result.unwrap(), RunStatus::Partial);
    let steps = place.host.journal.read().steps(run).unwrap();
    if !steps.iter().any(|step| step.planned.contained) {
        println!("skipped: this machine contains no calls");
        return;
    }
    let found: Vec<_> = counts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(found, turns.map(|(_, expected)| expected));
}
