//! `deed:git/remote`: asking other repositories, and pushing to them.
//!
//! What a remote's name stands for is looked up first, and the gate decides on the URL alone: tools may write the
//! configuration that the name is looked up in.

use std::fs;
use std::path::Path;

use git2::{Oid, Reference, Repository};

use super::bindings::deed::git::remote::{Branch, Error, Host};
use super::bindings::deed::git::repository;
use super::transport::{Objects, Transport};
use super::{Action, GitCtxView, check_reference, read, url};

/// The commits of a push, checked against the workspace's repository.
struct Checked {
    url: String,
    objects: Objects,
    expected: Option<String>,
}

impl Host for GitCtxView<'_> {
    fn url(&mut self, remote: String) -> wasmtime::Result<Result<String, Error>> {
        Ok(self.resolve(&remote))
    }

    fn local_branch(&mut self, name: Option<String>) -> wasmtime::Result<Result<Branch, Error>> {
        Ok(self.open_for_remote().and_then(|repository| local_branch(&repository, name)))
    }

    fn builds_on(
        &mut self,
        commit: String,
        ancestor: String,
    ) -> wasmtime::Result<Result<Option<bool>, Error>> {
        let builds_on =
            |repository: &Repository| builds_on(repository, commit_id(&commit)?, commit_id(&ancestor)?);
        Ok(self.open_for_remote().and_then(|repository| builds_on(&repository)))
    }

    async fn branches(
        &mut self,
        remote: String,
        name: Option<String>,
    ) -> wasmtime::Result<Result<Vec<Branch>, Error>> {
        Ok(self.list(&remote, name.as_deref()).await)
    }

    async fn push(
        &mut self,
        remote: String,
        commit: String,
        name: String,
        expected: Option<String>,
    ) -> wasmtime::Result<Result<(), Error>> {
        let pushed = self.push_checked(&remote, &commit, &name, expected.as_deref()).await;
        if let Err(Error::InDoubt(_)) = &pushed {
            self.0.gate.doubt();
        }
        Ok(pushed)
    }
}

impl GitCtxView<'_> {
    async fn list(&self, remote: &str, name: Option<&str>) -> Result<Vec<Branch>, Error> {
        if let Some(name) = name {
            check_branch(name)?;
        }
        let url = self.resolve(remote)?;
        self.0.gate.admit(Action::ListRemote(&url)).map_err(Error::Denied)?;
        self.transport().branches(&url, name).await
    }

    async fn push_checked(
        &self,
        remote: &str,
        commit: &str,
        name: &str,
        expected: Option<&str>,
    ) -> Result<(), Error> {
        // The repository is closed again before anybody waits.
        let Checked { url, objects, expected } = self.check_push(remote, commit, name, expected)?;
        self.transport().push(&objects, &url, commit, name, expected.as_deref()).await
    }

    /// Everything that can be told before git is started, the gate's word included.
    fn check_push(
        &self,
        remote: &str,
        commit: &str,
        name: &str,
        expected: Option<&str>,
    ) -> Result<Checked, Error> {
        check_branch(name)?;
        let id = commit_id(commit)?;
        let old = expected.map(commit_id).transpose()?;
        let url = self.resolve(remote)?;
        let repository = self.open_for_remote()?;
        self.0.gate.admit(Action::Push(&url)).map_err(Error::Denied)?;
        if repository.find_commit(id).is_err() {
            return Err(Error::NotFound(format!(
                "there is no commit `{commit}` in the workspace's repository"
            )));
        }
        match old.map(|old| Ok::<_, Error>((old, builds_on(&repository, id, old)?))).transpose()? {
            None | Some((_, Some(true))) => {}
            Some((old, Some(false))) => {
                return Err(Error::Rejected(format!(
                    "`{name}` of `{url}` is at {}, which {} does not build on, and a push throws nothing away: merge it first",
                    short(old),
                    short(id)
                )));
            }
            Some((old, None)) => {
                return Err(Error::Rejected(format!(
                    "`{name}` of `{url}` is at {}, which is not in the workspace's repository: fetch and merge it first",
                    short(old)
                )));
            }
        }
        let objects = Objects::of(&repository)
            .map_err(|error| Error::Unavailable(format!("the repository cannot be read: {error}")))?;
        Ok(Checked { url, objects, expected: old.map(|old| old.to_string()) })
    }

    fn transport(&self) -> Transport<'_> {
        Transport {
            environment: &self.0.environment,
            workspace: self.0.workspace.as_deref(),
            cancel: &self.0.cancel,
            hold: &self.0.hold,
        }
    }

    /// What is pushed is read first, and so is the name of a remote.
    fn open_for_remote(&self) -> Result<Repository, Error> {
        self.0.gate.admit(Action::Read(".git")).map_err(Error::Denied)?;
        Ok(self.open()?)
    }

    /// The URL of a remote. One that lies in the workspace is none: git runs a remote's hooks, and tools could write them.
    fn resolve(&self, remote: &str) -> Result<String, Error> {
        let repository = self.open_for_remote()?;
        let url = url::resolve(&repository.config()?, remote)?;
        let workspace = self.0.workspace.as_deref().unwrap_or(Path::new("/"));
        if let Some(directory) = url::directory(&url)
            && let (Ok(directory), Ok(workspace)) = (fs::canonicalize(directory), fs::canonicalize(workspace))
            && directory.starts_with(workspace)
        {
            return Err(Error::Denied(format!(
                "`{url}` lies in the workspace, where tools may write, and git would run its hooks: move it elsewhere"
            )));
        }
        Ok(url)
    }
}

