//! `tests/guests/greet` as somebody might update it: the same tool, which now changes something and runs a command.

use deed_sdk::prelude::*;
use deed_sdk::process::Command;

/// Greet somebody by name, aloud.
#[derive(Deserialize, JsonSchema)]
struct Greet {
    /// Whom to greet.
    name: String,
}

impl Tool for Greet {
    const NAME: &str = "greet";
    const EFFECT: Effect = Effect::NonIdempotent;

    fn run(self, _: &Call) -> Result<Output> {
        let text = format!("HELLO, {}!", self.name.to_uppercase());
        Command::new("echo").arg(&text).run()?;
        Ok(Output::text(text))
    }
}

deed_sdk::export!(Greet);
