//! `search`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use deed_sdk::prelude::*;
use memchr::{memchr, memchr_iter, memrchr};
use regex::bytes::{Regex, RegexBuilder};

use crate::count;
use crate::refused::refused;
use crate::walk::Walk;

/// Search the text files of the workspace: `path:line: text` for each line in which a match begins. `.git`, binary files
/// and files over 4 MiB are left out.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Search {
    /// A regular expression (no look-around, no back-references); `^` and `$` match at lines.
    pattern: String,
    /// Take `pattern` as it is, not as a regular expression.
    #[serde(default)]
    literal: bool,
    /// Where to search: a directory or a file, relative to the workspace; everywhere if left out.
    #[serde(default = "root")]
    path: String,
    /// Only files that fit it: `*.rs` by name anywhere, `src/**/*.{js,ts}` by their way from `path`.
    glob: Option<String>,
    /// Matching lines at most.
    #[serde(default = "default_limit")]
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    limit: usize,
}

fn root() -> String {
    ".".into()
}

const fn default_limit() -> usize {
    100
}

/// With lines of [`LINE_LIMIT_BYTES`], about as much as a model can still take in.
const MAX_LIMIT: usize = 1_000;

/// A line is there to be recognised, not to be read; minified files have lines of megabytes.
const LINE_LIMIT_BYTES: usize = 300;

/// Larger files are data, hardly ever searched, and would fill the guest's memory.
const FILE_LIMIT_BYTES: usize = 4 * 1024 * 1024;

/// Nearly every source file fits.
const BUFFER_BYTES: usize = 64 * 1024;

/// Some seconds of reading, and more than most repositories have. A call that ran out of time would return nothing.
const LIMIT_FILES: usize = 20_000;

/// Where git and grep, too, look for the zero byte of a binary file.
const BINARY_PREFIX_BYTES: usize = 8 * 1024;

impl Tool for Search {
    const NAME: &str = "search";
    const EFFECT: Effect = Effect::Pure;

    fn run(self, _: &Call) -> Result<Output> {
        if !(1..=MAX_LIMIT).contains(&self.limit) {
            return Err(Error::invalid(format!("`limit` is `{}`; expected 1 to {MAX_LIMIT}", self.limit)));
        }
        let regex = self.regex()?;
        let walk = Walk::from(&self.path).map_err(|error| refused("search", &self.path, error))?;
        Ok(Output::text(self.search(&regex, walk).to_text(&self.pattern)))
    }
}

impl Search {
    fn regex(&self) -> Result<Regex> {
        let escaped = self.literal.then(|| regex::escape(&self.pattern));
        RegexBuilder::new(escaped.as_deref().unwrap_or(&self.pattern))
            .multi_line(true)
            .crlf(true)
            .build()
            .map_err(|error| {
                Error::invalid(format!("{error}\nset `literal` to search for the text as it is"))
                    .context("failed to read `pattern` as a regular expression")
            })
    }

    fn search(&self, regex: &Regex, walk: impl Iterator<Item = io::Result<PathBuf>>) -> Found {
        let mut found = Found::default();
        let mut buffer = Vec::new();
        for path in walk {
            let Ok(path) = path else {
                found.unreadable += 1;
                continue;
            };
            if !self.is_wanted(&path) {
                continue;
            }
            if found.files == LIMIT_FILES {
                found.has_more_files = true;
                break;
            }
            found.files += 1;
            match read_text(&path, &mut buffer) {
                Ok(Some(text)) => found.add(&path, matching_lines(regex, text), self.limit),
                Ok(None) => {}
                Err(_) => found.unreadable += 1,
            }
            if found.has_more_lines {
                break;
            }
        }
        found
    }

    fn is_wanted(&self, path: &Path) -> bool {
        let Some(glob) = &self.glob else { return true };
        let subject = if glob.contains('/') {
            path.strip_prefix(self.path.trim_start_matches("./")).unwrap_or(path).as_os_str()
        } else {
            path.file_name().unwrap_or_default()
        };
        fast_glob::glob_match(glob.trim_start_matches("./"), subject.as_encoded_bytes())
    }
}

/// What a search came upon.
#[derive(Default)]
struct Found {
    lines: Vec<String>,
    /// Files that were looked into.
    files: usize,
    /// Files and directories that could not be read.
    unreadable: usize,
    /// There are more matching lines than asked for.
    has_more_lines: bool,
    /// There are more files than [`LIMIT_FILES`].
    has_more_files: bool,
}

impl Found {
    fn add<'a>(&mut self, path: &Path, mut matches: impl Iterator<Item = (usize, &'a [u8])>, limit: usize) {
        let room = limit - self.lines.len();
        let lines = matches.by_ref().take(room);
        self.lines
            .extend(lines.map(|(number, line)| format!("{}:{number}: {}", path.display(), shortened(line))));
        self.has_more_lines = self.lines.len() == limit && matches.next().is_some();
    }

    fn to_text(&self, pattern: &str) -> String {
        let mut text: String = self.lines.iter().map(|line| format!("{line}\n")).collect();
        if self.lines.is_empty() {
            text.push_str(&format!("no match for `{pattern}` in {}\n", count(self.files, "file")));
        }
        if self.has_more_lines {
            let lines = count(self.lines.len(), "line");
            text.push_str(&format!("[stopped after {lines}; narrow `pattern`, `path` or `glob`]\n"));
        }
        if self.has_more_files {
            text.push_str(&format!("[stopped after {LIMIT_FILES} files; narrow `path` or `glob`]\n"));
        }
        if self.unreadable > 0 {
            text.push_str(&format!("[{} could not be read]\n", count(self.unreadable, "path")));
        }
        text
    }
}

