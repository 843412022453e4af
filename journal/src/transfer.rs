//! Sessions as files: JSON Lines, one message a line.
//!
//! The first line says what the file is, the last one how many messages there are and the hash that the chain over them
//! ends in. A file that was cut or torn thus says so, and every whole message before the tear can be told from what
//! follows: its hash fits its text and the message before it.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use crate::commit::Op;
use crate::id::{Digest, SessionId};
use crate::session::{Base, Message, MessageBody};

/// The version in a file's first line. A file with a higher one is refused.
const FILE_VERSION: u32 = 1;

/// What the first line calls the file.
const FORMAT: &str = "deed-session";

/// How much of a reason is repeated: what a torn line holds may be anything.
const REASON_CHARS: usize = 200;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    format: String,
    version: u32,
    session: SessionId,
    head: String,
}

/// The last line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Closing {
    end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct End {
    count: u64,
    hash: Option<Digest>,
}

/// Write the branch of `session` that `head` names: its messages, first to last, as [`Reader`](crate::Reader) gives them.
pub fn export(session: SessionId, head: &str, messages: &[Message], out: &mut dyn Write) -> io::Result<()> {
    let header = Header { format: FORMAT.to_owned(), version: FILE_VERSION, session, head: head.to_owned() };
    line(out, &header)?;
    for message in messages {
        line(out, message)?;
    }
    let hash = messages.last().map(|message| message.hash);
    line(out, &Closing { end: End { count: messages.len() as u64, hash } })
}

fn line<T: Serialize>(out: &mut dyn Write, record: &T) -> io::Result<()> {
    let mut text = serde_json::to_vec(record)?;
    text.push(b'\n');
    out.write_all(&text)
}

/// Why a file cannot be imported at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// There is nothing in it.
    #[error("it is empty; expected an export of a session")]
    Empty,
    /// Its first line is not that of an export.
    #[error("it is no export of a session: {0}")]
    Foreign(String),
    /// A newer version of deed wrote it.
    #[error(
        "it has version {found}, and this version of deed reads up to {FILE_VERSION}; use the newer deed"
    )]
    Newer {
        /// Its version.
        found: u32,
    },
    /// It was cut before its first message, or its first message does not fit its hash.
    #[error("it holds no whole message: line {}: {}", .0.line, .0.reason)]
    NoMessage(Dropped),
}

/// What was not imported, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// The first line concerned, from 1.
    pub line: u64,
    /// So many lines, the last one perhaps without its end.
    pub lines: u64,
    /// So many bytes.
    pub bytes: u64,
    /// What is wrong with the first of them.
    pub reason: String,
}

/// A session as read from a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Import {
    /// The session that was exported.
    pub session: SessionId,
    /// The head that was exported.
    pub head: String,
    /// The messages up to the last whole one.
    pub messages: Vec<MessageBody>,
    /// The hash of the last one.
    pub hash: Option<Digest>,
    /// What follows it, unless the file is whole.
    pub dropped: Option<Dropped>,
}

impl Import {
    /// Read a file up to its last whole message. Each message must fit its hash, and follow the one before it.
    ///
    /// # Errors
    /// The file is something else, or holds no whole message. That of an empty session does, when it is whole.
    pub fn parse(file: &[u8]) -> Result<Self, ImportError> {
        let mut rest = Lines { rest: file, number: 0 };
        let first = rest.next().ok_or(ImportError::Empty)?;
        let foreign = |error: serde_json::Error| ImportError::Foreign(brief(&error.to_string()));
        // The version first: what else a newer one writes here, nobody knows.
        let format: Format = serde_json::from_slice(first).map_err(foreign)?;
        if format.format != FORMAT {
            return Err(ImportError::Foreign(format!("its format is `{}`", brief(&format.format))));
        }
        if format.version > FILE_VERSION {
            return Err(ImportError::Newer { found: format.version });
        }
        let header: Header = serde_json::from_slice(first).map_err(foreign)?;

        let mut chain = Chain::default();
        let dropped = loop {
            let here = rest.clone();
            match rest.next() {
                None => break Some(here.drop("the closing record is missing; there may have been more")),
                Some(text) => match chain.take(text) {
                    Ok(Taken::Message) => {}
                    Ok(Taken::Closing) => break rest.blank_or("more follows the closing record"),
                    Err(reason) => break Some(here.drop(&reason)),
                },
            }
        };
        match dropped {
            Some(dropped) if chain.messages.is_empty() => Err(ImportError::NoMessage(dropped)),
            dropped => Ok(Self {
                session: header.session,
                head: header.head,
                messages: chain.messages,
                hash: chain.hash,
                dropped,
            }),
        }
    }

    /// What makes it a session of its own: to be committed together.
    pub fn into_ops(self, session: SessionId, created_ms: u64) -> Vec<Op> {
        let base = Base { revision: 0, main: None };
        vec![Op::CreateSession { session, created_ms }, Op::Append { session, base, messages: self.messages }]
    }
}

/// What every version's first line begins with.
#[derive(Deserialize)]
struct Format {
    format: String,
    version: u32,
}