fn local_branch(repository: &Repository, name: Option<String>) -> Result<Branch, Error> {
    let Some(name) = name.map_or_else(|| read::branch(repository), |name| Ok(Some(name)))? else {
        return Err(Error::NotFound(
            "HEAD is detached, so no branch is the current one; name one".to_owned(),
        ));
    };
    check_branch(&name)?;
    let full = format!("refs/heads/{name}");
    check_reference(repository, &full).map_err(repository::Error::from)?;
    let commit = repository.find_reference(&full).and_then(|reference| reference.peel_to_commit());
    match commit {
        Ok(commit) => Ok(Branch { name, id: commit.id().to_string() }),
        Err(error) => Err(Error::NotFound(format!(
            "there is no branch `{name}` with a commit in the workspace's repository: {}",
            error.message()
        ))),
    }
}

fn builds_on(repository: &Repository, commit: Oid, ancestor: Oid) -> Result<Option<bool>, Error> {
    let is_here = |id| repository.find_commit(id).is_ok();
    if !is_here(commit) || !is_here(ancestor) {
        return Ok(None);
    }
    Ok(Some(commit == ancestor || repository.graph_descendant_of(commit, ancestor)?))
}

/// A whole id: what is shorter may come to mean another commit.
fn commit_id(text: &str) -> Result<Oid, Error> {
    let id = Oid::from_str(text).ok().filter(|id| id.to_string() == text);
    id.ok_or_else(|| Error::NotFound(format!("`{text}` is no commit id: expected 40 hexadecimal digits")))
}

fn check_branch(name: &str) -> Result<(), Error> {
    // Git itself makes no branch of such a name.
    let odd = name.starts_with('-') || name == "HEAD";
    if odd || !Reference::is_valid_name(&format!("refs/heads/{name}")) {
        return Err(Error::NotFound(format!("`{name}` is no name of a branch")));
    }
    Ok(())
}

fn short(id: Oid) -> String {
    let mut text = id.to_string();
    text.truncate(7);
    text
}

impl From<repository::Error> for Error {
    fn from(error: repository::Error) -> Self {
        match error {
            repository::Error::NoRepository(why) => Self::NoRepository(why),
            repository::Error::NotFound(why) => Self::NotFound(why),
            repository::Error::Denied(why) => Self::Denied(why),
            repository::Error::Conflict(why) | repository::Error::NothingToCommit(why) => Self::Rejected(why),
            repository::Error::Failed(why) => Self::Unavailable(why),
        }
    }
}

/// Of what is local: nothing was sent.
impl From<git2::Error> for Error {
    fn from(error: git2::Error) -> Self {
        Self::Unavailable(format!("the repository cannot be read: {}", error.message()))
    }
}
