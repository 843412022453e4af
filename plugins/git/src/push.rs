//! `git_push`.

use deed_sdk::prelude::*;
use deed_sdk::remote::{self, Branch};

use crate::short;

/// Push a branch to another repository, where it becomes a branch, or moves one on. Nothing there is thrown away: when
/// the remote has commits that are not here, merge them first. Only committed changes are pushed.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct GitPush {
    /// Where to: the name of a configured remote, a URL, or an absolute path.
    #[serde(default = "origin")]
    remote: String,
    /// The branch to push; the current one if left out.
    branch: Option<String>,
    /// The branch of the remote; of the same name if left out.
    to: Option<String>,
}

fn origin() -> String {
    "origin".into()
}

/// What an attempt is about to do. Durable before anything is sent, so a call without one has sent nothing.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Receipt {
    url: String,
    /// The branch of the remote.
    to: String,
    /// The commit it is to name.
    commit: String,
    /// The one it named; none when it was not there.
    before: Option<String>,
}

/// The remote compares and swaps, so one push lands once however often it is sent: a second one with the same receipt
/// finds the branch moved. The probe looks where the branch is.
impl Tool for GitPush {
    const NAME: &str = "git_push";
    const EFFECT: Effect = Effect::NonIdempotent;
    const OPEN_WORLD: bool = true;

    fn run(self, call: &Call) -> Result<Output> {
        let what = format!("failed to push to `{}`", self.remote);
        self.push(call).map_err(|error| error.context(what))
    }
}

impl GitPush {
    fn push(&self, call: &Call) -> Result<Output> {
        // A later attempt pushes what the first one did, whatever was committed since.
        let earlier: Option<Receipt> = call.receipt()?;
        let receipt = if let Some(earlier) = &earlier {
            Receipt { before: at(&earlier.url, &earlier.to)?, ..earlier.clone() }
        } else {
            let branch = remote::local_branch(self.branch.as_deref())?;
            let (url, to) = (remote::url(&self.remote)?, self.to.clone().unwrap_or(branch.name));
            Receipt { before: at(&url, &to)?, commit: branch.id, url, to }
        };
        if receipt.before.as_ref() == Some(&receipt.commit) {
            return Ok(match &earlier {
                Some(earlier) => Output::text(earlier.text()).landed_before(),
                None => Output::text(format!(
                    "nothing to push: {} of {} is at {} already",
                    receipt.to,
                    receipt.url,
                    short(&receipt.commit)
                )),
            });
        }
        call.checkpoint(&receipt)?;
        let Receipt { url, to, commit, before } = &receipt;
        match remote::push(url, commit, to, before.as_deref()) {
            Ok(()) => Ok(Output::text(receipt.text())),
            // An earlier attempt's, still on its way a moment ago; it cannot be told from somebody else's, nor need it.
            Err(remote::Error::Rejected(_)) if at(url, to).is_ok_and(|now| now.as_ref() == Some(commit)) => {
                let output = Output::text(receipt.text());
                Ok(if call.attempt() > 1 { output.landed_before() } else { output })
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Probe for GitPush {
    fn probe(&self, call: &Call) -> Result<Verdict> {
        let Some(receipt) = call.receipt::<Receipt>()? else { return Ok(Verdict::NotLanded) };
        let now = match at(&receipt.url, &receipt.to) {
            Ok(now) => now,
            Err(error) => {
                return Ok(Verdict::Undecidable(format!("failed to ask the remote: {}", error.message)));
            }
        };
        let newer = match &now {
            Some(now) if *now != receipt.commit && Some(now) != receipt.before.as_ref() => {
                remote::builds_on(now, &receipt.commit)?
            }
            _ => None,
        };
        Ok(receipt.verdict(now.as_deref(), newer))
    }
}

impl Receipt {
    /// The branch of the remote names `now`. `newer`: whether that builds on what was pushed, if it can be told here.
    fn verdict(&self, now: Option<&str>, newer: Option<bool>) -> Verdict {
        let Self { url, to, commit, before } = self;
        if now == Some(commit) || newer == Some(true) {
            return Verdict::Landed(Output::text(self.text()).landed_before());
        }
        if now == before.as_deref() {
            return Verdict::NotLanded;
        }
        let place = |id: Option<&str>| id.map_or_else(|| "missing".into(), |id| format!("at {}", short(id)));
        let why = match (now, newer) {
            (None, _) => "somebody has removed it",
            (Some(_), Some(_)) => "which does not build on it",
            (Some(_), None) => "which is not in the repository here; fetch it to see whether it builds on it",
        };
        Verdict::Undecidable(format!(
            "{to} of {url} was {} and was to be at {}; now it is {}: {why}",
            place(before.as_deref()),
            short(commit),
            place(now)
        ))
    }

    /// The same for every attempt and for the probe.
    fn text(&self) -> String {
        let Self { url, to, commit, before } = self;
        let before = match before {
            Some(before) => format!("was at {}", short(before)),
            None => "a new branch".into(),
        };
        format!("pushed {} to {to} of {url} ({before})", short(commit))
    }
}

/// The commit that a branch of a remote names; none when it is not there.
fn at(url: &str, name: &str) -> Result<Option<String>> {
    let listed = remote::branches(url, Some(name))?;
    Ok(listed.into_iter().find(|branch| branch.name == name).map(|Branch { id, .. }| id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt(before: Option<&str>) -> Receipt {
        Receipt {
            url: "/srv/a.git".into(),
            to: "main".into(),
            commit: "1a2b3c4d5e".into(),
            before: before.map(Into::into),
        }
    }

    #[test]
    fn what_is_there_is_told_in_the_words_of_the_run() {
        let receipt = receipt(Some("0f0f0f0f0f"));
        for (now, newer) in [("1a2b3c4d5e", None), ("9999999999", Some(true))] {
            let Verdict::Landed(output) = receipt.verdict(Some(now), newer) else { panic!("{now}") };
            assert!(output.landed_before);
            let [deed_sdk::Content::Text(text)] = &output.content[..] else { panic!() };
            assert_eq!(text, "pushed 1a2b3c4 to main of /srv/a.git (was at 0f0f0f0)");
        }
    }

    #[test]
    fn what_was_there_before_has_not_landed() {
        assert!(matches!(receipt(Some("0f")).verdict(Some("0f"), None), Verdict::NotLanded));
        assert!(matches!(receipt(None).verdict(None, None), Verdict::NotLanded));
        assert!(receipt(None).text().ends_with("(a new branch)"));
    }

    #[test]
    fn anything_else_is_evidence_for_the_owner() {
        let said = |before, now, newer| match receipt(before).verdict(now, newer) {
            Verdict::Undecidable(said) => said,
            _ => panic!(),
        };
        let elsewhere = said(Some("0f0f0f0f0f"), Some("7777777777"), None);
        assert_eq!(
            elsewhere,
            "main of /srv/a.git was at 0f0f0f0 and was to be at 1a2b3c4; now it is at 7777777: which is not in the \
             repository here; fetch it to see whether it builds on it"
        );
        assert!(said(None, Some("7777777777"), Some(false)).contains("does not build on it"));
        assert!(said(Some("0f0f0f0f0f"), None, None).contains("now it is missing: somebody has removed it"));
    }
}
