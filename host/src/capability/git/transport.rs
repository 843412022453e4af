//! The `git` program, for what goes over a wire.
//!
//! It runs in a fresh bare repository of its own, whose objects are those of the workspace's by an alternate. A tool may
//! write the workspace's configuration and hooks, and git runs programs that a configuration names: here none of that is
//! in reach. What the system and the user configured counts.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use git2::{Repository, RepositoryInitOptions};
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;
use tokio::process::Command;

use super::answer::{self, Answer};
use super::bindings::deed::git::remote::{Branch, Error};
use crate::capability::process::{Captured, End, Exit, Hold, Prepared, find_program, run};
use crate::engine::request::CancelToken;

/// Bytes kept of what git prints: the branches of a remote at about 60 bytes each, some 17,000.
const OUTPUT_BYTES: usize = 1 << 20;

/// What git may speak. Everything else is a program named by the URL.
const PROTOCOLS: &str = "file:git:http:https:ssh";

/// Settings that stand above the user's own. A redirect would lead from the server that is granted to another one; hooks
/// and submodules belong to a work tree, which is not here.
const SETTINGS: [&str; 3] =
    ["http.followRedirects=false", "core.hooksPath=/dev/null", "push.recurseSubmodules=no"];

/// Variables that stand above those of the environment: nobody sits there to be asked, and messages are in the language
/// that [`answer`] reads.
const VARIABLES: [(&str, &str); 8] = [
    ("LC_ALL", "C"),
    ("LANGUAGE", "C"),
    ("GIT_ALLOW_PROTOCOL", PROTOCOLS),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", ""),
    ("SSH_ASKPASS", "false"),
    ("SSH_ASKPASS_REQUIRE", "force"),
    ("GIT_NO_LAZY_FETCH", "1"),
];

/// What the `git` program finds when it carries a push, and what it runs: `ssh`, credential helpers. The library reads no
/// environment of its own: a program that embeds it says here what of its own git may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitEnvironment {
    /// Where `git` is looked for, and its own `PATH`.
    pub search_path: OsString,
    /// The other variables, such as `HOME`, `SSH_AUTH_SOCK` and those of a proxy. Default: none, so that only the
    /// system's configuration counts.
    pub variables: Vec<(OsString, OsString)>,
    /// Where the repository that git runs in is made, for the time it runs. Default: `/tmp`.
    pub temporary: PathBuf,
}

impl Default for GitEnvironment {
    fn default() -> Self {
        Self {
            search_path: crate::capability::CommandEnvironment::default().search_path,
            variables: Vec::new(),
            temporary: "/tmp".into(),
        }
    }
}

/// Variables that lead to configuration.
const CONFIGURATION: [&str; 4] = ["HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"];

impl GitEnvironment {
    /// The search path without the directories in which tools may put a program. An error names what else of this lies in
    /// the workspace: what git reads there, and runs, a tool could have written.
    fn outside(&self, workspace: Option<&Path>) -> Result<OsString, Error> {
        let workspace = workspace.and_then(|workspace| fs::canonicalize(workspace).ok());
        let is_inside = |path: &Path| match (&workspace, fs::canonicalize(path)) {
            (Some(workspace), Ok(path)) => path.starts_with(workspace),
            _ => false,
        };
        let read = self.variables.iter().filter(|(name, _)| CONFIGURATION.iter().any(|read| name == read));
        let read = read.map(|(name, path)| (name.to_string_lossy(), Path::new(path)));
        for (name, path) in read.chain([("its temporary directory".into(), &*self.temporary)]) {
            if is_inside(path) {
                let path = path.display();
                return Err(Error::Denied(format!(
                    "git was not started: `{path}` ({name}) lies in the workspace, where tools may write, and git would run what is configured there; take another workspace"
                )));
            }
        }
        let directories = std::env::split_paths(&self.search_path);
        let outside = directories.filter(|directory| directory.is_absolute() && !is_inside(directory));
        std::env::join_paths(outside)
            .map_err(|error| Error::Unavailable(format!("git was not started: its search path: {error}")))
    }
}

/// Bytes of the list of commits at which a shallow clone is cut: some 25,000. More is no clone that anybody made.
const SHALLOW_BYTES: u64 = 1 << 20;

/// What a push takes from the workspace's repository.
pub(super) struct Objects {
    /// The directory of objects.
    directory: PathBuf,
    /// The commits at which a shallow clone's history is cut.
    shallow: Vec<u8>,
}

impl Objects {
    /// Those of a repository that was found to be usable.
    pub(super) fn of(repository: &Repository) -> io::Result<Self> {
        let mut shallow = Vec::new();
        match fs::File::open(repository.commondir().join("shallow")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            file => {
                file?.take(SHALLOW_BYTES + 1).read_to_end(&mut shallow)?;
            }
        }
        if shallow.len() as u64 > SHALLOW_BYTES {
            return Err(io::Error::other(format!("`shallow` has more than {SHALLOW_BYTES} bytes")));
        }
        Ok(Self { directory: repository.commondir().join("objects"), shallow })
    }
}

