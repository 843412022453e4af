//! Tools that save a receipt.

use std::fs::OpenOptions;
use std::io::Write;

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

/// Saves a receipt, then appends a line to a file, and never looks at a receipt.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct AppendAfterReceipt {
    path: String,
}

impl Tool for AppendAfterReceipt {
    const NAME: &str = "append_after_receipt";
    const EFFECT: Effect = Effect::NonIdempotent;

    fn run(self, call: &Call) -> Result<Output> {
        call.checkpoint_bytes(b"about to append")?;
        let mut file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        file.write_all(b"tick\n")?;
        Ok(Output::text("appended"))
    }
}