/// The messages so far.
#[derive(Default)]
struct Chain {
    messages: Vec<MessageBody>,
    last: Option<u64>,
    hash: Option<Digest>,
}

enum Taken {
    Message,
    Closing,
}

impl Chain {
    fn take(&mut self, text: &[u8]) -> Result<Taken, String> {
        if let Ok(Closing { end }) = serde_json::from_slice(text) {
            let found = End { count: self.messages.len() as u64, hash: self.hash };
            if end.count != found.count {
                return Err(format!(
                    "the closing record counts {} messages, and {} are there",
                    end.count, found.count
                ));
            }
            return if end == found {
                Ok(Taken::Closing)
            } else {
                Err("the closing record has another hash than the last message".to_owned())
            };
        }
        let message: Message = serde_json::from_slice(text)
            .map_err(|error| format!("it is no whole record: {}", brief(&error.to_string())))?;
        if message.parent != self.last {
            return Err(format!("message {} does not follow the one before it", message.id));
        }
        if message.hash != Message::chain(self.hash.as_ref(), &message.body) {
            return Err(format!("message {} does not fit its hash", message.id));
        }
        self.last = Some(message.id);
        self.hash = Some(message.hash);
        self.messages.push(message.body);
        Ok(Taken::Message)
    }
}

/// Lines, and where they are. A last line without its end is one.
#[derive(Clone)]
struct Lines<'a> {
    rest: &'a [u8],
    number: u64,
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let end = self.rest.iter().position(|byte| *byte == b'\n').map_or(self.rest.len(), |at| at + 1);
        let (line, rest) = self.rest.split_at(end);
        self.rest = rest;
        self.number += 1;
        Some(line)
    }
}

impl Lines<'_> {
    /// All that is left goes.
    fn drop(self, reason: &str) -> Dropped {
        Dropped {
            line: self.number + 1,
            bytes: self.rest.len() as u64,
            lines: self.count() as u64,
            reason: reason.to_owned(),
        }
    }

    /// Nothing goes if nothing is left that can be seen.
    fn blank_or(self, reason: &str) -> Option<Dropped> {
        let blank = self.rest.iter().all(u8::is_ascii_whitespace);
        (!blank).then(|| self.drop(reason))
    }
}

