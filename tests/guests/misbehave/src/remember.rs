//! A tool that saves a receipt.

use deed_sdk::prelude::*;

/// Saves the receipt `step-1`. An attempt that is handed a receipt returns it instead.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Checkpointed {}

impl Tool for Checkpointed {
    const NAME: &str = "checkpointed";
    const EFFECT: Effect = Effect::Idempotent;

    fn run(self, call: &Call) -> Result<Output> {
        if let Some(receipt) = call.receipt_bytes() {
            let receipt = String::from_utf8_lossy(receipt);
            return Ok(Output::text(format!("attempt {} found {receipt}", call.attempt())));
        }
        call.checkpoint_bytes(b"step-1")?;
        Ok(Output::text(format!("attempt {} saved step-1", call.attempt())))
    }
}
