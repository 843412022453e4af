//! Tools that do what their class says they do not.

use std::fs::{self, OpenOptions};
use std::io::Write;

use deed_sdk::prelude::*;

/// Claims to be pure, and tries to write a file. Returns the error's text, or `wrote`.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct WritePure {
    path: String,
}

impl Tool for WritePure {
    const NAME: &str = "write_pure";
    const EFFECT: Effect = Effect::Pure;

    fn run(self, _: &Call) -> Result<Output> {
        Ok(Output::text(match fs::write(&self.path, "written by a pure tool\n") {
            Ok(()) => "wrote".into(),
            Err(error) => error.to_string(),
        }))
    }
}

/// Claims to be idempotent, and appends a line to a file each time it runs.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct CounterAppend {
    path: String,
}

impl Tool for CounterAppend {
    const NAME: &str = "counter_append";
    const EFFECT: Effect = Effect::Idempotent;

    fn run(self, _: &Call) -> Result<Output> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        file.write_all(b"tick\n")?;
        Ok(Output::text("appended"))
    }
}
