//! `deed.toml`: what the operator says for every run. The workspace's file counts first, then the user's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read as _};
use std::ops::RangeInclusive;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use deed_journal::{Digest, EffectClass};
use rustix::fs::OFlags;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::engine::OutOfRange;
use crate::engine::limits::{PARALLEL_CALLS_RANGE, WASM_STACK_RANGE};
use crate::grants::Grant;
use crate::origin::Origin;
use crate::policy::{ClassName, Operator, Rule, SourcedRule};

/// The name of the file, in a workspace and in the user's configuration directory.
pub const FILE_NAME: &str = "deed.toml";

/// Bytes of a file. A rule is some 100: this is more than anybody writes by hand.
const FILE_BYTES: u64 = 1 << 20;

/// The file as it is written.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OperatorFile {
    /// What calls need, by rules: the first that matches wins. Those of a mission come before these.
    #[serde(default)]
    pub policy: Vec<Rule>,
    /// What tools reach beyond the workspace. Those of a mission come before these.
    #[serde(default)]
    pub grants: Vec<Grant>,
    /// Milliseconds after which an approval or a question that nobody answered expires, where the mission does not say
    /// it. Default: never.
    #[serde(default)]
    pub answer_within_ms: Option<u64>,
    /// Credentials by name. Only the user's own file may hold them: a workspace is shared.
    #[serde(default)]
    pub credentials: BTreeMap<String, CredentialEntry>,
    /// How the engine is set up. Only the user's own file may hold it: an engine serves every workspace.
    #[serde(default)]
    pub engine: EngineSettings,
    /// The installed plugins, by name; `deed plugin add` and `remove` write them. Only the user's own file may hold them: what
    /// comes with a workspace must not decide which code runs.
    #[serde(default)]
    pub plugins: BTreeMap<String, PluginEntry>,
}

/// What is set of an engine; the rest is as it is by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EngineSettings {
    /// Calls that have an instance at once; further ones wait. Default: 64.
    #[serde(default)]
    #[schemars(range(min = *PARALLEL_CALLS_RANGE.start(), max = *PARALLEL_CALLS_RANGE.end()))]
    pub parallel_calls: Option<u64>,
    /// Bytes of a call's stack. Default: 1 MiB.
    #[serde(default)]
    #[schemars(range(min = *WASM_STACK_RANGE.start(), max = *WASM_STACK_RANGE.end()))]
    pub stack_bytes: Option<u64>,
}

impl EngineSettings {
    fn check(self) -> Result<(), OutOfRange> {
        let check = |name, value: Option<u64>, range: RangeInclusive<u64>| {
            value.map_or(Ok(()), |value| OutOfRange::check(name, value, range))
        };
        check("parallel_calls", self.parallel_calls, PARALLEL_CALLS_RANGE)?;
        check("stack_bytes", self.stack_bytes, WASM_STACK_RANGE)
    }
}

/// An installed plugin.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PluginEntry {
    /// The digest (BLAKE3, 64 hexadecimal digits) of the component. Any other one is refused.
    #[schemars(with = "String", regex(pattern = "^[0-9a-f]{64}$"))]
    pub digest: Digest,
    /// The file that it was installed from: where to look for it again.
    #[serde(default)]
    pub source: Option<PathBuf>,
    /// The classes of its tools, where those are plain functions of a component that knows nothing of deed: by the tool's
    /// name, or `*` for all that are not named. Default: `non-idempotent`.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, ClassName>")]
    pub effects: BTreeMap<String, EffectClass>,
    /// Imports that the host does not offer and that the component shall do without. A call that uses one fails.
    #[serde(default)]
    pub stubs: BTreeSet<String>,
    /// The digest of the WIT whose words describe its functions to models; it lies beside the component.
    #[serde(default)]
    #[schemars(with = "Option<String>", regex(pattern = "^[0-9a-f]{64}$"))]
    pub wit: Option<Digest>,
}

