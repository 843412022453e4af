//! Who is ended when a journal is taken over, and who is not. That a holder is ended, stopped or not, is tested with real
//! ones, by the tests of the whole system.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use deed_journal::{Entropy, Idle, Journal, OpenError, Options};

struct Fixed;

impl Entropy for Fixed {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

fn open(path: &Path) -> Result<Journal, OpenError> {
    Journal::open(path, Options { entropy: Arc::new(Fixed), boot: None, idle: Idle::Never })
}

/// The file names a process that lives, and another one holds the lock: after a restart of the machine ids begin anew.
#[test]
fn c22_a_process_that_does_not_hold_the_lock_is_not_ended_whatever_the_file_says() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.redb");
    let owner = dir.path().join("journal.redb.owner");
    let end = || Journal::end_holder(&path, Duration::ZERO).unwrap();
    assert_eq!(end(), None, "there is no journal");
    let journal = open(&path).unwrap();
    assert_eq!(end(), None, "it is this process");

    // It even has the file open, as one that reads who the owner is.
    let reading = std::fs::File::open(&owner).unwrap();
    let mut cat = Command::new("cat");
    cat.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(reading);
    let mut other = cat.spawn().unwrap();
    for pid in [other.id(), 1, 0, u32::MAX] {
        std::fs::write(&owner, format!("{pid}\n")).unwrap();
        assert_eq!(end(), None, "{pid} holds nothing");
        assert!(matches!(open(&path), Err(OpenError::InUse { pid: Some(named), .. }) if named == pid));
    }
    std::fs::write(&owner, "no number\n").unwrap();
    assert_eq!(end(), None);
    drop(journal);
    std::fs::write(&owner, format!("{}\n", other.id())).unwrap();
    drop(open(&path).unwrap());
    assert_eq!(other.try_wait().unwrap(), None, "it lives");
    drop(other.stdin.take());
    assert!(other.wait().unwrap().success());
}
