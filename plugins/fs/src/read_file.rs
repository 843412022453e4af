//! `read_file`.

use std::fs::File;
use std::io::{self, BufRead, BufReader};

use deed_sdk::prelude::*;

use crate::count;
use crate::refused::{refused, require_file, require_text};

/// Read a text file of the workspace. A long file is cut, which the last line then says; read on with `offset_lines`.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ReadFile {
    /// The file, relative to the workspace.
    path: String,
    /// Lines to skip at the beginning.
    #[serde(default)]
    offset_lines: u64,
    /// Lines to read at most; as many as fit if left out.
    #[schemars(range(min = 1))]
    limit_lines: Option<u64>,
}

/// What a model can still take in.
const LIMIT_BYTES: usize = 256 * 1024;

impl Tool for ReadFile {
    const NAME: &str = "read_file";
    const EFFECT: Effect = Effect::Pure;

    fn run(self, _: &Call) -> Result<Output> {
        if self.limit_lines == Some(0) {
            return Err(Error::invalid("`limit_lines` is `0`; expected 1 or more"));
        }
        require_file("read", &self.path)?;
        let excerpt = File::open(&self.path)
            .and_then(|file| self.excerpt(BufReader::new(file), LIMIT_BYTES))
            .map_err(|error| refused("read", &self.path, error))?;
        self.to_text(excerpt).map(Output::text)
    }
}

/// A part of a file: whole lines, but for one that alone is longer than the limit.
#[derive(Debug, PartialEq)]
struct Excerpt {
    bytes: Vec<u8>,
    /// Lines after the offset that are in `bytes`, the last one perhaps in part.
    lines: u64,
    /// Lines of the whole file.
    total_lines: u64,
    /// The last line in `bytes` goes on.
    is_line_cut: bool,
}

impl ReadFile {
    /// Reads to the end, to be able to say how long the file is, but keeps no more than `limit_bytes`.
    fn excerpt(&self, mut reader: impl BufRead, limit_bytes: usize) -> io::Result<Excerpt> {
        let mut found = Excerpt { bytes: Vec::new(), lines: 0, total_lines: 0, is_line_cut: false };
        let end = self.limit_lines.map_or(u64::MAX, |limit| self.offset_lines.saturating_add(limit));
        let mut is_full = false;
        let mut is_line_begun = false;
        // Where the line that is being kept began.
        let mut line_start = 0;
        loop {
            let chunk = reader.fill_buf()?;
            if chunk.is_empty() {
                break;
            }
            for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
                if !is_line_begun {
                    found.total_lines += 1;
                    line_start = found.bytes.len();
                }
                let is_wanted = found.total_lines > self.offset_lines && found.total_lines <= end;
                if is_wanted && !is_full {
                    if !is_line_begun {
                        found.lines += 1;
                    }
                    let room = limit_bytes - found.bytes.len();
                    found.bytes.extend_from_slice(&piece[..piece.len().min(room)]);
                    if piece.len() > room {
                        is_full = true;
                        if found.lines > 1 {
                            found.bytes.truncate(line_start);
                            found.lines -= 1;
                        } else {
                            found.is_line_cut = true;
                        }
                    }
                }
                is_line_begun = !piece.ends_with(b"\n");
            }
            let read = chunk.len();
            reader.consume(read);
        }
        Ok(found)
    }

    fn to_text(&self, mut excerpt: Excerpt) -> Result<String> {
        let total = excerpt.total_lines;
        if self.offset_lines > 0 && self.offset_lines >= total {
            return Err(Error::invalid(format!(
                "failed to read `{}`: `offset_lines` is {}, and it has {total} lines",
                self.path, self.offset_lines
            )));
        }
        if excerpt.is_line_cut {
            drop_torn_character(&mut excerpt.bytes);
        }
        let mut text = require_text("read", &self.path, excerpt.bytes)?;
        let last = self.offset_lines + excerpt.lines;
        let note = if excerpt.is_line_cut {
            let kept = count(text.len(), "byte");
            format!("[cut: line {last} of {total} goes on after {kept}; `search` shows parts of a file]\n")
        } else if last < total {
            let first = self.offset_lines + 1;
            format!("[lines {first} to {last} of {total}; read on with `offset_lines` {last}]\n")
        } else {
            return Ok(text);
        };
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&note);
        Ok(text)
    }
}

/// A cut after so many bytes may be in the middle of a character, which has four at most.
fn drop_torn_character(bytes: &mut Vec<u8>) {
    if let Err(error) = str::from_utf8(bytes)
        && error.error_len().is_none()
    {
        bytes.truncate(error.valid_up_to());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(
        content: &str,
        offset_lines: u64,
        limit_lines: Option<u64>,
        limit_bytes: usize,
    ) -> Result<String> {
        let tool = ReadFile { path: "a.txt".into(), offset_lines, limit_lines };
        // A buffer of three bytes: lines come in pieces.
        let excerpt = tool.excerpt(BufReader::with_capacity(3, content.as_bytes()), limit_bytes).unwrap();
        tool.to_text(excerpt)
    }

    #[test]
    fn a_whole_file_is_its_text() {
        for content in ["", "one", "one\n", "one\ntwo\nthree", "\n\n"] {
            assert_eq!(read(content, 0, None, 100).unwrap(), content);
        }
    }

    #[test]
    fn a_part_says_where_to_read_on() {
        assert_eq!(
            read("one\ntwo\nthree\n", 1, Some(1), 100).unwrap(),
            "two\n[lines 2 to 2 of 3; read on with `offset_lines` 2]\n"
        );
        assert_eq!(read("one\ntwo\nthree\n", 1, Some(2), 100).unwrap(), "two\nthree\n");
        assert!(read("one\n", 1, None, 100).unwrap_err().message.contains("it has 1 lines"));
    }

    #[test]
    fn a_long_file_is_cut_after_a_whole_line() {
        assert_eq!(
            read("one\ntwo\nthree\n", 0, None, 9).unwrap(),
            "one\ntwo\n[lines 1 to 2 of 3; read on with `offset_lines` 2]\n"
        );
    }

    #[test]
    fn a_long_line_is_cut_before_a_torn_character() {
        let text = read("aaa\u{e9}\u{e9}\nx\n", 0, None, 6).unwrap();
        assert!(text.starts_with("aaa\u{e9}\n[cut: line 1 of 2 goes on after 5 bytes"), "{text}");
    }

    #[test]
    fn what_is_no_text_is_refused() {
        let tool = ReadFile { path: "a.bin".into(), offset_lines: 0, limit_lines: None };
        let excerpt = tool.excerpt(&b"ab\xff\n"[..], 100).unwrap();
        assert_eq!(
            tool.to_text(excerpt).unwrap_err().message,
            "failed to read `a.bin`: it is no UTF-8 text (from byte 2 on)"
        );
    }
}
