//! What the `git` program's answer means: whether the remote has the update, has it not, or nobody knows.
//!
//! `git push --porcelain` prints a line for each reference, from what the remote reported. Where there is none, git ended
//! before, and what it said tells only for a few known ends that nothing had been sent. Every other end is in doubt.

use super::bindings::deed::git::remote::{Branch, Error};
use crate::engine::limits::shortened;

/// Bytes kept of git's own words.
const SAID_BYTES: usize = 1 << 10;

/// Git gives up before it sends anything when the list of the remote's references does not come. For whatever reason
/// (no such host, refused, no entry), a line begins so then, and only then.
const NEVER_SENT: [&str; 15] = [
    // Every transport but HTTP, on the initial contact.
    "fatal: Could not read from remote repository",
    "fatal: the remote end hung up upon initial contact",
    // HTTP, at `info/refs`. Later it is `RPC failed`.
    "fatal: unable to access '",
    "fatal: Authentication failed for '",
    "fatal: could not read Username for '",
    "fatal: could not read Password for '",
    "fatal: repository '",
    "fatal: unable to update url base from redirection",
    "fatal: unable to look up ",
    "fatal: unable to connect to ",
    "fatal: remote error: access denied or repository not exported",
    // No program for the transport, or none that is allowed.
    "fatal: unable to find remote helper for '",
    "fatal: transport '",
    "error: cannot run ssh",
    // What is to be pushed is not there.
    "error: src refspec ",
];

/// Said once something was under way, whatever else is said.
const UNDER_WAY: [&str; 5] =
    ["RPC failed", "hung up unexpectedly", "unexpected disconnect", "write error", "failed to report status"];

/// What came of a push.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The remote's branch is where it was to be.
    Landed,
    /// The remote, or git in view of its list, refused: for this reason.
    Rejected(String),
    /// Nothing was sent.
    NeverSent,
    /// Something may have been sent, and no answer came.
    InDoubt,
}

/// The answer to a push of one reference.
pub(super) fn of_push(code: Option<i32>, stdout: &str, stderr: &str) -> Answer {
    let line = stdout.lines().find_map(|line| {
        let mut parts = line.splitn(3, '\t');
        Some((parts.next()?, parts.next()?, parts.next()?)).filter(|(flag, _, _)| flag.len() == 1)
    });
    match line {
        // Moved, moved by the lease's leave, new, or there already.
        Some((" " | "+" | "*" | "=", _, _)) => Answer::Landed,
        Some(("!", _, summary)) if !summary.starts_with("[remote failure]") => {
            let reason = summary.rsplit_once(" (").and_then(|(_, reason)| reason.strip_suffix(')'));
            Answer::Rejected(reason.unwrap_or(summary).to_owned())
        }
        Some(_) => Answer::InDoubt,
        None => {
            // What a hook of the remote's prints is told apart by this.
            let own = || stderr.lines().filter(|line| !line.starts_with("remote: "));
            let never_sent = own().any(|line| NEVER_SENT.iter().any(|start| line.starts_with(start)));
            let under_way = own().any(|line| UNDER_WAY.iter().any(|words| line.contains(words)));
            // A signal may come at any time.
            if code.is_some() && never_sent && !under_way { Answer::NeverSent } else { Answer::InDoubt }
        }
    }
}

/// The branches in what `git ls-remote` prints.
pub(super) fn branches(stdout: &str) -> Vec<Branch> {
    let branch = |line: &str| {
        let (id, reference) = line.split_once('\t')?;
        let name = reference.strip_prefix("refs/heads/")?;
        Some(Branch { name: name.to_owned(), id: id.to_owned() })
    };
    stdout.lines().filter_map(branch).collect()
}

/// What git said, on one line, without its advice.
fn said(stderr: &str) -> String {
    let is_news = |line: &&str| {
        !line.is_empty()
            && !["hint:", "error: failed to push some refs", "Please make sure", "and the repository exists"]
                .iter()
                .any(|start| line.starts_with(start))
    };
    let lines: Vec<_> = stderr.lines().map(str::trim).filter(is_news).collect();
    if lines.is_empty() {
        "git says nothing of it".to_owned()
    } else {
        shortened(lines.join("; "), SAID_BYTES)
    }
}

