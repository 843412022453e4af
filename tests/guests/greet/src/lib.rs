//! The first plugin of `README.md`, word for word but for the line breaks: `tests/tests/readme.rs` compares them.

use deed_sdk::prelude::*;
/// Greet somebody by name.
#[derive(Deserialize, JsonSchema)]
struct Greet {
    name: String,
}
impl Tool for Greet {
    const NAME: &str = "greet";
    const EFFECT: Effect = Effect::Pure;
    fn run(self, _: &Call) -> Result<Output> {
        Ok(Output::text(format!("Hello, {}!", self.name)))
    }
}
deed_sdk::export!(Greet);
