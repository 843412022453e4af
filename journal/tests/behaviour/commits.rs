//! Commits: what is refused, what it costs, and what is left after a handle is gone.

use std::sync::Arc;

use crate::support::{open_in, options, run};
use deed_journal::{
    Answer, Asked, CommitError, Durability, EffectClass, Intent, Journal, Op, OpenError, Outcome, Planned,
    Reader, Run, RunStatus, SettledBy, StepEvent, StepKind, StepResult, StepStatus, WaitId, WaitKind,
};
use serde_json::json;

struct Fixture {
    dir: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("journal.redb")
    }

    fn open(&self) -> Journal {
        open_in(self.dir.path())
    }
}

fn create(run: &Run) -> Op {
    Op::CreateRun { run: Box::new(run.clone()), source: json!({}) }
}

fn planned() -> StepEvent {
    StepEvent::Planned(Planned::new(StepKind::ToolCall, "tool", EffectClass::NonIdempotent, json!({}), 0))
}

fn intent(attempt: u32) -> StepEvent {
    StepEvent::Intent(Intent { attempt, clock_ms: 0, marks: None })
}

fn outcome(attempt: u32, value: i32) -> StepEvent {
    StepEvent::Outcome(Outcome {
        attempt,
        result: StepResult::Completed { value: json!(value) },
        settled_by: SettledBy::Execution,
        landed_before: false,
        settled_ms: 0,
    })
}

fn step(run: &Run, seq: u64, event: StepEvent) -> Op {
    Op::Step { run: run.id, seq, event }
}

fn refused(journal: &Journal, op: Op) -> String {
    journal.commit(vec![op], Durability::Durable).unwrap_err().to_string()
}

#[test]
fn a_second_plan_intent_or_outcome_cannot_be_recorded() {
    let fixture = Fixture::new();
    let journal = fixture.open();
    let run = run(1);
    let ops = vec![create(&run), step(&run, 1, planned()), step(&run, 1, intent(1))];
    journal.commit(ops, Durability::Durable).unwrap();

    for (seq, event) in
        [(1, planned()), (1, intent(1)), (1, intent(3)), (2, intent(1)), (3, planned()), (1, outcome(2, 0))]
    {
        let error = refused(&journal, step(&run, seq, event));
        assert!(error.starts_with(&format!("step {seq} of run 01010101 takes no")), "{error}");
    }
    journal.commit(vec![step(&run, 1, outcome(1, 7))], Durability::Durable).unwrap();
    for event in [outcome(1, 7), outcome(1, 8), intent(2)] {
        assert!(refused(&journal, step(&run, 1, event)).contains("the step is settled"));
    }
    let stored = journal.read().step(run.id, 1).unwrap().unwrap();
    assert_eq!(stored.status(), StepStatus::Completed);
    assert_eq!(stored.outcome.unwrap().result, StepResult::Completed { value: json!(7) });
}

#[test]
fn a_refused_commit_leaves_nothing_and_a_commit_sees_its_own_operations() {
    let fixture = Fixture::new();
    let journal = fixture.open();
    let run = run(1);
    let ops = vec![
        create(&run),
        step(&run, 1, planned()),
        step(&run, 1, outcome(1, 1)),
        step(&run, 1, outcome(1, 2)),
    ];
    assert!(matches!(journal.commit(ops, Durability::Durable), Err(CommitError::StepConflict { .. })));
    assert_eq!(journal.read().runs().unwrap().items, []);
}

#[test]
fn an_ended_run_never_changes() {
    let fixture = Fixture::new();
    let journal = fixture.open();
    let mut run = run(1);
    journal.commit(vec![create(&run)], Durability::Durable).unwrap();
    run.status = RunStatus::Done;
    journal.commit(vec![Op::UpdateRun(Box::new(run.clone()))], Durability::Durable).unwrap();
    assert_eq!(journal.read().open_runs().unwrap().items, []);
    run.status = RunStatus::Running;
    assert!(refused(&journal, Op::UpdateRun(Box::new(run))).contains("has ended"));
}

