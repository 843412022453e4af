//! What differs between two runs of one mission and means nothing: ids, keys and commit hashes, replaced by names.

use std::fmt::Display;

use serde::Serialize;

/// What is replaced or not compared, and why: for the report.
pub(super) const MASKS: [Mask; 5] = [
    Mask { what: "ids of run and session", how: "replaced by `<run>` and `<session>`" },
    Mask { what: "idempotency keys", how: "replaced by `<key of step N>`" },
    Mask { what: "commit hashes", how: "replaced by `<commit N>`, in the order of the history" },
    Mask { what: "the directory of the case", how: "replaced by `<case>`" },
    Mask { what: "times, attempts and repeated requests to the model", how: "not compared" },
];

/// One kind of thing that is not compared as it stands.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Mask {
    /// What it is.
    pub what: &'static str,
    /// What is done about it.
    pub how: &'static str,
}

/// The shortest start of an id or a hash that is recognised: git abbreviates to no fewer digits.
const SHORTEST: usize = 7;

/// The values of one run, and the names that take their place.
#[derive(Debug, Clone, Default)]
pub(super) struct Masks {
    /// Hexadecimal values.
    values: Vec<(String, String)>,
    /// The directory of the case.
    directory: String,
}

impl Masks {
    pub(super) fn new(directory: String) -> Self {
        Self { values: Vec::new(), directory }
    }

    pub(super) fn add(&mut self, value: impl Display, name: impl Into<String>) {
        let value = value.to_string();
        if !self.values.iter().any(|(known, _)| *known == value) {
            self.values.push((value, name.into()));
        }
    }

    /// Mask a text: every word that is one of the values or begins it.
    pub(super) fn apply(&self, text: &str) -> String {
        let text = text.replace(&self.directory, "<case>");
        let mut masked = String::with_capacity(text.len());
        // Words of letters and digits, and what is between them.
        for part in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
            let end = part.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(part.len());
            let (word, after) = part.split_at(end);
            masked.push_str(self.name(word).unwrap_or(word));
            masked.push_str(after);
        }
        masked
    }

    fn name(&self, word: &str) -> Option<&str> {
        if word.len() < SHORTEST {
            return None;
        }
        self.values.iter().find(|(value, _)| value.starts_with(word)).map(|(_, name)| name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_their_beginnings_are_masked_and_nothing_else() {
        let mut masks = Masks::new("/tmp/x/0001".into());
        masks.add("0123456789abcdef0123456789abcdef", "<run>");
        masks.add("fedcba9876543210fedcba9876543210fedcba98", "<commit 1>");
        let masked =
            masks.apply("deed/01234567 made fedcba9 in /tmp/x/0001/workspace; 0123456 012345 x0123456 é");
        assert_eq!(masked, "deed/<run> made <commit 1> in <case>/workspace; <run> 012345 x0123456 é");
    }
}
