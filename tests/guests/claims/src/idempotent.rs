//! Tools that claim to be idempotent.

use deed_sdk::prelude::*;
use deed_sdk::process::Command;

use crate::append;

/// Appends a line each time it runs.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Appends {
    path: String,
}

impl Tool for Appends {
    const NAME: &str = "appends";
    const EFFECT: Effect = Effect::Idempotent;

    fn run(self, _: &Call) -> Result<Output> {
        append(&self.path, "tick")?;
        Ok(Output::text("appended"))
    }
}

/// Saves a receipt once it has appended, and never looks at one.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct IgnoresReceipt {
    path: String,
}

impl Tool for IgnoresReceipt {
    const NAME: &str = "ignores_receipt";
    const EFFECT: Effect = Effect::Idempotent;

    fn run(self, call: &Call) -> Result<Output> {
        append(&self.path, "tick")?;
        call.checkpoint_bytes(b"appended")?;
        Ok(Output::text("appended"))
    }
}

/// Does its work once, and fails when it finds an attempt before it.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct FirstAttemptOnly {
    path: String,
}

impl Tool for FirstAttemptOnly {
    const NAME: &str = "first_attempt_only";
    const EFFECT: Effect = Effect::Idempotent;

    fn run(self, call: &Call) -> Result<Output> {
        // A call of the host, so that a process can be killed before there is anything.
        call.debug("begins");
        if call.attempt() > 1 {
            return Err(Error::conflict("this was begun already"));
        }
        append(&self.path, "tick")?;
        Ok(Output::text("appended"))
    }
}

/// Starts a command that goes on in the background after its shell has ended.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct LeavesChild {}

impl Tool for LeavesChild {
    const NAME: &str = "leaves_child";
    const EFFECT: Effect = Effect::Idempotent;

    fn run(self, _: &Call) -> Result<Output> {
        let script = "setsid sleep 600 < /dev/null > /dev/null 2>&1 &";
        let command = Command::new("sh").arg("-c").arg(script);
        match command.run() {
            Ok(_) => Ok(Output::text("started")),
            Err(error) => Err(Error::unavailable(format!("failed to start the command: {error:?}"))),
        }
    }
}
