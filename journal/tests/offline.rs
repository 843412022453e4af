//! What is done to a journal that nobody has open.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::path::Path;
use std::sync::Arc;

use deed_journal::{
    Base, Durability, Entropy, Idle, Journal, MessageBody, Op, OpenError, Options, Reader, Role, Run, RunId,
    RunStatus, SessionId,
};
use serde_json::json;

struct Fixed;

impl Entropy for Fixed {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

fn open(path: &Path) -> Journal {
    Journal::open(path, Options { entropy: Arc::new(Fixed), boot: None, idle: Idle::Never }).unwrap()
}

/// A journal with one message in it, and with the room of many that are gone.
fn sparse(path: &Path) -> SessionId {
    let journal = open(path);
    let session = |byte| SessionId::from_bytes([byte; 16]);
    for byte in 1..=20 {
        let run = Run::new(RunId::from_bytes([byte; 16]), session(byte), [byte; 16], "test", 0);
        let content = format!("{byte}").repeat(200_000);
        let messages = vec![MessageBody::text(Role::User, content)];
        let base = Base { revision: 0, main: None };
        let end = Run { status: RunStatus::Done, ended_ms: Some(1), ..run.clone() };
        let ops = vec![
            Op::CreateRun { run: Box::new(run.clone()), source: json!({}) },
            Op::Append { session: run.session, base, messages },
            Op::UpdateRun(Box::new(end)),
        ];
        journal.commit(ops, Durability::Durable).unwrap();
        if byte > 1 {
            journal.commit(vec![Op::DropRun(run.id)], Durability::Durable).unwrap();
        }
    }
    session(1)
}

#[test]
fn compacting_gives_room_back_and_keeps_everything() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.redb");
    let session = sparse(&path);
    let before = Reader::open(&path).unwrap().transcript(session).unwrap();
    let compacted = Journal::compact(&path).unwrap();
    assert!(compacted.after_bytes * 2 < compacted.before_bytes, "{compacted:?}");
    assert_eq!(compacted.after_bytes, std::fs::metadata(&path).unwrap().len());
    // It was closed cleanly: a reader can have it.
    let reader = Reader::open(&path).unwrap();
    assert_eq!(reader.transcript(session).unwrap(), before);
    assert_eq!(reader.verify().unwrap().damage.len(), 0);
    drop(reader);
    let again = Journal::compact(&path).unwrap();
    assert!(again.after_bytes <= compacted.after_bytes, "{compacted:?}, then {again:?}");
}

#[test]
fn a_copy_is_the_file_as_it_is_and_the_file_is_only_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.redb");
    sparse(&path);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let to = dir.path().join("copy.redb");
    Journal::copy(&path, &to).unwrap();
    assert!(std::fs::read(&to).unwrap() == bytes && std::fs::read(&path).unwrap() == bytes);
    assert!(matches!(Journal::copy(&path, &to), Err(OpenError::Io { .. })), "nothing is replaced");
}

#[test]
fn a_journal_that_is_open_or_missing_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (path, to) = (dir.path().join("journal.redb"), dir.path().join("copy.redb"));
    assert!(matches!(Journal::compact(&path), Err(OpenError::Missing(_))));
    assert!(matches!(Journal::copy(&path, &to), Err(OpenError::Missing(_))));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "and nothing is created");
    let journal = open(&path);
    assert!(matches!(Journal::compact(&path), Err(OpenError::InUse { pid: Some(_), .. })));
    assert!(matches!(Journal::copy(&path, &to), Err(OpenError::InUse { .. })));
    drop(journal);
    let reader = Reader::open(&path).unwrap();
    assert!(matches!(Journal::compact(&path), Err(OpenError::BeingRead(_))));
    Journal::copy(&path, &to).unwrap();
    drop(reader);
    std::fs::write(&path, "hello, this is no journal").unwrap();
    assert!(matches!(Journal::compact(&path), Err(OpenError::NotAJournal(_))));
}
