//! Two runs compared: what is more, what is less, what is another.

use std::collections::BTreeMap;

use serde::Serialize;
use similar::TextDiff;

use super::snapshot::is_of_world;
use super::world::Parts;

/// What a case came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// As without the kill.
    Once,
    /// As without the kill, once the owner had said what became of the call.
    Asked,
    /// The point was not reached, so nothing was tested.
    NotReached,
    /// Neither more nor less, but not the same.
    Differs,
    /// An effect is missing.
    Lost,
    /// An effect is there more often than once.
    Repeated,
    /// The run did not come to a documented end.
    Broken,
}

impl Verdict {
    /// As tables show it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Asked => "asked",
            Self::NotReached => "not reached",
            Self::Differs => "differs",
            Self::Lost => "lost",
            Self::Repeated => "repeated",
            Self::Broken => "broken",
        }
    }
}

/// A part that is not the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The part: a file, `git history`, `observe NAME`, `(transcript)`.
    pub part: String,
    /// What it comes to: [`Verdict::Repeated`], [`Verdict::Lost`] or [`Verdict::Differs`].
    pub verdict: Verdict,
    /// How it is in the undisturbed run; none when it is not there.
    pub expected: Option<String>,
    /// How it is here; none when it is not there.
    pub found: Option<String>,
}

impl Difference {
    /// The difference in unified form.
    pub fn unified(&self) -> String {
        let text = |side: &Option<String>| side.clone().unwrap_or_default();
        let (expected, found) = (text(&self.expected), text(&self.found));
        TextDiff::from_lines(&expected, &found).unified_diff().header("undisturbed", "here").to_string()
    }

    /// The first line that is here and not in the undisturbed run, or the other way round, in a few words.
    pub fn brief(&self) -> String {
        let name = &self.part;
        let (Some(expected), Some(found)) = (&self.expected, &self.found) else {
            let what = if self.expected.is_none() { "is there and should not be" } else { "is missing" };
            return format!("`{name}` {what}");
        };
        let (more, fewer) = (extra(found, expected), extra(expected, found));
        let quote = |line: &str| format!("`{}`", shortened(line.trim()));
        let detail = match (more.first(), fewer.first()) {
            (Some(line), None) => format!("has one more {}", quote(line)),
            (None, Some(line)) => format!("lacks {}", quote(line)),
            (Some(here), Some(there)) => format!("has {} in place of {}", quote(here), quote(there)),
            (None, None) => "has its lines in another order".to_owned(),
        };
        format!("`{name}` differs: {detail}")
    }
}

fn shortened(line: &str) -> String {
    const SHOWN: usize = 120;
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// Every part that differs, those of the world first.
pub(super) fn compare(expected: &Parts, found: &Parts) -> Vec<Difference> {
    let mut names: Vec<&String> = expected.keys().chain(found.keys()).collect();
    names.sort_by_key(|name| (!is_of_world(name), *name));
    names.dedup();
    let differing = names.into_iter().filter(|name| expected.get(*name) != found.get(*name));
    differing
        .map(|name| {
            let (expected_text, found_text) = (expected.get(name), found.get(name));
            let verdict = match (expected_text, found_text) {
                _ if !is_of_world(name) => Verdict::Differs,
                (Some(expected), Some(found)) => sense(expected, found),
                (Some(_), None) => Verdict::Lost,
                // A copy of what is there is one effect more; anything else may be what was left in the middle.
                (None, Some(text)) if expected.values().any(|known| known == text) => Verdict::Repeated,
                _ => Verdict::Differs,
            };
            Difference {
                part: name.clone(),
                verdict,
                expected: expected_text.cloned(),
                found: found_text.cloned(),
            }
        })
        .collect()
}

/// The worst of them: more of an effect than there should be, then less, then another.
pub(super) fn worst(differences: &[Difference]) -> Option<Verdict> {
    differences.iter().map(|difference| difference.verdict).max()
}

/// Whether a text is what it should be and more, or less, or another.
fn sense(expected: &str, found: &str) -> Verdict {
    // A count that an observer printed.
    if let (Ok(expected), Ok(found)) = (expected.trim().parse::<f64>(), found.trim().parse::<f64>()) {
        return if found > expected { Verdict::Repeated } else { Verdict::Lost };
    }
    match (extra(found, expected).is_empty(), extra(expected, found).is_empty()) {
        (false, true) => Verdict::Repeated,
        (true, false) => Verdict::Lost,
        _ => Verdict::Differs,
    }
}

/// The lines that `one` has more often than `other`.
fn extra<'a>(one: &'a str, other: &str) -> Vec<&'a str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for line in other.lines() {
        *counts.entry(line).or_default() += 1;
    }
    one.lines()
        .filter(|line| match counts.get_mut(line) {
            Some(left @ 1..) => {
                *left -= 1;
                false
            }
            _ => true,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(expected: &str, found: &str) -> Verdict {
        sense(expected, found)
    }

    #[test]
    fn more_less_and_another_are_told_apart() {
        assert_eq!(verdict("tick\n", "tick\ntick\n"), Verdict::Repeated);
        assert_eq!(verdict("tick\ntock\n", "tock\n"), Verdict::Lost);
        assert_eq!(verdict("tick\n", "tock\n"), Verdict::Differs);
        assert_eq!(verdict("a\nb\n", "b\na\n"), Verdict::Differs);
        assert_eq!(verdict("1\n", "2\n"), Verdict::Repeated);
        assert_eq!(verdict("12\n", "9\n"), Verdict::Lost);
    }

    #[test]
    fn a_difference_is_said_in_a_line() {
        let parts = |texts: &[(&str, &str)]| {
            texts.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect::<Parts>()
        };
        let expected = parts(&[("a", "x\n"), ("b", "1\n"), ("(transcript)", "t\n")]);
        let found = parts(&[("a", "x\nx\n"), ("c", "1\n"), ("(transcript)", "u\n")]);
        let differences = compare(&expected, &found);
        let briefs: Vec<_> = differences.iter().map(Difference::brief).collect();
        assert_eq!(
            briefs,
            [
                "`a` differs: has one more `x`",
                "`b` is missing",
                "`c` is there and should not be",
                "`(transcript)` differs: has `u` in place of `t`"
            ]
        );
        assert_eq!(worst(&differences), Some(Verdict::Repeated));
        assert!(differences[0].unified().contains("+x"), "{}", differences[0].unified());
    }
}
