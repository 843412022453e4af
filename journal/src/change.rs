//! What a contained call changed: which paths, and what was and is there.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::id::Digest;

/// A path below the workspace, or the target of a link: bytes, as the system has them. In JSON it is text; one that is no
/// UTF-8 is `{"base64": …}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct PathBytes(Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Bytes {
        #[serde(with = "crate::base64_bytes")]
        base64: Vec<u8>,
    },
}

impl From<Written> for PathBytes {
    fn from(written: Written) -> Self {
        Self(match written {
            Written::Text(text) => text.into_bytes(),
            Written::Bytes { base64 } => base64,
        })
    }
}

impl From<PathBytes> for Written {
    fn from(path: PathBytes) -> Self {
        String::from_utf8(path.0).map_or_else(|error| Self::Bytes { base64: error.into_bytes() }, Self::Text)
    }
}

impl PathBytes {
    /// These bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// The path.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<&Path> for PathBytes {
    fn from(path: &Path) -> Self {
        Self(path.as_os_str().as_bytes().to_vec())
    }
}

/// For people: what is no UTF-8 is replaced.
impl fmt::Display for PathBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_path().display().fmt(f)
    }
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Version {
    /// Nothing.
    Absent,
    /// A regular file.
    File {
        /// Of its content.
        digest: Digest,
        /// Of its content.
        size_bytes: u64,
        /// The permission bits, such as 0o644.
        mode: u32,
    },
    /// A directory. What is in it has changes of its own.
    Directory {
        /// The permission bits.
        mode: u32,
    },
    /// A symbolic link.
    Link {
        /// What it leads to.
        target: PathBytes,
    },
    /// Anything else: a pipe, a socket, a device. None is ever published.
    Special,
}

impl Version {
    /// Whether it is a directory.
    pub const fn is_directory(&self) -> bool {
        matches!(self, Self::Directory { .. })
    }
}

/// One path that a contained call changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Below the workspace, without `.`, `..` and a leading `/`.
    pub path: PathBytes,
    /// What was there when the call began.
    pub base: Version,
    /// What it put there. Equal to the base when it changed only times or the owner.
    pub staged: Version,
}

/// Changes of one attempt, or a part of them: as many as fit in a record. They commit together with the outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// The attempt that made them.
    pub attempt: u32,
    /// Counts from 0 within the attempt.
    pub number: u32,
    /// In the order in which they are published.
    pub changes: Vec<Change>,
    /// For people: how the texts differ, in unified form, as far as it was kept. All of it is in the first part.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub diff: String,
}

/// Every change of an attempt is in the workspace, but for those at which somebody else's version stayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// The attempt whose changes they are.
    pub attempt: u32,
    /// When, milliseconds since the epoch.
    pub published_ms: u64,
    /// Paths at which somebody else's version stayed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<PathBytes>,
    /// The owner is asked about those. Everything else is over; what becomes of them is in another one of these.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asks: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_text_where_it_can_be() {
        for (bytes, json) in [(&b"a/\xc3\xa9"[..], r#""a/é""#), (b"a\xff", r#"{"base64":"Yf8="}"#)] {
            let path = PathBytes::new(bytes);
            assert_eq!(serde_json::to_string(&path).unwrap(), json);
            assert_eq!(serde_json::from_str::<PathBytes>(json).unwrap(), path);
        }
    }
}
