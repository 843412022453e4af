//! Who holds the lock, and until when.

use std::os::unix::fs::PermissionsExt;

use super::*;

fn is_free(path: &Path) -> bool {
    lock(path).is_ok()
}

#[test]
fn one_call_takes_it_once_and_keeps_it_until_the_last_copy_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("call.lock");
    let hold = Hold::new(Some(&path));
    assert!(!path.exists(), "a call without commands makes no file");
    let first = hold.take().unwrap().unwrap();
    let second = hold.clone().take().unwrap().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!is_free(&path));
    drop((hold, first));
    assert!(!is_free(&path));
    drop(second);
    assert!(is_free(&path));
}

#[test]
fn what_cannot_be_locked_is_said_with_its_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("call.lock");
    let earlier = Hold::new(Some(&path));
    let _held = earlier.take().unwrap();
    let said = Hold::new(Some(&path)).take().unwrap_err().to_string();
    assert!(said.contains("earlier attempt") && said.contains("call.lock"), "{said}");

    let missing = directory.path().join("missing").join("call.lock");
    let said = Hold::new(Some(&missing)).take().unwrap_err().to_string();
    assert!(said.contains("No such file") && said.contains("writable"), "{said}");

    let link = directory.path().join("link");
    std::os::unix::fs::symlink("elsewhere", &link).unwrap();
    assert!(Hold::new(Some(&link)).take().is_err());
    assert!(!directory.path().join("elsewhere").exists());
}

#[test]
fn without_a_path_there_is_nothing_to_hold() {
    assert!(Hold::new(None).take().unwrap().is_none());
}