#[test]
fn the_first_answer_wins_the_same_again_writes_nothing_a_different_one_is_refused() {
    let fixture = Fixture::new();
    let journal = fixture.open();
    let run = run(1);
    let id = WaitId { run: run.id, seq: 1, revision: 1 };
    let asked = Asked {
        id,
        kind: WaitKind::Question,
        name: "ask_owner".into(),
        question: "so?".into(),
        options: vec!["yes".into(), "no".into()],
        opened_ms: 0,
        expires_ms: None,
    };
    let answer = |option: &str, at| Op::Answer {
        id,
        answer: Answer { option: option.into(), text: None, answered_ms: at },
    };
    journal.commit(vec![create(&run), Op::Ask(asked)], Durability::Durable).unwrap();
    assert!(refused(&journal, answer("maybe", 1)).contains("expected one of `yes`, `no`"));
    journal.commit(vec![answer("yes", 1)], Durability::Durable).unwrap();
    let before = journal.read().io_counts();
    journal.commit(vec![answer("yes", 2)], Durability::Durable).unwrap();
    assert_eq!(journal.read().io_counts(), before, "the same answer again writes nothing");
    assert!(refused(&journal, answer("no", 3)).contains("was answered `yes` before"));
    let stored = journal.read().wait(id).unwrap().unwrap();
    assert_eq!(stored.answer.unwrap().answered_ms, 1);
}

#[test]
fn one_durable_commit_is_one_sync_and_a_riding_one_none() {
    let fixture = Fixture::new();
    let journal = fixture.open();
    let run = run(1);
    let syncs = |work: &dyn Fn()| {
        let before = journal.read().io_counts().syncs;
        work();
        journal.read().io_counts().syncs - before
    };
    assert_eq!(syncs(&|| drop(journal.commit(vec![create(&run)], Durability::Durable).unwrap())), 1);
    assert_eq!(
        syncs(&|| drop(journal.commit(vec![step(&run, 1, planned())], Durability::Riding).unwrap())),
        0
    );
    assert_eq!(journal.read().steps(run.id).unwrap().len(), 1, "a riding commit is visible");
    assert_eq!(syncs(&|| journal.sync().unwrap()), 1, "what rode is made durable");
    assert_eq!(syncs(&|| journal.sync().unwrap()), 0, "all is durable already");
}

#[test]
fn a_commit_refused_in_a_group_does_not_touch_the_others() {
    let fixture = Fixture::new();
    let journal = fixture.open();
    let good = run(1);
    journal.commit(vec![create(&good)], Durability::Durable).unwrap();
    let (accepted, refused) = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..32u8)
            .map(|n| {
                let (journal, good) = (&journal, &good);
                scope.spawn(move || {
                    let op = if n % 2 == 0 { create(&run(n + 10)) } else { create(good) };
                    journal.commit(vec![op], Durability::Durable).is_ok()
                })
            })
            .collect();
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        (results.iter().filter(|ok| **ok).count(), results.iter().filter(|ok| !**ok).count())
    });
    assert_eq!((accepted, refused), (16, 16));
    assert_eq!(journal.read().runs().unwrap().items.len(), 17);
}

#[test]
fn one_owner_at_a_time_and_it_is_named() {
    let fixture = Fixture::new();
    let journal = fixture.open();
    let second = Journal::open(&fixture.path(), options());
    let Err(OpenError::InUse { pid, .. }) = second else { panic!("two owners") };
    assert_eq!(pid, Some(std::process::id()));
    let Err(OpenError::InUse { pid, .. }) = Reader::open(&fixture.path()) else {
        panic!("a reader beside the owner")
    };
    assert_eq!(pid, Some(std::process::id()));
    assert_eq!(journal.generation(), 1);
    drop(journal);
    assert_eq!(fixture.open().generation(), 2);
}

#[test]
fn a02_reading_a_closed_journal_leaves_it_byte_for_byte() {
    let fixture = Fixture::new();
    let journal = fixture.open();
    let run = run(1);
    journal.commit(vec![create(&run)], Durability::Durable).unwrap();
    drop(journal);
    let before = std::fs::read(fixture.path()).unwrap();
    let reader = Reader::open(&fixture.path()).unwrap();
    let beside = Reader::open(&fixture.path()).unwrap();
    assert_eq!(reader.runs().unwrap().items, beside.runs().unwrap().items);
    assert_eq!(reader.transcript(run.session).unwrap(), []);
    drop((reader, beside));
    assert_eq!(std::fs::read(fixture.path()).unwrap(), before);
}

