//! Identifiers. Each is a newtype, shown and stored in hexadecimal.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Text that is no identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no {what}: expected {expected}")]
pub struct ParseIdError {
    what: &'static str,
    text: String,
    expected: &'static str,
}

macro_rules! hex_id {
    ($(#[$doc:meta])* $name:ident, $bytes:literal, $what:literal, $expected:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; $bytes]);

        impl $name {
            /// Wrap raw bytes.
            pub const fn from_bytes(bytes: [u8; $bytes]) -> Self {
                Self(bytes)
            }

            /// The raw bytes.
            pub const fn as_bytes(&self) -> &[u8; $bytes] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hex::encode(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                let mut bytes = [0; $bytes];
                hex::decode_to_slice(text, &mut bytes).map_err(|_| ParseIdError {
                    what: $what,
                    text: text.to_owned(),
                    expected: $expected,
                })?;
                Ok(Self(bytes))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

hex_id!(
    /// A store: one journal file. Random, given at its creation.
    StoreId, 16, "store id", "32 hexadecimal digits"
);
hex_id!(
    /// A run. Random, so that an id is never used again.
    RunId, 16, "run id", "32 hexadecimal digits"
);
hex_id!(
    /// A session. Random.
    SessionId, 16, "session id", "32 hexadecimal digits"
);
hex_id!(
    /// What an effect is done under: the same for every attempt of one step, and for no other step.
    IdempotencyKey, 16, "idempotency key", "32 hexadecimal digits"
);
hex_id!(
    /// BLAKE3 of some content.
    Digest, 32, "digest", "64 hexadecimal digits"
);

impl RunId {
    /// The first eight digits: what people type, and what names the run's branch.
    pub fn short(&self) -> String {
        hex::encode(&self.0[..4])
    }
}

impl Digest {
    /// The digest of `content`.
    pub fn of(content: &[u8]) -> Self {
        Self(*blake3::hash(content).as_bytes())
    }

    /// The digest of a JSON value, whatever the order of its keys and the way its numbers are written (RFC 8785).
    ///
    /// # Panics
    /// Never: a [`serde_json::Value`] has text keys only, which is all that canonical JSON asks.
    pub fn of_json(value: &serde_json::Value) -> Self {
        Self::of(&serde_json_canonicalizer::to_vec(value).expect("a JSON value has a canonical form"))
    }
}

impl IdempotencyKey {
    /// The key of step `seq` of a run: a hash of the store, the run's random nonce and the number, so that no reusable
    /// name takes part in it.
    pub fn mint(store: &StoreId, nonce: &[u8; 16], seq: u64) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("deed 2026 idempotency key v1");
        hasher.update(store.as_bytes()).update(nonce).update(&seq.to_be_bytes());
        let mut key = [0; 16];
        hasher.finalize_xof().fill(&mut key);
        Self(key)
    }

    /// The seed of all randomness that attempts of this step are served.
    pub fn seed(&self) -> [u8; 32] {
        blake3::derive_key("deed 2026 step seed v1", &self.0)
    }
}

/// A durable question to the owner: the step it is about, and which asking of it this is.
///
/// Shown as `3fa91c02-17`, the first eight digits of the run and the step's seq; with any revision but the first,
/// `3fa91c02-17.2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WaitId {
    /// The run that waits.
    pub run: RunId,
    /// The step the question is about.
    pub seq: u64,
    /// The attempt whose outcome is asked for; 1 for a question of a wait step; 0 for an approval that a stricter policy
    /// asks for after the call was planned.
    pub revision: u32,
}

impl fmt::Display for WaitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.run.short(), self.seq)?;
        if self.revision == 1 { Ok(()) } else { write!(f, ".{}", self.revision) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip_as_text_and_name_what_is_wrong() {
        let id = RunId::from_bytes([0xab; 16]);
        assert_eq!(id.to_string().parse::<RunId>(), Ok(id));
        assert_eq!(id.short(), "abababab");
        let error = "xyz".parse::<RunId>().unwrap_err().to_string();
        assert_eq!(error, "`xyz` is no run id: expected 32 hexadecimal digits");
    }

    #[test]
    fn keys_differ_by_store_nonce_and_seq_and_by_nothing_else() {
        let store = StoreId::from_bytes([1; 16]);
        let key = IdempotencyKey::mint(&store, &[2; 16], 3);
        assert_eq!(key, IdempotencyKey::mint(&store, &[2; 16], 3));
        assert_ne!(key, IdempotencyKey::mint(&store, &[2; 16], 4));
        assert_ne!(key, IdempotencyKey::mint(&store, &[9; 16], 3));
        assert_ne!(key, IdempotencyKey::mint(&StoreId::from_bytes([9; 16]), &[2; 16], 3));
    }

    #[test]
    fn a_json_digest_does_not_see_key_order() {
        let a: serde_json::Value = serde_json::from_str(r#"{"a":1,"b":{"c":2,"d":[1.0]}}"#).unwrap();
        let b: serde_json::Value = serde_json::from_str(r#"{"b":{"d":[1],"c":2},"a":1}"#).unwrap();
        assert_eq!(Digest::of_json(&a), Digest::of_json(&b));
    }
}
