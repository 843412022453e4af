//! Non-idempotent tools, with a probe that answers as it is told, and without one.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};

use deed_sdk::prelude::*;

/// Part of every result, so that one version of this component can be told from another: a test makes the other one by
/// writing another name of the same length over this one.
const VERSION: &str = "version-one";

/// Appends a line to a file, after the call's key. Its probe looks for that key.
#[derive(Deserialize, JsonSchema)]
struct Append {
    path: String,
    line: String,
    /// What becomes of the call after it has appended.
    #[serde(default)]
    end: End,
    /// What the probe says.
    #[serde(default)]
    verdict: Say,
}

/// The same without a probe.
#[derive(Deserialize, JsonSchema)]
struct AppendBlind {
    path: String,
    line: String,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum End {
    #[default]
    Well,
    /// It traps before it appends.
    TrapBefore,
    /// It traps after it has appended.
    Trap,
    /// It traps after it has appended, in its first attempt.
    TrapFirst,
    /// It takes no time and does nothing, but says that it cannot tell.
    Unknown,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Say {
    /// What is true.
    #[default]
    Honest,
    NotLanded,
    Partial,
    Undecidable,
    Fail,
    Trap,
    Hang,
    /// It tries to append, too.
    Write,
}

fn append(path: &str, key: &str, line: &str) -> Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(format!("{key} {line}\n").as_bytes())?;
    Ok(())
}

fn appended(line: &str) -> Output {
    Output::text(format!("appended {line} ({VERSION})"))
}

impl Tool for Append {
    const NAME: &str = "append";
    const EFFECT: Effect = Effect::NonIdempotent;

    fn run(self, call: &Call) -> Result<Output> {
        assert!(!matches!(self.end, End::TrapBefore), "told to end before it appends");
        append(&self.path, call.key(), &self.line)?;
        match self.end {
            End::Trap => panic!("told to end after it has appended"),
            End::TrapFirst if call.attempt() == 1 => panic!("told to end the first time"),
            End::Unknown => Err(Error::unavailable("nobody knows what became of it").unknown()),
            _ => Ok(appended(&self.line)),
        }
    }
}

impl Probe for Append {
    fn probe(&self, call: &Call) -> Result<Verdict> {
        // A call of the host, so that a process can be killed here.
        call.debug("looks for the line");
        match self.verdict {
            Say::Honest => {
                let text = match fs::read_to_string(&self.path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
                    text => text?,
                };
                let landed = text.lines().any(|line| line.starts_with(call.key()));
                Ok(if landed { Verdict::Landed(appended(&self.line)) } else { Verdict::NotLanded })
            }
            Say::NotLanded => Ok(Verdict::NotLanded),
            Say::Partial => Ok(Verdict::Partial("half of a line is there".into())),
            Say::Undecidable => Ok(Verdict::Undecidable("the file says nothing".into())),
            Say::Fail => Err(Error::unavailable("the probe found no file to look at")),
            Say::Trap => panic!("the probe was told to trap"),
            Say::Hang => loop {
                call.cancelled();
            },
            Say::Write => {
                append(&self.path, call.key(), "by the probe")?;
                Ok(Verdict::NotLanded)
            }
        }
    }
}

impl Tool for AppendBlind {
    const NAME: &str = "append_blind";
    const EFFECT: Effect = Effect::NonIdempotent;

    fn run(self, call: &Call) -> Result<Output> {
        append(&self.path, call.key(), &self.line)?;
        Ok(appended(&self.line))
    }
}

deed_sdk::export!(Append, AppendBlind);
