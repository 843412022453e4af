//! The branch of a run, in repositories that lead elsewhere.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use git2::{Repository, RepositoryInitOptions, Signature};

use super::*;

/// A repository with one commit, on the branch `main`.
fn repository(directory: &Path) -> Repository {
    let repository =
        Repository::init_opts(directory, RepositoryInitOptions::new().initial_head("main")).unwrap();
    let who = Signature::now("Ada", "ada@example.org").unwrap();
    let tree = repository.index().unwrap().write_tree().unwrap();
    repository.commit(Some("HEAD"), &who, &who, "Begin", &repository.find_tree(tree).unwrap(), &[]).unwrap();
    repository
}

fn head(repository: &Repository) -> String {
    repository.head().unwrap().name().unwrap().to_owned()
}

#[test]
fn a_branch_is_entered_once_and_again() {
    let place = tempfile::tempdir().unwrap();
    let repository = repository(place.path());
    assert!(is_git_root(place.path()));
    for _ in 0..2 {
        enter_branch(place.path(), "deed/1", None).unwrap();
        assert_eq!(head(&repository), "refs/heads/deed/1");
    }
}

/// A `.git` file can name any git directory. Setup would have moved the HEAD of that repository, which nobody granted.
#[test]
fn the_head_of_a_foreign_repository_is_not_moved() {
    let place = tempfile::tempdir().unwrap();
    let (workspace, other) = (place.path().join("workspace"), place.path().join("other"));
    fs::create_dir(&workspace).unwrap();
    let foreign = repository(&other);
    fs::write(workspace.join(".git"), format!("gitdir: {}", foreign.path().display())).unwrap();
    assert!(!is_git_root(&workspace));
    assert!(matches!(enter_branch(&workspace, "deed/1", None), Err(BranchError::NotUsable(_))));
    assert_eq!(head(&foreign), "refs/heads/main");
}

/// The branch, its log and the objects are written by the host's hands: a link on the way would lead them out.
#[test]
fn no_link_is_written_through() {
    for link in ["refs/heads/deed", "logs/refs/heads", "logs/refs/heads/deed", "objects/ab", "objects/pack"] {
        let place = tempfile::tempdir().unwrap();
        let (workspace, outside) = (place.path().join("workspace"), place.path().join("outside"));
        fs::create_dir(&outside).unwrap();
        let repository = repository(&workspace);
        let path = repository.path().join(link);
        let _ = fs::remove_dir_all(&path);
        symlink(&outside, path).unwrap();
        let error = enter_branch(&workspace, "deed/1", None).unwrap_err().to_string();
        assert!(error.contains("symbolic link"), "{link}: {error}");
        assert_eq!(outside.read_dir().unwrap().count(), 0, "{link}");
    }
}

#[test]
fn a_configuration_that_includes_a_file_of_the_workspace_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let repository = repository(place.path());
    let config = repository.path().join("config");
    let whole = fs::read_to_string(&config).unwrap();
    let pipe = place.path().join("pipe");
    // A pipe that nobody writes to: to open it would wait for ever.
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    let absolute = pipe.display();
    for include in [
        "[include]\n\tpath = ../pipe\n".to_owned(),
        format!("[include]\n\tpath = {absolute}\n"),
        "[INCLUDE] path = ../pipe\n".to_owned(),
        "[includeIf \"gitdir:/\"]\n\tpath = \"../pi\"pe\n".to_owned(),
    ] {
        fs::write(&config, format!("{whole}{include}")).unwrap();
        let error = enter_branch(place.path(), "deed/1", None).unwrap_err().to_string();
        assert!(error.contains("includes a file of the workspace"), "{include}: {error}");
    }
    fs::write(&config, format!("{whole}[include]\n\tpath = ~/.gitconfig-of-mine\n")).unwrap();
    enter_branch(place.path(), "deed/1", None).unwrap();
}

#[test]
fn a_repository_that_takes_objects_from_outside_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let (workspace, other) = (place.path().join("workspace"), place.path().join("other"));
    for directory in [&workspace, &other] {
        fs::create_dir(directory).unwrap();
    }
    let (own, foreign) = (repository(&workspace), repository(&other));
    let alternates = own.path().join("objects/info/alternates");
    fs::create_dir_all(alternates.parent().unwrap()).unwrap();
    let objects = foreign.path().join("objects");
    for line in [objects.to_str().unwrap(), "../../../other/.git/objects"] {
        fs::write(&alternates, format!("{line}\n")).unwrap();
        let error = enter_branch(&workspace, "deed/1", None).unwrap_err().to_string();
        assert!(error.contains("outside the workspace"), "{line}: {error}");
    }
    // Another directory of the workspace is the workspace's own.
    let inner = workspace.join("inner");
    fs::create_dir(&inner).unwrap();
    let inner = repository(&inner);
    fs::write(&alternates, format!("{}\n", inner.path().join("objects").display())).unwrap();
    enter_branch(&workspace, "deed/1", None).unwrap();
}