fn brief(text: &str) -> String {
    text.chars().take(REASON_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::session::{Role, Session, ToolCall, ToolResult};

    const SESSION: SessionId = SessionId::from_bytes([5; 16]);

    fn bodies() -> Vec<MessageBody> {
        let call =
            ToolCall { id: "1".into(), tool: "t".into(), input: json!({ "x": [1, "ü\n"], "y": null }) };
        let result = ToolResult { call: "1".into(), tool: "t".into(), ok: false, text: "no\n".into() };
        vec![
            MessageBody::text(Role::System, "be\nbrief"),
            MessageBody { calls: vec![call], ..MessageBody::text(Role::Assistant, "") },
            MessageBody::tool_result(result),
        ]
    }

    fn exported(bodies: &[MessageBody]) -> (Vec<Message>, Vec<u8>) {
        let messages = Session::new(SESSION, None, 0).extend(bodies);
        let mut file = Vec::new();
        export(SESSION, "main", &messages, &mut file).unwrap();
        (messages, file)
    }

    fn imported(import: &Import) -> Vec<Message> {
        Session::new(SessionId::from_bytes([6; 16]), None, 9).extend(&import.messages)
    }

    #[test]
    fn a_session_comes_back_with_its_hashes_whatever_branch_it_was() {
        let (messages, file) = exported(&bodies());
        let import = Import::parse(&file).unwrap();
        assert_eq!((import.session, import.head.as_str(), &import.dropped), (SESSION, "main", &None));
        assert_eq!(imported(&import), messages);
        assert_eq!(import.hash, Some(messages[2].hash));

        // A branch whose messages are not numbered in a row.
        let mut session = Session::new(SESSION, None, 0);
        session.extend(&bodies());
        let fork = session.main;
        session.extend(&bodies()[..1]);
        let (tail, _) = session.branch(fork, &bodies()[..2]);
        let branch = [&messages[..], &tail].concat();
        let mut file = Vec::new();
        export(SESSION, "fork", &branch, &mut file).unwrap();
        let import = Import::parse(&file).unwrap();
        assert_eq!(import.dropped, None);
        let hashes = |messages: &[Message]| messages.iter().map(|message| message.hash).collect::<Vec<_>>();
        assert_eq!(hashes(&imported(&import)), hashes(&branch));
    }

    #[test]
    fn an_empty_session_comes_back_empty() {
        let (_, file) = exported(&[]);
        let import = Import::parse(&file).unwrap();
        assert_eq!((import.messages.len(), import.hash, import.dropped), (0, None, None));
    }

    /// Read fast, one double in six comes back as its neighbour, and no hash over it fits. The feature
    /// `float_roundtrip` of `serde_json` has it read exactly.
    #[test]
    fn numbers_come_back_as_they_were() {
        let numbers: Vec<f64> = (0..20_000).map(|n| f64::from(n) * 1.1 / 1000.0).collect();
        let call = ToolCall { id: "1".into(), tool: "t".into(), input: json!(numbers) };
        let body = MessageBody { calls: vec![call], ..MessageBody::text(Role::Assistant, "") };
        let (_, file) = exported(std::slice::from_ref(&body));
        assert_eq!(Import::parse(&file).unwrap().messages, [body]);
    }

    #[test]
    fn a10_a_file_cut_at_any_byte_gives_the_messages_that_are_whole() {
        let (messages, file) = exported(&bodies());
        // Where each line ends, its line feed not counted: what is whole without it is whole.
        let ends: Vec<usize> =
            file.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).collect();
        for cut in 0..file.len() {
            let whole = ends[1..=messages.len()].iter().filter(|end| **end <= cut).count();
            match Import::parse(&file[..cut]) {
                Ok(import) => {
                    assert!(whole > 0, "cut at {cut}");
                    assert_eq!(imported(&import), messages[..whole], "cut at {cut}");
                    let Some(dropped) = import.dropped else {
                        assert_eq!(cut, file.len() - 1, "only the last line feed may go unmissed");
                        continue;
                    };
                    let good = (ends[whole] + 1).min(cut);
                    assert_eq!(dropped.bytes, (cut - good) as u64, "cut at {cut}");
                    assert_eq!(dropped.lines, u64::from(cut > good), "cut at {cut}");
                    assert_eq!(dropped.line, whole as u64 + 2, "cut at {cut}");
                }
                Err(error) => {
                    assert_eq!(whole, 0, "cut at {cut}: {error}");
                    let expected = match cut {
                        0 => "it is empty",
                        cut if cut < ends[0] => "it is no export of a session",
                        _ => "it holds no whole message: line 2",
                    };
                    assert!(error.to_string().starts_with(expected), "cut at {cut}: {error}");
                }
            }
        }
    }

    #[test]
    fn a10_a_tail_of_zeros_or_garbage_is_dropped_and_reported() {
        let (messages, file) = exported(&bodies());
        let third = file.len() - 100;
        for filling in [0_u8, 0xff, b'\n', b'{'] {
            let mut torn = file.clone();
            torn[third..].fill(filling);
            let import = Import::parse(&torn).unwrap();
            let kept = import.messages.len();
            assert_eq!(imported(&import), messages[..kept]);
            assert!(import.dropped.unwrap().reason.starts_with("it is no whole record"), "{filling}");
        }
    }

    #[test]
    fn every_flipped_bit_of_a_message_ends_the_good_prefix() {
        let (messages, file) = exported(&bodies());
        let ends: Vec<usize> =
            file.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).collect();
        for bit in (ends[0] + 1) * 8..file.len() * 8 {
            let mut flipped = file.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let before = ends[1..].iter().filter(|end| **end < bit / 8).count().min(messages.len());
            match Import::parse(&flipped) {
                Ok(import) => {
                    let kept = imported(&import);
                    let same = |(a, b): (&Message, &Message)| a.body == b.body;
                    assert!(
                        kept.len() <= messages.len() && kept.iter().zip(&messages).all(same),
                        "bit {bit}"
                    );
                    assert!(kept.len() >= before, "bit {bit}");
                }
                Err(ImportError::NoMessage(_)) => assert_eq!(before, 0, "bit {bit}"),
                Err(error) => panic!("bit {bit}: {error}"),
            }
        }
    }

    #[test]
    fn a_lost_line_and_a_line_too_many_are_noticed() {
        let (_, file) = exported(&bodies());
        let lines: Vec<&[u8]> = file.split_inclusive(|byte| *byte == b'\n').collect();
        let reason = |lines: &[&[u8]]| {
            let import = Import::parse(&lines.concat()).unwrap();
            let dropped = import.dropped.unwrap();
            (import.messages.len(), dropped.line, dropped.lines, dropped.reason)
        };
        let (header, one, two, three, end) = (lines[0], lines[1], lines[2], lines[3], lines[4]);
        assert_eq!(
            reason(&[header, one, three, end]),
            (1, 3, 2, "message 3 does not follow the one before it".to_owned())
        );
        assert_eq!(
            reason(&[header, one, two, end]),
            (2, 4, 1, "the closing record counts 3 messages, and 2 are there".to_owned())
        );
        assert_eq!(
            reason(&[header, one, two, three, end, one]),
            (3, 6, 1, "more follows the closing record".to_owned())
        );
        let import = Import::parse(&[header, one, two, three, end, b"\n \r\n"].concat()).unwrap();
        assert_eq!((import.messages.len(), import.dropped), (3, None));
    }

    #[test]
    fn a_foreign_and_a_newer_file_are_refused() {
        for foreign in ["hello\n", "{}\n", "{\"format\":\"other\",\"version\":1}\n", "\u{0}\u{0}"] {
            assert!(matches!(Import::parse(foreign.as_bytes()), Err(ImportError::Foreign(_))), "{foreign}");
        }
        let newer = b"{\"format\":\"deed-session\",\"version\":2,\"new\":true}\n";
        assert_eq!(Import::parse(newer), Err(ImportError::Newer { found: 2 }));
        assert_eq!(Import::parse(b""), Err(ImportError::Empty));
    }
}