/// The content of a file, in `buffer`. None for what is no text, or too large.
///
/// Each read is a call of the host, so a large buffer is kept from file to file: most fit with one read.
fn read_text<'a>(path: &Path, buffer: &'a mut Vec<u8>) -> io::Result<Option<&'a [u8]>> {
    let mut file = File::open(path)?;
    let mut length = 0;
    loop {
        if length == buffer.len() {
            buffer.resize((2 * length).max(BUFFER_BYTES), 0);
        }
        let read = file.read(&mut buffer[length..])?;
        if read == 0 {
            break;
        }
        let is_binary = length < BINARY_PREFIX_BYTES
            && memchr(0, &buffer[length..(length + read).min(BINARY_PREFIX_BYTES)]).is_some();
        length += read;
        if is_binary || length > FILE_LIMIT_BYTES {
            return Ok(None);
        }
    }
    Ok(Some(&buffer[..length]))
}

/// Each line in which a match begins, once, with its number from 1.
fn matching_lines<'a>(regex: &'a Regex, bytes: &'a [u8]) -> impl Iterator<Item = (usize, &'a [u8])> {
    let mut number = 1;
    let mut position = 0;
    std::iter::from_fn(move || {
        // After the last line's end there is no further line, though an empty match is found there.
        if position >= bytes.len() {
            return None;
        }
        let at = regex.find_at(bytes, position)?.start();
        if at == bytes.len() && bytes.ends_with(b"\n") {
            return None;
        }
        let start = position + memrchr(b'\n', &bytes[position..at]).map_or(0, |last| last + 1);
        let end = memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |length| at + length);
        number += memchr_iter(b'\n', &bytes[position..start]).count();
        let line = (number, bytes[start..end].trim_ascii_end());
        number += 1;
        position = end + 1;
        Some(line)
    })
}

fn shortened(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(LINE_LIMIT_BYTES)]);
    if line.len() > LINE_LIMIT_BYTES { format!("{text}\u{2026}") } else { text.into_owned() }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn search(pattern: &str) -> Search {
        Search { pattern: pattern.into(), literal: false, path: root(), glob: None, limit: default_limit() }
    }

    fn lines(pattern: &str, text: &str) -> Vec<(usize, String)> {
        let regex = search(pattern).regex().unwrap();
        matching_lines(&regex, text.as_bytes())
            .map(|(number, line)| (number, String::from_utf8(line.into()).unwrap()))
            .collect()
    }

    #[test]
    fn each_matching_line_comes_once_with_its_number() {
        let found = lines("a", "aa\nb\n\nca\n");
        assert_eq!(found, [(1, "aa".into()), (4, "ca".into())]);
    }

    #[test]
    fn anchors_match_at_lines_whatever_ends_them() {
        assert_eq!(lines("b$", "ab\r\nb\nbc"), [(1, "ab".into()), (2, "b".into())]);
        assert_eq!(lines("^$", "a\n\nb\n"), [(2, String::new())]);
    }

    /// The plain way to say the same: every line by itself.
    #[test]
    fn agrees_with_matching_line_by_line() {
        let text = "fn main() {\n    let x = 1;\n\n    x + 1\n}\n// end";
        for pattern in ["x", "[a-z]+", "^", "$", "^$", r"\d", "nowhere", r"\bend\b", "."] {
            let regex = search(pattern).regex().unwrap();
            let plain = (1..).zip(text.lines()).filter(|(_, line)| regex.is_match(line.as_bytes()));
            let plain: Vec<_> = plain.map(|(number, line)| (number, line.trim_end().to_owned())).collect();
            assert_eq!(lines(pattern, text), plain, "{pattern}");
        }
    }

    #[test]
    fn a_pattern_can_be_taken_literally() {
        assert!(search("a(b").regex().unwrap_err().message.contains("set `literal`"));
        let literal = Search { literal: true, ..search("a(b") };
        assert!(literal.regex().unwrap().is_match(b"xa(b"));
    }

    #[test]
    fn a_glob_without_a_slash_is_for_names_and_one_with_it_for_paths() {
        let with =
            |path: &str, glob: &str| Search { path: path.into(), glob: Some(glob.into()), ..search("") };
        assert!(with(".", "*.rs").is_wanted(Path::new("src/deep/a.rs")));
        assert!(!with(".", "*.rs").is_wanted(Path::new("src/a.js")));
        assert!(with(".", "src/**/*.{js,ts}").is_wanted(Path::new("src/deep/a.ts")));
        assert!(with("src", "deep/*").is_wanted(Path::new("src/deep/a.ts")));
        assert!(!with("src", "deep/*").is_wanted(Path::new("src/a.ts")));
    }

    #[test]
    fn binary_and_large_files_are_left_out_and_a_limit_is_kept() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &[u8]| fs::write(root.path().join(name), content).unwrap();
        write("binary", b"needle\0");
        write("large", &b"needle\n".repeat(700_000));
        write("small", b"needle\nneedle\n");
        let run = |limit| {
            let search = Search { limit, ..search("needle") };
            let walk = Walk::from(root.path().to_str().unwrap()).unwrap();
            search.search(&search.regex().unwrap(), walk)
        };
        let (all, one) = (run(2), run(1));
        assert_eq!((all.lines.len(), all.files, all.has_more_lines), (2, 3, false));
        assert_eq!((one.lines.len(), one.has_more_lines), (1, true));
        assert!(
            one.to_text("needle").ends_with("[stopped after 1 line; narrow `pattern`, `path` or `glob`]\n")
        );
    }

    #[test]
    fn no_match_is_said_in_words() {
        assert_eq!(Found { files: 2, ..Found::default() }.to_text("x"), "no match for `x` in 2 files\n");
    }
}
