//! [`Output`]: the result of a call.

use serde::Serialize;

pub use crate::bindings::deed::tool::types::{Blob, Content, Output};
use crate::error::{Error, Result};

/// What the model reads must be the same on every attempt of one call: leave out times, attempts and anything else that
/// a second attempt would say otherwise.
impl Output {
    /// A result that is text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { structured: None, content: vec![Content::Text(text.into())], landed_before: false }
    }

    /// A result that is data; the model reads it as JSON text. Fails as an internal error when `value` has no JSON form
    /// (a map whose keys are no strings, say).
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self> {
        let json = to_json(value)?;
        Ok(Self { content: vec![Content::Text(json.clone())], structured: Some(json), landed_before: false })
    }

    /// Adds data for programs beside what the model reads. Fails as [`json`](Self::json) does.
    pub fn with_json<T: Serialize + ?Sized>(mut self, value: &T) -> Result<Self> {
        self.structured = Some(to_json(value)?);
        Ok(self)
    }

    /// Adds bytes, such as an image, to what the model reads.
    #[must_use]
    pub fn with_blob(mut self, media_type: impl Into<String>, data: Vec<u8>) -> Self {
        self.content.push(Content::Blob(Blob { media_type: media_type.into(), data }));
        self
    }

    /// States that an earlier attempt of this call had done it, and this one found it done.
    #[must_use]
    pub fn landed_before(mut self) -> Self {
        self.landed_before = true;
        self
    }
}

fn to_json<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|error| Error::internal(format!("failed to write the result as JSON: {error}")))
}
