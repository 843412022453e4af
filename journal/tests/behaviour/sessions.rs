//! Sessions: appends and rewrites by base, typed conflicts, heads, turns in flight.

use std::sync::Arc;

use crate::support::{open_in, options};
use deed_journal::{
    Base, CommitError, ConflictKind, Durability, Journal, MessageBody, Op, RewriteKind, Role, Session,
    SessionId, SnapshotConflict, Turn,
};

const SESSION: SessionId = SessionId::from_bytes([1; 16]);

struct Store {
    dir: tempfile::TempDir,
    journal: Option<Journal>,
}

impl Store {
    fn new() -> Self {
        let mut store = Self { dir: tempfile::tempdir().unwrap(), journal: None };
        store.reopen();
        store.commit(Op::CreateSession { session: SESSION, created_ms: 0 }).unwrap();
        store
    }

    fn reopen(&mut self) {
        self.journal = None;
        self.journal = Some(open_in(self.dir.path()));
    }

    fn journal(&self) -> &Journal {
        self.journal.as_ref().unwrap()
    }

    fn commit(&self, op: Op) -> Result<bool, CommitError> {
        Ok(self.journal().commit(vec![op], Durability::Durable)?[0])
    }

    fn session(&self) -> Session {
        self.journal().read().session(SESSION).unwrap().unwrap()
    }

    fn base(&self) -> Base {
        self.session().base()
    }

    fn main(&self) -> Vec<String> {
        let messages = self.journal().read().transcript(SESSION).unwrap();
        messages.into_iter().map(|message| message.body.text).collect()
    }

    fn branch(&self, head: deed_journal::Head) -> Vec<String> {
        let messages = self.journal().read().branch(&self.session(), head).unwrap();
        messages.into_iter().map(|message| message.body.text).collect()
    }
}

fn texts(texts: &[&str]) -> Vec<MessageBody> {
    texts.iter().map(|text| MessageBody::text(Role::User, *text)).collect()
}

fn append(base: Base, messages: &[&str]) -> Op {
    Op::Append { session: SESSION, base, messages: texts(messages) }
}

fn rewrite(base: Base, keep: u64, messages: &[&str], kind: RewriteKind) -> Op {
    Op::Rewrite { session: SESSION, base, keep, messages: texts(messages), kind, at_ms: 7 }
}

fn conflict(result: Result<bool, CommitError>) -> SnapshotConflict {
    match result {
        Err(CommitError::Snapshot(conflict)) => conflict,
        other => panic!("expected a snapshot conflict, got {other:?}"),
    }
}

#[test]
fn a11_a_diverged_save_is_refused_and_can_be_kept_as_a_head() {
    let mut store = Store::new();
    store.commit(append(store.base(), &["one"])).unwrap();
    let mine = store.base();
    store.commit(append(mine, &["theirs"])).unwrap();

    let lost = conflict(store.commit(append(mine, &["mine", "more"])));
    assert_eq!(lost.kind, ConflictKind::Diverged);
    assert_eq!((lost.base, lost.count, lost.stored, lost.stored_count), (1, 3, 2, 2));
    assert_eq!(store.main(), ["one", "theirs"]);

    let keep = Op::KeepAsHead {
        session: SESSION,
        name: "mine".into(),
        from: mine.main,
        messages: texts(&["mine", "more"]),
    };
    assert!(store.commit(keep.clone()).unwrap());
    assert!(matches!(store.commit(keep), Err(CommitError::HeadExists { .. })));
    store.reopen();
    assert_eq!(store.main(), ["one", "theirs"]);
    assert_eq!(store.branch(store.session().heads["mine"]), ["one", "mine", "more"]);
}

#[test]
fn a12_a_fresh_session_round_trips() {
    let mut store = Store::new();
    store.commit(append(store.base(), &["one", "two"])).unwrap();
    let saved = store.journal().read().transcript(SESSION).unwrap();
    store.reopen();
    assert_eq!(store.journal().read().transcript(SESSION).unwrap(), saved);
    assert_eq!(store.main(), ["one", "two"]);
}

#[test]
fn a13_a_save_in_between_makes_the_stale_save_fail() {
    let store = Store::new();
    let stale = store.base();
    store.commit(append(stale, &["winner"])).unwrap();
    assert_eq!(conflict(store.commit(append(stale, &["loser"]))).kind, ConflictKind::Diverged);
    assert_eq!(store.main(), ["winner"]);
}

#[test]
fn a14_a_stale_compact_fails_even_with_identical_messages() {
    let store = Store::new();
    store.commit(append(store.base(), &["one", "two"])).unwrap();
    let stale = store.base();
    store.commit(rewrite(stale, 0, &["summary"], RewriteKind::Compact)).unwrap();
    let lost = conflict(store.commit(rewrite(stale, 0, &["summary"], RewriteKind::Compact)));
    assert_eq!((lost.kind, lost.base, lost.stored), (ConflictKind::Rewound, 1, 2));
    assert_eq!(store.main(), ["summary"]);
}

