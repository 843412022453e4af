//! The git remotes that a case may push to: each case gets copies, and every name of the original leads to the copy.

use std::fs;
use std::path::{Path, PathBuf};

use git2::Repository;
use serde_json::Value;

use super::CrashTestError;

/// A remote on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Remote {
    /// As it is named.
    pub(super) name: String,
    /// Where it is.
    pub(super) path: PathBuf,
}

/// Every remote that `mission`, the workspace's `deed.toml` or its repository names.
///
/// One that is granted and not on this machine is an error: each case would push to it. One that is configured and not
/// granted is out of reach anyway.
pub(super) fn find(workspace: &Path, mission: &Value) -> Result<Vec<Remote>, CrashTestError> {
    let mut granted = names(&mission["grants"]);
    if let Ok(text) = fs::read_to_string(workspace.join("deed.toml"))
        && let Ok(table) = toml::from_str::<Value>(&text)
    {
        granted.extend(names(&table["grants"]));
    }
    let mut found = Vec::new();
    for name in granted {
        let path = local(workspace, &name).ok_or_else(|| CrashTestError::Remote(name.clone()))?;
        found.push(Remote { name, path });
    }
    found.extend(configured(workspace).into_iter().filter_map(|name| {
        let path = local(workspace, &name).filter(|path| path.is_dir())?;
        Some(Remote { name, path })
    }));
    // A path is there once for each of its names.
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found.dedup();
    // What is not there is refused to the run as it would be without us. A link is copied as what it leads to.
    found.retain_mut(|remote| match remote.path.canonicalize() {
        Ok(path) => {
            remote.path = path;
            remote.path.is_dir()
        }
        Err(_) => false,
    });
    Ok(found)
}

fn names(grants: &Value) -> Vec<String> {
    let remotes = grants.as_array().into_iter().flatten().filter_map(|grant| grant["remotes"].as_array());
    remotes.flatten().filter_map(|name| Some(name.as_str()?.to_owned())).collect()
}

fn configured(workspace: &Path) -> Vec<String> {
    let Ok(repository) = Repository::open(workspace) else { return Vec::new() };
    let Ok(remotes) = repository.remotes() else { return Vec::new() };
    let named = remotes.iter().filter_map(|name| name.ok().flatten());
    named.filter_map(|name| Some(repository.find_remote(name).ok()?.url().ok()?.to_owned())).collect()
}

/// Where a remote is on this machine. Git takes `host:path` for another machine.
fn local(workspace: &Path, name: &str) -> Option<PathBuf> {
    let path = name.strip_prefix("file://").unwrap_or(name);
    if path.starts_with('/') {
        return Some(PathBuf::from(path));
    }
    let is_remote = path.contains("://") || path.split('/').next().is_some_and(|head| head.contains(':'));
    (!is_remote).then(|| workspace.join(path))
}

/// Have every name of an original lead to its copy: in the workspace's repository, its `deed.toml`, and the mission,
/// which is given back.
pub(super) fn redirect(
    workspace: &Path,
    mission: &Value,
    copies: &[(&Remote, PathBuf)],
) -> Result<Value, CrashTestError> {
    let mut mission = mission.clone();
    if copies.is_empty() {
        return Ok(mission);
    }
    let renamed = |name: &str| {
        let (_, copy) = copies.iter().find(|(remote, _)| remote.name == name)?;
        let scheme = if name.starts_with("file://") { "file://" } else { "" };
        Some(format!("{scheme}{}", copy.display()))
    };
    replace(&mut mission, &renamed);
    let operator = workspace.join("deed.toml");
    if let Ok(mut text) = fs::read_to_string(&operator) {
        for (remote, _) in copies {
            let to = renamed(&remote.name).unwrap_or_default();
            for quote in ['"', '\''] {
                text =
                    text.replace(&format!("{quote}{}{quote}", remote.name), &format!("{quote}{to}{quote}"));
            }
        }
        fs::write(&operator, text).map_err(CrashTestError::io("write", &operator))?;
    }
    if let Ok(repository) = Repository::open(workspace) {
        let failed = |error: git2::Error| CrashTestError::Read(error.to_string());
        for name in repository.remotes().map_err(failed)?.iter().filter_map(|name| name.ok().flatten()) {
            let url = repository.find_remote(name).map_err(failed)?;
            if let Some(to) = url.url().ok().and_then(&renamed) {
                repository.remote_set_url(name, &to).map_err(failed)?;
            }
        }
    }
    Ok(mission)
}

fn replace(value: &mut Value, renamed: &impl Fn(&str) -> Option<String>) {
    match value {
        Value::String(text) => {
            if let Some(to) = renamed(text) {
                *text = to;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, renamed)),
        Value::Object(fields) => fields.values_mut().for_each(|field| replace(field, renamed)),
        _ => {}
    }
}
