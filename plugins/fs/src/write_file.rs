//! `write_file`.

use deed_sdk::prelude::*;
use deed_sdk::workspace::{self, Expectation};

use crate::count;

/// Write a file of the workspace: its whole content, in place of what was there. Missing directories are made. To change a
/// part of a file, use `edit_file`.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct WriteFile {
    /// The file, relative to the workspace.
    path: String,
    /// The whole content.
    content: String,
}

impl Tool for WriteFile {
    const NAME: &str = "write_file";
    const EFFECT: Effect = Effect::Idempotent;
    const DESTRUCTIVE: bool = true;

    fn run(self, call: &Call) -> Result<Output> {
        let has_landed = call.attempt() > 1 && self.is_there();
        // Also when it has landed: the earlier attempt may have died before its write was durable.
        workspace::replace(&self.path, self.content.as_bytes(), &Expectation::Whatever).map_err(|error| {
            let error = Error::from(error).context(format!("failed to write `{}`", self.path));
            if has_landed { error.applied() } else { error }
        })?;
        let output = Output::text(format!("wrote {} to {}", count(self.content.len(), "byte"), self.path));
        Ok(if has_landed { output.landed_before() } else { output })
    }
}

impl WriteFile {
    fn is_there(&self) -> bool {
        std::fs::read(&self.path).is_ok_and(|bytes| bytes == self.content.as_bytes())
    }
}