#[test]
fn a15_a_stale_writer_cannot_bring_back_what_a_rewind_cut_off() {
    let mut store = Store::new();
    store.commit(append(store.base(), &["one", "two", "three"])).unwrap();
    let stale = store.base();
    store.commit(rewrite(stale, 1, &[], RewriteKind::Rewind)).unwrap();
    let lost = conflict(store.commit(append(stale, &["four"])));
    assert_eq!(lost.kind, ConflictKind::Rewound);
    store.reopen();
    assert_eq!(store.main(), ["one"]);
    let log = store.journal().read().rewrites(SESSION).unwrap();
    let [rewind] = &log[..] else { panic!("one rewrite: {log:?}") };
    assert_eq!((rewind.kind, rewind.at_ms), (RewriteKind::Rewind, 7));
    assert_eq!(store.branch(rewind.before.unwrap()), ["one", "two", "three"]);
}

#[test]
fn a16_a_turn_is_replaced_by_the_next_and_cleared_only_by_its_owner() {
    let mut store = Store::new();
    let turn = |id: &str| Turn { id: id.into(), base: store.base(), begun_ms: 1 };
    let (first, second) = (turn("first"), turn("second"));
    let begin = |turn: &Turn| Op::BeginTurn { session: SESSION, turn: turn.clone() };
    let clear = |id: &str| Op::ClearTurn { session: SESSION, turn: id.into() };
    assert!(store.commit(begin(&first)).unwrap());
    assert!(store.commit(begin(&second)).unwrap());
    assert!(!store.commit(clear("first")).unwrap(), "a stale clear changes nothing");
    store.reopen();
    assert_eq!(store.session().turn, Some(second));
    assert!(store.commit(clear("second")).unwrap());
    assert!(!store.commit(clear("second")).unwrap());
    assert_eq!(store.session().turn, None);
}

#[test]
fn a18_a_save_that_is_less_than_what_is_there_is_a_stale_prefix() {
    let store = Store::new();
    let stale = store.base();
    store.commit(append(stale, &["one", "two"])).unwrap();
    let lost = conflict(store.commit(append(stale, &["one"])));
    assert_eq!((lost.kind, lost.base, lost.count), (ConflictKind::StalePrefix, 0, 1));
    assert_eq!((lost.stored, lost.stored_count), (1, 2));
}

#[test]
fn a19_saving_the_same_again_writes_nothing() {
    let store = Store::new();
    let base = store.base();
    assert!(store.commit(append(base, &["one", "two"])).unwrap());
    let before = store.journal().read().io_counts();
    assert!(!store.commit(append(base, &["one", "two"])).unwrap(), "the same from the same base");
    assert!(!store.commit(append(store.base(), &[])).unwrap(), "nothing new");
    assert!(!store.commit(rewrite(store.base(), 2, &[], RewriteKind::Rewind)).unwrap(), "all is kept");
    assert_eq!(store.journal().read().io_counts(), before);
}

#[test]
fn a_rewrite_that_keeps_too_much_is_refused() {
    let store = Store::new();
    store.commit(append(store.base(), &["one"])).unwrap();
    let refused = store.commit(rewrite(store.base(), 2, &[], RewriteKind::Rewind)).unwrap_err();
    assert!(refused.to_string().ends_with("has 1 messages; 2 cannot be kept"), "{refused}");
}

#[test]
fn a_head_off_a_message_that_is_not_there_is_refused() {
    let store = Store::new();
    store.commit(append(store.base(), &["one"])).unwrap();
    let mut wrong = store.base().main.unwrap();
    wrong.message = 9;
    let op =
        Op::KeepAsHead { session: SESSION, name: "x".into(), from: Some(wrong), messages: texts(&["two"]) };
    assert!(matches!(store.commit(op), Err(CommitError::NoSuchMessage { message: 9, .. })));
}

#[test]
fn a18_a_handle_that_lost_the_store_is_fenced_and_changes_nothing() {
    use deed_journal::test_support::MemoryStore;

    let store = MemoryStore::new();
    let open = || Journal::open_storage(Arc::new(store.reopen()), options()).unwrap();
    let old = open();
    old.commit(vec![Op::CreateSession { session: SESSION, created_ms: 0 }], Durability::Durable).unwrap();
    let base = old.read().session(SESSION).unwrap().unwrap().base();
    let new = open();
    new.commit(vec![append(base, &["theirs"])], Durability::Durable).unwrap();

    let fenced =
        old.commit(vec![append(base, &["mine", "more"])], Durability::Durable).map(|changed| changed[0]);
    let lost = conflict(fenced);
    assert_eq!(lost.kind, ConflictKind::Fenced);
    assert_eq!((lost.base, lost.count, lost.stored, lost.stored_count), (0, 2, 1, 1));
    let other = old.commit(
        vec![Op::CreateSession { session: SessionId::from_bytes([2; 16]), created_ms: 0 }],
        Durability::Durable,
    );
    assert!(matches!(other, Err(CommitError::Fenced { mine: 1, stored: 2 })));
    assert_eq!(new.read().transcript(SESSION).unwrap().len(), 1);
}
