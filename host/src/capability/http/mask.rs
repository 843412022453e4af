//! Masking secrets in what servers answer.
//!
//! A server may well send back what it got. Every configured secret that stands in an answer as it is, whether or not
//! this request carried it, is replaced by as many asterisks, so that lengths still fit. What a server makes of a secret
//! (a hash, base64, a half of it) is not recognised.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use memchr::memmem;

use super::Credential;

/// What stands for each byte of a secret.
const MASK: u8 = b'*';

/// The secrets to be masked. Cheap to clone.
#[derive(Clone)]
pub(super) struct Mask(Arc<[Box<[u8]>]>);

impl Mask {
    pub(super) fn new(credentials: &[Credential]) -> Self {
        let secrets = credentials.iter().filter_map(|credential| credential.secret.as_ref().ok());
        Self(secrets.map(|secret| secret.bytes.clone()).collect())
    }

    /// Mask every secret in `bytes`. Says whether there was one.
    fn apply(&self, bytes: &mut [u8]) -> bool {
        let mut found = Vec::new();
        for secret in self.0.iter() {
            let mut from = 0;
            // One that begins within another counts as well.
            while let Some(at) = memmem::find(&bytes[from..], secret) {
                found.push(from + at..from + at + secret.len());
                from += at + 1;
            }
        }
        for range in &found {
            bytes[range.clone()].fill(MASK);
        }
        !found.is_empty()
    }

    /// Mask every secret in the values of `headers`.
    pub(super) fn headers(&self, headers: &mut HeaderMap) {
        for value in headers.values_mut() {
            let mut bytes = value.as_bytes().to_vec();
            if self.apply(&mut bytes) {
                *value = HeaderValue::from_bytes(&bytes).expect("asterisks may stand in a header");
            }
        }
    }

    /// Bytes at the end of `bytes` that may be the beginning of a secret.
    fn unfinished(&self, bytes: &[u8]) -> usize {
        let begins = |secret: &[u8]| {
            let longest = bytes.len().min(secret.len() - 1);
            (1..=longest).rev().find(|length| secret.starts_with(&bytes[bytes.len() - length..]))
        };
        self.0.iter().filter_map(|secret| begins(secret)).max().unwrap_or(0)
    }
}

/// Masks a body that comes in pieces.
pub(super) struct Masked {
    mask: Mask,
    /// Came, and may be the beginning of a secret.
    held: Vec<u8>,
}

impl Masked {
    pub(super) fn new(mask: Mask) -> Self {
        Self { mask, held: Vec::new() }
    }

    /// What it masks with.
    pub(super) fn mask(&self) -> &Mask {
        &self.mask
    }

    /// The next piece came; returns what can be passed on.
    pub(super) fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(piece);
        // Before anything is masked: the end of one occurrence may be the beginning of another.
        let unfinished = self.mask.unfinished(&bytes);
        self.mask.apply(&mut bytes);
        self.held = bytes.split_off(bytes.len() - unfinished);
        bytes
    }

    /// Nothing more comes; returns the rest.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(secrets: &[&str]) -> Mask {
        Mask(secrets.iter().map(|secret| secret.as_bytes().into()).collect())
    }

    fn masked(secrets: &[&str], pieces: &[&str]) -> String {
        let mut masked = Masked::new(mask(secrets));
        let mut all: Vec<u8> = pieces.iter().flat_map(|piece| masked.push(piece.as_bytes())).collect();
        all.extend(masked.finish());
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn a_secret_is_masked_wherever_the_pieces_are_cut() {
        let text = "a hunter2, and hunhunter2.";
        let expected = "a *******, and hun*******.";
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let pieces = [&text[..first], &text[first..second], &text[second..]];
                assert_eq!(masked(&["hunter2", "zzz"], &pieces), expected, "{pieces:?}");
            }
        }
    }

    #[test]
    fn a_beginning_that_comes_to_nothing_is_passed_on() {
        assert_eq!(masked(&["hunter2"], &["a hunt"]), "a hunt");
        assert_eq!(masked(&["hunter2"], &["hunt", "ing"]), "hunting");
        assert_eq!(masked(&[], &["hunt", "ing"]), "hunting");
    }

    #[test]
    fn one_within_another_is_masked_too() {
        assert_eq!(masked(&["abab"], &["xababab", "y"]), "x******y");
        assert_eq!(masked(&["secret", "etna"], &["secretna"]), "********");
        let text = "secretna secret etna";
        for cut in 0..text.len() {
            let shown = masked(&["secret", "etna"], &[&text[..cut], &text[cut..]]);
            assert!(!shown.contains("secret") && !shown.contains("etna"), "{cut}: {shown}");
        }
    }

    #[test]
    fn headers_are_masked() {
        let mut headers = HeaderMap::new();
        headers.insert("x-echo", "Bearer hunter2".parse().unwrap());
        headers.insert("x-other", "plain".parse().unwrap());
        mask(&["hunter2"]).headers(&mut headers);
        assert_eq!(headers["x-echo"], "Bearer *******");
        assert_eq!(headers["x-other"], "plain");
    }
}