/// The `git` program of one call.
pub(super) struct Transport<'a> {
    pub(super) environment: &'a GitEnvironment,
    /// Where tools may write.
    pub(super) workspace: Option<&'a Path>,
    pub(super) cancel: &'a CancelToken,
    pub(super) hold: &'a Hold,
}

/// How git ended, when it ended by itself.
struct Ended {
    exit: Exit,
    stdout: Captured,
    stderr: Captured,
}

impl Transport<'_> {
    /// The branches of the remote at `url`, or the one called `name`.
    pub(super) async fn branches(&self, url: &str, name: Option<&str>) -> Result<Vec<Branch>, Error> {
        let reference = name.map(|name| format!("refs/heads/{name}"));
        let mut arguments = vec!["ls-remote", "--quiet", "--heads", "--", url];
        arguments.extend(reference.as_deref());
        let ended = match self.run(&arguments, None).await {
            Ok(ended) => ended,
            // Nothing is changed by asking.
            Err(Error::InDoubt(why)) => return Err(Error::Unavailable(why)),
            Err(error) => return Err(error),
        };
        if ended.exit.code != Some(0) {
            return Err(answer::unavailable(url, &text(&ended.stderr)));
        }
        if ended.stdout.cut_bytes > 0 {
            return Err(Error::Unavailable(format!("`{url}` has too many branches to list; name one")));
        }
        let branches = answer::branches(&text(&ended.stdout));
        Ok(branches.into_iter().filter(|branch| name.is_none_or(|name| branch.name == name)).collect())
    }

    /// Move the branch `name` of the remote at `url` from `expected` to `commit`.
    pub(super) async fn push(
        &self,
        objects: &Objects,
        url: &str,
        commit: &str,
        name: &str,
        expected: Option<&str>,
    ) -> Result<(), Error> {
        // An empty value expects that it is not there.
        let lease = format!("--force-with-lease=refs/heads/{name}:{}", expected.unwrap_or_default());
        let refspec = format!("{commit}:refs/heads/{name}");
        let arguments =
            ["push", "--porcelain", "--no-verify", "--no-follow-tags", &lease, "--", url, &refspec];
        let Ended { exit, stdout, stderr } = self.run(&arguments, Some(objects)).await?;
        // What was cut may hold the words that leave it in doubt.
        let code = exit.code.filter(|_| stderr.cut_bytes == 0);
        match answer::of_push(code, &text(&stdout), &text(&stderr)) {
            Answer::Landed => Ok(()),
            Answer::Rejected(why) => Err(answer::rejected(url, name, expected, &why)),
            Answer::NeverSent => Err(answer::unavailable(url, &text(&stderr))),
            Answer::InDoubt => Err(answer::in_doubt(url, name, &text(&stderr))),
        }
    }

    /// Run git to its end. An error other than [`Error::InDoubt`] means that it did not run.
    async fn run(&self, arguments: &[&str], objects: Option<&Objects>) -> Result<Ended, Error> {
        let GitEnvironment { variables, temporary, .. } = self.environment;
        let search_path = self.environment.outside(self.workspace)?;
        let program = find_program("git", &search_path).ok_or_else(|| {
            let searched = search_path.to_string_lossy();
            Error::Unavailable(format!(
                "there is no program `git` in `{searched}`: install git, which carries what goes to a remote"
            ))
        })?;
        let scratch = Scratch::new(temporary, objects).map_err(|why| {
            let place = temporary.display();
            Error::Unavailable(format!(
                "git was not started: no repository for it could be made in `{place}`: {why}"
            ))
        })?;
        let not_started =
            |why: &dyn ToString| Error::Unavailable(format!("git was not started: {}", why.to_string()));
        let directory = fs::File::open(scratch.path()).map_err(|error| not_started(&error))?;
        let hold = self.hold.take().map_err(|why| Error::Denied(format!("git was not started: {why}")))?;

        let mut command = Command::new(program);
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        command
            .args(arguments)
            .env_clear()
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .envs(VARIABLES)
            .env("PATH", search_path)
            .env("GIT_DIR", scratch.path());
        if let Some(objects) = objects {
            command.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted(objects.directory.as_os_str()));
        }
        let prepared = Prepared {
            command,
            directory: directory.into(),
            namespaces: None,
            stdin: Vec::new(),
            limit_bytes: OUTPUT_BYTES,
            timeout: None,
            hold,
        };
        match run(prepared, self.cancel).await {
            Ok(End::Ended { status, stdout, stderr }) => Ok(Ended { exit: status, stdout, stderr }),
            Ok(End::Cancelled | End::OutOfTime(_)) => {
                Err(Error::InDoubt("git was cancelled on its way; all its processes were killed".to_owned()))
            }
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) =>
            {
                Err(not_started(&error))
            }
            Err(error) => Err(Error::InDoubt(format!("git was lost on its way: {error}"))),
        }
    }
}

/// An empty bare repository, gone when it is dropped.
struct Scratch {
    directory: TempDir,
    /// Locked, so that nobody takes it for one that was left behind.
    _lock: fs::File,
}

/// How the directories of these repositories begin.
const PREFIX: &str = "deed-git-";

