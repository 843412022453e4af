//! [`Call`]: what the host tells a call about itself, and what the call may tell its host.

use std::fmt::Display;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bindings::deed::tool::run;
pub use crate::bindings::deed::tool::types::CallContext;
use crate::error::{Error, Result};

/// One execution of a call.
///
/// A call whose outcome was lost in a crash may be executed again; then [`attempt`](Self::attempt) is greater than 1, the
/// [`key`](Self::key) is the same, and [`receipt`](Self::receipt) returns what an earlier attempt saved.
#[derive(Debug)]
pub struct Call {
    context: CallContext,
}

/// For tests of a tool outside a host, too.
impl From<CallContext> for Call {
    fn from(context: CallContext) -> Self {
        Self { context }
    }
}

impl Call {
    /// The idempotency key: the same for every attempt of this step, and for no other step. Hand it to services that
    /// recognise a repeated request by one.
    pub fn key(&self) -> &str {
        &self.context.idempotency_key
    }

    /// 1 for the first execution, one more for every further one.
    pub fn attempt(&self) -> u32 {
        self.context.attempt
    }

    /// The session the call belongs to, in hexadecimal.
    pub fn session(&self) -> &str {
        &self.context.session
    }

    /// The time this call may take in all, host calls included. The clock that a tool sees is a recorded one, so what is
    /// left cannot be measured; ask [`cancelled`](Self::cancelled) now and then.
    pub fn deadline(&self) -> Duration {
        Duration::from_millis(self.context.deadline_ms)
    }

    /// What the newest [`checkpoint_bytes`](Self::checkpoint_bytes) of an earlier attempt saved.
    pub fn receipt_bytes(&self) -> Option<&[u8]> {
        self.context.receipt.as_deref()
    }

    /// What the newest [`checkpoint`](Self::checkpoint) of an earlier attempt saved. A receipt that is no `T` is an
    /// internal error whose effect is unknown: an earlier attempt got as far as saving it.
    pub fn receipt<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let Some(bytes) = self.receipt_bytes() else { return Ok(None) };
        serde_json::from_slice(bytes).map(Some).map_err(|error| {
            Error::internal(format!("failed to read the receipt of an earlier attempt: {error}")).unknown()
        })
    }

    /// Saves `receipt` durably before this returns; the next attempt of this step gets it. A later one replaces an
    /// earlier one. Fails as unavailable, with nothing saved, when the host refuses it (too large, or cancelled).
    pub fn checkpoint_bytes(&self, receipt: &[u8]) -> Result<()> {
        run::checkpoint(receipt)
            .map_err(|reason| Error::unavailable(format!("failed to save the receipt: {reason}")))
    }

    /// [`checkpoint_bytes`](Self::checkpoint_bytes) of the JSON form of `receipt`.
    pub fn checkpoint<T: Serialize + ?Sized>(&self, receipt: &T) -> Result<()> {
        let bytes = serde_json::to_vec(receipt)
            .map_err(|error| Error::internal(format!("failed to write the receipt as JSON: {error}")))?;
        self.checkpoint_bytes(&bytes)
    }

    /// Whether the call should stop soon.
    pub fn cancelled(&self) -> bool {
        run::cancelled()
    }

    /// Tells how far the call is. Not part of the result; `total` is none when unknown.
    pub fn progress(&self, done: u64, total: Option<u64>, message: impl AsRef<str>) {
        run::progress(done, total, message.as_ref());
    }

    /// A line for whoever looks for a fault. Not part of the result.
    pub fn debug(&self, message: impl Display) {
        run::log(run::Level::Debug, &message.to_string());
    }

    /// A line for the operator. Not part of the result.
    pub fn info(&self, message: impl Display) {
        run::log(run::Level::Info, &message.to_string());
    }

    /// A line for the operator about something odd. Not part of the result.
    pub fn warn(&self, message: impl Display) {
        run::log(run::Level::Warn, &message.to_string());
    }

    /// A line for the operator about a failure. Not part of the result.
    pub fn error(&self, message: impl Display) {
        run::log(run::Level::Error, &message.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::EffectState;

    fn call(receipt: Option<&[u8]>) -> Call {
        Call::from(CallContext {
            idempotency_key: "key".into(),
            attempt: 2,
            session: "5e55".into(),
            deadline_ms: 1500,
            receipt: receipt.map(<[u8]>::to_vec),
        })
    }

    #[test]
    fn a_receipt_comes_back_typed() {
        assert_eq!(call(None).receipt::<Vec<u8>>().unwrap(), None);
        assert_eq!(call(Some(b"[1,2]")).receipt::<Vec<u8>>().unwrap(), Some(vec![1, 2]));
    }

    #[test]
    fn a_receipt_of_another_shape_leaves_the_effect_in_doubt() {
        let error = call(Some(b"step-1")).receipt::<Vec<u8>>().unwrap_err();
        assert_eq!(error.effect, EffectState::Unknown);
    }
}
