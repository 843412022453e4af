//! What a medium holds, told before the store is let at it.

use std::io;

use crate::medium::Medium;

/// What every redb file begins with. redb writes it last when it creates a store.
const MAGIC: &[u8; 9] = b"redb\x1a\x0a\xa9\x0d\x0a";

/// Of them, those that tell a store that is damaged from a file that is something else.
const MAGIC_NAME: usize = 4;

/// redb's header: all it has written when the creation of a store is cut short.
const HEADER_BYTES: usize = 320;

/// A store whose creation was cut short is no longer than this: redb begins with 64 KiB of pages, a page for its header and
/// one for what it knows of its regions. Anything longer that begins with zeros was in use.
const NEW_STORE_BYTES: u64 = (64 << 10) + 2 * 4096;

/// What a medium holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    Nothing,
    /// The beginning of a store that nobody has ever written to: a crash came in between.
    Unfinished,
    Store,
    SomethingElse,
}

impl Content {
    pub(super) fn of(medium: &dyn Medium) -> io::Result<Self> {
        let len = medium.len()?;
        let start = |bytes: u64| {
            let mut start = vec![0; usize::try_from(len.min(bytes)).expect("it is at most 72 KiB")];
            medium.read(0, &mut start).map(|()| start)
        };
        let found = start(MAGIC.len() as u64)?;
        if found.is_empty() {
            return Ok(Self::Nothing);
        }
        if found == MAGIC {
            return Ok(Self::Store);
        }
        let torn = found.iter().zip(MAGIC).all(|(found, magic)| found == magic || *found == 0);
        if torn && len <= NEW_STORE_BYTES && start(len)?.iter().skip(HEADER_BYTES).all(|byte| *byte == 0) {
            return Ok(Self::Unfinished);
        }
        // One that is damaged in the rest of its magic is left to redb, which says so.
        Ok(if found.starts_with(&MAGIC[..MAGIC_NAME]) { Self::Store } else { Self::SomethingElse })
    }
}