/// What the host adds to a request that names it. The tool never sees it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CredentialEntry {
    /// The servers it is sent to, and no others.
    pub origins: Vec<Origin>,
    /// The header that carries it. Default: `authorization`.
    #[serde(default = "authorization")]
    pub header: String,
    /// What comes before the secret in that header, such as `Bearer `. Default: nothing.
    #[serde(default)]
    pub prefix: String,
    /// The variable of the environment that holds the secret.
    #[serde(default)]
    pub env: Option<String>,
    /// The file that holds the secret, on its first line. Relative to the file that names it.
    #[serde(default)]
    pub file: Option<PathBuf>,
}

fn authorization() -> String {
    "authorization".to_owned()
}

/// Why a `deed.toml` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// It cannot be read.
    #[error("failed to read `{}`: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// It is no TOML, or not of this form.
    #[error("failed to read `{}`: {reason}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What does not fit, and where.
        reason: String,
    },
    /// Tools could change it.
    #[error("failed to use `{}`: {reason}", path.display())]
    Reachable {
        /// The file.
        path: PathBuf,
        /// How they would.
        reason: WithinReach,
    },
    /// A limit is set to what it cannot be.
    #[error("failed to use `{}`: {reason}", path.display())]
    Range {
        /// The file.
        path: PathBuf,
        /// Which, and what it may be.
        reason: String,
    },
    /// A workspace's file sets the engine up.
    #[error(
        "`{}` sets up the engine, which serves other workspaces as well: move `engine` to the `deed.toml` of your configuration directory",
        path.display()
    )]
    SharedEngine {
        /// The file.
        path: PathBuf,
    },
    /// A workspace's file holds plugins.
    #[error(
        "`{}` holds plugins, and a workspace does not decide which code runs: move `plugins` to the `deed.toml` of your configuration directory",
        path.display()
    )]
    SharedPlugins {
        /// The file.
        path: PathBuf,
    },
    /// A workspace's file holds credentials.
    #[error(
        "`{}` holds credentials, and everybody who gets the workspace gets them: move `credentials` to the `deed.toml` of your configuration directory",
        path.display()
    )]
    SharedCredentials {
        /// The file.
        path: PathBuf,
    },
}

/// Why a `deed.toml` is within reach of the tools it speaks about.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WithinReach {
    /// The workspace's file is a link to another place in it.
    #[error(
        "it is a symbolic link to `{}`, which tools may write: put the file itself there, or one outside of the workspace",
        .0.display()
    )]
    Link(PathBuf),
    /// The user's file lies in the workspace.
    #[error(
        "it is inside the workspace `{}`, where tools may move it away: name another workspace",
        .0.display()
    )]
    Inside(PathBuf),
}

impl OperatorFile {
    /// Read one; none where there is no such file.
    pub fn read(path: &Path) -> Result<Option<Self>, OperatorError> {
        text(path)?.map(|text| Self::of_text(path, &text)).transpose()
    }

    /// What the text of the file at `path` says.
    pub(crate) fn of_text(path: &Path, text: &str) -> Result<Self, OperatorError> {
        let file: Self = toml::from_str(text).map_err(|error| OperatorError::Form {
            path: path.to_owned(),
            reason: error.to_string().trim_end().to_owned(),
        })?;
        let unusable = |reason| OperatorError::Range { path: path.to_owned(), reason };
        Grant::check_all(&file.grants).map_err(|error| unusable(error.to_string()))?;
        file.engine.check().map_err(|error| unusable(format!("`engine`: {error}")))?;
        Ok(file)
    }
}

/// The text of the file at `path`; none where there is no such file.
pub(crate) fn text(path: &Path) -> Result<Option<String>, OperatorError> {
    match read_regular(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(source) => Err(OperatorError::Read { path: path.to_owned(), source }),
    }
}