/// Directories made before one is not taken away at once by somebody who tidies up.
const TRIES: usize = 10;

impl Scratch {
    fn new(place: &Path, objects: Option<&Objects>) -> Result<Self, String> {
        let said = |error: io::Error| error.to_string();
        remove_left(place);
        let scratch = Self::empty(place).map_err(said)?;
        let mut options = RepositoryInitOptions::new();
        // No template of the user's: it may hold hooks.
        options.bare(true).external_template(false).initial_head("main");
        Repository::init_opts(scratch.path(), &options).map_err(|error| error.message().to_owned())?;
        if let Some(Objects { shallow, .. }) = objects.filter(|objects| !objects.shallow.is_empty()) {
            fs::write(scratch.path().join("shallow"), shallow).map_err(said)?;
        }
        Ok(scratch)
    }

    fn empty(place: &Path) -> io::Result<Self> {
        for _ in 0..TRIES {
            let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(place)?;
            if let Some(lock) = lock(directory.path()) {
                return Ok(Self { directory, _lock: lock });
            }
        }
        Err(io::Error::other("each directory was taken away as soon as it was made"))
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// The directory, locked; none when somebody else has it, or has removed it.
fn lock(directory: &Path) -> Option<fs::File> {
    let file = fs::File::open(directory).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    // It may have been removed before it was locked.
    let (locked, there) = (file.metadata().ok()?, fs::metadata(directory).ok()?);
    (locked.ino() == there.ino()).then_some(file)
}

/// Remove what hosts that were killed have left in `place`.
fn remove_left(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().as_bytes().starts_with(PREFIX.as_bytes())
            && entry.metadata().is_ok_and(|metadata| {
                metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw()
            });
        if is_ours && let Some(_lock) = lock(&entry.path()) {
            // What cannot be removed stays for the next one.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A path as git reads it from a list that colons separate: in quotes, as C writes them.
fn quoted(path: &OsStr) -> OsString {
    let mut quoted = vec![b'"'];
    for byte in path.as_bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend([b'\\', *byte]),
            b'\n' => quoted.extend(b"\\n"),
            byte => quoted.push(*byte),
        }
    }
    quoted.push(b'"');
    OsString::from_vec(quoted)
}

fn text(captured: &Captured) -> String {
    String::from_utf8_lossy(&captured.data).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_git_reads_or_runs_lies_where_tools_write() {
        let workspace = tempfile::tempdir().unwrap();
        let (inside, outside) = (workspace.path().join("bin"), tempfile::tempdir().unwrap());
        fs::create_dir(&inside).unwrap();
        let search_path = std::env::join_paths([&*inside, Path::new("."), outside.path()]).unwrap();
        let mut environment = GitEnvironment { search_path, ..GitEnvironment::default() };
        let refusal = |environment: &GitEnvironment| match environment.outside(Some(workspace.path())) {
            Err(Error::Denied(why)) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(environment.outside(Some(workspace.path())).unwrap(), outside.path());
        environment.variables =
            vec![("HOME".into(), workspace.path().into()), ("TZ".into(), inside.clone().into())];
        assert!(refusal(&environment).contains("(HOME) lies in the workspace"));
        (environment.variables, environment.temporary) = (Vec::new(), inside);
        assert!(refusal(&environment).contains("temporary directory"));
    }

    #[test]
    fn a_path_survives_the_list_that_it_stands_in() {
        assert_eq!(quoted(OsStr::new("/a:b/\"c\\d\n")), "\"/a:b/\\\"c\\\\d\\n\"");
    }

    #[test]
    fn the_repository_git_runs_in_is_bare_has_no_hooks_and_goes() {
        let place = tempfile::tempdir().unwrap();
        let objects = Objects { directory: "/nowhere".into(), shallow: format!("{:040x}\n", 7).into_bytes() };
        let made = Scratch::new(place.path(), Some(&objects)).unwrap();
        let repository = Repository::open(made.path()).unwrap();
        assert!(repository.is_bare());
        assert!(repository.is_shallow());
        let hooks = fs::read_dir(made.path().join("hooks")).into_iter().flatten().flatten();
        assert!(hooks.map(|hook| hook.file_name()).all(|name| name == "README.sample"));
        drop(made);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
        let nowhere = Scratch::new(&place.path().join("missing"), None).err().unwrap();
        assert!(nowhere.contains("No such file"), "{nowhere}");
    }

    #[test]
    fn what_a_killed_host_has_left_is_removed_by_the_next_and_what_is_in_use_is_not() {
        let place = tempfile::tempdir().unwrap();
        let in_use = Scratch::new(place.path(), None).unwrap();
        let left = place.path().join("deed-git-left");
        fs::create_dir(&left).unwrap();
        fs::write(left.join("HEAD"), "").unwrap();
        fs::create_dir(place.path().join("other")).unwrap();
        let next = Scratch::new(place.path(), None).unwrap();
        assert!(!left.exists());
        assert!(in_use.path().join("HEAD").exists() && next.path().join("HEAD").exists());
        assert!(place.path().join("other").exists());
    }
}
