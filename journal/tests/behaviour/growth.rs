//! Growth and damage: large values, retention, recovery of turns, and what `verify` finds.

use crate::support::{open_in, run};
use deed_journal::{
    CALL_KEY_MS, CommitError, Digest, Durability, EffectClass, Journal, MessageBody, Op, Planned,
    PrunePolicy, RecoveryAction, RewriteKind, Role, Run, RunId, RunStatus, SessionId, StepEvent, StepKind,
    TailPolicy, Turn,
};
use serde_json::{Value, json};

fn create(run: &Run) -> Op {
    Op::CreateRun { run: Box::new(run.clone()), source: json!({ "calls": [] }) }
}

fn end(run: &Run, at_ms: u64) -> Op {
    Op::UpdateRun(Box::new(Run { status: RunStatus::Done, ended_ms: Some(at_ms), ..run.clone() }))
}

fn plan(run: &Run, seq: u64, args: Value) -> Op {
    let planned = Planned::new(StepKind::ToolCall, "tool", EffectClass::Pure, args, 0);
    Op::Step { run: run.id, seq, event: StepEvent::Planned(planned) }
}

fn commit(journal: &Journal, ops: Vec<Op>) {
    journal.commit(ops, Durability::Durable).unwrap();
}

fn damage(journal: &Journal) -> Vec<String> {
    journal.read().verify().unwrap().damage.iter().map(ToString::to_string).collect()
}

#[test]
fn a_large_value_is_stored_once_and_goes_with_its_last_reference() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open_in(dir.path());
    let large = json!({ "content": "x".repeat(1 << 20) });
    let (first, second) = (run(1), run(2));
    for run in [&first, &second] {
        commit(&journal, vec![create(run), plan(run, 1, large.clone()), plan(run, 2, large.clone())]);
    }
    assert_eq!(damage(&journal), [""; 0]);
    let written = journal.read().io_counts().written_bytes;
    assert!(written < 3 << 20, "four steps hold one megabyte once: {written} bytes written");
    for run in [&first, &second] {
        assert_eq!(journal.read().step(run.id, 2).unwrap().unwrap().planned.args, large);
    }

    commit(&journal, vec![end(&first, 5), Op::DropRun(first.id)]);
    assert_eq!(journal.read().step(second.id, 1).unwrap().unwrap().planned.args, large);
    assert_eq!(damage(&journal), [""; 0]);
    commit(&journal, vec![end(&second, 5), Op::DropRun(second.id)]);
    let report = journal.read().verify().unwrap();
    assert_eq!((report.records, report.damage.len()), (1, 0), "only the record of the store is left");
}

#[test]
fn a_value_beyond_the_limit_is_refused_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open_in(dir.path());
    let run = run(1);
    commit(&journal, vec![create(&run)]);
    let before = journal.read().io_counts();
    let huge = json!({ "content": "x".repeat(64 << 20) });
    let refused = journal.commit(vec![plan(&run, 1, huge)], Durability::Durable).unwrap_err();
    assert!(matches!(refused, CommitError::TooLarge { .. }), "{refused}");
    assert!(refused.to_string().starts_with("the plan of step 1 is 67"), "{refused}");
    assert_eq!(journal.read().io_counts(), before);
    commit(&journal, vec![plan(&run, 1, json!({}))]);
}

#[test]
fn c08_a_removed_run_is_gone_whole_and_nothing_of_it_shows_under_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open_in(dir.path());
    let old = run(1);
    commit(
        &journal,
        vec![
            create(&old),
            plan(&old, 1, json!({ "old": true })),
            Op::Append {
                session: old.session,
                base: journal_base(),
                messages: vec![MessageBody::text(Role::User, "old")],
            },
            end(&old, 10),
        ],
    );
    let kept = run(2);
    commit(&journal, vec![create(&kept), plan(&kept, 1, json!({ "kept": true }))]);

    let policy = PrunePolicy { keep: Some(0), older_than_ms: None };
    assert_eq!(journal.prune_plan(policy, 20).unwrap(), [old.id]);
    assert_eq!(journal.prune(policy, 20).unwrap(), [old.id]);
    assert_eq!(journal.prune(policy, 20).unwrap(), [], "an unfinished run stays");
    drop(journal);

    let journal = open_in(dir.path());
    assert_eq!(journal.read().runs().unwrap().items.len(), 1);
    commit(&journal, vec![create(&old)]);
    assert_eq!(journal.read().steps(old.id).unwrap(), [], "no stale step under the new run");
    assert_eq!(journal.read().transcript(old.session).unwrap(), []);
    assert_eq!(journal.read().steps(kept.id).unwrap().len(), 1);
    assert_eq!(damage(&journal), [""; 0]);
}

