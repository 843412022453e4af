//! Where time and randomness come from. Handed in, so that a test owns both.

/// A wall clock.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970-01-01T00:00:00Z.
    fn now_ms(&self) -> u64;
}

/// A source of randomness for identifiers.
pub trait Entropy: Send + Sync {
    /// Fill `bytes`.
    fn fill(&self, bytes: &mut [u8]);

    /// Sixteen random bytes: an identifier.
    fn id(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        bytes
    }
}
