//! `deed.toml`: what the operator says for every run. The workspace's file counts first, then the user's.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::grants::Grant;
use crate::origin::Origin;
use crate::policy::{Operator, Rule, SourcedRule};

/// The name of the file, in a workspace and in the user's configuration directory.
pub const FILE_NAME: &str = "deed.toml";

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

impl OperatorFile {
    /// Read one; none where there is no such file.
    pub fn read(path: &Path) -> Result<Option<Self>, OperatorError> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(source) => return Err(OperatorError::Read { path: path.to_owned(), source }),
        };
        toml::from_str(&text).map(Some).map_err(|error| OperatorError::Form {
            path: path.to_owned(),
            reason: error.to_string().trim_end().to_owned(),
        })
    }
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
        for path in std::iter::once(workspace.join(FILE_NAME)).chain(own.clone()) {
            let Some(file) = OperatorFile::read(&path)? else { continue };
            if own.as_ref() == Some(&path) {
                credentials = file.credentials;
            } else if !file.credentials.is_empty() {
                return Err(OperatorError::SharedCredentials { path });
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
