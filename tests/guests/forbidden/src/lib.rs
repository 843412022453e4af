//! Tools that try what a class or a grant may forbid, for tests of the host. The same acts under each class: what comes
//! of them is the host's doing, not the tool's.

mod file;
mod machine;

use deed_sdk::prelude::*;

/// What to try.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Act {
    Read,
    List,
    Stat,
    ReadLink,
    Digest,
    Create,
    Overwrite,
    Append,
    Truncate,
    SetLength,
    Rename,
    Remove,
    MakeDirectory,
    RemoveDirectory,
    SymbolicLink,
    HardLink,
    SetTimes,
    Replace,
    Connect,
    Listen,
    SendDatagram,
    LookUp,
    Run,
    Commit,
    Status,
    Environment,
    Time,
    Random,
    Nothing,
}

impl Act {
    /// Try it, and say what came of it: `done: …` or `refused: …`.
    fn attempt(self, path: &str, other: &str) -> Output {
        let done = match self {
            Self::Connect => machine::connect(path),
            Self::Listen => machine::listen(path),
            Self::SendDatagram => machine::send_datagram(path),
            Self::LookUp => machine::look_up(path),
            Self::Run => machine::run(path, other),
            Self::Commit => machine::commit(),
            Self::Status => machine::status(),
            Self::Environment => Ok(machine::environment()),
            Self::Time => Ok(machine::time()),
            Self::Random => Ok(machine::random()),
            Self::Nothing => Ok(String::new()),
            on_a_file => file::attempt(on_a_file, path, other),
        };
        Output::text(match done {
            Ok(what) => format!("done: {what}"),
            Err(why) => format!("refused: {why}"),
        })
    }
}

/// One tool for each class.
macro_rules! tool {
    ($type:ident, $name:literal, $class:ident) => {
        /// Try something, and say what came of it.
        #[derive(Deserialize, JsonSchema)]
        struct $type {
            /// What.
            act: Act,
            /// The path, address or program it is about.
            #[serde(default)]
            path: String,
            /// A second path, or an argument.
            #[serde(default)]
            other: String,
        }

        impl Tool for $type {
            const NAME: &str = $name;
            const EFFECT: Effect = Effect::$class;

            fn run(self, _: &Call) -> Result<Output> {
                Ok(self.act.attempt(&self.path, &self.other))
            }
        }

        impl Probe for $type {
            fn probe(&self, _: &Call) -> Result<Verdict> {
                Ok(Verdict::Landed(self.act.attempt(&self.path, &self.other)))
            }
        }
    };
}

tool!(TryPure, "try_pure", Pure);
tool!(TryIdempotent, "try_idempotent", Idempotent);
tool!(TryNonIdempotent, "try_non_idempotent", NonIdempotent);

deed_sdk::export!(TryPure, TryIdempotent, TryNonIdempotent);