/// The text of a regular file of bounded size: a pipe that a command made in its place would be waited for for ever.
fn read_regular(path: &Path) -> io::Result<String> {
    let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    let mut text = String::new();
    if file.take(FILE_BYTES + 1).read_to_string(&mut text)?
        > usize::try_from(FILE_BYTES).unwrap_or(usize::MAX)
    {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it is larger than {FILE_BYTES} bytes"),
        ));
    }
    Ok(text)
}

impl Operator {
    /// What the files of a workspace and of a user's configuration directory say together, and the user's credentials.
    pub fn read(
        workspace: &Path,
        config: Option<&Path>,
    ) -> Result<(Self, BTreeMap<String, CredentialEntry>), OperatorError> {
        let mut operator = Self::default();
        let mut credentials = BTreeMap::new();
        let own = config.map(|config| config.join(FILE_NAME));
        check_reach(workspace, own.as_deref())?;
        for path in std::iter::once(workspace.join(FILE_NAME)).chain(own.clone()) {
            let Some(file) = OperatorFile::read(&path)? else { continue };
            if own.as_ref() == Some(&path) {
                credentials = file.credentials;
            } else if !file.credentials.is_empty() {
                return Err(OperatorError::SharedCredentials { path });
            } else if !file.plugins.is_empty() {
                return Err(OperatorError::SharedPlugins { path });
            } else if file.engine != EngineSettings::default() {
                return Err(OperatorError::SharedEngine { path });
            }
            let source = path.display().to_string();
            operator
                .rules
                .extend(file.policy.into_iter().map(|rule| SourcedRule { rule, source: source.clone() }));
            operator.grants.extend(file.grants);
            operator.answer_within_ms = operator.answer_within_ms.or(file.answer_within_ms);
        }
        Ok((operator, credentials))
    }
}

