//! What git says about a workspace.

use std::{fmt, path::Path};

use git2::{IndexAddOption, Oid, RepositoryInitOptions, Signature, Sort, Status, StatusOptions, Time};

/// When the first commit was made: any fixed instant, so that commit ids can be compared.
const EPOCH_SECONDS: i64 = 1_700_000_000;

/// The branch a fresh repository is on.
const BRANCH: &str = "main";

/// A workspace's repository.
pub struct Repository(git2::Repository);

/// A commit of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Its id, which covers everything below and all before it.
    pub id: Oid,
    /// The id of its files.
    pub tree: Oid,
    /// The whole message, trailers included.
    pub message: String,
}

impl Commit {
    /// The first line of the message.
    pub fn subject(&self) -> &str {
        self.message.lines().next().unwrap_or_default()
    }
}

/// In a form whose difference can be read.
impl fmt::Display for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} tree {}", self.id, self.tree)?;
        self.message.lines().try_for_each(|line| writeln!(f, "    {line}"))
    }
}

impl Repository {
    /// Make `dir` a repository with all of its files in one commit, `init`, of a fixed author and time.
    pub fn init(dir: &Path) -> Self {
        Self::try_init(dir)
            .unwrap_or_else(|error| panic!("failed to make `{}` a git repository: {error}", dir.display()))
    }

    fn try_init(dir: &Path) -> Result<Self, git2::Error> {
        let repository = git2::Repository::init_opts(dir, RepositoryInitOptions::new().initial_head(BRANCH))?;
        let mut config = repository.config()?;
        config.set_str("user.name", "Test Owner")?;
        config.set_str("user.email", "owner@example.invalid")?;
        config.set_bool("core.autocrlf", false)?;
        {
            let mut index = repository.index()?;
            // Whatever a copied tree says it ignores belongs to it all the same.
            index.add_all(["*"], IndexAddOption::FORCE, None)?;
            index.write()?;
            let tree = repository.find_tree(index.write_tree()?)?;
            let author = Signature::new("Test Owner", "owner@example.invalid", &Time::new(EPOCH_SECONDS, 0))?;
            repository.commit(Some("HEAD"), &author, &author, "init", &tree, &[])?;
        }
        Ok(Self(repository))
    }

    /// The repository that `dir` is.
    ///
    /// # Errors
    /// When there is none.
    pub fn open(dir: &Path) -> Result<Self, git2::Error> {
        git2::Repository::open(dir).map(Self)
    }

    /// The name of the branch that HEAD is on.
    ///
    /// # Errors
    /// When git cannot tell.
    pub fn branch(&self) -> Result<String, git2::Error> {
        Ok(self.0.head()?.shorthand().unwrap_or_default().to_owned())
    }

    /// Every reference and what it points at, in the order of their names.
    ///
    /// # Errors
    /// When git cannot tell.
    pub fn references(&self) -> Result<Vec<(String, Oid)>, git2::Error> {
        let mut all = Vec::new();
        for reference in self.0.references()? {
            let reference = reference?;
            let id = reference.peel_to_commit()?.id();
            all.push((reference.name().unwrap_or_default().to_owned(), id));
        }
        all.sort();
        Ok(all)
    }

    /// The commits that HEAD reaches, newest first.
    ///
    /// # Errors
    /// When git cannot tell.
    pub fn history(&self) -> Result<Vec<Commit>, git2::Error> {
        let mut walk = self.0.revwalk()?;
        walk.set_sorting(Sort::TOPOLOGICAL)?;
        walk.push_head()?;
        walk.map(|id| {
            let commit = self.0.find_commit(id?)?;
            Ok(Commit {
                id: commit.id(),
                tree: commit.tree_id(),
                message: String::from_utf8_lossy(commit.message_bytes()).into_owned(),
            })
        })
        .collect()
    }

    /// What differs between the last commit, the index and the files: a line each; none when all is clean.
    ///
    /// # Errors
    /// When git cannot tell.
    pub fn status(&self) -> Result<Vec<String>, git2::Error> {
        let mut options = StatusOptions::new();
        options.include_untracked(true).recurse_untracked_dirs(true);
        let statuses = self.0.statuses(Some(&mut options))?;
        Ok(statuses
            .iter()
            .filter(|entry| entry.status() != Status::CURRENT)
            .map(|entry| format!("{:?} {}", entry.status(), String::from_utf8_lossy(entry.path_bytes())))
            .collect())
    }

    /// The paths that differ between a commit and its first parent.
    ///
    /// # Errors
    /// When git cannot tell.
    pub fn changed_paths(&self, id: Oid) -> Result<Vec<String>, git2::Error> {
        let commit = self.0.find_commit(id)?;
        let before = commit.parent(0)?.tree()?;
        let diff = self.0.diff_tree_to_tree(Some(&before), Some(&commit.tree()?), None)?;
        Ok(diff
            .deltas()
            .filter_map(|delta| delta.new_file().path().map(|path| path.to_string_lossy().into_owned()))
            .collect())
    }
}
