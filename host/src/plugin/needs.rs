//! What a component's imports come to in grants.

use std::collections::BTreeSet;
use std::fmt;

use deed_journal::EffectClass;
use serde::Serialize;

/// Something beyond computing that a component asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Need {
    /// The workspace's files.
    Files,
    /// Running commands in the workspace.
    Commands,
    /// The workspace's repository.
    Git,
    /// Listing git remotes, and pushing to them.
    Remotes,
    /// Reaching servers by HTTP.
    Hosts,
    /// Sockets, which no tool gets.
    Sockets,
}

/// The start of each import that asks for something. Clocks, randomness, standard streams and what else is not listed are
/// there for every call.
const IMPORTS: [(&str, Need); 7] = [
    ("deed:workspace/", Need::Files),
    ("wasi:filesystem/", Need::Files),
    ("deed:process/", Need::Commands),
    ("deed:git/remote", Need::Remotes),
    ("deed:git/", Need::Git),
    ("wasi:http/outgoing-handler", Need::Hosts),
    ("wasi:sockets/", Need::Sockets),
];

impl Need {
    /// What an import asks for, if it asks for something.
    pub fn of_import(import: &str) -> Option<Self> {
        IMPORTS.iter().find(|(start, _)| import.starts_with(start)).map(|(_, need)| *need)
    }

    /// What all of these imports ask for.
    pub fn of_imports<'a>(imports: impl IntoIterator<Item = &'a str>) -> BTreeSet<Self> {
        imports.into_iter().filter_map(Self::of_import).collect()
    }

    /// Whether a call of this class can get it at all.
    pub fn fits(self, class: EffectClass) -> bool {
        match self {
            Self::Files | Self::Git => true,
            Self::Commands | Self::Remotes | Self::Hosts => class.is_effectful(),
            Self::Sockets => false,
        }
    }

    /// Whether a call has it without anybody granting it.
    pub fn comes_by_itself(self) -> bool {
        matches!(self, Self::Files | Self::Commands | Self::Git)
    }

    /// What somebody who reads `deed.toml` has to know about it: the field of `grants`, and what holds without it.
    pub fn explained(self) -> &'static str {
        match self {
            Self::Files => {
                "`files`: a pure call reads the workspace, an effectful one writes it; less by `none` or `read`"
            }
            Self::Commands => "`commands`: an effectful call starts any program; fewer by a list of them",
            Self::Git => "`files`: reads the repository; an effectful call commits",
            Self::Remotes => "`remotes`: the git remotes it lists and pushes to; without a grant none",
            Self::Hosts => "`hosts`: the servers it reaches by HTTP; without a grant none",
            Self::Sockets => "nothing can grant sockets: every use of them is refused",
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Files => "files",
            Self::Commands => "commands",
            Self::Git => "git",
            Self::Remotes => "remotes",
            Self::Hosts => "hosts",
            Self::Sockets => "sockets",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_comes_to_the_grant_that_it_takes() {
        let imports = [
            "deed:git/remote@0.1.0",
            "deed:git/repository@0.1.0",
            "wasi:io/poll@0.2.6",
            "wasi:http/types@0.2.6",
        ];
        assert_eq!(Need::of_imports(imports), BTreeSet::from([Need::Git, Need::Remotes]));
        assert_eq!(Need::of_import("wasi:http/outgoing-handler@0.2.6"), Some(Need::Hosts));
        assert!(!Need::Commands.fits(EffectClass::Pure) && Need::Commands.fits(EffectClass::Idempotent));
        assert!(!Need::Sockets.fits(EffectClass::NonIdempotent));
    }
}