pub(super) fn unavailable(url: &str, stderr: &str) -> Error {
    Error::Unavailable(format!("`{url}` was not reached, and is as it was: {}", said(stderr)))
}

pub(super) fn in_doubt(url: &str, name: &str, stderr: &str) -> Error {
    Error::InDoubt(format!("whether `{name}` of `{url}` was moved cannot be told: {}", said(stderr)))
}

pub(super) fn rejected(url: &str, name: &str, expected: Option<&str>, why: &str) -> Error {
    let at = expected.map_or_else(|| "missing".to_owned(), |id| format!("at {}", id.get(..7).unwrap_or(id)));
    Error::Rejected(if why == "stale info" {
        format!("`{name}` of `{url}` is not {at} any more: somebody else moved it")
    } else {
        format!("`{url}` refused to move `{name}`: {}", shortened(why.to_owned(), SAID_BYTES))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENIED: &str = "git@example.org: Permission denied (publickey).\nfatal: Could not read from remote repository.\n\nPlease make sure you have the correct access rights\nand the repository exists.\n";

    fn push(stdout: &str, stderr: &str) -> Answer {
        of_push(Some(128), stdout, stderr)
    }

    #[test]
    fn the_remotes_report_decides() {
        let line =
            |flag: &str, summary: &str| format!("To /r\n{flag}\t1a2b:refs/heads/main\t{summary}\nDone\n");
        for (flag, summary) in
            [(" ", "1..2"), ("*", "[new branch]"), ("=", "[up to date]"), ("+", "1...2 (forced update)")]
        {
            assert_eq!(push(&line(flag, summary), ""), Answer::Landed, "{flag}");
        }
        let rejected = |why: &str| Answer::Rejected(why.to_owned());
        assert_eq!(push(&line("!", "[rejected] (stale info)"), ""), rejected("stale info"));
        assert_eq!(push(&line("!", "[remote rejected] (hook declined)"), ""), rejected("hook declined"));
        let silent = line("!", "[remote failure] (remote failed to report status)");
        assert_eq!(push(&silent, ""), Answer::InDoubt);
        assert_eq!(push(&line("?", "odd"), ""), Answer::InDoubt);
    }

    #[test]
    fn without_a_report_only_known_ends_are_certain() {
        for stderr in [
            DENIED,
            "fatal: unable to access 'http://h/': Could not resolve host: h",
            "fatal: could not read Username for 'http://h': terminal prompts disabled",
            "fatal: unable to connect to h:\nh[0: 127.0.0.1]: errno=Connection refused",
            "fatal: unable to find remote helper for 'https'",
        ] {
            assert_eq!(push("", stderr), Answer::NeverSent, "{stderr}");
        }
        for stderr in [
            "",
            "fatal: the remote end hung up unexpectedly",
            "error: RPC failed; curl 52 Empty reply from server\nfatal: unable to access 'http://h/': x",
            "remote: fatal: Could not read from remote repository.\nfatal: something new",
            "warning: unable to access '/home/u/.config/git/attributes': Permission denied",
        ] {
            assert_eq!(push("", stderr), Answer::InDoubt, "{stderr}");
        }
        assert_eq!(of_push(None, "", DENIED), Answer::InDoubt, "killed by a signal");
    }

    #[test]
    fn git_is_quoted_without_its_advice() {
        let Error::Unavailable(why) = unavailable("u", DENIED) else { panic!() };
        assert_eq!(
            why,
            "`u` was not reached, and is as it was: git@example.org: Permission denied (publickey).; fatal: Could not read from remote repository."
        );
    }

    #[test]
    fn only_branches_are_listed() {
        let listed = branches("1a\trefs/heads/main\n2b\trefs/tags/v1\n3c\trefs/heads/a/b\n\n");
        let listed: Vec<_> = listed.iter().map(|branch| (branch.name.as_str(), branch.id.as_str())).collect();
        assert_eq!(listed, [("main", "1a"), ("a/b", "3c")]);
    }
}