#[test]
fn a_file_that_is_no_journal_is_refused_and_nothing_is_written_beside_it() {
    let fixture = Fixture::new();
    std::fs::write(fixture.path(), "dear diary\n").unwrap();
    let opened = Journal::open(&fixture.path(), options());
    assert!(matches!(opened, Err(OpenError::NotAJournal(_))));
    assert!(matches!(Reader::open(&fixture.path()), Err(OpenError::NotAJournal(_))));
    assert_eq!(std::fs::read_dir(fixture.dir.path()).unwrap().count(), 1);
    assert_eq!(std::fs::read_to_string(fixture.path()).unwrap(), "dear diary\n");
}

#[test]
fn a06_an_emptied_journal_is_not_taken_for_a_new_one() {
    let fixture = Fixture::new();
    let store = fixture.open().store();
    for left in [0, 4096] {
        std::fs::write(fixture.path(), vec![0; left]).unwrap();
        let opened = Journal::open(&fixture.path(), options());
        let Err(error @ OpenError::Emptied { .. }) = opened else {
            panic!("{left} bytes were taken for a new journal")
        };
        assert!(error.to_string().contains(&store.to_string()), "{error}");
    }
    // Without its file the journal was removed by somebody; a new one begins.
    std::fs::remove_file(fixture.path()).unwrap();
    assert_ne!(fixture.open().generation(), 0);
}

/// A record as a version that does not exist yet would write it.
fn of_a_newer_schema(key: &[u8], json: &str) -> Vec<u8> {
    let version = 4;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(key.len() as u64).to_be_bytes()).update(key).update(&[version]).update(json.as_bytes());
    let mut bytes = vec![version];
    bytes.extend_from_slice(&hasher.finalize().as_bytes()[..8]);
    bytes.extend_from_slice(json.as_bytes());
    bytes
}

#[test]
fn a22_a_record_or_a_store_of_a_newer_schema_is_refused_untouched() {
    use deed_journal::ReadError;
    use deed_journal::test_support::{MemoryStore, Storage};

    let store = MemoryStore::new();
    let open = || Journal::open_storage(Arc::new(store.reopen()), options());
    let (ours, theirs) = (run(1), run(2));
    open().unwrap().commit(vec![create(&ours), create(&theirs)], Durability::Durable).unwrap();
    let put = |key: &[u8], value: &[u8]| {
        let mut transaction = store.begin().unwrap();
        transaction.put(key, value).unwrap();
        transaction.commit(Durability::Durable).unwrap();
    };
    let contents = || {
        let mut pairs = Vec::new();
        let keep = &mut |key: &[u8], value: &[u8]| {
            pairs.push((key.to_vec(), value.to_vec()));
            true
        };
        store.snapshot().unwrap().scan(b"", keep).unwrap();
        pairs
    };

    let key = [b"R".as_slice(), theirs.id.as_bytes()].concat();
    let newer = of_a_newer_schema(&key, r#"{"unheard":"of"}"#);
    put(&key, &newer);
    let journal = open().unwrap();
    let is_newer = |error: &ReadError| matches!(error, ReadError::Newer { found: 4, .. });
    assert!(is_newer(&journal.read().run(theirs.id).unwrap_err()));
    let listing = journal.read().runs().unwrap();
    assert_eq!(
        (listing.items.len(), listing.unreadable.iter().filter(|error| is_newer(error)).count()),
        (1, 1)
    );
    let refused = journal.commit(vec![Op::UpdateRun(Box::new(theirs))], Durability::Durable).unwrap_err();
    assert!(refused.to_string().contains("schema version 4"), "{refused}");
    journal.commit(vec![step(&ours, 1, planned())], Durability::Durable).unwrap();
    drop(journal);
    assert_eq!(store.snapshot().unwrap().get(&key).unwrap(), Some(newer));

    put(b"A", &of_a_newer_schema(b"A", "{}"));
    let before = contents();
    let Err(OpenError::Unreadable { source, .. }) = open() else { panic!("a newer store was opened") };
    assert!(is_newer(&source), "{source}");
    assert_eq!(contents(), before);
}
