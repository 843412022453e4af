//! A tool that claims to be pure.

use std::time::UNIX_EPOCH;

use deed_sdk::prelude::*;

/// Answers with the instant at which a file was last written: what no record of the host covers.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Moody {
    path: String,
}

impl Tool for Moody {
    const NAME: &str = "moody";
    const EFFECT: Effect = Effect::Pure;

    fn run(self, _: &Call) -> Result<Output> {
        let modified = std::fs::metadata(&self.path)?.modified()?;
        let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Output::text(format!("written at {}", since.as_nanos())))
    }
}
