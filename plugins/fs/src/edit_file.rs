//! `edit_file`.

use deed_sdk::prelude::*;
use deed_sdk::workspace::{self, Expectation};

use crate::count;
use crate::refused::{refused, require_file, require_text};

/// Replace a piece of text in a file of the workspace. `old` must occur exactly once, unless `all` is set; add
/// neighbouring lines to it until it does.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct EditFile {
    /// The file, relative to the workspace.
    path: String,
    /// The text to replace, exactly as it is in the file, spaces and line ends included.
    old: String,
    /// The text to put in its place.
    new: String,
    /// Replace every occurrence.
    #[serde(default)]
    all: bool,
}

/// What an attempt is about to do, saved before it does it. A later attempt compares the file with both digests, so it
/// knows which of them it finds even where the new text contains the old one.
#[derive(Deserialize, Serialize)]
struct Receipt {
    /// BLAKE3 in hexadecimal of the file that was edited.
    before: String,
    /// BLAKE3 in hexadecimal of the edited file.
    after: String,
    replacements: usize,
}

impl Tool for EditFile {
    const NAME: &str = "edit_file";
    const EFFECT: Effect = Effect::Idempotent;
    const DESTRUCTIVE: bool = true;

    fn run(self, call: &Call) -> Result<Output> {
        if let Some(receipt) = call.receipt::<Receipt>()? {
            return self.run_again(&receipt);
        }
        let (edited, receipt) = self.edited(self.read()?)?;
        call.checkpoint(&receipt)?;
        self.replace(edited.as_bytes(), &receipt.before)?;
        Ok(self.output(&receipt))
    }
}

impl EditFile {
    /// An earlier attempt came as far as its receipt; the file tells whether it came further.
    fn run_again(&self, earlier: &Receipt) -> Result<Output> {
        let bytes = self.read()?;
        let found = digest(&bytes);
        if found == earlier.after {
            // Once more, with what is there: the earlier attempt may have died before its write was durable.
            self.replace(&bytes, &found).map_err(Error::applied)?;
            return Ok(self.output(earlier).landed_before());
        }
        if found != earlier.before {
            // Whoever changed the file since may have built on the edit, so it cannot be said that it is not there.
            return Err(self
                .conflict("somebody else changed it during an earlier attempt of this edit; read it again")
                .unknown());
        }
        let (edited, receipt) = self.edited(bytes)?;
        self.replace(edited.as_bytes(), &receipt.before)?;
        Ok(self.output(&receipt))
    }

    fn read(&self) -> Result<Vec<u8>> {
        require_file("edit", &self.path)?;
        std::fs::read(&self.path).map_err(|error| refused("edit", &self.path, error))
    }

    fn edited(&self, bytes: Vec<u8>) -> Result<(String, Receipt)> {
        let before = digest(&bytes);
        let text = require_text("edit", &self.path, bytes)?;
        let (edited, replacements) = self.apply(&text)?;
        let receipt = Receipt { before, after: digest(edited.as_bytes()), replacements };
        Ok((edited, receipt))
    }

    /// The edited text, and how many replacements it took.
    fn apply(&self, text: &str) -> Result<(String, usize)> {
        if self.old.is_empty() {
            return Err(self.invalid("`old` is empty; `write_file` makes a new file"));
        }
        if self.old == self.new {
            return Err(self.invalid("`old` and `new` are equal, so there is nothing to do"));
        }
        match occurrences(text, &self.old) {
            0 => Err(self.conflict("`old` does not occur in it; read it and copy the text exactly")),
            1 => Ok((text.replacen(&self.old, &self.new, 1), 1)),
            _ if self.all => {
                Ok((text.replace(&self.old, &self.new), text.matches(self.old.as_str()).count()))
            }
            many => Err(self.conflict(&format!(
                "`old` occurs {many} times in it; add neighbouring text to name one of them, or set `all`"
            ))),
        }
    }

    fn replace(&self, content: &[u8], before: &str) -> Result<()> {
        workspace::replace(&self.path, content, &Expectation::Digest(before.into()))
            .map_err(|error| Error::from(error).context(self.failed()))?;
        Ok(())
    }

    fn output(&self, receipt: &Receipt) -> Output {
        Output::text(format!("edited {}: {}", self.path, count(receipt.replacements, "replacement")))
    }

    fn failed(&self) -> String {
        format!("failed to edit `{}`", self.path)
    }

    fn invalid(&self, why: &str) -> Error {
        Error::invalid(why).context(self.failed())
    }

    fn conflict(&self, why: &str) -> Error {
        Error::conflict(why).context(self.failed())
    }
}

fn digest(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

/// Overlapping ones too: `aa` in `aaa` leaves open which of the two is meant.
fn occurrences(text: &str, piece: &str) -> usize {
    text.char_indices().filter(|(at, _)| text[*at..].starts_with(piece)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(old: &str, new: &str, all: bool) -> EditFile {
        EditFile { path: "a.txt".into(), old: old.into(), new: new.into(), all }
    }

    fn refusal(edit: &EditFile, text: &str) -> String {
        edit.apply(text).unwrap_err().message
    }

    #[test]
    fn one_occurrence_is_replaced() {
        assert_eq!(edit("a - b", "a + b", false).apply("x a - b y").unwrap(), ("x a + b y".into(), 1));
    }

    #[test]
    fn several_occurrences_need_all() {
        assert_eq!(
            refusal(&edit("a", "b", false), "a a a"),
            "failed to edit `a.txt`: `old` occurs 3 times in it; add neighbouring text to name one of them, or set `all`"
        );
        assert_eq!(edit("a", "b", true).apply("a a a").unwrap(), ("b b b".into(), 3));
    }

    #[test]
    fn overlapping_occurrences_are_ambiguous() {
        assert!(refusal(&edit("aa", "b", false), "aaa").contains("occurs 2 times"));
        assert_eq!(edit("aa", "b", true).apply("aaa").unwrap(), ("ba".into(), 1));
    }

    #[test]
    fn an_edit_that_can_do_nothing_is_refused() {
        assert!(refusal(&edit("x", "y", true), "abc").contains("`old` does not occur in it"));
        assert!(refusal(&edit("", "y", false), "abc").contains("`old` is empty"));
        assert!(refusal(&edit("a", "a", false), "abc").contains("are equal"));
    }

    #[test]
    fn the_receipt_tells_before_from_after_where_the_new_text_contains_the_old() {
        let edit = edit("add", "add_all", false);
        let (edited, receipt) = edit.edited(b"add".to_vec()).unwrap();
        assert_eq!(edited, "add_all");
        assert_eq!((receipt.before, receipt.after), (digest(b"add"), digest(b"add_all")));
    }
}
