//! Which remotes there may be: what a name stands for, and what a URL may look like.
//!
//! A tool may write the repository's configuration, and so choose what a name stands for. So the URL alone counts, and one
//! that would have git run a program of its choice is none.

use std::path::Path;

use git2::{Config, Remote};

use super::bindings::deed::git::remote::Error;

/// The schemes that git's own transports have. Others are run as a program named after them.
const SCHEMES: [&str; 5] = ["https", "http", "ssh", "git", "file"];

/// What `remote` stands for: itself, when it looks like a URL or an absolute path, or what `config` says of the name.
pub(super) fn resolve(config: &Config, remote: &str) -> Result<String, Error> {
    if remote.starts_with('/') || remote.contains(':') {
        check(remote)?;
        return Ok(remote.to_owned());
    }
    let none = || {
        let known: Vec<_> = names(config).iter().map(|name| format!("`{name}`")).collect();
        let known =
            if known.is_empty() { "it has none".to_owned() } else { format!("it has {}", known.join(", ")) };
        Error::NotFound(format!(
            "there is no remote `{remote}` in the repository's configuration: {known}; a URL or an absolute path will do as well"
        ))
    };
    if !Remote::is_valid_name(remote) {
        return Err(none());
    }
    // Pushed to and asked at one and the same place.
    let mut urls = values(config, &format!("remote.{remote}.pushurl"));
    if urls.is_empty() {
        urls = values(config, &format!("remote.{remote}.url"));
    }
    match &urls[..] {
        [] => Err(none()),
        [url] => match check(url) {
            Ok(()) => Ok(url.clone()),
            Err(Error::NotFound(why)) => {
                Err(Error::NotFound(format!("the URL of the remote `{remote}`: {why}")))
            }
            Err(other) => Err(other),
        },
        urls => Err(Error::NotFound(format!(
            "the remote `{remote}` stands for {} URLs; name one of them: `{}`",
            urls.len(),
            urls.join("`, `")
        ))),
    }
}

fn values(config: &Config, key: &str) -> Vec<String> {
    let mut values = Vec::new();
    if let Ok(entries) = config.multivar(key, None) {
        let _ = entries.for_each(|entry| values.extend(entry.value().ok().map(str::to_owned)));
    }
    values
}

/// The remotes that have a URL.
fn names(config: &Config) -> Vec<String> {
    let mut names = Vec::new();
    if let Ok(entries) = config.entries(Some(r"^remote\..*\.url$")) {
        let _ = entries.for_each(|entry| {
            let name = entry.name().ok().and_then(|key| key.strip_prefix("remote.")?.strip_suffix(".url"));
            names.extend(name.map(str::to_owned));
        });
    }
    names.sort();
    names.dedup();
    names
}

/// Refuse what names no place, or names a program.
fn check(url: &str) -> Result<(), Error> {
    let refused = |why: &str| Err(Error::NotFound(format!("`{url}` is no remote: {why}")));
    if url.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return refused("it holds a blank or a control character");
    }
    if url.starts_with('/') {
        return Ok(());
    }
    if let Some((scheme, rest)) = url.split_once("://") {
        if !SCHEMES.contains(&scheme) {
            return refused(&format!("its scheme is none of {}", SCHEMES.join(", ")));
        }
        if scheme == "file" {
            return if rest.starts_with('/') && !rest.contains('%') {
                Ok(())
            } else {
                refused("expected `file://` and an absolute path, nothing of it encoded")
            };
        }
        let authority = rest.split('/').next().unwrap_or_default();
        let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        // Of the web's schemes the user alone may be a token.
        if user.contains(':') || (scheme.starts_with("http") && !user.is_empty()) {
            // The URL is recorded, shown, and told to the model.
            return Err(Error::NotFound(
                "the URL of the remote holds a password or a token, which would be recorded; leave it out, and let a credential helper of git's keep it".to_owned(),
            ));
        }
        return check_host(host, user).or_else(refused);
    }
    // `user@host:path`, as for ssh.
    match url.split_once(':') {
        Some((_, path)) if path.starts_with(':') => refused("it names a program in place of a transport"),
        Some((authority, path)) if !authority.contains('/') && !path.is_empty() => {
            let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
            check_host(host, user).or_else(refused)
        }
        _ => refused("expected a URL, `user@host:path`, or an absolute path"),
    }
}

