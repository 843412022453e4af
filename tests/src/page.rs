//! A page of documentation, so that a test can do what it says: its sections, its blocks of code, and the commands it shows.

use std::fs;

use crate::project_root;

/// A block of code, as a page has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The language it is marked with; empty for one that is not.
    pub language: String,
    /// What stands in it.
    pub text: String,
    /// The last thing in backticks before it, if the line before it ends with that: the file that it is.
    pub file: Option<String>,
}

/// A command that a page shows, and what it prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Behind the `$`.
    pub command: String,
    /// The lines below it.
    pub output: String,
}

/// The text of a page, by its path in the project.
pub fn read_page(path: &str) -> String {
    fs::read_to_string(project_root().join(path))
        .unwrap_or_else(|error| panic!("failed to read `{path}`: {error}"))
}

/// The text below a heading of the second level, up to the next one.
#[track_caller]
pub fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, rest) = page
        .split_once(&format!("\n## {heading}\n"))
        .unwrap_or_else(|| panic!("there is no section `{heading}`"));
    rest.split("\n## ").next().expect("a text has a first part")
}

/// Every block of code, in order.
pub fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    let mut said = "";
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else {
            if !line.trim().is_empty() {
                said = line;
            }
            continue;
        };
        let inside: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
        let file = said.strip_suffix("`:").and_then(|said| said.rsplit('`').next()).map(str::to_owned);
        blocks.push(Block { language: language.to_owned(), text: inside.join("\n"), file });
        said = "";
    }
    blocks
}

impl Block {
    /// The commands of a block that shows some: it begins with one.
    pub fn commands(&self) -> Vec<Shown> {
        let mut shown: Vec<Shown> = Vec::new();
        for line in self.text.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                shown.push(Shown { command: command.to_owned(), output: String::new() });
            } else if let Some(last) = shown.last_mut() {
                last.output.push_str(line);
                last.output.push('\n');
            } else {
                panic!("`{line}` is the output of no command");
            }
        }
        shown
    }
}

impl Shown {
    /// Whether `printed` is what is shown: line breaks and other spaces count alike, and `...` stands for anything.
    pub fn fits(&self, printed: &str) -> bool {
        let spaced = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (shown, printed) = (spaced(&self.output), spaced(printed));
        let mut parts = shown.split("...").map(str::trim);
        let first = parts.next().expect("a text has a first part");
        let Some(mut rest) = printed.strip_prefix(first) else { return false };
        let parts: Vec<_> = parts.collect();
        let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
        for part in middle {
            let Some((_, behind)) = rest.split_once(part) else { return false };
            rest = behind;
        }
        rest.ends_with(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A page\n\n## One\n\nHere is `a.rs`:\n\n```rust\nfn main() {}\n```\n\nSay `it`.\n\n```\n$ echo a\na\n$ true\n```\n\n## Two\n\nNothing.\n";

    #[test]
    fn blocks_are_found_with_their_files_and_their_commands() {
        let [code, shell] = blocks(section(PAGE, "One")).try_into().unwrap();
        assert_eq!((&*code.language, code.file.as_deref()), ("rust", Some("a.rs")));
        assert_eq!(code.text, "fn main() {}");
        assert_eq!((&*shell.language, shell.file.as_deref()), ("", None));
        let [echo, nothing] = shell.commands().try_into().unwrap();
        assert_eq!((&*echo.command, &*echo.output), ("echo a", "a\n"));
        assert_eq!((&*nothing.command, &*nothing.output), ("true", ""));
        assert_eq!(blocks(section(PAGE, "Two")), []);
    }

    #[test]
    fn what_is_shown_is_compared_but_for_what_is_left_out() {
        let fits = |output: &str, printed: &str| {
            Shown { command: String::new(), output: output.to_owned() }.fits(printed)
        };
        assert!(fits("a\n  b\n", "a b\n") && fits("", "\n") && fits("...\n", "anything"));
        assert!(fits("a\n...\nd\n", "a\nb\nc\nd\n") && fits("a: ...\n", "a: b") && fits("...\nb\n", "a b"));
        assert!(!fits("a\n", "a\nb\n") && !fits("", "a") && !fits("b\n", "a b"));
        assert!(!fits("a\n...\nd\n", "a\nd\ne\n") && !fits("...\nx\n...\n", "a b"));
    }
}