fn journal_base() -> deed_journal::Base {
    deed_journal::Base { revision: 0, main: None }
}

#[test]
fn retention_goes_by_age_and_by_count_and_spares_call_keys() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open_in(dir.path());
    for byte in 1..=4 {
        let keyed = (byte == 1).then(|| Digest::of(b"mine"));
        let run = Run { call_key: keyed, ..run(byte) };
        commit(&journal, vec![create(&run), end(&run, u64::from(byte) * 100)]);
    }
    let id = |byte| RunId::from_bytes([byte; 16]);
    let plan =
        |keep, older_than_ms, now| journal.prune_plan(PrunePolicy { older_than_ms, keep }, now).unwrap();
    assert_eq!(plan(None, None, 1000), []);
    assert_eq!(plan(Some(2), None, 1000), [id(2)], "the first is spared, its key still answers");
    assert_eq!(plan(None, Some(700), 1000), [id(2), id(3)]);
    assert_eq!(plan(None, Some(0), 400 + CALL_KEY_MS).len(), 4);
    commit(&journal, vec![Op::DropRun(id(1))]);
    assert_eq!(journal.read().run_of_call_key(&Digest::of(b"mine")).unwrap(), None);
}

#[test]
fn a16_a_turn_cut_short_is_kept_or_stripped_as_the_policy_says_and_the_plan_is_what_happens() {
    for policy in [TailPolicy::Keep, TailPolicy::KeepAndWarn, TailPolicy::Strip] {
        let dir = tempfile::tempdir().unwrap();
        let journal = open_in(dir.path());
        let session = SessionId::from_bytes([9; 16]);
        let append = |text: &str| {
            let base = journal.read().session(session).unwrap().unwrap().base();
            let messages = vec![MessageBody::text(Role::User, text)];
            commit(&journal, vec![Op::Append { session, base, messages }]);
        };
        commit(&journal, vec![Op::CreateSession { session, created_ms: 1 }]);
        append("before");
        let base = journal.read().session(session).unwrap().unwrap().base();
        let turn = Turn { id: "t1".into(), base, begun_ms: 2 };
        commit(&journal, vec![Op::BeginTurn { session, turn }]);
        append("partial");
        drop(journal);

        let journal = open_in(dir.path());
        let plan = journal.recovery_plan(policy).unwrap();
        let expected = match policy {
            TailPolicy::Keep => RecoveryAction::Keep { messages: 1, warn: false },
            TailPolicy::KeepAndWarn => RecoveryAction::Keep { messages: 1, warn: true },
            TailPolicy::Strip => RecoveryAction::Strip { messages: 1 },
        };
        assert_eq!(plan[0].action, expected);
        assert_eq!(journal.recover(policy, 3).unwrap(), plan);
        let digest = |journal: &Journal| journal.read().session(session).unwrap().unwrap().main.unwrap().hash;
        let once = digest(&journal);
        let again = journal.recover(policy, 4).unwrap();
        assert_eq!(again, [], "there is nothing left to recover");
        assert_eq!(digest(&journal), once);
        let count = journal.read().transcript(session).unwrap().len();
        assert_eq!(count, if policy == TailPolicy::Strip { 1 } else { 2 });
        let log = journal.read().rewrites(session).unwrap();
        assert_eq!(log.len(), usize::from(policy == TailPolicy::Strip));
        assert!(log.iter().all(|rewrite| rewrite.kind == RewriteKind::Recover));
    }
}

#[test]
fn a_turn_of_an_unfinished_run_is_left_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open_in(dir.path());
    let run = run(1);
    let turn = Turn { id: "t".into(), base: journal_base(), begun_ms: 0 };
    commit(&journal, vec![create(&run), Op::BeginTurn { session: run.session, turn }]);
    let plan = journal.recovery_plan(TailPolicy::Strip).unwrap();
    assert_eq!(plan[0].action, RecoveryAction::LeaveToRun(run.id));
    journal.recover(TailPolicy::Strip, 1).unwrap();
    assert!(journal.read().session(run.session).unwrap().unwrap().turn.is_some());
}