/// What begins with a hyphen would be an option of the program that it is handed to.
fn check_host(host: &str, user: &str) -> Result<(), &'static str> {
    if host.is_empty() {
        return Err("it names no host");
    }
    if host.starts_with('-') || user.starts_with('-') {
        return Err("its host or its user begins with a hyphen");
    }
    Ok(())
}

/// The directory that a remote is, when it is one of this machine.
pub(super) fn directory(url: &str) -> Option<&Path> {
    let path = url.strip_prefix("file://").unwrap_or(url);
    path.starts_with('/').then(|| Path::new(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_taken_and_programs_are_not() {
        for url in [
            "/srv/a.git",
            "file:///srv/a.git",
            "https://example.org/a.git",
            "http://127.0.0.1:8080/a",
            "ssh://git@example.org:22/a",
            "git://example.org/a",
            "git@example.org:a/b.git",
            "example.org:a",
        ] {
            assert!(check(url).is_ok(), "{url}");
        }
        for url in [
            "ext::sh -c x",
            "ext::sh",
            "fd::17/foo",
            "-uevil:x",
            "git@-oProxyCommand=x:a",
            "-x@example.org:a",
            "ssh://-oProxyCommand=x/a",
            "ssh://x@-oProxyCommand=x/a",
            "ssh:///a",
            "https:///a",
            "ftp://example.org/a",
            "transport::https://example.org/a",
            "file://host/a",
            "file:///a%2fb",
            "https://example.org/a b",
            "a/b:c",
            "../a.git",
            "example.org:",
            ":a",
        ] {
            assert!(matches!(check(url), Err(Error::NotFound(_))), "{url}");
        }
    }

    #[test]
    fn a_password_is_refused_and_not_repeated() {
        for url in [
            "https://u:hunter2@example.org/a",
            "https://hunter2@example.org/a",
            "ssh://u:hunter2@example.org/a",
        ] {
            let Err(Error::NotFound(why)) = check(url) else { panic!("{url}") };
            assert!(why.contains("credential helper") && !why.contains("hunter2"), "{why}");
        }
    }

    fn config(text: &str) -> (tempfile::TempDir, Config) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        std::fs::write(&path, text).unwrap();
        let config = Config::open(&path).unwrap();
        (directory, config)
    }

    fn refusal(config: &Config, remote: &str) -> String {
        match resolve(config, remote) {
            Err(Error::NotFound(why)) => why,
            other => panic!("{remote}: {other:?}"),
        }
    }

    #[test]
    fn a_name_stands_for_its_one_url() {
        let (_directory, config) = config(
            "[remote \"origin\"]\nurl = https://example.org/a\n[remote \"two\"]\nurl = /a\nurl = /b\n\
             [remote \"apart\"]\nurl = /a\npushurl = /p\n[remote \"evil\"]\nurl = ext::sh -c x\n\
             [url \"ext::sh \"]\ninsteadOf = https://\n",
        );
        assert_eq!(resolve(&config, "origin").unwrap(), "https://example.org/a");
        assert_eq!(resolve(&config, "apart").unwrap(), "/p");
        assert_eq!(resolve(&config, "/x").unwrap(), "/x");
        assert!(refusal(&config, "two").contains("`/a`, `/b`"));
        assert!(refusal(&config, "evil").contains("the remote `evil`"));
        let unknown = refusal(&config, "upstream");
        assert!(
            unknown.contains("`upstream`") && unknown.contains("`apart`, `evil`, `origin`, `two`"),
            "{unknown}"
        );
        assert!(refusal(&config, "--mirror").contains("`--mirror`"));
        assert!(refusal(&config, "").contains("``"));
    }

    #[test]
    fn only_a_directory_of_this_machine_is_one() {
        assert_eq!(directory("file:///a"), Some(Path::new("/a")));
        assert_eq!(directory("/a"), Some(Path::new("/a")));
        assert_eq!(directory("https://example.org/a"), None);
        assert_eq!(directory("h:/a"), None);
    }
}