/// Refuse files that tools could change or move. Under its own name a tool may not touch one (see the capability of
/// files), but what a link leads to goes by another, and a directory that holds one may be renamed.
fn check_reach(workspace: &Path, own: Option<&Path>) -> Result<(), OperatorError> {
    let Ok(root) = workspace.canonicalize() else { return Ok(()) };
    let refused = |path: &Path, reason| Err(OperatorError::Reachable { path: path.to_owned(), reason });
    let file = root.join(FILE_NAME);
    if let Ok(target) = std::fs::read_link(&file) {
        // Both the next link, if there is one, and the end of them all.
        let next = root.join(&target);
        let directory = next.parent().and_then(|directory| directory.canonicalize().ok());
        let inside = [directory, next.canonicalize().ok()].into_iter().flatten();
        if inside.into_iter().any(|path| path.starts_with(&root)) {
            return refused(&file, WithinReach::Link(target));
        }
    }
    match own {
        Some(own) if own.canonicalize().is_ok_and(|own| own.starts_with(&root) && own != file) => {
            refused(own, WithinReach::Inside(root))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_counts_before_the_user_and_holds_no_credentials() {
        let directory = tempfile::tempdir().unwrap();
        let (workspace, config) = (directory.path().join("w"), directory.path().join("c"));
        for path in [&workspace, &config] {
            std::fs::create_dir(path).unwrap();
        }
        assert_eq!(Operator::read(&workspace, Some(&config)).unwrap().0, Operator::default());

        let rule = "[[policy]]\ntool = \"shell\"\ndecision = \"ask\"\n";
        std::fs::write(workspace.join(FILE_NAME), rule).unwrap();
        let user = "answer_within_ms = 5\n[[policy]]\ntool = \"*\"\ndecision = \"deny\"\neffect = \"non-idempotent\"\n[[grants]]\ntool = \"http_get\"\nhosts = [\"https://a.test\", { origin = \"https://b.test\", honours_key = true }]\n[credentials.hub]\norigins = [\"https://a.test\"]\nenv = \"HUB\"\n";
        std::fs::write(config.join(FILE_NAME), user).unwrap();
        let (operator, credentials) = Operator::read(&workspace, Some(&config)).unwrap();
        let tools: Vec<_> = operator.rules.iter().map(|rule| rule.rule.tool.as_str()).collect();
        assert_eq!((tools, operator.answer_within_ms), (vec!["shell", "*"], Some(5)));
        assert_eq!((operator.grants.len(), credentials["hub"].header.as_str()), (1, "authorization"));

        std::fs::copy(config.join(FILE_NAME), workspace.join(FILE_NAME)).unwrap();
        let error = Operator::read(&workspace, Some(&config)).unwrap_err();
        assert!(matches!(error, OperatorError::SharedCredentials { .. }), "{error}");
        let plugin = format!("[plugins.greet]\ndigest = \"{}\"\n", Digest::of(b"greet"));
        std::fs::write(workspace.join(FILE_NAME), plugin).unwrap();
        let error = Operator::read(&workspace, Some(&config)).unwrap_err();
        assert!(matches!(error, OperatorError::SharedPlugins { .. }), "{error}");
    }

    #[test]
    fn a_file_that_tools_could_change_or_move_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let workspace = directory.path().join("w");
        let config = workspace.join("home/config");
        std::fs::create_dir_all(&config).unwrap();
        std::fs::create_dir(directory.path().join("o")).unwrap();
        let link = |target: &str| {
            let _ = std::fs::remove_file(workspace.join(FILE_NAME));
            std::os::unix::fs::symlink(target, workspace.join(FILE_NAME)).unwrap();
        };
        let read = |config| Operator::read(&workspace, config);
        assert_eq!(read(Some(&*config)).unwrap().0, Operator::default(), "no file is there");

        let reason = |result: Result<_, OperatorError>| match result {
            Err(OperatorError::Reachable { reason, .. }) => reason,
            other => panic!("{other:?}"),
        };
        for target in ["policy.toml", "home/../policy.toml", "../w/policy.toml"] {
            for there in [false, true] {
                if there {
                    std::fs::write(workspace.join("policy.toml"), "").unwrap();
                }
                link(target);
                assert_eq!(reason(read(None)), WithinReach::Link(target.into()), "{target}");
            }
            std::fs::remove_file(workspace.join("policy.toml")).unwrap();
        }
        std::fs::write(directory.path().join("o/policy.toml"), "answer_within_ms = 5\n").unwrap();
        link("../o/policy.toml");
        assert_eq!(read(None).unwrap().0.answer_within_ms, Some(5), "no tool reaches it there");
        // A link out, whose own target is a link back in.
        std::fs::write(workspace.join("policy.toml"), "").unwrap();
        std::os::unix::fs::symlink("../w/policy.toml", directory.path().join("o/back.toml")).unwrap();
        link("../o/back.toml");
        assert_eq!(reason(read(None)), WithinReach::Link("../o/back.toml".into()));

        std::fs::remove_file(workspace.join(FILE_NAME)).unwrap();
        std::fs::write(config.join(FILE_NAME), "").unwrap();
        assert!(matches!(reason(read(Some(&*config))), WithinReach::Inside(_)));
        // The workspace may be the directory of the user's configuration itself: then both are one file.
        assert!(Operator::read(&config, Some(&config)).is_ok());
    }

    #[test]
    fn a_pipe_in_its_place_is_refused_and_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
        let error = OperatorFile::read(&path).unwrap_err().to_string();
        assert!(error.contains("it is no regular file"), "{error}");
    }

    #[test]
    fn what_does_not_fit_is_named_with_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        for (text, named) in [
            ("[[policy]]\ntool = \"a\"\ndecision = \"maybe\"\n", "maybe"),
            ("[[grant]]\ntool = \"a\"\n", "grant"),
            ("[[grants]]\ntool = \"a\"\nremotes = \"x\"\n", "line 3"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = OperatorFile::read(&path).unwrap_err().to_string();
            assert!(error.contains(named) && error.contains("deed.toml"), "{error}");
        }
    }
}
