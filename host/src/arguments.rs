//! How large a call's arguments may be.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::mission::Call;

/// JSON text of one call's arguments beyond this is refused before anything runs. Half of what the journal takes in one
/// record, and more than any file that a model writes in one piece.
pub const ARGUMENT_BYTES: usize = 8 << 20;

/// JSON text of all calls of one answer or batch together: they are recorded together, in three quarters of what the
/// journal takes in one record.
pub const CALLS_BYTES: usize = 12 << 20;

/// Bytes of a model's text that are kept. It shares its record with the calls.
pub(crate) const TEXT_BYTES: usize = 1 << 20;

/// Bytes of arguments that a question or an error repeats.
const SHOWN_BYTES: usize = 2 << 10;

/// The field of what stands in the place of arguments that were too large to be kept: their size.
const OVERSIZED: &str = "$oversized_bytes";

/// Put the size of arguments that are too large in their place: of each beyond [`ARGUMENT_BYTES`], and of the largest
/// until all are within [`CALLS_BYTES`]. So a call that is refused for its size can be recorded all the same, and the run
/// goes on.
pub(crate) fn bound(calls: &mut [Call]) {
    let mut sizes: Vec<usize> = calls.iter().map(|call| call.input.to_string().len()).collect();
    loop {
        let total: usize = sizes.iter().sum();
        let Some((largest, &bytes)) = sizes.iter().enumerate().max_by_key(|(_, bytes)| **bytes) else {
            return;
        };
        if bytes <= ARGUMENT_BYTES && total <= CALLS_BYTES {
            return;
        }
        calls[largest].input = json!({ OVERSIZED: bytes });
        sizes[largest] = 0;
    }
}

/// The size of all arguments together, if it is too large.
pub(crate) fn total_refusal(calls: &[Call]) -> Option<usize> {
    let total = calls.iter().map(|call| call.input.to_string().len()).sum();
    (total > CALLS_BYTES).then_some(total)
}

/// `text`, cut where it gets too long to be repeated.
pub(crate) fn shown(text: &str, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(limit);
    Cow::Owned(format!("{}… ({} bytes more)", &text[..end], text.len() - end))
}

/// Arguments as a question or an error repeats them.
pub(crate) fn shown_args(args: &Value) -> String {
    shown(&args.to_string(), SHOWN_BYTES).into_owned()
}

/// Why `args` are too large, if they are, or stand for some that were.
pub(crate) fn refusal(args: &Value) -> Option<String> {
    let stood_for = args
        .as_object()
        .filter(|fields| fields.len() == 1)
        .and_then(|fields| fields.get(OVERSIZED)?.as_u64());
    let bytes = stood_for.unwrap_or_else(|| args.to_string().len() as u64);
    (stood_for.is_some() || bytes > ARGUMENT_BYTES as u64).then(|| {
        format!(
            "they are {bytes} bytes, and at most {ARGUMENT_BYTES} are taken, {CALLS_BYTES} of all calls of one answer; pass less at a time"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(bytes: usize) -> Call {
        Call { tool: "tool".into(), input: json!({ "content": "x".repeat(bytes) }) }
    }

    #[test]
    fn what_is_too_large_alone_or_together_is_refused_by_its_size() {
        let mut calls = [call(10), call(9 << 20), call(7 << 20), call(6 << 20)];
        bound(&mut calls);
        let refused: Vec<_> = calls.iter().map(|call| refusal(&call.input).is_some()).collect();
        assert_eq!(refused, [false, true, true, false]);
        assert!(
            refusal(&calls[2].input).unwrap().starts_with("they are 734"),
            "{:?}",
            refusal(&calls[2].input)
        );
        assert!(serde_json::to_string(&calls.map(|call| call.input)).unwrap().len() < CALLS_BYTES);
    }

    #[test]
    fn what_is_repeated_is_cut_at_a_character() {
        assert_eq!(shown("short", 5), "short");
        assert_eq!(shown("aé", 2), "a… (2 bytes more)");
    }
}
