//! Resolving the credentials of the user's `deed.toml`: the library reads no environment.

use std::path::Path;

use anyhow::Result;
use deed::capability::Credential;
use deed::operator::{CredentialEntry, FILE_NAME, OperatorFile};

use super::failure::Usage;

/// The credentials that the `deed.toml` in `config` names. One whose secret is not to be had is warned about, and an error
/// only of the request that names it.
pub(super) fn read(config: Option<&Path>) -> Result<Vec<Credential>> {
    let Some(path) = config.map(|config| config.join(FILE_NAME)) else { return Ok(Vec::new()) };
    let file = OperatorFile::read(&path).map_err(|error| Usage(error.to_string()))?.unwrap_or_default();
    let mut credentials = Vec::with_capacity(file.credentials.len());
    for (name, entry) in file.credentials {
        let secret = secret(&path, &entry);
        if let Err(why) = &secret {
            eprintln!("warning: the credential `{name}` in `{}`: {why}", path.display());
        }
        let credential = Credential::new(name, entry.origins, &entry.header, &entry.prefix, secret)
            .map_err(|error| Usage(format!("{error} (in `{}`)", path.display())))?;
        credentials.push(credential);
    }
    Ok(credentials)
}

/// The secret, or where it is not.
fn secret(path: &Path, entry: &CredentialEntry) -> Result<String, String> {
    match (&entry.env, &entry.file) {
        (Some(name), None) => {
            std::env::var(name).map_err(|_| format!("the variable `{name}` is not set, or holds no text"))
        }
        (None, Some(file)) => {
            let file = path.parent().unwrap_or(Path::new("")).join(file);
            let text = std::fs::read_to_string(&file)
                .map_err(|error| format!("failed to read `{}`: {error}", file.display()))?;
            Ok(text.lines().next().unwrap_or_default().to_owned())
        }
        (Some(_), Some(_)) => Err("it names both `env` and `file`; expected one of them".to_owned()),
        (None, None) => Err("it names neither `env` nor `file`; expected one of them".to_owned()),
    }
}
