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
    /// Try it, and say what came of it: `done: …` or `refused: …`, the latter as an error for who insists.
    fn attempt(self, path: &str, other: &str, insists: bool) -> Result<Output> {
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
        match done {
            Ok(what) => Ok(Output::text(format!("done: {what}"))),
            Err(why) if insists => Err(Error::denied(format!("refused: {why}"))),
            Err(why) => Ok(Output::text(format!("refused: {why}"))),
        }
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
            /// Fail when it is refused.
            #[serde(default)]
            insist: bool,
        }

        impl Tool for $type {
            const NAME: &str = $name;
            const EFFECT: Effect = Effect::$class;
            const OPEN_WORLD: bool = true;

            fn run(self, call: &Call) -> Result<Output> {
                call.info("trying");
                self.act.attempt(&self.path, &self.other, self.insist)
            }
        }

        impl Probe for $type {
            fn probe(&self, _: &Call) -> Result<Verdict> {
                self.act.attempt(&self.path, &self.other, self.insist).map(Verdict::Landed)
            }
        }
    };
}

tool!(TryPure, "try_pure", Pure);
tool!(TryIdempotent, "try_idempotent", Idempotent);
tool!(TryNonIdempotent, "try_non_idempotent", NonIdempotent);

deed_sdk::export!(TryPure, TryIdempotent, TryNonIdempotent);
