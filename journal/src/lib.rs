//! A crash-safe journal.
