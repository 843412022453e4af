//! Frames: a length and as many bytes, sent and received within a time.
//!
//! Nothing is allocated by what the other side announces, only by what it sends, and never more than the limit of the
//! frame. The first frame of each side has one form in every version, so that versions can tell each other apart.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The version of everything but the first frame of each side.
pub(super) const VERSION: u32 = 1;

/// How the first frame begins; the version follows, big endian.
const MAGIC: &[u8; 9] = b"deed live";

/// A first frame; one of another version may be longer.
pub(super) const HELLO_BYTES: usize = 64;

const LENGTH_BYTES: usize = 4;

/// Received at a time: memory grows by what came, not by what was announced.
const STEP_BYTES: usize = 256 << 10;

/// One side of a connection.
#[derive(Debug)]
pub(super) struct Channel {
    stream: UnixStream,
}

impl Channel {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream }
    }

    /// Send a frame whole within `within`.
    pub(super) fn send(&self, payload: &[u8], within: Duration) -> io::Result<()> {
        let until = Instant::now() + within;
        let length = u32::try_from(payload.len())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a frame is too long"))?;
        // Small frames, which are most, leave in one write.
        let first = &payload[..payload.len().min(STEP_BYTES)];
        let mut head = Vec::with_capacity(LENGTH_BYTES + first.len());
        head.extend_from_slice(&length.to_be_bytes());
        head.extend_from_slice(first);
        self.write(&head, until)?;
        self.write(&payload[first.len()..], until)
    }

    fn write(&self, mut bytes: &[u8], until: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            self.stream.set_write_timeout(Some(left(until)?))?;
            match (&self.stream).write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(in_time(error)),
            }
        }
        Ok(())
    }

    /// Receive a frame of at most `limit` bytes, whole within `within`; none when the other side has closed instead.
    pub(super) fn receive(&self, limit: usize, within: Duration) -> io::Result<Option<Vec<u8>>> {
        let until = Instant::now() + within;
        let mut length = [0; LENGTH_BYTES];
        match self.fill(&mut length, until)? {
            0 => return Ok(None),
            LENGTH_BYTES => {}
            _ => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > limit {
            let words = format!("a frame of {length} bytes, where at most {limit} are taken");
            return Err(io::Error::new(io::ErrorKind::InvalidData, words));
        }
        let mut payload = Vec::new();
        while payload.len() < length {
            let begun = payload.len();
            payload.resize(length.min(begun + STEP_BYTES), 0);
            if self.fill(&mut payload[begun..], until)? < payload.len() - begun {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(Some(payload))
    }

    /// Read until `buffer` is full or the other side has closed. Returns how much came.
    fn fill(&self, buffer: &mut [u8], until: Instant) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            self.stream.set_read_timeout(Some(left(until)?))?;
            match (&self.stream).read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(in_time(error)),
            }
        }
        Ok(filled)
    }

    /// Say which version this side speaks.
    pub(super) fn send_hello(&self, within: Duration) -> io::Result<()> {
        self.send(&hello(VERSION), within)
    }

    /// Hear which version the other side speaks.
    pub(super) fn receive_hello(&self, within: Duration) -> io::Result<u32> {
        let stranger = || io::Error::new(io::ErrorKind::InvalidData, "the other side is no deed");
        let hello = self.receive(HELLO_BYTES, within)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let version = hello.strip_prefix(MAGIC).and_then(|rest| rest.first_chunk()).ok_or_else(stranger)?;
        Ok(u32::from_be_bytes(*version))
    }

    /// No more goes in either direction.
    pub(super) fn close(&self) {
        // An error means that it is closed already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// The first frame of a side that speaks `version`.
fn hello(version: u32) -> Vec<u8> {
    [&MAGIC[..], &version.to_be_bytes()].concat()
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The system's word for a time that ran out is another one.
fn in_time(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}
