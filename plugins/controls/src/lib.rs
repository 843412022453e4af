//! The controls of `deed crash-test`. All claim to be idempotent, and one of them is: whoever tests crashes has to tell
//! which.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};

use deed_sdk::prelude::*;

/// Appends a line each time it runs.
#[derive(Deserialize, JsonSchema)]
struct ControlTwice {
    path: String,
}

/// Appends a line in its first attempt, and takes it for done in every other one.
#[derive(Deserialize, JsonSchema)]
struct ControlNever {
    path: String,
}

/// Appends a line with its key, unless that is there.
#[derive(Deserialize, JsonSchema)]
struct ControlOnce {
    path: String,
}

fn append(path: &str, line: &str) -> Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(format!("{line}\n").as_bytes())?;
    Ok(())
}

fn appended() -> Output {
    Output::text("appended")
}

impl Tool for ControlTwice {
    const NAME: &str = "control_twice";
    const EFFECT: Effect = Effect::Idempotent;

    fn run(self, _: &Call) -> Result<Output> {
        append(&self.path, "once")?;
        Ok(appended())
    }
}

impl Tool for ControlNever {
    const NAME: &str = "control_never";
    const EFFECT: Effect = Effect::Idempotent;

    fn run(self, call: &Call) -> Result<Output> {
        // A call of the host, so that a process can be killed before there is anything.
        call.debug("about to append");
        if call.attempt() == 1 {
            append(&self.path, "once")?;
        }
        Ok(appended())
    }
}

impl Tool for ControlOnce {
    const NAME: &str = "control_once";
    const EFFECT: Effect = Effect::Idempotent;

    fn run(self, call: &Call) -> Result<Output> {
        let text = match fs::read_to_string(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        if !text.lines().any(|line| line == call.key()) {
            append(&self.path, call.key())?;
        }
        Ok(appended())
    }
}

deed_sdk::export!(ControlTwice, ControlNever, ControlOnce);
