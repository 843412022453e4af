//! How large a call's arguments may be.

use serde_json::{Value, json};

/// JSON text of one call's arguments beyond this is refused before anything runs. Half of what the journal takes in one
/// record, and more than any file that a model writes in one piece.
pub const ARGUMENT_BYTES: usize = 8 << 20;

/// The field of what stands in the place of arguments that were too large to be kept: their size.
const OVERSIZED: &str = "$oversized_bytes";

/// `args`, or their size in their place when they are larger than [`ARGUMENT_BYTES`]. So a call that is refused for its
/// size can be recorded all the same, and the run goes on.
pub(crate) fn bounded(args: Value) -> Value {
    let bytes = args.to_string().len();
    if bytes > ARGUMENT_BYTES { json!({ OVERSIZED: bytes }) } else { args }
}

/// Why `args` are too large, if they are, or stand for some that were.
pub(crate) fn refusal(args: &Value) -> Option<String> {
    let stood_for = args
        .as_object()
        .filter(|fields| fields.len() == 1)
        .and_then(|fields| fields.get(OVERSIZED)?.as_u64());
    let bytes = stood_for.unwrap_or_else(|| args.to_string().len() as u64);
    (bytes > ARGUMENT_BYTES as u64).then(|| {
        format!("they are {bytes} bytes, and at most {ARGUMENT_BYTES} are taken; pass less at a time")
    })
}
